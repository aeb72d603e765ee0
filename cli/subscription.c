// subscription: who gets which events.
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/list.h"
#include "cli/output.h"
#include "cli/sql.h"
#include <stdio.h>
#include <string.h>

bool run_subscription_list(struct cli *cli, struct error *ret_error) {
    return list_rows(cli, &sql_subscription_list, 0, NULL, ret_error);
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

bool run_subscription_set_owner(struct cli *cli, struct error *ret_error) {
    PGresult *result;
    if (!cli_connect(cli, CONNECT_FOR_WORK, ret_error) ||
        !cli_query(cli, &sql_subscription_set_owner, 2, cli->arguments, &result, ret_error))
        return false;
    bool found = PQgetvalue(result, 0, 0)[0] == 't' || no_such_subscription(cli, ret_error);
    PQclear(result);
    if (found && cli->json) {
        json_object *json = json_object_new_object();
        json_object_object_add(json, "name", json_object_new_string(cli->arguments[0]));
        json_object_object_add(json, "owner", json_object_new_string(cli->arguments[1]));
        output_json(json);
    } else if (found) {
        printf("subscription %s belongs to %s\n", cli->arguments[0], cli->arguments[1]);
    }
    return found;
}

bool run_subscription_remove(struct cli *cli, struct error *ret_error) {
    return change(cli, &sql_subscription_remove, NULL, "and its jobs were removed", ret_error);
}

bool run_subscription_pause(struct cli *cli, struct error *ret_error) {
    return change(cli, &sql_subscription_set_state, "paused", "is paused: its jobs are held", ret_error);
}
