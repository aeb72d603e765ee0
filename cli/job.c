// job: what is still to be delivered, and one job sent now or given up. Many at once: requeue.c.
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/list.h"
#include "cli/output.h"
#include "cli/parameters.h"
#include "cli/sql.h"
#include <stdio.h>
#include <string.h>

static const char *const job_states[] = {"ready", "running", "waiting", "held", "poisoned", "cancelled", NULL};

bool run_job_list(struct cli *cli, struct error *ret_error) {
    return list_some(cli, &sql_job_list, "state", job_states, "subscription", ret_error);
}

static const char *const attempt_classes[] = {"delivered", "dns",      "connect",  "tls",  "timeout",
                                              "http_4xx",  "http_5xx", "rejected", "lost", "egress_denied",
                                              "condition", "aborted",  NULL};

bool run_attempt_list(struct cli *cli, struct error *ret_error) {
    return list_some(cli, &sql_attempt_list, "class", attempt_classes, "subscription", ret_error);
}

static void print_job(const struct cli *cli, const char *key, const char *value, const char *text) {
    if (cli->json) {
        json_object *json = json_object_new_object();
        json_object_object_add(json, "subscription", json_object_new_string(cli->arguments[0]));
        json_object_object_add(json, "event", json_object_new_string(cli->arguments[1]));
        json_object_object_add(json, key, json_object_new_string(value));
        output_json(json);
    } else {
        printf("event %s to %s %s\n", cli->arguments[1], cli->arguments[0], text);
    }
}

bool run_job_retry(struct cli *cli, struct error *ret_error) {
    PGresult *result = NULL;
    if (!parameter_event(cli->arguments[1], ret_error) || !cli_connect(cli, CONNECT_FOR_WORK, ret_error) ||
        !cli_query(cli, &sql_job_retry, 2, cli->arguments, &result, ret_error))
        return false;
    const char *was = PQgetvalue(result, 0, 0);
    bool found = !PQgetisnull(result, 0, 0) ||
                 error_set(ret_error, ERROR_SQL,
                           "event %s never went to %s: see rowbell event show, and rowbell replay for events that it "
                           "never got",
                           cli->arguments[1], cli->arguments[0]);
    if (found)
        print_job(cli, "was", was,
                  strcmp(was, "open") == 0        ? "is in line already"
                  : strcmp(was, "delivered") == 0 ? "is sent again"
                                                  : "is sent now");
    PQclear(result);
    return found;
}

bool run_job_cancel(struct cli *cli, struct error *ret_error) {
    PGresult *result = NULL;
    if (!parameter_event(cli->arguments[1], ret_error) || !cli_connect(cli, CONNECT_FOR_WORK, ret_error) ||
        !cli_query(cli, &sql_job_cancel, 2, cli->arguments, &result, ret_error))
        return false;
    bool found =
        PQgetvalue(result, 0, 0)[0] == 't' ||
        error_set(ret_error, ERROR_SQL, "there is no job of event %s to %s: it was delivered, or cancelled already",
                  cli->arguments[1], cli->arguments[0]);
    if (found)
        print_job(cli, "state", "cancelled", "is cancelled");
    PQclear(result);
    return found;
}
