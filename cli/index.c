// index: subscriptions that keep a search index, and their rebuild.
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/list.h"
#include "cli/output.h"
#include "cli/parameters.h"
#include "cli/secrets.h"
#include "cli/sql.h"
#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { AUTHORIZATION_MAX_BYTES = 4096, LOOK_MS = 300 };

static bool add_column(void *arg, const char *value) {
    json_object_array_add(arg, json_object_new_string(value));
    return true;
}

static bool wrong_authorization(const char *path, struct error *ret_error) {
    return error_set(ret_error, ERROR_USAGE,
                     "--authorization-file %s: its first line must be the header's value, such as 'ApiKey ...' or "
                     "'Bearer ...', at most %d bytes",
                     path, AUTHORIZATION_MAX_BYTES);
}

// The first line of a file, or of standard input for "-": never an argument, which other users of the machine can see.
static bool read_authorization(struct cli *cli, struct buffer *ret_text, struct error *ret_error) {
    const char *path = option_value(cli, "authorization-file");
    if (path == NULL)
        return true;
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    if (file == NULL)
        return error_set(ret_error, ERROR_IO, "--authorization-file %s: %s", path, strerror(errno));
    char line[AUTHORIZATION_MAX_BYTES + 2];
    bool ok = fgets(line, sizeof(line), file) != NULL;
    if (file != stdin)
        fclose(file);
    size_t length = ok ? strcspn(line, "\r\n") : 0;
    if (length == 0 || length > AUTHORIZATION_MAX_BYTES)
        return wrong_authorization(path, ret_error);
    line[length] = '\0';
    buffer_text(ret_text, line);
    OPENSSL_cleanse(line, sizeof(line));
    return true;
}

static bool read_options(struct cli *cli, json_object *options, struct error *ret_error) {
    static const char *const texts[] = {"target", "url", "language", "index"};
    static const char *const targets[] = {"postgres", "opensearch", "elasticsearch", "meilisearch", NULL};
    if (!option_choice(cli, "target", targets, ret_error))
        return false;
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        if (option_given(cli, texts[i]))
            json_object_object_add(options, texts[i], json_object_new_string(option_value(cli, texts[i])));
    if (option_given(cli, "allow-http"))
        json_object_object_add(options, "allow_http", json_object_new_boolean(true));
    if (option_given(cli, "columns")) {
        json_object *columns = json_object_new_array();
        json_object_object_add(options, "columns", columns);
        option_each(cli, "columns", ',', add_column, columns);
    }
    int64_t max_in_flight = 0;
    if (!option_integer(cli, "max-in-flight", 1, 1000, &max_in_flight, ret_error))
        return false;
    if (max_in_flight > 0)
        json_object_object_add(options, "max_in_flight", json_object_new_int64(max_in_flight));
    return true;
}

bool run_subscription_add_index(struct cli *cli, struct error *ret_error) {
    if (!option_given(cli, "target") || !option_given(cli, "type"))
        return error_set(ret_error, ERROR_USAGE,
                         option_given(cli, "target") ? "--type is missing: give at least one pattern such as 'posts.*'"
                                                     : "--target is missing: postgres, opensearch, elasticsearch or "
                                                       "meilisearch");
    struct seal_keys keys;
    if (!secrets_keys(&keys, ret_error))
        return false;
    json_object *options = json_object_new_object();
    struct buffer types = {0}, authorization = {0};
    PGresult *added = NULL;
    bool ok = read_options(cli, options, ret_error) && read_authorization(cli, &authorization, ret_error) &&
              cli_connect(cli, CONNECT_FOR_WORK, ret_error) && cli_script(cli, "begin", ret_error);
    // What is sealed is sealed for the index, once it is there.
    if (ok && authorization.length > 0 && keys.count == 0)
        json_object_object_add(options, "authorization", json_object_new_string(authorization.bytes));
    if (ok) {
        const char *values[] = {
            cli->arguments[0], parameter_array(cli, "type", 0, &types), option_value(cli, "scope"),
            json_object_to_json_string_ext(options, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE)};
        ok = cli_query(cli, &sql_subscription_add_index, 4, values, &added, ret_error);
        if (!ok && strcmp(ret_error->sqlstate, "22023") == 0)
            ret_error->code = ERROR_USAGE;
    }
    ok = ok &&
         (authorization.length == 0 || keys.count == 0 ||
          secret_store_sealed(cli, &keys, cli->arguments[0], authorization.bytes, ret_error)) &&
         cli_script(cli, "commit", ret_error);
    if (ok && cli->json)
        output_json(output_json_row(added, 0));
    else if (ok)
        printf("subscription %s was added; its tables are indexed now: rowbell index status %s\n", cli->arguments[0],
               cli->arguments[0]);
    PQclear(added);
    buffer_free(&types);
    secret_wipe(&authorization);
    seal_keys_close(&keys);
    json_object_put(options);
    return ok;
}

// ---- Rebuilds

bool run_index_status(struct cli *cli, struct error *ret_error) {
    return list_rows(cli, &sql_index_status, 1, cli->arguments, ret_error);
}

// The tables and events of a rebuild, as two array literals.
static void list_rebuilds(const PGresult *rebuilds, struct buffer *names, struct buffer *events) {
    for (int row = 0; row < PQntuples(rebuilds); row++) {
        parameter_array_add(names, PQgetvalue(rebuilds, row, 0));
        parameter_array_add(events, PQgetvalue(rebuilds, row, 1));
    }
    buffer_char(names, '}');
    buffer_char(events, '}');
}

static void print_progress(const PGresult *rows, bool terminal) {
    long long done = 0, expected = 0;
    int ready = 0;
    for (int row = 0; row < PQntuples(rows); row++) {
        done += atoll(PQgetvalue(rows, row, 1));
        expected += atoll(PQgetvalue(rows, row, 2));
        ready += PQgetvalue(rows, row, 3)[0] == 't';
    }
    fprintf(stderr, "%s%lld of about %lld rows, %d of %d tables ready%s", terminal ? "\r\033[K" : "", done,
            expected > done ? expected : done, ready, PQntuples(rows), terminal ? "" : "\n");
}

// Waits until the walk of each table serves its event. Interrupting it leaves the rebuild running.
static bool follow(struct cli *cli, const PGresult *rebuilds, struct error *ret_error) {
    bool terminal = isatty(STDERR_FILENO), ok = true, ready = false;
    struct buffer names = {0}, events = {0};
    list_rebuilds(rebuilds, &names, &events);
    const char *values[] = {cli->arguments[0], names.bytes, events.bytes};
    for (int look = 0; ok && !ready; look++) {
        PGresult *rows;
        ok = cli_query(cli, &sql_index_progress, 3, values, &rows, ret_error);
        if (!ok)
            break;
        ready = true;
        for (int row = 0; row < PQntuples(rows); row++) {
            ready = ready && PQgetvalue(rows, row, 3)[0] == 't';
            if (PQgetvalue(rows, row, 4)[0] == 't')
                ok = error_set(ret_error, ERROR_SQL, "the rebuild was given up: see rowbell job list --subscription %s",
                               cli->arguments[0]);
        }
        if (terminal || look % 10 == 0 || ready)
            print_progress(rows, terminal);
        PQclear(rows);
        if (ok && !ready)
            nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
    }
    if (terminal)
        fputc('\n', stderr);
    buffer_free(&names);
    buffer_free(&events);
    return ok;
}

bool run_index_rebuild(struct cli *cli, struct error *ret_error) {
    PGresult *rebuilds;
    if (!cli_connect(cli, CONNECT_FOR_WORK, ret_error) ||
        !cli_query(cli, &sql_index_rebuild, 1, cli->arguments, &rebuilds, ret_error))
        return false;
    bool ok = PQntuples(rebuilds) > 0 ||
              error_set(ret_error, ERROR_SQL,
                        "%s covers no published table with a key: publish one, or see rowbell subscription show",
                        cli->arguments[0]);
    ok = ok && (option_given(cli, "no-wait") || follow(cli, rebuilds, ret_error));
    if (ok)
        output_rows(rebuilds, cli->json);
    PQclear(rebuilds);
    return ok;
}
