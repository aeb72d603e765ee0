// job: what is still to be delivered; and requeue, which puts poisoned events and jobs back in line.
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/output.h"
#include "cli/parameters.h"
#include "cli/sql.h"
#include <stdio.h>
#include <stdlib.h>

static const char *const job_states[] = {"ready", "running", "waiting", "held", "poisoned", "cancelled", NULL};

bool run_job_list(struct cli *cli, struct error *ret_error) {
    int64_t limit = 50;
    char limit_text[24];
    if (!option_integer(cli, "limit", 1, 100000, &limit, ret_error) ||
        !option_choice(cli, "state", job_states, ret_error))
        return false;
    snprintf(limit_text, sizeof(limit_text), "%lld", (long long)limit);
    const char *values[] = {limit_text, option_value(cli, "state"), option_value(cli, "subscription")};
    PGresult *rows;
    if (!cli_connect(cli, CONNECT_FOR_WORK, ret_error) || !cli_query(cli, &sql_job_list, 3, values, &rows, ret_error))
        return false;
    output_rows(rows, cli->json);
    PQclear(rows);
    return true;
}

static void print_requeued(const struct cli *cli, const char *count, const char *what) {
    bool dry_run = option_given(cli, "dry-run");
    if (cli->json) {
        json_object *json = json_object_new_object();
        json_object_object_add(json, "requeued", json_object_new_int64(atoll(count)));
        json_object_object_add(json, "dry_run", json_object_new_boolean(dry_run));
        output_json(json);
    } else {
        printf("%s %s %s\n", count, what, dry_run ? "would be requeued" : "requeued");
    }
}

static bool requeue(struct cli *cli, bool jobs, struct error *ret_error) {
    const char *subscription = jobs ? option_value(cli, "subscription") : NULL;
    if (!option_given(cli, "id") && subscription == NULL && !option_given(cli, "since") &&
        !option_given(cli, "until") && !option_given(cli, "all"))
        return error_set(ret_error, ERROR_USAGE, "say which: --id, %s--since, --until, or --all",
                         jobs ? "--subscription, " : "");
    struct buffer ids = {0};
    const char *events = NULL;
    char *since = NULL, *until = NULL;
    PGresult *result = NULL;
    bool ok = parameter_events(cli, &ids, &events, ret_error) && cli_connect(cli, CONNECT_FOR_WORK, ret_error) &&
              parameter_time(cli, "since", &since, ret_error) && parameter_time(cli, "until", &until, ret_error);
    if (ok) {
        const char *values[] = {subscription, events, since, until, option_given(cli, "dry-run") ? "true" : "false"};
        ok = jobs ? cli_query(cli, &sql_requeue_jobs, 5, values, &result, ret_error)
                  : cli_query(cli, &sql_requeue_events, 4, values + 1, &result, ret_error);
    }
    if (ok)
        print_requeued(cli, PQgetvalue(result, 0, 0), jobs ? "jobs" : "events");
    PQclear(result);
    free(since);
    free(until);
    buffer_free(&ids);
    return ok;
}

bool run_requeue_events(struct cli *cli, struct error *ret_error) {
    return requeue(cli, false, ret_error);
}

bool run_requeue_jobs(struct cli *cli, struct error *ret_error) {
    return requeue(cli, true, ret_error);
}
