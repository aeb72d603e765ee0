// requeue: many events or jobs back in line; replay: events that a subscription never got. In steps, each a transaction
// of its own: nothing is locked for long, an interrupted run has done what it said, and run again it goes on from
// there.
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/output.h"
#include "cli/parameters.h"
#include "cli/sql.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEP_ROWS = 1000 };
static const char step_rows[] = "1000";

// A person sees how far it is.
static void print_progress(const struct cli *cli, const char *what, int64_t done, int64_t of) {
    if (cli->json || !isatty(STDERR_FILENO))
        return;
    if (of > 0)
        fprintf(stderr, "\r%lld of %lld %s\x1b[K", (long long)done, (long long)of, what);
    else
        fprintf(stderr, "\r%lld %s\x1b[K", (long long)done, what);
}

static void end_progress(const struct cli *cli) {
    if (!cli->json && isatty(STDERR_FILENO))
        fputs("\r\x1b[K", stderr);
}

static void print_result(const struct cli *cli, int64_t count, const char *what, const char *verb) {
    bool dry_run = option_given(cli, "dry-run");
    if (cli->json) {
        json_object *json = json_object_new_object();
        json_object_object_add(json, verb, json_object_new_int64(count));
        json_object_object_add(json, "dry_run", json_object_new_boolean(dry_run));
        output_json(json);
    } else {
        printf("%lld %s %s%s\n", (long long)count, what, dry_run ? "would be " : "", verb);
    }
}

static bool is_state(void *arg, const char *value) {
    static const char *const states[] = {"poisoned", "cancelled", "waiting", "held"};
    for (size_t i = 0; i < sizeof(states) / sizeof(*states); i++)
        if (strcmp(states[i], value) == 0)
            return true;
    return error_set(arg, ERROR_USAGE, "--state %s: expected poisoned, cancelled, waiting or held", value);
}

// What one call of a requeue function did.
static bool requeue_step(struct cli *cli, bool jobs, const char **values, bool dry_run, int64_t *ret_count,
                         struct error *ret_error) {
    PGresult *result = NULL;
    values[5] = dry_run ? "true" : "false";
    values[6] = dry_run ? NULL : step_rows;
    const char *event_values[] = {values[1], values[2], values[3], values[5], values[6]};
    bool ok = jobs ? cli_query(cli, &sql_requeue_jobs, 7, values, &result, ret_error)
                   : cli_query(cli, &sql_requeue_events, 5, event_values, &result, ret_error);
    if (ok)
        *ret_count = atoll(PQgetvalue(result, 0, 0));
    PQclear(result);
    return ok;
}

static bool requeue_all(struct cli *cli, bool jobs, const char **values, struct error *ret_error) {
    const char *what = jobs ? "jobs" : "events";
    int64_t total = 0, done = 0, step = STEP_ROWS;
    bool dry_run = option_given(cli, "dry-run");
    if (dry_run || isatty(STDERR_FILENO))
        if (!requeue_step(cli, jobs, values, true, &total, ret_error))
            return false;
    while (!dry_run && step == STEP_ROWS) {
        if (!requeue_step(cli, jobs, values, false, &step, ret_error)) {
            end_progress(cli);
            return error_wrap(ret_error, "%lld %s were requeued, then", (long long)done, what);
        }
        done += step;
        print_progress(cli, what, done, total);
    }
    end_progress(cli);
    print_result(cli, dry_run ? total : done, what, "requeued");
    return true;
}

static bool requeue(struct cli *cli, bool jobs, struct error *ret_error) {
    const char *subscription = jobs ? option_value(cli, "subscription") : NULL;
    if (!option_given(cli, "id") && subscription == NULL && !option_given(cli, "since") &&
        !option_given(cli, "until") && !option_given(cli, "all"))
        return error_set(ret_error, ERROR_USAGE, "say which: --id, %s--since, --until, or --all",
                         jobs ? "--subscription, " : "");
    if (jobs && !option_each(cli, "state", ',', is_state, ret_error))
        return false;
    struct buffer ids = {0}, states = {0};
    const char *events = NULL;
    char *since = NULL, *until = NULL;
    bool ok = parameter_events(cli, &ids, &events, ret_error) && cli_connect(cli, CONNECT_FOR_WORK, ret_error) &&
              parameter_time(cli, "since", &since, ret_error) && parameter_time(cli, "until", &until, ret_error);
    if (ok) {
        const char *values[7] = {subscription, events, since, until,
                                 jobs ? parameter_array(cli, "state", ',', &states) : NULL};
        ok = requeue_all(cli, jobs, values, ret_error);
    }
    free(since);
    free(until);
    buffer_free(&ids);
    buffer_free(&states);
    return ok;
}

bool run_requeue_events(struct cli *cli, struct error *ret_error) {
    return requeue(cli, false, ret_error);
}

bool run_requeue_jobs(struct cli *cli, struct error *ret_error) {
    return requeue(cli, true, ret_error);
}

bool run_replay(struct cli *cli, struct error *ret_error) {
    if (!option_given(cli, "since"))
        return error_set(ret_error, ERROR_USAGE, "--since is missing: a time (2026-11-29T20:00Z) or an age (2h)");
    char *since = NULL, *until = NULL;
    bool ok = cli_connect(cli, CONNECT_FOR_WORK, ret_error) && parameter_time(cli, "since", &since, ret_error) &&
              parameter_time(cli, "until", &until, ret_error);
    int64_t queued = 0, looked_at = 0;
    char after[24] = "0";
    for (bool more = true; ok && more;) {
        const char *values[] = {
            cli->arguments[0], since, until, after, step_rows, option_given(cli, "dry-run") ? "true" : "false"};
        PGresult *result = NULL;
        ok = cli_query(cli, &sql_replay, 6, values, &result, ret_error);
        more = ok && !PQgetisnull(result, 0, 1);
        if (more) {
            queued += atoll(PQgetvalue(result, 0, 0));
            looked_at += atoll(PQgetvalue(result, 0, 2));
            snprintf(after, sizeof(after), "%s", PQgetvalue(result, 0, 1));
            print_progress(cli, "events looked at", looked_at, 0);
        }
        PQclear(result);
    }
    end_progress(cli);
    if (ok)
        print_result(cli, queued, "events", "queued");
    else if (queued > 0)
        error_wrap(ret_error, "%lld events were queued, then", (long long)queued);
    free(since);
    free(until);
    return ok;
}
