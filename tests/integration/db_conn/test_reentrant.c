// Calls from inside callbacks.
#include "tests/integration/db_conn/world.h"
#include <stdlib.h>

static const struct db_statement own_pid = {"test_pid", "select pg_backend_pid()"};

static void close_now(struct probe *probe) {
    if (probe->conn) {
        struct db_conn *conn = probe->conn;
        probe->conn = NULL;
        db_conn_close(conn, on_closed, probe);
    }
}

static void reset_once(struct probe *probe) {
    if (probe->ups == 1 && probe->downs == 0)
        db_conn_reset(probe->conn, "from inside");
}

static void send_more(struct probe *probe) {
    if (probe->answers < 50)
        ask(probe, &add_one, "1");
}

static void send_three(struct probe *probe) {
    for (int i = 0; i < 3; i++)
        ask(probe, &add_one, "1");
}

START_TEST(close_from_a_callback) {
    struct probe probe = {.on_up = send_three, .on_answer = close_now};
    probe_start(&probe, fixture_database());
    turn_until(&probe.closed, 1, HANG_MS, "on_closed");
    ck_assert_int_eq(probe.answers, 3);
    ck_assert(probe.each[0].good);
    ck_assert(!probe.each[1].good);
    ck_assert_int_eq(probe.each[2].error.code, ERROR_CANCELLED);
    ck_assert_int_eq(probe.downs, 0);
}
END_TEST

START_TEST(close_from_on_up) {
    struct probe probe = {.on_up = close_now};
    probe_start(&probe, fixture_database());
    turn_until(&probe.closed, 1, HANG_MS, "on_closed");
}
END_TEST

START_TEST(close_from_on_notify) {
    static const char *const channels[] = {"rowbell_events", NULL};
    PGconn *pg = open_database();
    struct probe probe = {.on_notify = close_now};
    struct db_conn_options options = options_for(&probe, database_url);
    options.channels = channels;
    probe.conn = db_conn_new(&loop, &options);
    turn_until(&probe.ups, 1, HANG_MS, "on_up");
    sql_run(pg, "notify rowbell_events, '1'; notify rowbell_events, '2'");
    turn_until(&probe.closed, 1, HANG_MS, "on_closed");
    ck_assert_int_eq(probe.notifies, 1);
}
END_TEST

static void on_down_close(void *arg, struct db_conn *conn, const struct error *error, bool first) {
    on_down(arg, conn, error, first);
    close_now(arg);
}

START_TEST(close_from_on_down) {
    struct probe probe = {0};
    struct db_conn_options options = options_for(&probe, "postgres://127.0.0.1:1/x");
    options.on_down = on_down_close;
    probe.conn = db_conn_new(&loop, &options);
    turn_until(&probe.closed, 1, HANG_MS, "on_closed");
    ck_assert_int_eq(probe.downs, 1);
}
END_TEST

START_TEST(close_at_any_time_before_it_is_up) {
    const char *url = fixture_database();
    const char *const urls[] = {url, "postgres://a@no-such-host.invalid/x", "postgres://127.0.0.1:1/x"};
    for (int turns = 0; turns < 30; turns++) {
        struct probe probe = {0};
        probe_start(&probe, urls[turns % 3]);
        for (int i = 0; i < turns / 3 && probe.ups == 0; i++)
            uv_run(&loop, UV_RUN_NOWAIT);
        probe_close(&probe);
    }
    db_conn_close(NULL, NULL, NULL);
}
END_TEST

START_TEST(reset_from_a_callback) {
    struct probe probe = {.on_up = send_three, .on_answer = reset_once};
    probe_start(&probe, fixture_database());
    turn_until(&probe.answers, 6, HANG_MS, "answers");
    ck_assert(probe.each[0].good);
    ck_assert_int_eq(probe.each[1].error.code, ERROR_CONNECT);
    ck_assert_int_eq(probe.each[2].error.code, ERROR_CONNECT);
    ck_assert(probe.each[5].good);
    ck_assert_int_eq(probe.ups, 2);
    ck_assert_int_eq(probe.downs, 1);
    probe_close(&probe);
}
END_TEST

START_TEST(send_from_a_callback) {
    struct probe probe = {.on_up = send_three, .on_answer = send_more};
    probe_start(&probe, fixture_database());
    turn_until(&probe.answers, 52, HANG_MS, "answers");
    ck_assert(probe.last.good);
    probe_close(&probe);
}
END_TEST

static void send_again_when_failed(struct probe *probe) {
    if (!probe->last.good && probe->answers < 20)
        ask(probe, &add_one, "1");
}

START_TEST(send_again_at_once_while_down_does_not_stop_the_loop) {
    struct probe probe = {.on_answer = send_again_when_failed};
    probe_start(&probe, "postgres://127.0.0.1:1/x");
    ask(&probe, &add_one, "1");
    int before = probe.answers;
    uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_int_le(probe.answers, before + 1); // one a turn
    turn_until(&probe.answers, 20, HANG_MS, "answers");
    probe_close(&probe);
}
END_TEST

START_TEST(session_locks_are_free_after_a_reset) {
    static const struct db_statement lock = {"test_lock", "select pg_advisory_lock(77)"};
    PGconn *pg = open_database();
    struct probe probe = {0};
    probe_up(&probe, database_url);
    ask_text(&probe, &lock, NULL);
    ck_assert_str_eq(sql_text(pg, "select pg_try_advisory_lock(77)"), "f");
    const char *pid = ask_text(&probe, &own_pid, NULL);
    ck_assert_int_eq(atoi(pid), db_conn_backend_pid(probe.conn));
    db_conn_reset(probe.conn, "test");
    sql_wait(pg, HANG_MS, "select pg_try_advisory_lock(77)");
    probe_close(&probe);
}
END_TEST

void reentrant_tests(Suite *suite) {
    TCase *reentrant = loop_case(suite, "reentrant", 20);
    tcase_add_test(reentrant, close_from_a_callback);
    tcase_add_test(reentrant, close_from_on_up);
    tcase_add_test(reentrant, close_from_on_notify);
    tcase_add_test(reentrant, close_from_on_down);
    tcase_add_test(reentrant, close_at_any_time_before_it_is_up);
    tcase_add_test(reentrant, reset_from_a_callback);
    tcase_add_test(reentrant, send_from_a_callback);
    tcase_add_test(reentrant, send_again_at_once_while_down_does_not_stop_the_loop);
    tcase_add_test(reentrant, session_locks_are_free_after_a_reset);
}
