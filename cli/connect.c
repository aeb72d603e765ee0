#include "cli/connect.h"
#include "cli/arguments.h"
#include "common/clock.h"
#include "common/db_error.h"
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
    // A session lock does not survive a transaction pooler.
    if (url == NULL && purpose == CONNECT_FOR_MIGRATE)
        url = environment("ROWBELL_DIRECT_DATABASE_URL");
    if (url == NULL)
        url = environment("ROWBELL_DATABASE_URL");
    return url != NULL ? url : environment("DATABASE_URL");
}

static bool ports_are_valid(const char *ports) {
    for (const char *at = ports; *at != 0; at += *at == ',') {
        size_t length = strcspn(at, ",");
        char *end;
        long port = strtol(at, &end, 10);
        if (length > 0 && (end != at + length || port < 1 || port > 65535))
            return false;
        at += length;
    }
    return true;
}

static bool check_url(const char *url, struct error *ret_error) {
    char *message = NULL;
    PQconninfoOption *options = PQconninfoParse(url, &message);
    if (options == NULL) {
        // libpq's message quotes a piece of the URL, perhaps of its password.
        PQfreemem(message);
        return error_set(ret_error, ERROR_USAGE, "the database URL is malformed: %s", expected_url);
    }
    bool ok = true;
    for (const PQconninfoOption *option = options; option->keyword != NULL; option++)
        if (strcmp(option->keyword, "port") == 0 && option->val != NULL)
            ok = ports_are_valid(option->val);
    PQconninfoFree(options);
    return ok || error_set(ret_error, ERROR_USAGE, "the database URL is malformed (port is not 1 to 65535): %s",
                           expected_url);
}

static void print_notice(void *arg, const PGresult *result) {
    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    fprintf(stderr, "rowbell: %s\n", message != NULL ? message : "notice");
}

static bool set_up_session(struct cli *cli, enum connect_for purpose, struct error *ret_error) {
    // SHOW, since the path may name another current_setting() first.
    PGresult *result = PQexec(cli->conn, "show search_path");
    bool ok = PQresultStatus(result) == PGRES_TUPLES_OK;
    if (ok)
        cli->search_path = memory_copy_text(PQgetvalue(result, 0, 0));
    else
        cli_error_from_result(result, ret_error);
    PQclear(result);
    return ok && cli_script(cli,
                            purpose == CONNECT_FOR_MIGRATE
                                ? "" // its transaction has settings of its own
                                : "set search_path = pg_catalog, pg_temp; set timezone = 'UTC'; set datestyle = 'ISO';"
                                  "set client_min_messages = warning; set statement_timeout = '30s';"
                                  "set lock_timeout = '10s'; set idle_in_transaction_session_timeout = '30s'",
                            ret_error);
}

static bool check_schema(struct cli *cli, enum connect_for purpose, struct error *ret_error) {
    PGresult *result = PQexec(cli->conn, schema_owner_sql);
    if (PQresultStatus(result) == PGRES_COMMAND_OK) {
        PQclear(result);
        result = PQexec(cli->conn, schema_version_sql);
    }
    bool ok = PQresultStatus(result) == PGRES_TUPLES_OK;
    struct error sql_error = {0};
    if (!ok)
        db_error_from_result(result, &sql_error);
    bool usable = (purpose == CONNECT_FOR_PUBLISH && strcmp(sql_error.sqlstate, "42501") == 0) ||
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
    const char *const keys[] = {"fallback_application_name", "dbname", NULL};
    const char *const values[] = {"rowbell", url, NULL};
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
    if (!check_url(url, ret_error))
        return false;
    if (!connect_blocking(cli, url))
        return error_set(ret_error, ERROR_CONNECT, "the database did not answer in time: %s", unreachable);
    if (PQstatus(cli->conn) != CONNECTION_OK) {
        db_error_from_conn(cli->conn, ret_error);
        size_t length = strlen(ret_error->text);
        snprintf(ret_error->text + length, sizeof(ret_error->text) - length, ": %s",
                 ret_error->code == ERROR_AUTH ? refused : unreachable);
        return false;
    }
    PQsetNoticeReceiver(cli->conn, print_notice, NULL);
    return set_up_session(cli, purpose, ret_error) &&
           (purpose == CONNECT_FOR_MIGRATE || check_schema(cli, purpose, ret_error));
}

void cli_disconnect(struct cli *cli) {
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

static bool take_result(struct cli *cli, PGresult *result, PGresult **ret_result, struct error *ret_error) {
    ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK || status == PGRES_EMPTY_QUERY) {
        if (ret_result != NULL)
            *ret_result = result;
        else
            PQclear(result);
        return true;
    }
    if (PQstatus(cli->conn) == CONNECTION_BAD)
        error_set(ret_error, ERROR_CONNECT, "the connection to the database was lost: try again");
    else
        cli_error_from_result(result, ret_error);
    PQclear(result);
    return false;
}

bool cli_query(struct cli *cli, const struct db_statement *statement, int value_count, const char *const *values,
               PGresult **ret_result, struct error *ret_error) {
    PGresult *result = PQexecParams(cli->conn, statement->sql, value_count, NULL, values, NULL, NULL, 0);
    return take_result(cli, result, ret_result, ret_error);
}

bool cli_script(struct cli *cli, const char *sql, struct error *ret_error) {
    return take_result(cli, PQexec(cli->conn, sql), NULL, ret_error);
}
