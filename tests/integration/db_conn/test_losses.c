// A connection that is lost, and one that nobody answers on.
#include "common/clock.h"
#include "tests/integration/db_conn/world.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct db_statement sleep_long = {"test_sleep", "select pg_sleep(20)"};

START_TEST(terminated_backend_is_replaced) {
    PGconn *pg = open_database();
    struct probe probe = {0};
    probe_up(&probe, database_url);
    char sql[100];
    snprintf(sql, sizeof(sql), "select pg_terminate_backend(%d)", db_conn_backend_pid(probe.conn));
    sql_run(pg, sql); // idle
    turn_until(&probe.ups, 2, HANG_MS, "on_up");
    ck_assert_int_eq(probe.downs, 1);
    ck_assert_int_eq(probe.down.code, ERROR_CONNECT);
    ck_assert_str_eq(probe.down.sqlstate, "57P01");
    ck_assert(!probe.first);
    ask(&probe, &sleep_long, NULL);
    ask(&probe, &add_one, "1");
    snprintf(sql, sizeof(sql), "select pg_terminate_backend(%d)", db_conn_backend_pid(probe.conn));
    sql_wait(pg, HANG_MS,
             "select count(*) from pg_stat_activity where query like 'select pg_sleep%' and state = 'active'");
    sql_run(pg, sql); // at work
    turn_until(&probe.ups, 3, HANG_MS, "on_up");
    ck_assert_int_eq(probe.answers, 2);
    ck_assert_int_eq(probe.each[0].error.code, ERROR_CONNECT);
    ck_assert_int_eq(probe.each[1].error.code, ERROR_CONNECT);
    ck_assert_str_eq(ask_text(&probe, &add_one, "1"), "2");
    probe_close(&probe);
}
END_TEST

START_TEST(server_away_for_a_while) {
    char url[300];
    struct tcp_proxy *proxy = proxy_start(url, sizeof(url));
    struct probe probe = {0};
    probe_up(&probe, url);
    tcp_proxy_refuse(proxy);
    turn_until(&probe.downs, 1, HANG_MS, "on_down");
    ask(&probe, &add_one, "1"); // while it is down
    ck_assert_int_eq(probe.answers, 0);
    turn_until(&probe.answers, 1, HANG_MS, "answer");
    ck_assert_int_eq(probe.last.error.code, ERROR_CONNECT);
    tcp_proxy_silence(proxy); // listens again, does not answer
    int accepted = tcp_proxy_accepted(proxy);
    uint64_t until = clock_ms() + HANG_MS;
    while (tcp_proxy_accepted(proxy) == accepted && clock_ms() < until)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_gt(tcp_proxy_accepted(proxy), accepted);
    tcp_proxy_pass(proxy);
    turn_until(&probe.ups, 2, HANG_MS, "on_up");
    ck_assert_int_eq(probe.downs, 1); // once an outage
    ck_assert_str_eq(ask_text(&probe, &add_one, "1"), "2");
    probe_close(&probe);
    tcp_proxy_stop(proxy);
}
END_TEST

START_TEST(black_holed_connection_is_dropped_at_the_deadline) {
    char url[300];
    struct tcp_proxy *proxy = proxy_start(url, sizeof(url));
    struct probe probe = {0};
    probe_up(&probe, url);
    tcp_proxy_silence(proxy);
    uint64_t start = clock_ms();
    db_query(probe.conn, &add_one, 1, (const char *const[]){"1"}, 5000, on_answer, &probe);
    db_query(probe.conn, &add_one, 1, (const char *const[]){"2"}, 200, on_answer, &probe);
    turn_until(&probe.downs, 1, HANG_MS, "on_down");
    ck_assert_uint_ge(clock_ms() - start, 200);
    ck_assert_int_eq(probe.answers, 2);
    ck_assert_int_eq(probe.each[0].error.code, ERROR_CONNECT);
    ck_assert_int_eq(probe.each[1].error.code, ERROR_TIMEOUT);
    ck_assert_int_eq(probe.down.code, ERROR_TIMEOUT);
    tcp_proxy_refuse(proxy); // the retry that hangs in the silence would otherwise wait its 10 s
    tcp_proxy_pass(proxy);
    turn_until(&probe.ups, 2, HANG_MS, "on_up");
    probe_close(&probe);
    tcp_proxy_stop(proxy);
}
END_TEST

// Stops a backend. However this test ends, a process outside of its group lets the backend go on: a stopped one holds
// up every DROP DATABASE of the server. Closing *ret_guard does it too.
static void backend_stop(pid_t backend, int *ret_guard) {
    int ends[2];
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    pid_t guard = fork();
    if (guard == 0) {
        setpgid(0, 0);
        close(ends[1]);
        char byte;
        while (read(ends[0], &byte, 1) < 0 && errno == EINTR)
            ;
        kill(backend, SIGCONT);
        _exit(0);
    }
    ck_assert_int_gt(guard, 0);
    setpgid(guard, guard);
    close(ends[0]);
    *ret_guard = ends[1];
    ck_assert_int_eq(kill(backend, SIGSTOP), 0);
}

START_TEST(stopped_backend_is_left_at_the_deadline) {
    open_database();
    struct probe probe = {0};
    probe_up(&probe, database_url);
    pid_t backend = db_conn_backend_pid(probe.conn);
    if (kill(backend, 0) != 0) {
        probe_close(&probe); // the server is another user's
        return;
    }
    int guard;
    backend_stop(backend, &guard);
    db_query(probe.conn, &add_one, 1, (const char *const[]){"1"}, 300, on_answer, &probe);
    turn_until(&probe.ups, 2, HANG_MS, "on_up");
    close(guard);
    ck_assert_int_eq(probe.answers, 1);
    ck_assert_int_eq(probe.last.error.code, ERROR_TIMEOUT);
    ck_assert_int_ne(db_conn_backend_pid(probe.conn), backend);
    probe_close(&probe);
}
END_TEST

START_TEST(large_batch_to_a_dead_peer_does_not_block) {
    char url[300];
    struct tcp_proxy *proxy = proxy_start(url, sizeof(url));
    struct probe probe = {0};
    probe_up(&probe, url);
    tcp_proxy_silence(proxy);
    size_t length = 32 << 20;
    char *large = malloc(length + 1);
    memset(large, 'x', length);
    large[length] = '\0';
    db_query(probe.conn, &length_of, 1, (const char *const[]){large}, 300, on_answer, &probe);
    free(large);
    // Here it has returned although nobody takes a byte of it: one that blocked would meet the limit of the test, no
    // clock of ours. Its end comes from the loop, which turns.
    ck_assert_int_eq(probe.answers, 0);
    turn_until(&probe.answers, 1, HANG_MS, "answer");
    ck_assert_int_eq(probe.last.error.code, ERROR_TIMEOUT);
    probe_close(&probe);
    tcp_proxy_stop(proxy);
}
END_TEST

void losses_tests(Suite *suite) {
    TCase *losses = loop_case(suite, "losses", 30);
    tcase_add_test(losses, terminated_backend_is_replaced);
    tcase_add_test(losses, server_away_for_a_while);
    tcase_add_test(losses, black_holed_connection_is_dropped_at_the_deadline);
    tcase_add_test(losses, stopped_backend_is_left_at_the_deadline);
    tcase_add_test(losses, large_batch_to_a_dead_peer_does_not_block);
}
