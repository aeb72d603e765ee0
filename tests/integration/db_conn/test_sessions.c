// What a session is like, whatever the database says, and what it hears.
#include "common/clock.h"
#include "tests/integration/db_conn/world.h"
#include <stdio.h>

static const struct db_statement settings = {
    "test_settings",
    "select concat_ws('|', current_setting('transaction_isolation'), current_setting('synchronous_commit'), "
    "current_setting('statement_timeout'), current_setting('lock_timeout'), "
    "current_setting('idle_in_transaction_session_timeout'), current_setting('jit'), current_setting('search_path'), "
    "current_setting('timezone'), current_setting('datestyle'), current_setting('client_min_messages'), "
    "current_setting('standard_conforming_strings'), current_setting('bytea_output'), "
    "coalesce(current_setting('transaction_timeout', true), '0'))"};
static const char settings_expected[] =
    "read committed|on|30s|10s|5s|off|pg_catalog, pg_temp|UTC|ISO, MDY|warning|on|hex|0";

// It exists since PostgreSQL 17.
static void set_transaction_timeout(PGconn *pg) {
    char sql[200];
    snprintf(sql, sizeof sql, "alter database %s set transaction_timeout = '1h'", PQdb(pg));
    if (PQserverVersion(pg) >= 170000)
        sql_run(pg, sql);
}

START_TEST(session_does_not_depend_on_the_database) {
    PGconn *pg = open_database();
    char sql[600];
    snprintf(
        sql, sizeof(sql),
        "alter database %s set search_path = public; alter database %s set synchronous_commit = off; alter database "
        "%s set default_transaction_isolation = serializable; alter database %s set timezone = 'Asia/Tokyo'",
        PQdb(pg), PQdb(pg), PQdb(pg), PQdb(pg));
    sql_run(pg, sql);
    set_transaction_timeout(pg);
    struct probe probe = {0};
    probe_up(&probe, database_url);
    ck_assert_str_eq(ask_text(&probe, &settings, NULL), settings_expected);
    probe_close(&probe);
}
END_TEST

START_TEST(pooled_batches_bring_their_settings_and_leave_none) {
    static const struct db_statement prepared = {"test_prepared", "select count(*) from pg_prepared_statements"};
    set_transaction_timeout(open_database());
    struct probe probe = {0};
    struct db_conn_options options = options_for(&probe, database_url);
    options.pooled = true;
    probe.conn = db_conn_new(&loop, &options);
    turn_until(&probe.ups, 1, HANG_MS, "on_up");
    ck_assert_str_eq(ask_text(&probe, &settings, NULL), settings_expected);
    ck_assert_int_eq(probe.last.results, 1); // that of the settings is hidden
    ck_assert_str_eq(ask_text(&probe, &prepared, NULL), "0");
    ask(&probe, &add_one, "x");
    ask(&probe, &add_one, "1");
    turn_until(&probe.answers, 4, HANG_MS, "answers");
    ck_assert_str_eq(probe.each[2].error.sqlstate, "22P02");
    ck_assert_str_eq(probe.each[3].text, "2");
    probe_close(&probe);
}
END_TEST

START_TEST(notifications_arrive_also_after_a_reconnect) {
    static const char *const channels[] = {"rowbell_events", "Odd \"name\"", NULL};
    PGconn *pg = open_database();
    struct probe probe = {0};
    struct db_conn_options options = options_for(&probe, database_url);
    options.channels = channels;
    probe.conn = db_conn_new(&loop, &options);
    turn_until(&probe.ups, 1, HANG_MS, "on_up");
    sql_run(pg, "notify rowbell_events, 'one'");
    turn_until(&probe.notifies, 1, HANG_MS, "notify");
    ck_assert_str_eq(probe.channel, "rowbell_events");
    ck_assert_str_eq(probe.payload, "one");
    db_conn_reset(probe.conn, "test");
    turn_until(&probe.ups, 2, HANG_MS, "on_up");
    sql_run(pg, "notify \"Odd \"\"name\"\"\"");
    turn_until(&probe.notifies, 2, HANG_MS, "notify");
    ck_assert_str_eq(probe.channel, "Odd \"name\"");
    ck_assert_str_eq(probe.payload, "");
    probe_close(&probe);
}
END_TEST

START_TEST(keepalive_holds_off_the_idle_session_timeout) {
    struct probe probe = {0};
    struct db_conn_options options = options_for(&probe, fixture_database());
    options.idle_session_timeout_ms = 1500;
    options.keepalive_ms = 100;
    probe.conn = db_conn_new(&loop, &options);
    turn_until(&probe.ups, 1, HANG_MS, "on_up");
    uint64_t twice_ms = clock_ms() + 2 * options.idle_session_timeout_ms;
    while (db_conn_answered_ms(probe.conn) < twice_ms) {
        ck_assert_int_eq(probe.downs, 0);
        uv_run(&loop, UV_RUN_ONCE);
    }
    probe_close(&probe);
    probe = (struct probe){0};
    options.keepalive_ms = 0;
    probe.conn = db_conn_new(&loop, &options);
    turn_until(&probe.downs, 1, HANG_MS, "idle_session_timeout");
    ck_assert_str_eq(probe.down.sqlstate, "57P05");
    ck_assert(!probe.first);
    probe_close(&probe);
}
END_TEST

void sessions_tests(Suite *suite) {
    TCase *sessions = loop_case(suite, "sessions", 20);
    tcase_add_test(sessions, session_does_not_depend_on_the_database);
    tcase_add_test(sessions, pooled_batches_bring_their_settings_and_leave_none);
    tcase_add_test(sessions, notifications_arrive_also_after_a_reconnect);
    tcase_add_test(sessions, keepalive_holds_off_the_idle_session_timeout);
}
