// subscription: who gets which events.
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/output.h"
#include "cli/parameters.h"
#include "cli/sql.h"
#include "common/config.h"
#include "common/http_client.h"
#include "common/webhook_header.h"
#include <stdio.h>
#include <string.h>

struct reading {
    json_object *json; // what the values are collected in
    struct error *error;
};

static bool read_retry(void *arg, const char *value) {
    struct reading *reading = arg;
    long delay_ms;
    // A first attempt is made at once in any case; "0s" as first delay is allowed and means: again at once.
    if (!config_parse_duration_ms(value, &delay_ms, NULL))
        return error_set(reading->error, ERROR_USAGE, "--retry %s: expected delays such as 1s,5s,5m", value);
    json_object_array_add(reading->json, json_object_new_int64(delay_ms));
    return true;
}

static bool read_header(void *arg, const char *text) {
    struct reading *reading = arg;
    const char *colon = strchr(text, ':');
    char name[WEBHOOK_HEADER_MAX_BYTES];
    if (colon == NULL || (size_t)(colon - text) >= sizeof(name))
        return error_set(reading->error, ERROR_USAGE, "--header %.60s: expected 'name: value'", text);
    snprintf(name, sizeof(name), "%.*s", (int)(colon - text), text);
    const char *value = colon + 1 + strspn(colon + 1, " \t");
    if (!webhook_header_check(name, value, strlen(value), reading->error))
        return error_wrap(reading->error, "--header");
    json_object_object_add(reading->json, name, json_object_new_string(value));
    if (json_object_object_length(reading->json) > WEBHOOK_HEADERS_MAX)
        return error_set(reading->error, ERROR_USAGE, "--header: at most %d", WEBHOOK_HEADERS_MAX);
    return true;
}

// The options of rowbell.add_webhook. *ret_options is owned, also on failure.
static bool read_options(struct cli *cli, json_object **ret_options, struct error *ret_error) {
    json_object *options = *ret_options = json_object_new_object();
    if (option_given(cli, "allow-http"))
        json_object_object_add(options, "allow_http", json_object_new_boolean(true));
    if (option_given(cli, "ordered"))
        json_object_object_add(options, "ordered", json_object_new_boolean(true));
    struct reading reading = {.error = ret_error};
    if (option_given(cli, "retry")) {
        reading.json = json_object_new_array();
        json_object_object_add(options, "retry", reading.json);
        if (!option_each(cli, "retry", ',', read_retry, &reading))
            return false;
    }
    if (option_given(cli, "header")) {
        reading.json = json_object_new_object();
        json_object_object_add(options, "headers", reading.json);
        if (!option_each(cli, "header", 0, read_header, &reading))
            return false;
    }
    const char *deadline = option_value(cli, "deadline");
    long deadline_ms;
    if (deadline != NULL) {
        if (!config_parse_duration_ms(deadline, &deadline_ms, NULL) || deadline_ms < 100 || deadline_ms > 20000)
            return error_set(ret_error, ERROR_USAGE, "--deadline %s: expected a duration from 100ms to 20s", deadline);
        json_object_object_add(options, "deadline_ms", json_object_new_int64(deadline_ms));
    }
    int64_t max_in_flight = 0;
    if (!option_integer(cli, "max-in-flight", 1, 64, &max_in_flight, ret_error))
        return false;
    if (max_in_flight > 0)
        json_object_object_add(options, "max_in_flight", json_object_new_int64(max_in_flight));
    return true;
}

static void print_added(const PGresult *added, bool json) {
    if (json) {
        output_json(output_json_row(added, 0));
        return;
    }
    printf("subscription %s was added\n", PQgetvalue(added, 0, 1));
    printf("secret  %s\n", PQgetvalue(added, 0, 2));
    puts("Keep the secret now: it verifies the signatures, and it is not shown again.");
}

bool run_subscription_add_webhook(struct cli *cli, struct error *ret_error) {
    const char *url = cli->arguments[1];
    if (!option_given(cli, "type"))
        return error_set(ret_error, ERROR_USAGE,
                         "--type is missing: give at least one pattern such as posts.update, 'posts.*' or '*'");
    struct error refused = {0};
    if (!http_url_check(url, option_given(cli, "allow-http"), &refused))
        return error_set(ret_error, refused.code,
                         "%s: expected https://host/path, or http://host/path with --allow-http", refused.text);
    json_object *options;
    struct buffer types = {0};
    PGresult *added = NULL;
    bool ok = read_options(cli, &options, ret_error) && cli_connect(cli, CONNECT_FOR_WORK, ret_error);
    if (ok) {
        const char *values[] = {
            cli->arguments[0],
            url,
            parameter_array(cli, "type", 0, &types),
            option_value(cli, "scope"),
            json_object_to_json_string_ext(options, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE),
        };
        ok = cli_query(cli, &sql_subscription_add_webhook, 5, values, &added, ret_error);
        // invalid_parameter_value: what was typed is wrong, not what is stored.
        if (!ok && strcmp(ret_error->sqlstate, "22023") == 0)
            ret_error->code = ERROR_USAGE;
    }
    if (ok)
        print_added(added, cli->json);
    PQclear(added);
    buffer_free(&types);
    json_object_put(options);
    return ok;
}

bool run_subscription_list(struct cli *cli, struct error *ret_error) {
    PGresult *rows;
    if (!cli_connect(cli, CONNECT_FOR_WORK, ret_error) ||
        !cli_query(cli, &sql_subscription_list, 0, NULL, &rows, ret_error))
        return false;
    output_rows(rows, cli->json);
    PQclear(rows);
    return true;
}

static bool no_such_subscription(const struct cli *cli, struct error *ret_error) {
    return error_set(ret_error, ERROR_SQL, "there is no subscription %s: see rowbell subscription list",
                     cli->arguments[0]);
}

bool run_subscription_show(struct cli *cli, struct error *ret_error) {
    PGresult *row;
    if (!cli_connect(cli, CONNECT_FOR_WORK, ret_error) ||
        !cli_query(cli, &sql_subscription_show, 1, cli->arguments, &row, ret_error))
        return false;
    bool found = PQntuples(row) == 1 || no_such_subscription(cli, ret_error);
    if (found && cli->json)
        output_json(output_json_row(row, 0));
    else if (found)
        output_record(row, 0);
    PQclear(row);
    return found;
}

// A function that answers whether there was such a subscription.
static bool change(struct cli *cli, const struct db_statement *statement, const char *state, const char *done,
                   struct error *ret_error) {
    const char *values[] = {cli->arguments[0], state};
    PGresult *result;
    if (!cli_connect(cli, CONNECT_FOR_WORK, ret_error) ||
        !cli_query(cli, statement, state != NULL ? 2 : 1, values, &result, ret_error))
        return false;
    bool found = PQgetvalue(result, 0, 0)[0] == 't' || no_such_subscription(cli, ret_error);
    PQclear(result);
    if (found && cli->json) {
        json_object *json = json_object_new_object();
        json_object_object_add(json, "name", json_object_new_string(cli->arguments[0]));
        json_object_object_add(json, "state", json_object_new_string(state != NULL ? state : "removed"));
        output_json(json);
    } else if (found) {
        printf("subscription %s %s\n", cli->arguments[0], done);
    }
    return found;
}

bool run_subscription_remove(struct cli *cli, struct error *ret_error) {
    return change(cli, &sql_subscription_remove, NULL, "and its jobs were removed", ret_error);
}

bool run_subscription_pause(struct cli *cli, struct error *ret_error) {
    return change(cli, &sql_subscription_set_state, "paused", "is paused: its jobs are held", ret_error);
}

bool run_subscription_resume(struct cli *cli, struct error *ret_error) {
    return change(cli, &sql_subscription_set_state, "active", "is active", ret_error);
}
