// event: what happened, and where it went.
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/list.h"
#include "cli/output.h"
#include "cli/parameters.h"
#include "cli/sql.h"
#include <stdio.h>

static const char *const event_states[] = {"pending", "retrying", "poisoned", "cancelled", "fanned-out", NULL};

bool run_event_list(struct cli *cli, struct error *ret_error) {
    return list_some(cli, &sql_event_list, "state", event_states, "type", ret_error);
}

bool run_event_cancel(struct cli *cli, struct error *ret_error) {
    const char *id = cli->arguments[0];
    PGresult *result = NULL;
    if (!parameter_event(id, ret_error) || !cli_connect(cli, CONNECT_FOR_WORK, ret_error) ||
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
    if (!parameter_event(id, ret_error))
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
