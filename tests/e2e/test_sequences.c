// Sequences that are behind their tables, as after a logical switch-over: found and raised before an application's
// write fails.
#include "tests/support/fixture.h"
#include <stdio.h>
#include <string.h>

// Those of our schema, as the catalog has them.
static const char *const sequences =
    "select string_agg(c.oid::regclass::text, ' ' order by c.oid) from pg_class c join pg_depend d on d.classid = "
    "'pg_class'::regclass and d.objid = c.oid and d.deptype in ('i', 'a') and d.refobjsubid > 0 where c.relkind = 'S' "
    "and "
    "c.relnamespace = 'rowbell'::regnamespace";

static PGconn *behind(void) {
    fixture_database();
    PGconn *conn = fixture_connect();
    sql_run(conn, "create table t (id int primary key); select rowbell.publish('t'); insert into t select "
                  "generate_series(1, 300);"
                  "select rowbell.add_webhook('w', 'https://example.com/', '{t.*}', all_scopes => true);"
                  "select rowbell.declare_type('a.b')");
    PGresult *names = PQexec(
        conn, "select unnest('{events_seq,event_types_id,subscriptions_id,published_id,stream_keys_id}'::text[])");
    for (int i = 0; i < PQntuples(names); i++) {
        char sql[100];
        snprintf(sql, sizeof sql, "alter sequence rowbell.%s_seq restart", PQgetvalue(names, i, 0));
        sql_run(conn, sql);
    }
    PQclear(names);
    return conn;
}

// Everything that takes a number works, and no number is taken twice.
static void expect_whole(PGconn *conn) {
    sql_run(
        conn,
        "insert into t select generate_series(1001, 1400); select rowbell.record('a.b', 'x'); select "
        "rowbell.declare_type('c.d'); create table u (id int primary key); select rowbell.publish('u'); insert into u "
        "values (1); select rowbell.add_webhook('v', 'https://example.com/', '{*}', all_scopes => true)");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events where xact is not null and seq > 300"), 402);
    ck_assert_int_eq(
        sql_int(fixture_admin(), "select count(*) from rowbell.doctor() where problem = 'sequence is behind'"), 0);
}

START_TEST(doctor_names_each_and_the_function_raises_it) {
    PGconn *conn = behind();
    ck_assert_str_eq(sql_error(conn, "insert into t values (999)"), "23505");
    const char *known = sql_text(conn, sequences);
    ck_assert_str_eq(sql_text(fixture_admin(),
                              "select string_agg(subject, ' ' order by subject::regclass::oid) from rowbell.doctor() "
                              "where problem = 'sequence is behind'"),
                     known);
    // Anybody may, and nobody can lower one.
    PGconn *login = PQconnectdb(fixture_login("rowbell_gateway"));
    sql_run(login, "select rowbell.raise_sequences()");
    expect_whole(conn);
    int64_t next = sql_int(conn, "select last_value from rowbell.events_seq_seq");
    ck_assert_int_gt(next, 1000000);
    ck_assert_int_eq(sql_int(login, "select count(*) from rowbell.raise_sequences()"), 0);
    sql_run(conn, "alter sequence rowbell.events_seq_seq restart 9007199254000000");
    ck_assert_int_eq(sql_int(login, "select count(*) from rowbell.raise_sequences()"), 0);
    ck_assert_int_eq(sql_int(conn, "select last_value from rowbell.events_seq_seq"), 9007199254000000);
    PQfinish(login);
}
END_TEST

// What outlives events has their numbers, too.
START_TEST(pruned_events_do_not_hide_it) {
    PGconn *conn = behind();
    sql_run(conn, "insert into rowbell.attempts (subscription_id, event_seq, attempt, started_at, class) values (1, "
                  "5000, 1, now(), "
                  "'delivered'); delete from rowbell.events; select rowbell.raise_sequences()");
    ck_assert_int_gt(sql_int(conn, "select last_value from rowbell.events_seq_seq"), 5000);
    sql_run(
        conn,
        "delete from rowbell.attempts; alter sequence rowbell.events_seq_seq restart; insert into rowbell.stream_log "
        "(stream_id, position, prev, event_seq, name, key, op) select 1, l.position + 1, l.position, 7000, 't', '1', "
        "'update' from rowbell.stream_log l; select rowbell.raise_sequences()");
    ck_assert_int_gt(sql_int(conn, "select last_value from rowbell.events_seq_seq"), 7000);
}
END_TEST

START_TEST(migrate_raises_them) {
    PGconn *conn = behind();
    const char *out, *err;
    const char *const arguments[] = {"migrate", fixture_has_roles() ? NULL : "--no-roles", NULL};
    ck_assert_msg(program_run("rowbell", arguments, &out, &err) == 0, "%s", err);
    ck_assert_ptr_nonnull(strstr(err, "rowbell.events_seq_seq was behind its table; its next number is 1000301"));
    expect_whole(conn);
    ck_assert_int_eq(program_run("rowbell", arguments, &out, &err), 0);
    ck_assert_ptr_null(strstr(err, "behind"));
}
END_TEST

START_TEST(a_relay_raises_them_when_it_starts_and_while_it_runs) {
    PGconn *conn = behind();
    struct daemon *relay = daemon_start("rowbell-relay", (const char *const[]){NULL});
    daemon_wait_log(relay, "sequence=rowbell.events_seq_seq", HANG_MS);
    sql_wait(conn, HANG_MS, "select count(*) = 0 from rowbell.sequences_behind()");
    expect_whole(conn);
    sql_run(conn, "alter sequence rowbell.events_seq_seq restart");
    sql_wait(conn, HANG_MS, "select count(*) = 0 from rowbell.sequences_behind()");
    sql_run(conn, "insert into t select generate_series(2001, 2400)");
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "sequences", 120);
    tcase_add_test(tcase, doctor_names_each_and_the_function_raises_it);
    tcase_add_test(tcase, pruned_events_do_not_hide_it);
    tcase_add_test(tcase, migrate_raises_them);
    tcase_add_test(tcase, a_relay_raises_them_when_it_starts_and_while_it_runs);
}

int main(void) {
    return suite_main("sequences", add_tests);
}
