#include "cli/arguments.h"
#include "common/memory.h"
#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OPTIONS = 32, MAX_WORDS = 4, FIRST_VALUE = 1000 };

const struct command_option arguments_global_options[] = {
    {"database-url", "URL", "PostgreSQL to work on; else ROWBELL_DATABASE_URL or DATABASE_URL"},
    {"json", NULL, "write JSON for programs instead of text for people"},
    {"help", NULL, "say what the command does and takes"},
    {"version", NULL, "print the version"},
    {0},
};

static const struct command_option no_options[] = {{0}};

static const struct command_option *options_of(const struct command *command) {
    return command != NULL && command->options != NULL ? command->options : no_options;
}

// getopt_long's table, made from ours: the value of the nth option is FIRST_VALUE + n.
struct long_options {
    struct option table[MAX_OPTIONS];
    const struct command_option *options[MAX_OPTIONS];
    int count;
};

static void long_options_add(struct long_options *all, const struct command_option *options) {
    for (; options->flag != NULL; options++) {
        assert(all->count < MAX_OPTIONS - 1);
        all->table[all->count] = (struct option){
            .name = options->flag,
            .has_arg = options->argument != NULL ? required_argument : no_argument,
            .val = FIRST_VALUE + all->count,
        };
        all->options[all->count++] = options;
    }
}

static bool is(const struct command_option *option, const char *flag) {
    return strcmp(option->flag, flag) == 0;
}

// Reads options from argv[first] on. `stop_early`: until the first word that is no option, else to the end (getopt
// moves the words behind the options). The index of the first word is left in optind.
static bool read_options(struct cli *cli, const struct command *command, int argc, char **argv, bool stop_early,
                         struct error *ret_error) {
    struct long_options all = {0};
    long_options_add(&all, arguments_global_options);
    long_options_add(&all, options_of(command));
    const char *space = command != NULL ? " " : "";
    const char *path = command != NULL ? command->path : "";

    optind = 0;
    opterr = 0;
    int found;
    while ((found = getopt_long(argc, argv, stop_early ? "+:" : ":", all.table, NULL)) != -1) {
        if (found == '?' && optopt >= FIRST_VALUE)
            return error_set(ret_error, ERROR_USAGE, "--%s takes no value: see rowbell%s%s --help",
                             all.options[optopt - FIRST_VALUE]->flag, space, path);
        if (found == ':' && optopt >= FIRST_VALUE)
            return error_set(ret_error, ERROR_USAGE, "--%s needs a value (%s): see rowbell%s%s --help",
                             all.options[optopt - FIRST_VALUE]->flag, all.options[optopt - FIRST_VALUE]->argument,
                             space, path);
        if (found == '?' || found == ':') {
            if (optopt != 0)
                return error_set(ret_error, ERROR_USAGE, "unknown flag -%c: see rowbell%s%s --help", optopt, space,
                                 path);
            return error_set(ret_error, ERROR_USAGE, "unknown flag %s: see rowbell%s%s --help", argv[optind - 1], space,
                             path);
        }
        const struct command_option *option = all.options[found - FIRST_VALUE];
        cli->given[cli->given_count++] = (struct given_option){option, optarg};
        cli->json |= is(option, "json");
    }
    return true;
}

static const struct given_option *last_given(const struct cli *cli, const char *flag) {
    for (int i = cli->given_count - 1; i >= 0; i--)
        if (is(cli->given[i].option, flag))
            return &cli->given[i];
    return NULL;
}

// How many of the words make the path; 0 when it is another command.
static int path_words(const char *path, int count, char **words) {
    int used = 0;
    for (const char *at = path; *at != 0; used++) {
        size_t length = strcspn(at, " ");
        if (used == count || strlen(words[used]) != length || strncmp(words[used], at, length) != 0)
            return 0;
        at += length;
        at += strspn(at, " ");
    }
    return used;
}

static const struct command *find_command(const struct command *table, int count, char **words, int *ret_used) {
    const struct command *best = NULL;
    *ret_used = 0;
    for (const struct command *command = table; command->path != NULL; command++) {
        int used = path_words(command->path, count, words);
        if (used > *ret_used) {
            best = command;
            *ret_used = used;
        }
    }
    return best;
}

static bool in_group(const struct command *command, const char *prefix) {
    size_t length = strlen(prefix);
    return length == 0 || (strncmp(command->path, prefix, length) == 0 && strchr(" ", command->path[length]) != NULL);
}

// The longest beginning of the words that is the beginning of some command ("subscription"), for a helpful error.
static void find_group(const struct command *table, int count, char **words, char *ret_group, size_t size) {
    ret_group[0] = 0;
    for (int used = 1; used <= count && used <= MAX_WORDS; used++) {
        char prefix[100] = "";
        for (int i = 0; i < used; i++) {
            size_t length = strlen(prefix);
            snprintf(prefix + length, sizeof(prefix) - length, "%s%s", i > 0 ? " " : "", words[i]);
        }
        for (const struct command *command = table; command->path != NULL; command++)
            if (in_group(command, prefix))
                snprintf(ret_group, size, "%s", prefix);
    }
}

static bool unknown_command(const char *group, int count, char **words, struct error *ret_error) {
    if (count == 0)
        return error_set(ret_error, ERROR_USAGE, "no command given: see rowbell --help");
    if (group[0] != 0)
        return error_set(ret_error, ERROR_USAGE, "%s is not a whole command: see rowbell %s --help", group, group);
    return error_set(ret_error, ERROR_USAGE, "unknown command %s: see rowbell --help", words[0]);
}

bool arguments_parse(const struct command *table, int argc, char **argv, struct cli *cli, bool *ret_exit,
                     struct error *ret_error) {
    *ret_exit = false;
    cli->given = memory_alloc((size_t)argc * 2 * sizeof(*cli->given));
    if (!read_options(cli, NULL, argc, argv, true, ret_error))
        return false;
    char **words = argv + optind;
    int count = argc - optind;
    if (last_given(cli, "version") != NULL) {
        printf("rowbell %s\n", ROWBELL_VERSION);
        *ret_exit = true;
        return true;
    }
    bool help = last_given(cli, "help") != NULL;
    int used = 0;
    cli->command = find_command(table, count, words, &used);
    if (cli->command == NULL) {
        char group[100];
        find_group(table, count, words, group, sizeof(group));
        for (int i = 0; i < count; i++)
            help |= strcmp(words[i], "--help") == 0;
        if (!help || (count > 0 && group[0] == 0))
            return unknown_command(group, count, words, ret_error);
        arguments_print_tree(stdout, table, group);
        *ret_exit = true;
        return true;
    }
    // getopt skips its argv[0]: the last word of the command takes that place.
    char **rest = words + used - 1;
    int rest_count = count - used + 1;
    if (!read_options(cli, cli->command, rest_count, rest, false, ret_error))
        return false;
    if (last_given(cli, "help") != NULL) {
        arguments_print_command(stdout, cli->command);
        *ret_exit = true;
        return true;
    }
    cli->arguments = (const char *const *)rest + optind;
    cli->argument_count = rest_count - optind;
    if (cli->argument_count < cli->command->least)
        return error_set(ret_error, ERROR_USAGE, "%s needs %s: see rowbell %s --help", cli->command->path,
                         cli->command->arguments, cli->command->path);
    if (cli->argument_count > cli->command->most)
        return error_set(ret_error, ERROR_USAGE, "unexpected argument %s: see rowbell %s --help",
                         cli->arguments[cli->command->most], cli->command->path);
    return true;
}

static void print_options(FILE *file, const struct command_option *options) {
    for (; options->flag != NULL; options++) {
        char left[60];
        snprintf(left, sizeof(left), "--%s%s%s", options->flag, options->argument != NULL ? " " : "",
                 options->argument != NULL ? options->argument : "");
        fprintf(file, "  %-26s  %s\n", left, options->help);
    }
}

void arguments_print_tree(FILE *file, const struct command *table, const char *prefix) {
    if (prefix[0] == 0)
        fputs("rowbell: rings when a row changes\n\nUsage: rowbell COMMAND [ARGUMENTS] [FLAGS]\n\nCommands:\n", file);
    else
        fprintf(file, "Usage: rowbell %s COMMAND [ARGUMENTS] [FLAGS]\n\nCommands:\n", prefix);
    char group[100] = "";
    for (const struct command *command = table; command->path != NULL; command++) {
        if (!in_group(command, prefix))
            continue;
        // Commands of one group stand together in the table; its name is printed once, its members below it.
        const char *space = strchr(command->path, ' ');
        const char *name = command->path;
        int indent = 2;
        if (space != NULL) {
            size_t length = (size_t)(space - command->path);
            if (strlen(group) != length || strncmp(group, command->path, length) != 0) {
                snprintf(group, sizeof(group), "%.*s", (int)length, command->path);
                fprintf(file, "  %s\n", group);
            }
            name = space + 1;
            indent = 4;
        }
        char left[80];
        snprintf(left, sizeof(left), "%*s%s%s%s", indent, "", name, command->arguments[0] != 0 ? " " : "",
                 command->arguments);
        fprintf(file, "%-30s  %s\n", left, command->sentence);
    }
    fputs("\nFlags of every command:\n", file);
    print_options(file, arguments_global_options);
    fputs(
        "\nrowbell COMMAND --help lists a command's own flags.\n"
        "Exit status: 0 done, 1 failed, 2 wrong usage, 3 database or gateway unreachable, 4 schema missing or newer,\n"
        "5 doctor found problems.\n",
        file);
}

void arguments_print_command(FILE *file, const struct command *command) {
    fprintf(file, "Usage: rowbell %s%s%s [FLAGS]\n\n%s.\n\n", command->path, command->arguments[0] != 0 ? " " : "",
            command->arguments, command->sentence);
    if (options_of(command)->flag != NULL) {
        fputs("Flags:\n", file);
        print_options(file, options_of(command));
        fputs("\n", file);
    }
    fputs("Flags of every command:\n", file);
    print_options(file, arguments_global_options);
}

// Asserted by every reader below: a misspelt flag in our own code fails at its first use, not silently.
static bool flag_exists(const struct cli *cli, const char *flag) {
    for (const struct command_option *option = options_of(cli->command); option->flag != NULL; option++)
        if (is(option, flag))
            return true;
    for (const struct command_option *option = arguments_global_options; option->flag != NULL; option++)
        if (is(option, flag))
            return true;
    return false;
}

bool option_given(const struct cli *cli, const char *flag) {
    assert(flag_exists(cli, flag));
    return last_given(cli, flag) != NULL;
}

const char *option_value(const struct cli *cli, const char *flag) {
    assert(flag_exists(cli, flag));
    const struct given_option *given = last_given(cli, flag);
    return given != NULL ? given->value : NULL;
}

static bool each_part(const char *value, char separator, bool (*each)(void *arg, const char *value), void *arg) {
    if (separator == 0)
        return each(arg, value);
    char *copy = memory_copy_text(value);
    bool ok = true;
    for (char *part = copy; ok && part != NULL;) {
        char *end = strchr(part, separator);
        if (end != NULL)
            *end = 0;
        ok = each(arg, part);
        part = end != NULL ? end + 1 : NULL;
    }
    free(copy);
    return ok;
}

bool option_each(const struct cli *cli, const char *flag, char separator, bool (*each)(void *arg, const char *value),
                 void *arg) {
    assert(flag_exists(cli, flag));
    for (int i = 0; i < cli->given_count; i++)
        if (is(cli->given[i].option, flag) && !each_part(cli->given[i].value, separator, each, arg))
            return false;
    return true;
}

bool option_choice(const struct cli *cli, const char *flag, const char *const *choices, struct error *ret_error) {
    const char *text = option_value(cli, flag);
    char list[200] = "";
    for (const char *const *choice = choices; text != NULL && *choice != NULL; choice++) {
        if (strcmp(text, *choice) == 0)
            return true;
        size_t length = strlen(list);
        snprintf(list + length, sizeof(list) - length, "%s%s", length > 0 ? ", " : "", *choice);
    }
    return text == NULL || error_set(ret_error, ERROR_USAGE, "--%s %s: expected one of %s", flag, text, list);
}

bool option_integer(const struct cli *cli, const char *flag, int64_t least, int64_t most, int64_t *ret_value,
                    struct error *ret_error) {
    const char *text = option_value(cli, flag);
    if (text == NULL)
        return true;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != 0 || value < least || value > most)
        return error_set(ret_error, ERROR_USAGE, "--%s %s: expected a whole number from %lld to %lld", flag, text,
                         (long long)least, (long long)most);
    *ret_value = value;
    return true;
}
