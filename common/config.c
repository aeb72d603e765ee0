#include "common/config.h"
#include "common/buffer.h"
#include "common/memory.h"
#include <arpa/inet.h>
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct config_option common_options[] = {
#define OPTION(kind, field, flag, fallback, argument, help)                                                            \
    {CONFIG_##kind, offsetof(struct config_common, field), flag, fallback, argument, help},
#include "common/config.def"
#undef OPTION
};
enum { COMMON_COUNT = sizeof common_options / sizeof common_options[0] };

// Variables that other programs set too, so that one line in a compose file serves all of them.
static const char *const plain_variables[] = {"database-url", "direct-database-url", "redis-url"};

// The program's own options first, then those that all have: also the order of --help.
static const struct config_option *option_at(const struct config_program *program, size_t index) {
    return index < program->option_count ? &program->options[index] : &common_options[index - program->option_count];
}

static size_t option_total(const struct config_program *program) {
    return program->option_count + COMMON_COUNT;
}

static const struct config_option *option_find(const struct config_program *program, const char *flag, size_t length) {
    for (size_t i = 0; i < option_total(program); i++) {
        const struct config_option *option = option_at(program, i);
        if (strlen(option->flag) == length && memcmp(option->flag, flag, length) == 0)
            return option;
    }
    return NULL;
}

enum { VARIABLE_SIZE = 80 };

static void variable_name(const struct config_option *option, const char *prefix, char ret_name[VARIABLE_SIZE]) {
    int length = snprintf(ret_name, VARIABLE_SIZE, "%s%s", prefix, option->flag);
    assert(length > 0 && length < VARIABLE_SIZE);
    for (char *c = ret_name; *c != '\0'; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

static bool has_plain_variable(const struct config_option *option) {
    for (size_t i = 0; i < sizeof plain_variables / sizeof plain_variables[0]; i++)
        if (strcmp(plain_variables[i], option->flag) == 0)
            return true;
    return false;
}

// An empty variable counts as unset: compose files pass `${REDIS_URL:-}` on.
static const char *variable_value(const struct config_option *option, char ret_name[VARIABLE_SIZE]) {
    static const char *const prefixes[] = {"ROWBELL_", ""};
    for (size_t i = 0; i < (has_plain_variable(option) ? 2 : 1); i++) {
        variable_name(option, prefixes[i], ret_name);
        const char *value = getenv(ret_name);
        if (value != NULL && value[0] != '\0')
            return value;
    }
    return NULL;
}

// How a bad value is named in an error. URLs and connection strings hold passwords, and anything may be put behind the
// wrong flag by mistake: only a short word without the marks of either is repeated.
static const char *shown(const char *value, char *ret_shown, size_t size) {
    static const char *const marks[] = {"@", "://", "pass", "secret", "key", "token", "whsec"};
    if (strlen(value) > 40)
        return "the value given";
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        if (strcasestr(value, marks[i]) != NULL)
            return "the value given";
    snprintf(ret_shown, size, "\"%s\"", value);
    return ret_shown;
}

static bool parse_int(const char *text, long *ret_value, struct error *ret_error) {
    char text_shown[64];
    char *end = NULL;
    errno = 0;
    long value = isdigit((unsigned char)text[0]) ? strtol(text, &end, 10) : -1;
    if (value < 0 || *end != '\0')
        return error_set(ret_error, ERROR_USAGE, "%s is not a whole number",
                         shown(text, text_shown, sizeof text_shown));
    if (errno == ERANGE || value > INT32_MAX)
        return error_set(ret_error, ERROR_USAGE, "%s is more than %d", shown(text, text_shown, sizeof text_shown),
                         INT32_MAX);
    *ret_value = value;
    return true;
}

static bool parse_flag(const char *text, bool *ret_value, struct error *ret_error) {
    static const struct {
        const char *text;
        bool value;
    } words[] = {{"true", true},   {"1", true},  {"yes", true}, {"on", true},
                 {"false", false}, {"0", false}, {"no", false}, {"off", false}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcasecmp(words[i].text, text) == 0) {
            *ret_value = words[i].value;
            return true;
        }
    }
    char text_shown[64];
    return error_set(ret_error, ERROR_USAGE, "%s is neither true nor false",
                     shown(text, text_shown, sizeof text_shown));
}

bool config_parse_duration_ms(const char *text, long *ret_ms, struct error *ret_error) {
    static const struct {
        const char *unit;
        long ms;
    } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
    static const long most_ms = 3650L * 86400000;
    char text_shown[64];
    char *end = NULL;
    errno = 0;
    long value = isdigit((unsigned char)text[0]) ? strtol(text, &end, 10) : -1;
    for (size_t i = 0; value >= 0 && i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(units[i].unit, end) != 0)
            continue;
        if (errno == ERANGE || value > most_ms / units[i].ms)
            return error_set(ret_error, ERROR_USAGE, "%s is more than 3650d",
                             shown(text, text_shown, sizeof text_shown));
        *ret_ms = value * units[i].ms;
        return true;
    }
    return error_set(ret_error, ERROR_USAGE, "%s is not a duration such as 200ms, 5s, 1m, 24h or 7d",
                     shown(text, text_shown, sizeof text_shown));
}

bool config_parse_address(const char *text, char *ret_host, size_t host_size, int *ret_port, struct error *ret_error) {
    char text_shown[64];
    const char *colon = strrchr(text, ':');
    bool bracketed = text[0] == '[';
    const char *host = bracketed ? text + 1 : text;
    size_t length = colon == NULL ? 0 : (size_t)(colon - host);
    if (bracketed)
        length = length > 0 && colon[-1] == ']' ? length - 1 : 0;
    char copy[64];
    unsigned char address[16];
    if (colon != NULL && length > 0 && length < sizeof copy && length < host_size) {
        memcpy(copy, host, length);
        copy[length] = '\0';
        // Digits and an end: "+80", " 80" and "80x" are mistakes.
        char *end = NULL;
        long port = isdigit((unsigned char)colon[1]) && strlen(colon + 1) <= 5 ? strtol(colon + 1, &end, 10) : -1;
        if (port >= 0 && port <= 65535 && *end == '\0' &&
            inet_pton(bracketed ? AF_INET6 : AF_INET, copy, address) == 1) {
            memcpy(ret_host, copy, length + 1);
            *ret_port = (int)port;
            return true;
        }
    }
    return error_set(ret_error, ERROR_USAGE, "%s is not ADDRESS:PORT such as 127.0.0.1:8080 or [::1]:0",
                     shown(text, text_shown, sizeof text_shown));
}

// "logfmt|json": the argument itself says which values there are.
static bool is_choice(const struct config_option *option) {
    return option->kind == CONFIG_STRING && strchr(option->argument, '|') != NULL &&
           strspn(option->argument, "abcdefghijklmnopqrstuvwxyz|-") == strlen(option->argument);
}

static bool choice_has(const char *choices, const char *value) {
    size_t length = strlen(value);
    for (const char *at = choices; at != NULL; at = strchr(at, '|'), at = at == NULL ? NULL : at + 1)
        if (strcspn(at, "|") == length && memcmp(at, value, length) == 0)
            return length > 0;
    return false;
}

static void *field_of(void *config, const struct config_option *option) {
    return (char *)config + option->offset;
}

static void list_free(struct config_list *list) {
    free(list->items);
    *list = (struct config_list){0};
}

// One block: the pointers, then the text that they point into.
static void list_split(struct config_list *list, const char *text) {
    size_t most = 1;
    for (const char *c = text; *c != '\0'; c++)
        most += *c == ',';
    size_t length = strlen(text) + 1;
    list->items = memory_alloc(most * sizeof list->items[0] + length);
    char *copy = (char *)(list->items + most);
    memcpy(copy, text, length);
    char *rest = NULL;
    for (char *item = strtok_r(copy, ",", &rest); item != NULL; item = strtok_r(NULL, ",", &rest)) {
        item += strspn(item, " ");
        for (size_t end = strlen(item); end > 0 && item[end - 1] == ' ';)
            item[--end] = '\0';
        if (item[0] != '\0')
            list->items[list->count++] = item;
    }
}

static void list_add(struct config_list *list, const char *item) {
    list->items = memory_resize(list->items, list->count + 1, sizeof list->items[0]);
    list->items[list->count++] = item;
}

// Everything but lists.
static bool set_scalar(void *config, const struct config_option *option, const char *value, struct error *ret_error) {
    void *field = field_of(config, option);
    char value_shown[64];
    switch (option->kind) {
    case CONFIG_STRING:
        if (is_choice(option) && !choice_has(option->argument, value))
            return error_set(ret_error, ERROR_USAGE, "%s is none of %s", shown(value, value_shown, sizeof value_shown),
                             option->argument);
        *(const char **)field = value;
        return true;
    case CONFIG_INT:
        return parse_int(value, field, ret_error);
    case CONFIG_FLAG:
        return parse_flag(value, field, ret_error);
    case CONFIG_DURATION:
        return config_parse_duration_ms(value, field, ret_error);
    case CONFIG_LIST:
        break;
    }
    assert(false);
    return false;
}

static void set_zero(void *config, const struct config_option *option) {
    static const size_t sizes[] = {[CONFIG_STRING] = sizeof(CONFIG_TYPE_STRING),
                                   [CONFIG_INT] = sizeof(CONFIG_TYPE_INT),
                                   [CONFIG_FLAG] = sizeof(CONFIG_TYPE_FLAG),
                                   [CONFIG_DURATION] = sizeof(CONFIG_TYPE_DURATION),
                                   [CONFIG_LIST] = sizeof(CONFIG_TYPE_LIST)};
    memset(field_of(config, option), 0, sizes[option->kind]);
}

static bool set_from_variable(void *config, const struct config_option *option, struct error *ret_error) {
    char name[VARIABLE_SIZE];
    const char *value = variable_value(option, name);
    const char *source = value != NULL ? name : "default";
    if (value == NULL)
        value = option->fallback;
    if (value == NULL)
        return true;
    if (option->kind == CONFIG_LIST) {
        list_split(field_of(config, option), value);
        return true;
    }
    return set_scalar(config, option, value, ret_error) || error_wrap(ret_error, "%s", source);
}

static bool set_from_flags(const struct config_program *program, int argc, char **argv, void *config,
                           struct error *ret_error) {
    bool *seen = memory_alloc(option_total(program) * sizeof *seen);
    bool ok = false;
    for (int i = 1; i < argc; i++) {
        const char *flag = argv[i];
        char flag_shown[64];
        if (strncmp(flag, "--", 2) != 0 || flag[2] == '\0') {
            error_set(ret_error, ERROR_USAGE, "argument %d (%s) belongs to no flag; see %s --help", i,
                      shown(flag, flag_shown, sizeof flag_shown), program->name);
            goto done;
        }
        flag += 2;
        size_t length = strcspn(flag, "=");
        const struct config_option *option = option_find(program, flag, length);
        if (option == NULL) {
            bool is_word = strspn(flag, "abcdefghijklmnopqrstuvwxyz0123456789-") == length && length <= 40;
            error_set(ret_error, ERROR_USAGE, "unknown flag --%.*s; see %s --help", is_word ? (int)length : 0, flag,
                      program->name);
            goto done;
        }
        const char *value = flag[length] == '=' ? flag + length + 1 : NULL;
        if (value == NULL && option->kind == CONFIG_FLAG)
            value = "true";
        if (value == NULL && i + 1 < argc && strncmp(argv[i + 1], "--", 2) != 0)
            value = argv[++i];
        if (value == NULL) {
            error_set(ret_error, ERROR_USAGE, "--%s needs a value: %s", option->flag, option->argument);
            goto done;
        }
        if (option->kind == CONFIG_LIST) {
            size_t index = 0;
            while (option_at(program, index) != option)
                index++;
            // A flag wins over the variable and the default; only flags add up.
            if (!seen[index])
                list_free(field_of(config, option));
            seen[index] = true;
            list_add(field_of(config, option), value);
        } else if (!set_scalar(config, option, value, ret_error)) {
            error_wrap(ret_error, "--%s", option->flag);
            goto done;
        }
    }
    ok = true;
done:
    free(seen);
    return ok;
}

enum { HELP_COLUMNS = 100 };

// Text in lines of at most HELP_COLUMNS, each indented by `indent` spaces; the first continues at `column`.
static void help_wrap(struct buffer *out, const char *text, int column, int indent) {
    bool first = true;
    while (*text != '\0') {
        size_t length = strcspn(text, " \n");
        if (!first && column + 1 + (int)length > HELP_COLUMNS) {
            buffer_format(out, "\n%*s", indent, "");
            column = indent;
            first = true;
        }
        if (!first) {
            buffer_char(out, ' ');
            column++;
        }
        buffer_append(out, text, length);
        column += (int)length;
        first = false;
        text += length;
        text += strspn(text, " \n");
    }
    buffer_char(out, '\n');
}

static void help_flag(const struct config_option *option, struct buffer *ret_text) {
    buffer_format(ret_text, "  --%s", option->flag);
    if (option->kind != CONFIG_FLAG)
        buffer_format(ret_text, " %s", option->argument);
}

static void help_option(struct buffer *out, const struct config_option *option, int indent) {
    struct buffer text = {0};
    help_flag(option, &text);
    int width = (int)text.length;
    buffer_append(out, text.bytes, text.length);
    if (width + 2 > indent) {
        buffer_char(out, '\n');
        width = 0;
    }
    buffer_format(out, "%*s", indent - width, "");
    buffer_clear(&text);
    buffer_text(&text, option->help);
    if (option->kind == CONFIG_LIST)
        buffer_text(&text, " (may be repeated; separated by commas in the variable)");
    buffer_text(&text, " [");
    if (option->fallback != NULL && option->kind != CONFIG_FLAG)
        buffer_format(&text, "default %s; ", option->fallback);
    char name[VARIABLE_SIZE];
    variable_name(option, "ROWBELL_", name);
    buffer_text(&text, name);
    if (has_plain_variable(option)) {
        variable_name(option, "", name);
        buffer_format(&text, " or %s", name);
    }
    buffer_char(&text, ']');
    help_wrap(out, text.bytes, indent, indent);
    buffer_free(&text);
}

static void help_write(const struct config_program *program, struct buffer *out) {
    enum { WIDEST = 36 };
    int indent = 0;
    for (size_t i = 0; i < option_total(program); i++) {
        struct buffer text = {0};
        help_flag(option_at(program, i), &text);
        int width = (int)text.length + 2;
        if (width > indent && width <= WIDEST)
            indent = width;
        buffer_free(&text);
    }
    struct buffer summary = {0};
    buffer_format(&summary, "%s: %s", program->name, program->summary);
    help_wrap(out, summary.bytes, 0, 0);
    buffer_free(&summary);
    buffer_format(out, "\nUsage: %s [--flag VALUE | --flag=VALUE]...\n\n", program->name);
    for (size_t i = 0; i < option_total(program); i++)
        help_option(out, option_at(program, i), indent);
    buffer_format(out, "%-*sthis text\n%-*sthe version\n\n", indent, "  --help", indent, "  --version");
    help_wrap(
        out,
        "Each flag can be given by the variable in brackets instead; a flag wins, and an empty variable counts as "
        "not set. Durations are a number and a unit: 200ms, 5s, 1m, 24h, 7d.",
        0, 0);
    buffer_text(out, "\nExit status:\n"
                     "  0  ended as it was told to\n"
                     "  1  failed\n"
                     "  2  a flag or a variable is wrong\n"
                     "  3  the database cannot be reached, or refuses the login\n"
                     "  4  the schema is missing or does not fit: run `rowbell migrate`\n");
    buffer_format(out, "\nExample:\n  %s --database-url postgres://rowbell@127.0.0.1/app --log-format json\n",
                  program->name);
}

// --help and --version are answered whatever else is wrong.
static bool wants(int argc, char **argv, const char *flag) {
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], flag) == 0)
            return true;
    return false;
}

bool config_parse(const struct config_program *program, int argc, char **argv, void *config, bool *ret_exit,
                  struct error *ret_error) {
    *ret_exit = false;
    for (size_t i = 0; i < option_total(program); i++)
        set_zero(config, option_at(program, i));
    if (wants(argc, argv, "--help")) {
        struct buffer help = {0};
        help_write(program, &help);
        fputs(buffer_cstr(&help), stdout);
        fflush(stdout);
        buffer_free(&help);
        *ret_exit = true;
        return true;
    }
    if (wants(argc, argv, "--version")) {
        printf("%s %s\n", program->name, ROWBELL_VERSION);
        fflush(stdout);
        *ret_exit = true;
        return true;
    }
    for (size_t i = 0; i < option_total(program); i++)
        if (!set_from_variable(config, option_at(program, i), ret_error))
            goto failed;
    if (!set_from_flags(program, argc, argv, config, ret_error))
        goto failed;
    return true;
failed:
    config_free(program, config);
    return false;
}

void config_free(const struct config_program *program, void *config) {
    for (size_t i = 0; i < option_total(program); i++)
        if (option_at(program, i)->kind == CONFIG_LIST)
            list_free(field_of(config, option_at(program, i)));
}
