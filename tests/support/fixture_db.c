// Databases: each test has its own, cloned from the template that dev/test migrated once.
//
// The tests are a superuser, or, where ROWBELL_TEST_LOGIN says so, a login that owns its databases and is nothing more.
// Such a login has a server of its own: roles are the server's, and on one of these there are none of ours.
#include "tests/support/fixture.h"
#include "tests/support/support.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_DATABASES = 16, MAX_CONNECTIONS = 64, MAX_LOGINS = 16 };

static char *databases[MAX_DATABASES]; // names
static const char *urls[MAX_DATABASES];
static int database_count;
static PGconn *connections[MAX_CONNECTIONS];
static int connection_count;
static char logins[MAX_LOGINS][64];
static int login_count;
static int serial; // never reused in a process

static const char *const owner_login = "rowbell_tester"; // dev/test makes it

static const char *login_kind(void) {
    const char *kind = getenv("ROWBELL_TEST_LOGIN");
    return kind != NULL ? kind : "superuser";
}

bool fixture_is_superuser(void) {
    return strcmp(login_kind(), "superuser") == 0;
}

bool fixture_has_roles(void) {
    return strcmp(login_kind(), "no-roles") != 0;
}

static const char *server_url(void) {
    return support_env(fixture_is_superuser() ? "ROWBELL_TEST_PG"
                       : fixture_has_roles()  ? "ROWBELL_TEST_PG_OWNER"
                                              : "ROWBELL_TEST_PG_NO_ROLES");
}

// The server's URL, a superuser's, has no database name, perhaps parameters: postgres://user@/?host=/tmp/x&port=1
static char *url_of(const char *database) {
    const char *base = server_url();
    const char *query = strchr(base, '?');
    size_t length = query == NULL ? strlen(base) : (size_t)(query - base);
    while (length > 0 && base[length - 1] == '/' && !(length > 1 && base[length - 2] == '/'))
        length--;
    char *url = NULL;
    if (asprintf(&url, "%.*s/%s%s", (int)length, base, database, query == NULL ? "" : query) < 0)
        abort(); // not by Check: it is called outside of tests too
    return url;
}

// The same as the tests' login.
static char *login_url_of(const char *database) {
    char *url = url_of(database), *own = NULL;
    if (fixture_is_superuser())
        return url;
    const char *host = strchr(url, '@');
    ck_assert_ptr_nonnull(host);
    ck_assert_int_gt(asprintf(&own, "postgres://%s:x%s", owner_login, host), 0);
    free(url);
    return own;
}

static PGconn *connect_to(const char *url) {
    PGconn *conn = PQconnectdb(url);
    if (PQstatus(conn) != CONNECTION_OK)
        ck_abort_msg("connect to %s: %s", url, PQerrorMessage(conn));
    PQclear(PQexec(conn, "set client_min_messages = warning"));
    return conn;
}

static PGconn *connect_to_server(void) {
    char *url = url_of("postgres");
    PGconn *conn = connect_to(url);
    free(url);
    return conn;
}

static PGconn *keep_connection(PGconn *conn) {
    ck_assert_int_lt(connection_count, MAX_CONNECTIONS);
    return connections[connection_count++] = conn;
}

static const char *database_new(const char *template_clause) {
    ck_assert_int_lt(database_count, MAX_DATABASES);
    char *name = NULL;
    ck_assert_int_gt(asprintf(&name, "t_%d_%d_%d", (int)getppid(), (int)getpid(), ++serial), 0);
    char *sql = NULL;
    ck_assert_int_gt(asprintf(&sql, "create database %s %s %s%s", name, template_clause,
                              fixture_is_superuser() ? "" : "owner ", fixture_is_superuser() ? "" : owner_login),
                     0);
    PGconn *server = connect_to_server();
    sql_run(server, sql);
    PQfinish(server);
    free(sql);
    databases[database_count] = name;
    urls[database_count] = support_keep(login_url_of(name));
    return urls[database_count++];
}

const char *fixture_database(void) {
    const char *url = database_new("template rowbell_template"); // before PostgreSQL 15 this forces checkpoints
    const char *wake = getenv("ROWBELL_TEST_WAKE");
    char sql[200];
    // A clone is another installation: Redis channels are named after it, and tests run at once. Writers wake relays as
    // they do in production (the tests' server knows prepared transactions, so that the migration chose to poll).
    snprintf(sql, sizeof sql,
             "update rowbell.installation set id = replace(gen_random_uuid()::text, '-', ''), wake = '%s'",
             wake != NULL ? wake : "notify");
    PGconn *conn = connect_to(url);
    sql_run(conn, sql);
    PQfinish(conn);
    return url;
}

const char *fixture_empty_database(void) {
    return database_new("");
}

const char *support_database_url(void) {
    return database_count == 0 ? NULL : urls[database_count - 1];
}

const char *fixture_redis(void) {
    return support_env("ROWBELL_TEST_REDIS");
}

PGconn *fixture_connect(void) {
    if (database_count == 0)
        fixture_database();
    return keep_connection(connect_to(support_database_url()));
}

PGconn *fixture_admin(void) {
    if (database_count == 0)
        fixture_database();
    char *url = url_of(databases[database_count - 1]);
    PGconn *conn = keep_connection(connect_to(url));
    free(url);
    return conn;
}

// What migrations/grants.sql grants to a group, granted to a login: as docs/security.md says for --no-roles.
static void grant_by_hand(const char *role, const char *login) {
    enum { MOST_BYTES = 65536 };
    char *grants = calloc(1, MOST_BYTES), *rest = grants, *statement;
    FILE *file = fopen(SOURCE_ROOT "/migrations/grants.sql", "r");
    ck_assert(grants != NULL && file != NULL && fread(grants, 1, MOST_BYTES - 1, file) > 0);
    fclose(file);
    for (char *comment = grants; (comment = strstr(comment, "--")) != NULL;)
        memset(comment, ' ', strcspn(comment, "\n"));
    while ((statement = strsep(&rest, ";")) != NULL) {
        statement += strspn(statement, " \n");
        char *to = NULL;
        for (char *next = statement; (next = strstr(next, " to ")) != NULL; next += 4)
            to = next;
        bool everybody = to != NULL && strcmp(to, " to public") == 0;
        if (strncmp(statement, "grant ", 6) != 0 || to == NULL || (!everybody && strstr(to, role) == NULL))
            continue;
        char *sql = NULL;
        ck_assert_int_gt(asprintf(&sql, "%.*s to %s", (int)(to - statement), statement, login), 0);
        PGconn *owner = connect_to(support_database_url());
        sql_run(owner, sql);
        PQfinish(owner);
        free(sql);
    }
    free(grants);
}

const char *fixture_login(const char *role) {
    ck_assert_int_lt(login_count, MAX_LOGINS);
    PGconn *conn = fixture_admin();
    char *login = logins[login_count++];
    snprintf(login, sizeof(logins[0]), "t_%d_%d_login_%d", (int)getppid(), (int)getpid(), ++serial);
    char sql[200];
    bool by_hand = !fixture_has_roles() && strncmp(role, "rowbell_", 8) == 0;
    snprintf(sql, sizeof(sql), "create role %s login password 'x'%s%s", login, by_hand ? "" : " in role ",
             by_hand ? "" : role);
    sql_run(conn, sql);
    if (by_hand) {
        // rowbell_app is the usual rights of an application in one group (migrations/roles.sql).
        bool all = strcmp(role, "rowbell_app") == 0;
        static const char *const parts[] = {"rowbell_app", "rowbell_record", "rowbell_subscribe"};
        for (size_t i = 0; i < (all ? 3 : 1); i++)
            grant_by_hand(all ? parts[i] : role, login);
    }
    char *url = NULL;
    ck_assert_int_gt(asprintf(&url, "postgres://%s:x@%s:%s/%s", login, PQhost(conn), PQport(conn), PQdb(conn)), 0);
    return support_keep(url);
}

void support_stop_databases(void) {
    for (int i = 0; i < connection_count; i++)
        PQfinish(connections[i]);
    connection_count = 0;
    PGconn *server = database_count > 0 ? connect_to_server() : NULL;
    for (int i = 0; i < database_count; i++) {
        char sql[200];
        snprintf(sql, sizeof(sql), "drop database if exists %s with (force)", databases[i]);
        sql_run(server, sql);
        free(databases[i]);
    }
    database_count = 0;
    for (int i = 0; i < login_count; i++) { // after the databases, which have grants to them
        char sql[200];
        snprintf(sql, sizeof(sql), "drop role if exists %s", logins[i]);
        sql_run(server, sql);
    }
    login_count = 0;
    PQfinish(server);
}

// A test that fails ends its process at once, so its databases are still there. Runs outside of tests: no ck_ calls.
void support_drop_leftover_databases(void) {
    char sql[300];
    char *url = url_of("postgres");
    PGconn *server = PQconnectdb(url);
    free(url);
    snprintf(sql, sizeof(sql),
             "select format('drop database %%I with (force)', datname) from pg_database where starts_with(datname, "
             "'t_%1$d_') union all select format('drop role %%I', rolname) from pg_roles where starts_with(rolname, "
             "'t_%1$d_')",
             (int)getpid());
    PGresult *names = PQexec(server, sql);
    for (int i = 0; i < PQntuples(names); i++)
        PQclear(PQexec(server, PQgetvalue(names, i, 0)));
    PQclear(names);
    PQfinish(server);
}

static PGresult *sql_exec(PGconn *conn, const char *sql) {
    PGresult *result = PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK && status != PGRES_EMPTY_QUERY)
        ck_abort_msg("%s\n%s", PQerrorMessage(conn), sql);
    return result;
}

void sql_run(PGconn *conn, const char *sql) {
    PQclear(sql_exec(conn, sql));
}

static bool has_value(const PGresult *result) {
    return PQntuples(result) > 0 && PQnfields(result) > 0 && !PQgetisnull(result, 0, 0);
}

int64_t sql_int(PGconn *conn, const char *sql) {
    PGresult *result = sql_exec(conn, sql);
    if (!has_value(result))
        ck_abort_msg("no value: %s", sql);
    char *end;
    const char *text = PQgetvalue(result, 0, 0);
    int64_t value = strtoll(text, &end, 10);
    if (end == text || *end != '\0')
        ck_abort_msg("not a whole number but '%s': %s", text, sql);
    PQclear(result);
    return value;
}

const char *sql_text(PGconn *conn, const char *sql) {
    PGresult *result = sql_exec(conn, sql);
    const char *text = support_keep_text(has_value(result) ? PQgetvalue(result, 0, 0) : "");
    PQclear(result);
    return text;
}

const char *sql_error(PGconn *conn, const char *sql) {
    PGresult *result = PQexec(conn, sql);
    if (PQresultStatus(result) != PGRES_FATAL_ERROR)
        ck_abort_msg("did not fail: %s", sql);
    const char *sqlstate = support_keep_text(PQresultErrorField(result, PG_DIAG_SQLSTATE));
    PQclear(result);
    return sqlstate;
}

void sql_wait(PGconn *conn, unsigned deadline_ms, const char *sql) {
    uint64_t end = support_end_ms(deadline_ms);
    for (;;) {
        PGresult *result = sql_exec(conn, sql);
        const char *text = has_value(result) ? PQgetvalue(result, 0, 0) : "NULL";
        bool holds = strcmp(text, "t") == 0 || strtod(text, NULL) > 0;
        if (!holds && support_now_ms() >= end)
            ck_abort_msg("after %u ms still %s: %s", deadline_ms, text, sql);
        PQclear(result);
        if (holds)
            return;
        support_pause();
    }
}
