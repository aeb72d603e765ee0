#include "cli/parameters.h"
#include "cli/arguments.h"
#include "cli/connect.h"
#include "cli/sql.h"
#include "common/config.h"
#include "common/memory.h"
#include <ctype.h>
#include <string.h>

void parameter_array_add(struct buffer *buffer, const char *element) {
    buffer_text(buffer, buffer->length > 0 ? ",\"" : "{\"");
    for (const char *at = element; *at != 0; at++) {
        if (*at == '"' || *at == '\\')
            buffer_char(buffer, '\\');
        buffer_char(buffer, *at);
    }
    buffer_char(buffer, '"');
}

static bool add_value(void *arg, const char *value) {
    parameter_array_add(arg, value);
    return true;
}

const char *parameter_array(const struct cli *cli, const char *flag, char separator, struct buffer *buffer) {
    if (!option_given(cli, flag))
        return NULL;
    option_each(cli, flag, separator, add_value, buffer);
    buffer_char(buffer, '}');
    return buffer->bytes;
}

static bool is_seq(const char *text) {
    size_t digits = strspn(text, "0123456789");
    return digits > 0 && digits <= 18 && text[digits] == 0;
}

static bool is_uuid(const char *text) {
    for (int i = 0; i < 36; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? text[i] != '-' : !isxdigit((unsigned char)text[i]))
            return false;
    }
    return text[36] == 0;
}

bool parameter_is_event(const char *text) {
    return is_seq(text) || is_uuid(text);
}

bool parameter_event(const char *text, struct error *ret_error) {
    return parameter_is_event(text) ||
           error_set(ret_error, ERROR_USAGE, "%s is not an event: give its number or UUID, as in rowbell event list",
                     text);
}

struct event_check {
    struct error *error;
};

static bool check_event(void *arg, const char *value) {
    struct event_check *check = arg;
    return parameter_is_event(value) ||
           error_set(check->error, ERROR_USAGE, "--id %s: expected an event's number or UUID, as in rowbell event list",
                     value);
}

bool parameter_events(const struct cli *cli, struct buffer *buffer, const char **ret_array, struct error *ret_error) {
    if (!option_each(cli, "id", ',', check_event, &(struct event_check){ret_error}))
        return false;
    *ret_array = parameter_array(cli, "id", ',', buffer);
    return true;
}

bool parameter_time(struct cli *cli, const char *flag, char **ret_time, struct error *ret_error) {
    const char *text = option_value(cli, flag);
    *ret_time = NULL;
    if (text == NULL)
        return true;
    long age_ms;
    char age[32];
    const char *values[] = {NULL, text};
    if (config_parse_duration_ms(text, &age_ms, NULL)) {
        snprintf(age, sizeof(age), "%ld", age_ms);
        values[0] = age;
        values[1] = NULL;
    }
    PGresult *result;
    if (!cli_query(cli, &sql_time_parse, 2, values, &result, ret_error)) {
        // Class 22: what PostgreSQL cannot read as a time.
        if (strncmp(ret_error->sqlstate, "22", 2) == 0)
            error_set(ret_error, ERROR_USAGE, "--%s %s: expected a time (2026-11-29T20:00Z) or an age (2h)", flag,
                      text);
        return false;
    }
    *ret_time = memory_copy_text(PQgetvalue(result, 0, 0));
    PQclear(result);
    return true;
}
