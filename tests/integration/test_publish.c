// publish and unpublish in a database that is at work: what they lock, and who waits for whom.
#include "tests/support/fixture.h"
#include <stdio.h>
#include <string.h>

// Locks of this transaction that stop anybody, besides those of the test's own statements.
static const char *const strong_locks =
    "select coalesce(string_agg(distinct l.relation::regclass || ' ' || l.mode, ', '), 'none') from pg_locks l where "
    "l.pid = pg_backend_pid() and l.locktype = 'relation' and l.mode not in ('AccessShareLock', 'RowShareLock', "
    "'RowExclusiveLock')";
static const char *const advisory_locks =
    "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()";

static PGconn *fresh(const char *setup) {
    fixture_database();
    PGconn *conn = fixture_connect();
    sql_run(conn, setup);
    return conn;
}

// ---- in the background

static PGconn *begin(const char *settings, const char *sql) {
    PGconn *conn = fixture_connect();
    sql_run(conn, settings);
    ck_assert_int_eq(PQsendQuery(conn, sql), 1);
    return conn;
}

static bool is_running(PGconn *conn) {
    ck_assert_int_eq(PQconsumeInput(conn), 1);
    return PQisBusy(conn);
}

static void wait_blocked(PGconn *looker, PGconn *waiter) {
    char sql[200];
    snprintf(sql, sizeof sql, "select count(*) from pg_locks where pid = %d and not granted", PQbackendPID(waiter));
    sql_wait(looker, 5000, sql);
}

// The SQLSTATE that it ended with; "" is success.
static const char *ended(PGconn *conn) {
    static char sqlstate[8];
    sqlstate[0] = '\0';
    for (PGresult *result; (result = PQgetResult(conn)) != NULL; PQclear(result))
        if (PQresultStatus(result) == PGRES_FATAL_ERROR)
            snprintf(sqlstate, sizeof sqlstate, "%s", PQresultErrorField(result, PG_DIAG_SQLSTATE));
    return sqlstate;
}

// ----

static const char *const tables[] = {
    "create table posts (id int primary key, tenant text)",
    "create table posts (id int primary key, tenant text) partition by range (id);"
    "create table posts_1 partition of posts for values from (0) to (10);"
    "create table posts_2 partition of posts for values from (10) to (20)",
    "create table posts (id int primary key, tenant text); create table posts_1 (primary key (id)) inherits (posts)",
};

START_TEST(publish_stops_no_reader_and_the_second_time_nobody) {
    PGconn *conn = fresh(tables[_i]);
    sql_run(conn, "begin; select rowbell.publish('posts')");
    const char *expected[] = {"posts ShareRowExclusiveLock",
                              ("posts ShareRowExclusiveLock, posts_1 ShareRowExclusiveLock, posts_2 "
                               "ShareRowExclusiveLock"),
                              "posts ShareRowExclusiveLock, posts_1 ShareRowExclusiveLock"};
    ck_assert_str_eq(sql_text(conn, strong_locks), expected[_i]);
    sql_run(conn, "commit; begin; select rowbell.publish('posts', scope => 'tenant')");
    ck_assert_str_eq(sql_text(conn, strong_locks), "none"); // new options are new functions; the triggers stay
    sql_run(conn, "commit; begin; select rowbell.publish('posts', scope => 'tenant')");
    ck_assert_str_eq(sql_text(conn, strong_locks), "none");
    ck_assert_int_eq(sql_int(conn, advisory_locks), 0);
    sql_run(conn, "commit; insert into posts values (1, 'a')");
    ck_assert_str_eq(sql_text(conn, "select scope from rowbell.events"), "a");
}
END_TEST

START_TEST(no_setting_outlives_publish) {
    fixture_database();
    PGconn *conn = fixture_connect();
    sql_run(conn, "create table settled (id int primary key); begin; set local lock_timeout = '7s'; "
                  "select rowbell.publish('settled')");
    ck_assert_str_eq(sql_text(conn, "show lock_timeout"), "7s");
    sql_run(conn, "select rowbell.unpublish('settled')");
    ck_assert_str_eq(sql_text(conn, "show lock_timeout"), "7s");
    sql_run(conn, "commit");
    ck_assert_str_eq(sql_text(conn, "show lock_timeout"), "0");
}
END_TEST

START_TEST(publish_gives_up_waiting_for_a_writer) {
    PGconn *conn = fresh("create table posts (id int primary key)"), *writer = fixture_connect();
    sql_run(writer, "begin; insert into posts values (1)");
    // Who has set a time is followed.
    sql_run(conn, "set lock_timeout = '150ms'");
    ck_assert_str_eq(sql_error(conn, "select rowbell.publish('posts')"), "55P03");
    ck_assert_str_eq(sql_text(conn, "show lock_timeout"), "150ms");
    sql_run(writer, "commit");
    sql_run(conn, "select rowbell.publish('posts'); insert into posts values (2)");
    ck_assert_str_eq(sql_text(conn, "show lock_timeout"), "150ms");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events"), 1);
}
END_TEST

// One transaction holds the table up. Others come, and must not queue up behind publish (G8's spirit).
START_TEST(nobody_waits_behind_a_publish_that_waits) {
    PGconn *conn = fresh(tables[_i]), *writer = fixture_connect(), *other = fixture_connect();
    sql_run(writer, "begin; insert into posts values (1)");
    PGconn *publisher = begin("set lock_timeout = '20s'", "select rowbell.publish('posts')");
    wait_blocked(conn, publisher);
    sql_run(other, "set lock_timeout = '1s'; set statement_timeout = '1s'");
    for (int i = 2; i < 5; i++) {
        char sql[200];
        snprintf(sql, sizeof sql, "select count(*) from posts; insert into posts values (%d)", i);
        wait_blocked(conn, publisher);
        sql_run(other, sql);
    }
    ck_assert(is_running(publisher));
    sql_run(writer, "commit");
    ck_assert_str_eq(ended(publisher), "");
    sql_run(other, "insert into posts values (7)");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events"), 1);
}
END_TEST

START_TEST(nobody_waits_behind_an_unpublish_that_waits) {
    PGconn *conn = fresh(tables[_i]), *reader = fixture_connect(), *other = fixture_connect();
    sql_run(conn, "select rowbell.publish('posts')");
    sql_run(reader, "begin; select count(*) from posts");
    PGconn *publisher = begin("set lock_timeout = '20s'", "select rowbell.unpublish('posts')");
    sql_run(other, "set lock_timeout = '1s'; set statement_timeout = '1s'");
    for (int i = 2; i < 5; i++) {
        char sql[200];
        snprintf(sql, sizeof sql, "select count(*) from posts; insert into posts values (%d)", i);
        wait_blocked(conn, publisher);
        sql_run(other, sql);
    }
    ck_assert(is_running(publisher));
    sql_run(reader, "commit");
    ck_assert_str_eq(ended(publisher), "");
    sql_run(other, "insert into posts values (7)");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events"), 3);
    ck_assert_int_eq(sql_int(conn, "select count(*) from pg_trigger where tgname like '~rowbell%'"), 0);
}
END_TEST

// Any login may take our advisory lock, and adding a subscription does: writers of the table do not wait for that.
START_TEST(no_writer_waits_while_publish_waits_for_another_publish) {
    PGconn *conn = fresh("create table posts (id int primary key); create table others (id int primary key)");
    PGconn *first = fixture_connect(), *writer = fixture_connect();
    sql_run(first, "begin; select rowbell.publish('others')");
    PGconn *publisher = begin("set lock_timeout = '1500ms'", "select rowbell.publish('posts')");
    sql_run(writer, "set lock_timeout = '200ms'");
    for (int i = 0; is_running(publisher); i++) {
        char sql[100];
        snprintf(sql, sizeof sql, "insert into posts values (%d)", i);
        sql_run(writer, sql);
    }
    ck_assert_str_eq(ended(publisher), "55P03");
    sql_run(first, "commit");
    sql_run(conn, "select rowbell.publish('posts')");
}
END_TEST

START_TEST(publish_kills_no_transaction) {
    PGconn *conn = fresh("create table posts (id int primary key, v int); insert into posts values (1, 1), (2, 1)");
    PGconn *application = fixture_connect();
    // It has read, and goes on to write what is published meanwhile.
    sql_run(application, "begin; select count(*) from posts");
    sql_run(conn, "begin; select rowbell.publish('posts')");
    ck_assert_int_eq(PQsendQuery(application, "update posts set v = 2; commit"), 1);
    wait_blocked(conn, application);
    sql_run(conn, "commit");
    ck_assert_str_eq(ended(application), "");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events"), 2);
    // Again, without a change, and with one.
    sql_run(application, "begin; select count(*) from posts");
    sql_run(conn, "begin; select rowbell.publish('posts')");
    sql_run(application, "update posts set v = 3");
    sql_run(conn, "commit; select rowbell.publish('posts', watch => '{v}')");
    sql_run(application, "update posts set v = 4; commit");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events"), 6);
    // Two that have written, and now both publish: one gives up, which the other waits for. No deadlock is found.
    sql_run(conn, "select rowbell.unpublish('posts')");
    sql_run(conn, "begin; update posts set v = 5 where id = 1");
    sql_run(application, "set lock_timeout = '2s'; begin; update posts set v = 5 where id = 2");
    ck_assert_int_eq(PQsendQuery(application, "select rowbell.publish('posts')"), 1);
    sql_run(conn, "select rowbell.publish('posts'); commit");
    ck_assert_str_eq(ended(application), "55P03");
}
END_TEST

// What an application's migration does that has nothing to do with capture.
static const char *const unrelated[] = {
    "alter table posts validate constraint filled",     "alter table posts alter tenant set statistics 500",
    "alter table posts alter id set (n_distinct = 10)", "alter table posts set (fillfactor = 90)",
    "alter table posts cluster on posts_pkey",          "alter table posts set without cluster",
    "create table others (id int primary key)",         "alter table more add column x int",
};

START_TEST(follow_ddl_does_nothing_where_nothing_of_it_changed) {
    PGconn *conn = fresh("create table more (id int primary key);"
                         "create table posts (id int primary key, tenant text);"
                         "alter table posts add constraint filled check (tenant <> '') not valid;"
                         "select rowbell.publish('posts', scope => 'tenant'); select rowbell.publish('more')");
    sql_run(fixture_admin(), "select rowbell.follow_ddl()"); // an event trigger is a superuser's
    static const char *const made = "select string_agg(xmin::text, ' ' order by oid) from pg_proc where proname like "
                                    "'capture\\_%' and prorettype = 'trigger'::regtype";
    const char *before = sql_text(conn, made);
    char sql[200];
    snprintf(sql, sizeof sql, "begin; %s", unrelated[_i]);
    sql_run(conn, sql);
    ck_assert_int_eq(sql_int(conn, advisory_locks), 0);
    const char *locks = sql_text(conn, strong_locks);
    ck_assert_msg(!strstr(locks, "posts ShareRow") && !strstr(locks, "posts Access"), "%s", locks);
    sql_run(conn, "commit");
    ck_assert_str_eq(sql_text(conn, made), before);
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "publish", 60);
    int table_count = (int)(sizeof tables / sizeof *tables);
    tcase_add_loop_test(tcase, publish_stops_no_reader_and_the_second_time_nobody, 0, table_count);
    tcase_add_test(tcase, no_setting_outlives_publish);
    tcase_add_test(tcase, publish_gives_up_waiting_for_a_writer);
    tcase_add_loop_test(tcase, nobody_waits_behind_a_publish_that_waits, 0, 2);
    tcase_add_loop_test(tcase, nobody_waits_behind_an_unpublish_that_waits, 0, 2);
    tcase_add_test(tcase, no_writer_waits_while_publish_waits_for_another_publish);
    tcase_add_test(tcase, publish_kills_no_transaction);
    tcase_add_loop_test(tcase, follow_ddl_does_nothing_where_nothing_of_it_changed, 0,
                        (int)(sizeof unrelated / sizeof *unrelated));
}

int main(void) {
    return suite_main("publish", add_tests);
}
