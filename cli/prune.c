// prune: retention by hand, for who runs no dispatcher or cannot wait. The functions are those of the dispatcher's
// housekeeper, in steps, each a transaction of its own: it may be interrupted, and run beside the housekeeper.
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/output.h"
#include "cli/sql.h"
#include "common/config.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct pruned {
    const char *flag, *fallback, *what;
    const struct db_statement *statement;
    bool cursor; // the step has a place to go on from, else it is repeated until it finds nothing
} pruned_table[] = {
    {"events", "7d", "events", &sql_prune_events, true},
    {"attempts", "30d", "attempts", &sql_prune_attempts, false},
    {"stream", "24h", "stream entries", &sql_prune_stream_log, false},
};
enum { PRUNED = sizeof pruned_table / sizeof *pruned_table };

static bool prune_one(struct cli *cli, const struct pruned *pruned, const char *older_ms, int64_t *ret_count,
                      struct error *ret_error) {
    char after[24] = "0";
    bool ok = true;
    for (bool more = true; ok && more;) {
        const char *values[] = {older_ms, after};
        PGresult *result = NULL;
        ok = cli_query(cli, pruned->statement, pruned->cursor ? 2 : 1, values, &result, ret_error);
        if (ok) {
            int64_t count = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
            *ret_count += count;
            more = pruned->cursor ? !PQgetisnull(result, 0, 1) : count > 0;
            if (pruned->cursor && more)
                snprintf(after, sizeof after, "%s", PQgetvalue(result, 0, 1));
            if (!cli->json && isatty(STDERR_FILENO))
                fprintf(stderr, "\r%" PRId64 " %s\x1b[K", *ret_count, pruned->what);
        }
        PQclear(result);
    }
    if (!cli->json && isatty(STDERR_FILENO))
        fputs("\r\x1b[K", stderr);
    return ok;
}

static void print_counts(const struct cli *cli, const int64_t counts[PRUNED]) {
    json_object *json = json_object_new_object();
    for (int i = 0; i < PRUNED; i++) {
        json_object_object_add(json, pruned_table[i].flag, json_object_new_int64(counts[i]));
        if (!cli->json)
            printf("%" PRId64 " %s pruned\n", counts[i], pruned_table[i].what);
    }
    if (cli->json)
        output_json(json);
    else
        json_object_put(json);
}

bool run_prune(struct cli *cli, struct error *ret_error) {
    char older_ms[PRUNED][24];
    for (int i = 0; i < PRUNED; i++) {
        const char *given = option_value(cli, pruned_table[i].flag);
        long ms = 0;
        if (!config_parse_duration_ms(given ? given : pruned_table[i].fallback, &ms, ret_error))
            return error_wrap(ret_error, "--%s", pruned_table[i].flag);
        snprintf(older_ms[i], sizeof older_ms[i], "%ld", ms);
    }
    int64_t counts[PRUNED] = {0};
    bool ok = cli_connect(cli, CONNECT_FOR_WORK, ret_error);
    for (int i = 0; i < PRUNED && ok; i++)
        ok = prune_one(cli, &pruned_table[i], older_ms[i], &counts[i], ret_error);
    if (ok)
        print_counts(cli, counts);
    return ok;
}
