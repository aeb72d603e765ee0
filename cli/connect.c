#include "cli/connect.h"
#include "cli/arguments.h"
#include "common/clock.h"
#include "common/db_error.h"
#include "common/db_server.h"
#include "common/db_url.h"
#include "common/memory.h"
#include "common/schema_version.h"
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char expected_url[] = "expected postgres://user:password@host:5432/database";

static const char refused[] = "check user, password and database name in --database-url or DATABASE_URL";
static const char unreachable[] = "is PostgreSQL running, and is --database-url or DATABASE_URL right?";

enum { DEFAULT_CONNECT_TIMEOUT_MS = 10000 };

static const char *environment(const char *name) {
    const char *value = getenv(name);
    return value != NULL && value[0] != 0 ? value : NULL;
}

static const char *database_url(const struct cli *cli, enum connect_for purpose) {
    const char *url = option_value(cli, "database-url");
    // Long statements: a pooler may have a limit for them.
    if (url == NULL && purpose == CONNECT_FOR_MIGRATE)
        url = environment("ROWBELL_DIRECT_DATABASE_URL");
    if (url == NULL && purpose == CONNECT_FOR_MIGRATE)
        url = environment("DIRECT_DATABASE_URL");
    if (url == NULL)
        url = environment("ROWBELL_DATABASE_URL");
    return url != NULL ? url : environment("DATABASE_URL");
}

static void print_notice(void *arg, const PGresult *result) {
    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    fprintf(stderr, "rowbell: %s\n", message != NULL ? message : "notice");
}

// ---- statements
//
// The connection may be a transaction pooler's, and then the server's process behind it is somebody else's a moment
// later. So nothing is set for the session and nothing is prepared: each statement goes out in a pipeline behind its
// settings, which are the transaction's, and the two have one Sync.

static const char settings_sql[] =
    "select pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true), "
    "pg_catalog.set_config('jit', 'off', true), pg_catalog.set_config('timezone', 'UTC', true), "
    "pg_catalog.set_config('datestyle', 'ISO', true), "
    "pg_catalog.set_config('client_min_messages', 'warning', true), "
    "pg_catalog.set_config('statement_timeout', '30s', true), pg_catalog.set_config('lock_timeout', '10s', true), "
    "pg_catalog.set_config('idle_in_transaction_session_timeout', '30s', true)";
static const char name_sql[] = "select pg_catalog.set_config('application_name', 'rowbell', true)";

static bool send_all(PGconn *conn, const char *const *before, const char *sql, int value_count,
                     const char *const *values) {
    if (!PQenterPipelineMode(conn))
        return false;
    for (; *before != NULL; before++)
        if (!PQsendQueryParams(conn, *before, 0, NULL, NULL, NULL, NULL, 0))
            return false;
    return PQsendQueryParams(conn, sql, value_count, NULL, values, NULL, NULL, 0) && PQpipelineSync(conn);
}

// The result of the statement, or the first error; owned. NULL: the connection is lost.
static PGresult *run(PGconn *conn, const char *const *before, const char *sql, int value_count,
                     const char *const *values) {
    PGresult *kept = NULL;
    bool synced = !send_all(conn, before, sql, value_count, values);
    while (!synced && PQstatus(conn) == CONNECTION_OK) {
        PGresult *result = PQgetResult(conn);
        ExecStatusType status = PQresultStatus(result);
        synced = result != NULL && status == PGRES_PIPELINE_SYNC;
        if (result == NULL || synced || status == PGRES_PIPELINE_ABORTED) {
            PQclear(result);
        } else {
            PQclear(kept);
            kept = result;
        }
    }
    PQexitPipelineMode(conn);
    return kept;
}

static const char *const *settings_of(const struct cli *cli) {
    static const char *const settings[] = {name_sql, settings_sql, NULL};
    return settings + (cli->transaction_sets ? 2 : db_url_named(cli->conn));
}

// Where no writes are taken PostgreSQL says only that; the answer to the next question says why.
static void explain_read_only(struct cli *cli, struct error *error) {
    struct error why;
    static const char *const settings[] = {db_server_settings_sql, NULL};
    if (strcmp(error->sqlstate, "25006") != 0 && strcmp(error->sqlstate, "0A000") != 0)
        return;
    if (PQtransactionStatus(cli->conn) != PQTRANS_IDLE)
        PQclear(PQexec(cli->conn, "rollback"));
    PGresult *server = run(cli->conn, settings, db_server_sql, 0, NULL);
    if (PQresultStatus(server) == PGRES_TUPLES_OK && !db_server_gives(server, DB_WRITES, &why))
        *error = why;
    PQclear(server);
}

static bool take_result(struct cli *cli, PGresult *result, PGresult **ret_result, struct error *ret_error) {
    ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK || status == PGRES_EMPTY_QUERY) {
        if (ret_result != NULL)
            *ret_result = result;
        else
            PQclear(result);
        return true;
    }
    if (PQstatus(cli->conn) == CONNECTION_BAD || result == NULL) {
        error_set(ret_error, ERROR_CONNECT, "the connection to the database was lost: try again");
    } else {
        cli_error_from_result(result, ret_error);
        explain_read_only(cli, ret_error);
    }
    PQclear(result);
    return false;
}

bool cli_query(struct cli *cli, const struct db_statement *statement, int value_count, const char *const *values,
               PGresult **ret_result, struct error *ret_error) {
    return take_result(cli, run(cli->conn, settings_of(cli), statement->sql, value_count, values), ret_result,
                       ret_error);
}

bool cli_script(struct cli *cli, const char *sql, struct error *ret_error) {
    return take_result(cli, PQexec(cli->conn, sql), NULL, ret_error);
}

// ---- connecting

// SHOW, since the path may name another current_setting() first.
static bool read_search_path(struct cli *cli, struct error *ret_error) {
    PGresult *result = NULL;
    if (!take_result(cli, PQexec(cli->conn, "show search_path"), &result, ret_error))
        return false;
    cli->search_path = memory_copy_text(PQgetvalue(result, 0, 0));
    PQclear(result);
    return true;
}

static bool check_schema(struct cli *cli, enum connect_for purpose, struct error *ret_error) {
    static const char *const before[] = {settings_sql, schema_owner_sql, NULL};
    PGresult *result = run(cli->conn, before, schema_version_sql, 0, NULL);
    bool ok = PQresultStatus(result) == PGRES_TUPLES_OK;
    struct error sql_error = {0};
    if (!ok)
        db_error_from_result(result, &sql_error);
    bool usable = (purpose == CONNECT_FOR_PUBLISH && strcmp(sql_error.sqlstate, "42501") == 0) ||
                  (purpose == CONNECT_FOR_DOCTOR && strcmp(sql_error.sqlstate, SCHEMA_IS_DISTURBED) == 0) ||
                  schema_version_check(ok ? result : NULL, ok ? NULL : &sql_error, ret_error);
    PQclear(result);
    return usable;
}

static long connect_timeout_ms(const PGconn *conn) {
    long seconds = 0;
    PQconninfoOption *options = PQconninfo((PGconn *)conn);
    for (const PQconninfoOption *option = options; option != NULL && option->keyword != NULL; option++)
        if (strcmp(option->keyword, "connect_timeout") == 0 && option->val != NULL)
            seconds = atol(option->val);
    PQconninfoFree(options);
    return seconds > 0 ? seconds * 1000 : DEFAULT_CONNECT_TIMEOUT_MS;
}

// PQconnectdb would do, if it left room to ask for verbose errors: only they carry the SQLSTATE of a refusal. False:
// the time is over.
static bool connect_blocking(struct cli *cli, const char *url) {
    const char *const keys[] = {"dbname", NULL};
    const char *const values[] = {url, NULL};
    cli->conn = PQconnectStartParams(keys, values, 1);
    if (cli->conn == NULL || PQstatus(cli->conn) == CONNECTION_BAD)
        return true;
    PQsetErrorVerbosity(cli->conn, PQERRORS_VERBOSE);
    uint64_t deadline = clock_ms() + (uint64_t)connect_timeout_ms(cli->conn);
    PostgresPollingStatusType wanted = PGRES_POLLING_WRITING;
    while (wanted != PGRES_POLLING_OK && wanted != PGRES_POLLING_FAILED) {
        uint64_t now = clock_ms();
        struct pollfd socket = {.fd = PQsocket(cli->conn),
                                .events = wanted == PGRES_POLLING_READING ? POLLIN : POLLOUT};
        if (now >= deadline || poll(&socket, 1, (int)(deadline - now)) == 0)
            return false;
        wanted = PQconnectPoll(cli->conn);
    }
    PQsetErrorVerbosity(cli->conn, PQERRORS_DEFAULT);
    return true;
}

bool cli_connect(struct cli *cli, enum connect_for purpose, struct error *ret_error) {
    const char *url = database_url(cli, purpose);
    if (url == NULL)
        return error_set(ret_error, ERROR_USAGE, "no database given: set DATABASE_URL or give --database-url (%s)",
                         expected_url);
    if (!db_url_check(url, ret_error))
        return false;
    if (!connect_blocking(cli, url))
        return error_set(ret_error, ERROR_CONNECT, "the database did not answer in time: %s", unreachable);
    if (PQstatus(cli->conn) != CONNECTION_OK) {
        db_error_from_conn(cli->conn, ret_error);
        size_t length = strlen(ret_error->text);
        if (ret_error->code == ERROR_USAGE)
            return false; // of the URL itself
        snprintf(ret_error->text + length, sizeof(ret_error->text) - length, ": %s",
                 ret_error->code == ERROR_AUTH ? refused : unreachable);
        return false;
    }
    PQsetNoticeReceiver(cli->conn, print_notice, NULL);
    cli->transaction_sets = purpose == CONNECT_FOR_MIGRATE;
    return read_search_path(cli, ret_error) &&
           (purpose == CONNECT_FOR_MIGRATE || check_schema(cli, purpose, ret_error));
}

void cli_disconnect(struct cli *cli) {
    // A pooler would have to end the server's session of a client that goes in the middle of a transaction.
    PGTransactionStatusType status = PQtransactionStatus(cli->conn);
    if (status == PQTRANS_INTRANS || status == PQTRANS_INERROR)
        PQclear(PQexec(cli->conn, "rollback"));
    PQfinish(cli->conn);
    cli->conn = NULL;
    free(cli->search_path);
    cli->search_path = NULL;
}

// What to do about an SQLSTATE that says too little by itself.
static const struct remedy {
    const char *sqlstate;
    const char *text;
} remedies[] = {
    {"42501", "connect as who may: to publish, the owner of the table and a member of rowbell_publish; for the rest, a "
              "member of rowbell_operator"},
    {"42883", "the schema is older than this program: run rowbell migrate"},
    {"55P03", "another transaction holds the lock: let it end and try again"},
    {"57014", "the statement took too long and was ended"},
};

// "rowbell.publish: there is..." and "rowbell: there is..." are for those who read SQL.
static const char *without_prefix(const char *text) {
    size_t name = strspn(text, "abcdefghijklmnopqrstuvwxyz_.");
    return strncmp(text, "rowbell", 7) == 0 && strncmp(text + name, ": ", 2) == 0 ? text + name + 2 : text;
}

void cli_error_from_result(const PGresult *result, struct error *ret_error) {
    db_error_from_result(result, ret_error);
    const char *hint = PQresultErrorField(result, PG_DIAG_MESSAGE_HINT);
    // PostgreSQL's own hint for a missing function speaks of type casts, which is no help here.
    if (hint == NULL || strcmp(ret_error->sqlstate, "42883") == 0)
        for (size_t i = 0; i < sizeof(remedies) / sizeof(*remedies); i++)
            if (strcmp(ret_error->sqlstate, remedies[i].sqlstate) == 0)
                hint = remedies[i].text;
    struct error plain = *ret_error;
    error_set(ret_error, plain.code, "%s%s%s", without_prefix(plain.text), hint != NULL ? ": " : "",
              hint != NULL ? hint : "");
    memcpy(ret_error->sqlstate, plain.sqlstate, sizeof(plain.sqlstate));
}
