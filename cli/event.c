// event: what happened, and where it went.
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/output.h"
#include "cli/parameters.h"
#include "cli/sql.h"
#include <stdio.h>
#include <string.h>

static const char *const event_states[] = {"pending", "retrying", "poisoned", "cancelled", "fanned-out", NULL};

bool run_event_list(struct cli *cli, struct error *ret_error) {
    int64_t limit = 50;
    char limit_text[24];
    if (!option_integer(cli, "limit", 1, 100000, &limit, ret_error) ||
        !option_choice(cli, "state", event_states, ret_error))
        return false;
    snprintf(limit_text, sizeof(limit_text), "%lld", (long long)limit);
    const char *values[] = {limit_text, option_value(cli, "type"), option_value(cli, "state")};
    PGresult *rows;
    if (!cli_connect(cli, CONNECT_FOR_WORK, ret_error) || !cli_query(cli, &sql_event_list, 3, values, &rows, ret_error))
        return false;
    output_rows(rows, cli->json);
    PQclear(rows);
    return true;
}

static bool check_event(const char *event, struct error *ret_error) {
    return parameter_is_event(event) ||
           error_set(ret_error, ERROR_USAGE, "%s is not an event: give its number or UUID, as in rowbell event list",
                     event);
}

bool run_event_cancel(struct cli *cli, struct error *ret_error) {
    const char *id = cli->arguments[0];
    PGresult *result = NULL;
    if (!check_event(id, ret_error) || !cli_connect(cli, CONNECT_FOR_WORK, ret_error) ||
        !cli_query(cli, &sql_event_cancel, 1, &id, &result, ret_error))
        return false;
    bool found =
        PQgetvalue(result, 0, 0)[0] == 't' ||
        error_set(ret_error, ERROR_SQL,
                  "event %s is not poisoned: see rowbell event show; one job is given up by rowbell job cancel", id);
    if (found && cli->json) {
        json_object *json = json_object_new_object();
        json_object_object_add(json, "event", json_object_new_string(id));
        json_object_object_add(json, "state", json_object_new_string("cancelled"));
        output_json(json);
    } else if (found) {
        printf("event %s is cancelled\n", id);
    }
    PQclear(result);
    return found;
}

bool run_event_show(struct cli *cli, struct error *ret_error) {
    const char *id = cli->arguments[0];
    if (!check_event(id, ret_error))
        return false;
    PGresult *event = NULL, *fanout = NULL, *attempts = NULL;
    bool ok =
        cli_connect(cli, CONNECT_FOR_WORK, ret_error) && cli_query(cli, &sql_event_show, 1, &id, &event, ret_error);
    if (ok && PQntuples(event) == 0)
        ok = error_set(ret_error, ERROR_SQL,
                       "there is no event %s: it was never committed, or pruned after its retention", id);
    const char *seq = ok ? PQgetvalue(event, 0, 0) : NULL;
    ok = ok && cli_query(cli, &sql_event_fanout, 1, &seq, &fanout, ret_error) &&
         cli_query(cli, &sql_event_attempts, 1, &seq, &attempts, ret_error);
    if (ok && cli->json) {
        json_object *json = output_json_row(event, 0);
        json_object_object_add(json, "fanout", output_json_rows(fanout));
        json_object_object_add(json, "attempts", output_json_rows(attempts));
        output_json(json);
    } else if (ok) {
        output_record(event, 0);
        puts("\nfanned out to");
        output_table(fanout);
        puts("\nattempts");
        output_table(attempts);
    }
    PQclear(event);
    PQclear(fanout);
    PQclear(attempts);
    return ok;
}
