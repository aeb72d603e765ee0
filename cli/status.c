// status: the installation at a glance, once or again every two seconds.
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/output.h"
#include "cli/sql.h"
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

enum { WATCH_MS = 2000 };

static bool print_status(struct cli *cli, bool clear_screen, struct error *ret_error) {
    PGresult *status = NULL, *subscriptions = NULL, *tables = NULL;
    bool ok = cli_query(cli, &sql_status, 0, NULL, &status, ret_error) &&
              cli_query(cli, &sql_subscription_list, 0, NULL, &subscriptions, ret_error) &&
              cli_query(cli, &sql_status_tables, 0, NULL, &tables, ret_error);
    if (ok && cli->json) {
        json_object *json = output_json_row(status, 0);
        json_object_object_add(json, "subscriptions", output_json_rows(subscriptions));
        json_object_object_add(json, "tables", output_json_rows(tables));
        output_json(json);
    } else if (ok) {
        if (clear_screen)
            fputs("\033[H\033[2J", stdout);
        output_record(status, 0);
        puts("");
        output_table(subscriptions);
        puts("");
        output_table(tables);
    }
    fflush(stdout);
    PQclear(status);
    PQclear(subscriptions);
    PQclear(tables);
    return ok;
}

bool run_status(struct cli *cli, struct error *ret_error) {
    bool watch = option_given(cli, "watch");
    if (!cli_connect(cli, CONNECT_FOR_WORK, ret_error))
        return false;
    do {
        if (!print_status(cli, watch && isatty(STDOUT_FILENO), ret_error))
            return false;
    } while (watch && !ferror(stdout) && poll(NULL, 0, WATCH_MS) == 0);
    return true;
}
