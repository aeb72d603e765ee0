// rowbell migrate against real databases.
#include "tests/support/fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RUN(...) run((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static const char *out, *err;

static int run(const char *const *arguments) {
    return program_run("rowbell", arguments, &out, &err);
}

static void expect_status(int status, int expected) {
    ck_assert_msg(status == expected, "status %d instead of %d\n%.1000s%.1000s", status, expected, out, err);
}

static void expect_text(const char *text, const char *part) {
    ck_assert_msg(strstr(text, part) != NULL, "no '%s' in:\n%.2000s", part, text);
}

// A program of PostgreSQL's; what it prints must be freed.
static char *shell(const char *command) {
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    char *text = NULL;
    size_t length = 0;
    FILE *all = open_memstream(&text, &length);
    char line[4096];
    while (fgets(line, sizeof(line), pipe) != NULL)
        // Newer pg_dumps put a random word into these.
        if (strncmp(line, "\\restrict", 9) != 0 && strncmp(line, "\\unrestrict", 11) != 0)
            fputs(line, all);
    fclose(all);
    int status = pclose(pipe);
    ck_assert_msg(status == 0, "status %d: %s\n%.2000s", status, command, text);
    return text;
}

// Check cannot report two whole dumps.
static void expect_same(const char *a, const char *b) {
    size_t same = 0;
    while (a[same] != 0 && a[same] == b[same])
        same++;
    ck_assert_msg(a[same] == b[same], "they differ: '%.200s' and '%.200s'", a + same, b + same);
}

static char *schema_of(const char *url) {
    char command[1000];
    snprintf(command, sizeof(command), "pg_dump --schema-only --dbname='%s'", url);
    return shell(command);
}

// What is recorded, without its times.
static const char *records(PGconn *conn) {
    return sql_text(conn,
                    "select string_agg(concat_ws(' ', name, version, compatible_from, checksum), e'\n' order by name) "
                    "from rowbell.migrations");
}

START_TEST(test_migrate_twice) {
    const char *url = fixture_empty_database();
    expect_status(RUN("migrate"), 0);
    expect_text(out, "applied 0001_outbox\n");
    expect_text(out, "applied functions/publish\n");
    expect_text(out, "applied grants\n");
    char *first = schema_of(url);
    expect_status(RUN("migrate"), 0);
    expect_text(out, "nothing to do: the schema is at version ");
    char *second = schema_of(url);
    expect_same(first, second);
    free(first);
    free(second);
    PGconn *conn = fixture_connect();
    ck_assert_str_eq(sql_text(conn, "select nspowner::regrole from pg_namespace where nspname = 'rowbell'"),
                     "rowbell_owner");
    ck_assert_int_eq(sql_int(conn,
                             "select count(*) from pg_class where relnamespace = 'rowbell'::regnamespace and relkind "
                             "in ('r', 'v', 'S') and relowner <> 'rowbell_owner'::regrole"),
                     0);
    ck_assert_int_eq(sql_int(conn,
                             "select count(*) from pg_proc where pronamespace = 'rowbell'::regnamespace and proowner "
                             "<> 'rowbell_owner'::regrole"),
                     0);
}
END_TEST

START_TEST(test_migrate_at_once) {
    fixture_empty_database();
    struct daemon *daemons[4];
    for (int i = 0; i < 4; i++)
        daemons[i] = daemon_start("rowbell", (const char *const[]){"migrate", NULL});
    int applied = 0;
    for (int i = 0; i < 4; i++) {
        int status = daemon_wait_exit(daemons[i], HANG_MS);
        ck_assert_msg(status == 0, "status %d\n%s", status, daemons[i]->log);
        applied += strstr(daemons[i]->log, "applied 0001_outbox") != NULL;
    }
    ck_assert_int_eq(applied, 1);
}
END_TEST

START_TEST(test_migrate_says_that_it_waits) {
    fixture_empty_database();
    PGconn *other = fixture_connect();
    sql_run(other, "select pg_advisory_lock(x'726f7762656c6c'::bigint)");
    struct daemon *migrate = daemon_start("rowbell", (const char *const[]){"migrate", NULL});
    daemon_wait_log(migrate, "waiting for it", HANG_MS);
    ck_assert_int_eq(sql_int(other, "select count(*) from pg_namespace where nspname = 'rowbell'"), 0);
    sql_run(other, "select pg_advisory_unlock(x'726f7762656c6c'::bigint)");
    ck_assert_int_eq(daemon_wait_exit(migrate, HANG_MS), 0);
}
END_TEST

// Its lock is waited for in turns, in which those who queue up behind it wait less than a second.
START_TEST(test_migrate_stops_nobody_while_it_waits) {
    fixture_database();
    PGconn *conn = fixture_connect(), *holder = fixture_connect(), *writer = fixture_connect();
    static const char *const write = "insert into rowbell.attempts (subscription_id, event_seq, attempt, started_at, "
                                     "class) values (1, 1, 1, now(), 'lost')";
    sql_run(conn, "delete from rowbell.migrations where name = '0013_publications'"); // which alters attempts
    sql_run(holder, "begin");
    sql_run(holder, write);
    sql_run(writer, "set lock_timeout = '1s'; set statement_timeout = '1s'");
    struct daemon *migrate = daemon_start("rowbell", (const char *const[]){"migrate", NULL});
    for (int i = 0; i < 3; i++) {
        sql_wait(conn, 20000,
                 "select count(*) from pg_locks where relation = 'rowbell.attempts'::regclass and not granted");
        sql_run(writer, write);
    }
    daemon_wait_log(migrate, "trying again for a minute", 1000);
    sql_run(holder, "commit");
    ck_assert_int_eq(daemon_wait_exit(migrate, 60000), 0);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.migrations where version = 13"), 1);
}
END_TEST

START_TEST(test_migrate_refuses_a_changed_file) {
    fixture_database();
    PGconn *conn = fixture_connect();
    sql_run(conn, "update rowbell.migrations set checksum = 'other' where name = '0001_outbox'");
    expect_status(RUN("migrate"), 4);
    expect_text(err, "rowbell: 0001_outbox.sql was changed after it was applied");
    expect_status(RUN("migrate", "--dry-run"), 4);
    expect_status(RUN("migrate", "--status"), 0);
    expect_text(out, "changed");
}
END_TEST

START_TEST(test_migrate_replaces_changed_functions) {
    fixture_database();
    PGconn *conn = fixture_connect();
    const char *before = records(conn);
    sql_run(conn, "update rowbell.migrations set checksum = 'other' where name = 'functions/publish'");
    sql_run(conn, "insert into rowbell.migrations (name, checksum) values ('functions/of_an_older_release', 'x')");
    sql_run(conn,
            "create or replace function rowbell.scope_of(value text) returns text language sql immutable return 'x'");
    expect_status(RUN("migrate", "--dry-run"), 0);
    expect_text(out, "pending functions/text\n");
    expect_text(out, "pending grants\n");
    ck_assert_str_eq(sql_text(conn, "select rowbell.scope_of('a')"), "x");
    expect_status(RUN("migrate"), 0);
    expect_text(out, "applied functions/publish\n");
    ck_assert_ptr_null(strstr(out, "0001"));
    ck_assert_str_eq(records(conn), before);
    ck_assert_str_eq(sql_text(conn, "select rowbell.scope_of('a')"), "a");
}
END_TEST

START_TEST(test_migrate_prints_the_same_schema) {
    const char *migrated = fixture_empty_database();
    expect_status(RUN("migrate"), 0);
    const char *migrated_records = records(fixture_connect());
    const char *printed = fixture_empty_database();
    // No database is needed: this one cannot be reached.
    expect_status(RUN("migrate", "--print", "--database-url", "postgres://127.0.0.1:1/none"), 0);
    char path[] = "/tmp/rowbell-print-XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, out, strlen(out)), (ssize_t)strlen(out));
    close(fd);
    char command[1000];
    snprintf(command, sizeof(command), "psql -X -f %s '%s' 2>&1", path, printed);
    for (int i = 0; i < 2; i++)
        free(shell(command)); // the second time changes nothing
    unlink(path);
    char *a = schema_of(migrated), *b = schema_of(printed);
    expect_same(a, b);
    free(a);
    free(b);
    ck_assert_str_eq(records(fixture_connect()), migrated_records);
    expect_status(RUN("migrate"), 0);
    expect_text(out, "nothing to do");
}
END_TEST

START_TEST(test_migrate_without_roles_as_the_database_owner) {
    const char *url = fixture_empty_database();
    PGconn *superuser = fixture_connect();
    char sql[300], owner_url[1000];
    const char *database = sql_text(superuser, "select current_database()");
    snprintf(sql, sizeof(sql), "create role owner_of_%s login password 'plain'; alter database %s owner to owner_of_%s",
             database, database, database);
    sql_run(superuser, sql);
    snprintf(owner_url, sizeof(owner_url), "%s%cuser=owner_of_%s&password=plain", url, strchr(url, '?') ? '&' : '?',
             database);
    expect_status(RUN("migrate", "--no-roles", "--database-url", owner_url), 0);
    ck_assert_ptr_null(strstr(out, "grants"));
    expect_status(RUN("migrate", "--no-roles", "--database-url", owner_url), 0);
    expect_text(out, "nothing to do");
    ck_assert_int_eq(sql_int(superuser,
                             "select count(*) from pg_class where relnamespace = 'rowbell'::regnamespace and "
                             "relowner = 'rowbell_owner'::regrole"),
                     0);
    // It works: the owner publishes, writes, and finds the event.
    PGconn *owner = PQconnectdb(owner_url);
    ck_assert_int_eq(PQstatus(owner), CONNECTION_OK);
    sql_run(owner, "create schema app; create table app.notes (id int primary key)");
    expect_status(RUN("publish", "app.notes", "--database-url", owner_url), 0);
    sql_run(owner, "insert into app.notes values (1)");
    ck_assert_str_eq(sql_text(owner, "select subject from rowbell.events"), "notes/1");
    // Publishing again, with other options and after a rename, too.
    sql_run(owner, "alter table app.notes add tenant text");
    expect_status(RUN("publish", "app.notes", "--scope", "tenant", "--database-url", owner_url), 0);
    sql_run(owner, "alter table app.notes rename tenant to org");
    ck_assert_str_eq(sql_error(owner, "insert into app.notes values (2, 'a')"), "42703");
    expect_status(RUN("publish", "app.notes", "--scope", "org", "--database-url", owner_url), 0);
    sql_run(owner, "insert into app.notes values (2, 'a')");
    ck_assert_str_eq(sql_text(owner, "select scope from rowbell.events where key = '2'"), "a");
    expect_status(RUN("unpublish", "app.notes", "--database-url", owner_url), 0);
    sql_run(owner, "insert into app.notes values (3)");
    ck_assert_int_eq(sql_int(owner, "select count(*) from rowbell.events"), 2);
    PQfinish(owner);
    // What it was made as, it stays.
    expect_status(RUN("migrate"), 4);
    expect_text(err, "give --no-roles again");
    snprintf(sql, sizeof(sql), "reassign owned by owner_of_%s to current_user; drop role owner_of_%s", database,
             database);
    sql_run(superuser, sql);
}
END_TEST

START_TEST(test_migrate_with_roles_refuses_no_roles) {
    fixture_database();
    expect_status(RUN("migrate", "--no-roles"), 4);
    expect_text(err, "leave --no-roles out");
}
END_TEST

START_TEST(test_migrate_dry_run_changes_nothing) {
    const char *url = fixture_empty_database();
    char *before = schema_of(url);
    expect_status(RUN("migrate", "--dry-run"), 0);
    expect_text(out, "pending 0001_outbox\n");
    expect_text(out, "pending grants\n");
    expect_status(RUN("migrate", "--status"), 0);
    expect_text(out, "0001_outbox");
    expect_text(out, "pending");
    char *after = schema_of(url);
    expect_same(before, after);
    free(before);
    free(after);
}
END_TEST

START_TEST(test_migrate_refuses_a_newer_database) {
    fixture_database();
    PGconn *conn = fixture_connect();
    sql_run(
        conn,
        "insert into rowbell.migrations (name, version, compatible_from, checksum) values ('0099_far', 99, 99, 'x')");
    expect_status(RUN("migrate"), 4);
    expect_text(err, "the database is at schema version 99");
    expect_status(RUN("migrate", "--status"), 0);
    expect_text(out, "unknown to this program");
    expect_status(RUN("status"), 4);
    // A newer schema that this program may still use.
    sql_run(conn, "update rowbell.migrations set compatible_from = 1 where version = 99");
    expect_status(RUN("status"), 0);
    expect_status(RUN("migrate"), 4);
}
END_TEST

START_TEST(test_migrate_failure_names_the_file_and_changes_nothing) {
    fixture_database(); // the roles are there
    fixture_empty_database();
    PGconn *conn = fixture_connect();
    // The last of the table migrations, so that all the others have to go.
    sql_run(conn, "create schema rowbell authorization rowbell_owner; set role rowbell_owner;"
                  "create table rowbell.events_set_aside_due (); reset role");
    expect_status(RUN("migrate"), 1);
    expect_text(err, "rowbell: migrate: 0006_outbox_indexes: relation \"events_set_aside_due\" already exists");
    ck_assert_str_eq(sql_text(conn, "select string_agg(relname, ' ') from pg_class where relnamespace = "
                                    "'rowbell'::regnamespace"),
                     "events_set_aside_due");
    // Put right, it goes on.
    sql_run(conn, "drop table rowbell.events_set_aside_due");
    expect_status(RUN("migrate"), 0);
}
END_TEST

static int rows_for(PGconn *conn, const char *sql, const char *parameter) {
    PGresult *result = PQexecParams(conn, sql, 1, NULL, (const char *const[]){parameter}, NULL, NULL, 0);
    int rows = PQntuples(result);
    PQclear(result);
    return rows;
}

START_TEST(test_migrate_json) {
    fixture_database();
    PGconn *conn = fixture_connect();
    expect_status(RUN("migrate", "--json"), 0);
    ck_assert_int_eq(rows_for(conn, "select where $1::jsonb -> 'applied' = '[]'", out), 1);
    expect_status(RUN("migrate", "--status", "--json"), 0);
    ck_assert_int_eq(rows_for(conn,
                              "select from jsonb_array_elements($1::jsonb) m where m ->> 'state' = 'applied' and "
                              "m ->> 'applied_at' like '20__-__-__T__:__:__Z' and m ->> 'name' = '0001_outbox'",
                              out),
                     1);
}
END_TEST

START_TEST(test_migrate_flags_exclude_each_other) {
    expect_status(RUN("migrate", "--print", "--status"), 2);
    expect_text(err, "exclude each other");
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "migrate", 90);
    tcase_add_test(tcase, test_migrate_twice);
    tcase_add_test(tcase, test_migrate_at_once);
    tcase_add_test(tcase, test_migrate_says_that_it_waits);
    tcase_add_test(tcase, test_migrate_stops_nobody_while_it_waits);
    tcase_add_test(tcase, test_migrate_refuses_a_changed_file);
    tcase_add_test(tcase, test_migrate_replaces_changed_functions);
    tcase_add_test(tcase, test_migrate_prints_the_same_schema);
    tcase_add_test(tcase, test_migrate_without_roles_as_the_database_owner);
    tcase_add_test(tcase, test_migrate_with_roles_refuses_no_roles);
    tcase_add_test(tcase, test_migrate_dry_run_changes_nothing);
    tcase_add_test(tcase, test_migrate_refuses_a_newer_database);
    tcase_add_test(tcase, test_migrate_failure_names_the_file_and_changes_nothing);
    tcase_add_test(tcase, test_migrate_json);
    tcase_add_test(tcase, test_migrate_flags_exclude_each_other);
}

int main(void) {
    return suite_main("migrate", add_tests);
}
