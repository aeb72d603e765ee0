// A login that may make a schema plants what `rowbell migrate` and every other command and process would read: nothing
// of it may run with the rights of who reads. Each trap writes the name of whoever springs it.
#include "tests/support/cluster.h"
#include "tests/support/fixture.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUN(...) program_run("rowbell", (const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL}, &out, &err)

static const char *out, *err;

static void expect_status(int status, int expected) {
    ck_assert_msg(status == expected, "status %d instead of %d\n%.1000s%.2000s", status, expected, out, err);
}

static void expect_text(const char *text, const char *part) {
    ck_assert_msg(strstr(text, part) != NULL, "no '%s' in:\n%.3000s", part, text);
}

static PGconn *admin, *hostile;
static const char *database; // its URL, as a superuser
static const char *who;      // the hostile login

static void run_as_admin(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void run_as_admin(const char *format, ...) {
    char sql[2000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sql, sizeof sql, format, arguments);
    va_end(arguments);
    sql_run(admin, sql);
}

// An empty database in which a login may create schemas, and has one with a trap.
static void set_up(void) {
    database = fixture_empty_database();
    admin = fixture_connect();
    hostile = PQconnectdb(fixture_login("pg_signal_backend")); // of no use here
    ck_assert_msg(PQstatus(hostile) == CONNECTION_OK, "%s", PQerrorMessage(hostile));
    who = PQuser(hostile);
    run_as_admin("grant create on database %s to %s", PQdb(admin), who);
    sql_run(hostile,
            "create schema own; grant usage on schema own to public;"
            "create table own.loot (who text); grant all on own.loot to public;"
            "create function own.spring() returns boolean language plpgsql as $$ begin insert into own.loot values "
            "(current_user); return true; end $$");
}

static void expect_no_loot(void) {
    ck_assert_str_eq(sql_text(admin, "select coalesce(string_agg(distinct who, ' '), 'nothing') from own.loot"),
                     "nothing");
}

static const char planted_records[] =
    "create view rowbell.migrations as select '0001_outbox'::text as name, 1 as version, 1 as compatible_from, "
    "''::text as checksum, now() as applied_at where own.spring()";

static const char *const readers[][4] = {
    {"migrate"},
    {"migrate", "--status"},
    {"migrate", "--dry-run"},
    {"migrate", "--no-roles"},
    {"migrate", "--no-roles", "--dry-run"},
    {"status"},
    {"doctor"},
    {"subscription", "list"},
};

START_TEST(a_planted_record_of_migrations_is_not_read) {
    set_up();
    sql_run(hostile, "create schema rowbell; grant usage on schema rowbell to public");
    sql_run(hostile, planted_records);
    sql_run(hostile, "grant select on rowbell.migrations to public");
    const char *const *reader = readers[_i];
    expect_status(RUN(reader[0], reader[1], reader[2], reader[3]), 4);
    expect_no_loot();
    expect_text(err, who);
}
END_TEST

// What follows the name is a table here, and its owner the same as the schema's: a stranger.
START_TEST(a_planted_table_is_not_read) {
    set_up();
    sql_run(hostile, "create schema rowbell; grant usage on schema rowbell to public;"
                     "create table rowbell.migrations (name text, version int, compatible_from int, checksum text, "
                     "applied_at timestamptz);"
                     "grant select on rowbell.migrations to public;"
                     "insert into rowbell.migrations values ('0001_outbox', 1, 1, '', now());"
                     "alter table rowbell.migrations enable row level security;"
                     "create policy trap on rowbell.migrations using (own.spring())");
    const char *const *reader = readers[_i];
    expect_status(RUN(reader[0], reader[1], reader[2], reader[3]), 4);
    expect_no_loot();
}
END_TEST

static const char *const processes[][6] = {
    {"rowbell-relay", "--once"},
    {"rowbell-dispatcher", "--once"},
};

START_TEST(no_process_reads_a_planted_record) {
    set_up();
    sql_run(hostile, "create schema rowbell; grant usage on schema rowbell to public");
    sql_run(hostile, planted_records);
    sql_run(hostile, "grant select on rowbell.migrations to public");
    struct daemon *daemon = daemon_start(processes[_i][0], processes[_i] + 1);
    ck_assert_int_eq(daemon_wait_exit(daemon, HANG_MS), 4);
    expect_text(daemon->log, "belongs to");
    expect_no_loot();
}
END_TEST

START_TEST(the_printed_sql_refuses_too) {
    set_up();
    sql_run(hostile, "create schema rowbell; grant usage on schema rowbell to public");
    sql_run(hostile, planted_records);
    expect_status(RUN("migrate", "--print"), 0);
    char path[] = "/tmp/rowbell-print-XXXXXX", command[1000];
    int fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");
    ck_assert_ptr_nonnull(file);
    fputs(out, file);
    fclose(file);
    snprintf(command, sizeof command, "psql -X -f %s '%s' >/dev/null 2>&1", path, database);
    ck_assert_int_ne(system(command), 0);
    remove(path);
    expect_no_loot();
    ck_assert_str_eq(sql_text(admin, "select nspowner::regrole::text from pg_namespace where nspname = 'rowbell'"),
                     who);
}
END_TEST

// ---- a migrated database: one thing in it is not ours

static const struct {
    const char *sql; // as superuser; %1$s: the stranger
    const char *says;
} plants[] = {
    {"grant create on schema rowbell to %1$s", "revoke create on schema rowbell from "},
    {"alter view rowbell.status owner to %1$s", "view rowbell.status: it belongs to "},
    {"alter table rowbell.jobs owner to %1$s", "table rowbell.jobs: it belongs to "},
    {"alter function rowbell.scope_of(text) owner to %1$s", "function rowbell.scope_of(value text): it belongs to "},
    {"create function rowbell.mine() returns int language sql return 1; alter function rowbell.mine() owner to %1$s",
     "drop function rowbell.mine()"},
    {"create type rowbell.mine as enum ('a'); alter type rowbell.mine owner to %1$s", "type rowbell.mine"},
    {"create domain rowbell.mine as int; alter domain rowbell.mine owner to %1$s", "drop domain rowbell.mine"},
    {"create sequence rowbell.mine; alter sequence rowbell.mine owner to %1$s", "sequence rowbell.mine"},
    {"create function rowbell.eq(text, int) returns boolean language sql return true; "
     "create operator rowbell.= (leftarg = text, rightarg = int, function = rowbell.eq); "
     "alter function rowbell.eq(text, int) owner to rowbell_owner; "
     "alter operator rowbell.=(text, int) owner to %1$s",
     "operator rowbell.="},
    {"create text search configuration rowbell.mine (copy = simple); "
     "alter text search configuration rowbell.mine owner to %1$s",
     "text search configuration rowbell.mine"},
    {"create function trap() returns trigger language plpgsql as 'begin return new; end'; "
     "alter function trap() owner to %1$s; create trigger trap before insert on rowbell.events for each row "
     "execute function trap()",
     "drop trigger trap on rowbell.events"},
    {"create table keeps (seq bigint references rowbell.events); alter table keeps owner to %1$s",
     "alter table public.keeps drop constraint keeps_seq_fkey"},
    {"alter default privileges for role rowbell_owner in schema rowbell grant select on tables to %1$s",
     "in schema rowbell revoke all on tables from "},
    {"create extension citext schema rowbell", "alter extension citext set schema public"},
    {"drop table rowbell.migrations; create view rowbell.migrations as select 1; "
     "alter view rowbell.migrations owner to rowbell_owner",
     "rowbell.migrations: it is not an ordinary table"},
};

START_TEST(what_is_not_ours_in_the_schema_stops_the_migration) {
    fixture_database();
    admin = fixture_connect();
    const char *stranger = PQuser(PQconnectdb(fixture_login("pg_signal_backend")));
    char sql[1000];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(sql, sizeof sql, plants[_i].sql, stranger);
#pragma GCC diagnostic pop
    sql_run(admin, sql);
    expect_status(RUN("migrate"), 4);
    expect_text(err, plants[_i].says);
    expect_status(RUN("migrate", "--status"), 4);
    expect_text(err, plants[_i].says);
}
END_TEST

static const char *const encodings[] = {"LATIN1", "SQL_ASCII"};

START_TEST(an_encoding_that_is_not_supported_is_refused_before_anything_is_made) {
    const char *url = fixture_empty_database();
    PGconn *server = PQconnectdbParams((const char *const[]){"dbname", "dbname", NULL},
                                       (const char *const[]){url, "postgres", NULL}, 1);
    admin = fixture_connect();
    const char *name = sql_text(admin, "select current_database()");
    char sql[300];
    snprintf(sql, sizeof sql, "drop database %s with (force)", name);
    sql_run(server, sql);
    snprintf(sql, sizeof sql, "create database %s encoding '%s' template template0 locale 'C'", name, encodings[_i]);
    sql_run(server, sql);
    PQfinish(server);
    char says[100];
    snprintf(says, sizeof says, "its encoding is %s, and Rowbell needs UTF8", encodings[_i]);
    expect_status(RUN("migrate"), 4);
    expect_text(err, says);
    PGconn *conn = PQconnectdb(url);
    ck_assert_int_eq(sql_int(conn, "select count(*) from pg_namespace where nspname = 'rowbell'"), 0);
    PQfinish(conn);
}
END_TEST

// What a database sets for all its sessions may not decide what our files mean.
START_TEST(settings_of_the_database_do_not_reach_the_migration) {
    set_up();
    sql_run(hostile, "create function own.current_setting(text) returns text language plpgsql as $$ begin perform "
                     "own.spring(); return ''; end $$;"
                     "create function own.to_regclass(text) returns regclass language plpgsql as $$ begin perform "
                     "own.spring(); return null; end $$; create temp table pg_class ()");
    static const char *const settings[] = {
        "search_path = own, pg_catalog",
        "standard_conforming_strings = off",
        "transform_null_equals = on",
        "quote_all_identifiers = on",
        "check_function_bodies = off",
        "plpgsql.extra_errors = 'all'",
        "default_transaction_read_only = on",
        "statement_timeout = '1ms'",
        "row_security = off",
        "rowbell.no_roles = 'on'",
        "transaction_timeout = '30s'", // of PostgreSQL 17
    };
    size_t count = sizeof settings / sizeof *settings - (PQserverVersion(admin) < 170000);
    for (size_t i = 0; i < count; i++)
        run_as_admin("alter database %s set %s", PQdb(admin), settings[i]);
    expect_status(RUN("migrate"), 0);
    expect_no_loot();
    ck_assert_str_eq(sql_text(admin, "select nspowner::regrole from pg_namespace where nspname = 'rowbell'"),
                     "rowbell_owner");
}
END_TEST

// Roles belong to the cluster, so this test has one of its own.
START_TEST(roles_that_somebody_made_before_are_refused) {
    struct cluster *cluster = cluster_new();
    cluster_start_primary(cluster);
    PGconn *superuser = cluster_connect(cluster);
    const char *url = clusters_url(&cluster, 1, "any");
    sql_run(superuser, "create role mallory login createrole; create role deploy; set role mallory;"
                       "create role rowbell_owner login password 'x'; create role rowbell_dispatcher login;"
                       "grant rowbell_owner to mallory");
    expect_status(RUN("migrate", "--database-url", url), 4);
    expect_text(err, "role rowbell_owner: it is more than a group: login: alter role rowbell_owner nologin");
    expect_text(err, "role rowbell_dispatcher: it is more than a group: login");
    expect_text(err, "role rowbell_owner: mallory is a member of it");
    expect_text(err, PQserverVersion(superuser) >= 160000
                         ? "revoke rowbell_owner from mallory granted by mallory cascade"
                         : "revoke rowbell_owner from mallory cascade");
    ck_assert_int_eq(sql_int(superuser, "select count(*) from pg_namespace where nspname = 'rowbell'"), 0);
    sql_run(superuser, "reset role; alter role rowbell_owner nologin; alter role rowbell_dispatcher nologin");
    expect_status(RUN("migrate", "--dry-run", "--database-url", url), 4);
    expect_status(RUN("migrate", "--database-url", url, "--trust", "deploy,mallory"), 0);
    // Later, members are what an administrator made them; a login is wrong at any time.
    sql_run(superuser, "grant rowbell_owner to deploy");
    expect_status(RUN("migrate", "--database-url", url), 0);
    sql_run(superuser, "alter role rowbell_owner login");
    expect_status(RUN("migrate", "--database-url", url), 4);
    expect_status(RUN("status", "--database-url", url), 4);
    expect_text(err, "the schema rowbell belongs to rowbell_owner");
    cluster_kill(cluster);
}
END_TEST

// Runs each remedy "role R: what: REMEDY, or, ..." that the last command printed.
static void run_remedies(PGconn *superuser) {
    char *lines = strdup(err), *rest = lines;
    for (char *line; (line = strsep(&rest, "\n"));) {
        char *remedy = strstr(line, ": revoke "), *alter = strstr(line, ": alter role ");
        remedy = remedy ? remedy : alter;
        if (!remedy)
            continue;
        char *end = strstr(remedy, ", or, ");
        if (end)
            *end = '\0';
        sql_run(superuser, remedy + 2);
    }
    free(lines);
}

// What is printed mends it, whoever granted what to whom.
START_TEST(remedies_for_roles_mend_them) {
    struct cluster *cluster = cluster_new();
    cluster_start_primary(cluster);
    PGconn *superuser = cluster_connect(cluster);
    const char *url = clusters_url(&cluster, 1, "any");
    sql_run(superuser,
            "create role trusted login createrole; create role eve; create role eves_friend; set role trusted;"
            "create role rowbell_owner login; create role rowbell_relay;"
            "grant rowbell_owner to eve with admin option; set role eve;"
            "grant rowbell_owner to eves_friend; reset role; create role other;"
            "grant rowbell_relay to other with admin option");
    expect_status(RUN("migrate", "--database-url", url, "--trust", "trusted"), 4);
    run_remedies(superuser);
    expect_status(RUN("migrate", "--database-url", url, "--trust", "trusted"), 0);
    ck_assert_int_eq(sql_int(superuser,
                             "select count(*) from pg_auth_members m where m.member in ('eve'::regrole, "
                             "'eves_friend'::regrole, 'other'::regrole) and m.roleid = 'rowbell_owner'::regrole"),
                     0);
    cluster_kill(cluster);
}
END_TEST

// The shape of hosted PostgreSQL: the owner of the database may make roles, and is nothing more. Since PostgreSQL 16
// each membership says what it allows, and a setting says what of it the maker of a role gets.
static const struct {
    const char *sql;
    bool inherits; // the rights of rowbell_owner
} hosts[] = {
    {"create role host login createrole", true},
    {"create role host login createrole noinherit", false},
    {"create role host login createrole; alter role host set createrole_self_grant = 'inherit'", true},
    {"create role host login createrole; alter role host set createrole_self_grant = 'set'", false},
    {"create role host login createrole; alter role host set createrole_self_grant = 'set, inherit'", true},
};

START_TEST(an_owner_of_the_database_who_may_make_roles_migrates) {
    struct cluster *cluster = cluster_new();
    cluster_start_primary(cluster);
    PGconn *superuser = cluster_connect(cluster);
    if (strstr(hosts[_i].sql, "self_grant") && PQserverVersion(superuser) < 160000) {
        cluster_kill(cluster);
        return;
    }
    sql_run(superuser, hosts[_i].sql);
    sql_run(superuser, "alter database postgres owner to host");
    char url[300];
    snprintf(url, sizeof url, "postgres://host@127.0.0.1:%d/postgres", cluster_port(cluster));
    expect_status(RUN("migrate", "--database-url", url), 0);
    expect_status(RUN("migrate", "--database-url", url), 0);
    expect_text(out, "nothing to do");
    expect_status(RUN("status", "--database-url", url), hosts[_i].inherits ? 0 : 4);
    cluster_kill(cluster);
}
END_TEST

// Who migrates must be able to become the owner of the schema; else the error says which grant is missing, and that
// grant is enough.
START_TEST(who_cannot_become_the_owner_is_told_the_grant) {
    struct cluster *cluster = cluster_new();
    cluster_start_primary(cluster);
    PGconn *superuser = cluster_connect(cluster);
    const char *admin_url = clusters_url(&cluster, 1, "any");
    expect_status(RUN("migrate", "--database-url", admin_url), 0);
    bool options = PQserverVersion(superuser) >= 160000;
    sql_run(superuser, "create role deploy login; grant create on database postgres to deploy");
    sql_run(superuser, "create database second owner deploy");
    if (options) // a member that may use the rights, but not become the role
        sql_run(superuser, "grant rowbell_owner to deploy with inherit true, set false");
    static const char *const names[] = {"postgres", "second"};
    char url[300];
    for (size_t i = 0; i < 2; i++) {
        snprintf(url, sizeof url, "postgres://deploy@127.0.0.1:%d/%s", cluster_port(cluster), names[i]);
        expect_status(RUN("migrate", "--database-url", url), 1);
        expect_text(err, "cannot become rowbell_owner");
        expect_text(err, options ? "grant rowbell_owner to deploy with set true" : "grant rowbell_owner to deploy");
    }
    sql_run(superuser, options ? "grant rowbell_owner to deploy with set true" : "grant rowbell_owner to deploy");
    for (size_t i = 0; i < 2; i++) {
        snprintf(url, sizeof url, "postgres://deploy@127.0.0.1:%d/%s", cluster_port(cluster), names[i]);
        expect_status(RUN("migrate", "--database-url", url), 0);
    }
    cluster_kill(cluster);
}
END_TEST

// PostgreSQL 17 ends a session whose transaction takes longer than transaction_timeout says.
START_TEST(a_transaction_timeout_of_the_database_does_not_end_a_migration) {
    set_up();
    if (PQserverVersion(admin) < 170000)
        return;
    run_as_admin("alter database %s set transaction_timeout = '3s'", PQdb(admin));
    PGconn *holder = fixture_connect();
    sql_run(holder, "set transaction_timeout = 0; begin; select pg_advisory_xact_lock(x'726f7762656c6c'::bigint)");
    struct daemon *migrate = daemon_start("rowbell", (const char *const[]){"migrate", NULL});
    sql_run(admin, "set transaction_timeout = 0");
    sql_wait(
        admin, 60000,
        "select exists (select from pg_stat_activity where datname = current_database() and wait_event = 'advisory' "
        "and now() - xact_start > interval '4 s')");
    sql_run(holder, "commit");
    ck_assert_int_eq(daemon_wait_exit(migrate, 60000), 0);
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "hostile_migrate", 60);
    int reader_count = (int)(sizeof readers / sizeof *readers);
    tcase_add_loop_test(tcase, a_planted_record_of_migrations_is_not_read, 0, reader_count);
    tcase_add_loop_test(tcase, a_planted_table_is_not_read, 0, reader_count);
    tcase_add_loop_test(tcase, no_process_reads_a_planted_record, 0, (int)(sizeof processes / sizeof *processes));
    tcase_add_test(tcase, the_printed_sql_refuses_too);
    tcase_add_loop_test(tcase, what_is_not_ours_in_the_schema_stops_the_migration, 0,
                        (int)(sizeof plants / sizeof *plants));
    tcase_add_loop_test(tcase, an_encoding_that_is_not_supported_is_refused_before_anything_is_made, 0, 2);
    tcase_add_test(tcase, roles_that_somebody_made_before_are_refused);
    tcase_add_test(tcase, remedies_for_roles_mend_them);
    tcase_add_loop_test(tcase, an_owner_of_the_database_who_may_make_roles_migrates, 0,
                        (int)(sizeof hosts / sizeof *hosts));
    tcase_add_test(tcase, who_cannot_become_the_owner_is_told_the_grant);
    tcase_add_test(tcase, a_transaction_timeout_of_the_database_does_not_end_a_migration);
    tcase_add_test(tcase, settings_of_the_database_do_not_reach_the_migration);
}

int main(void) {
    return suite_main("hostile_migrate", add_tests);
}
