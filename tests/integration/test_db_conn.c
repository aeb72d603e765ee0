// db_conn against a real PostgreSQL, and through a proxy that fails on demand.
#include "common/clock.h"
#include "common/db_conn.h"
#include "common/db_error.h"
#include "common/schema_version.h"
#include "tests/support/fixture.h"
#include "tests/support/loop.h"
#include "tests/support/tcp_proxy.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- driving the loop

static uv_loop_t loop;

static void turn_until(const int *count, int number, unsigned deadline_ms, const char *what) {
    loop_turn_until(&loop, count, number, deadline_ms, what);
}

// ---- one connection and what it was told

struct answer {
    bool good;
    char text[100]; // first column of the last result's first row
    int results;
    struct error error;
};

struct probe {
    struct db_conn *conn;
    int ups, downs, answers, notifies, closed;
    bool first;
    struct error down;
    struct answer last;
    struct answer each[64];
    char channel[64], payload[64];
    void (*on_up)(struct probe *probe);
    void (*on_answer)(struct probe *probe);
    void (*on_notify)(struct probe *probe);
};

static void on_closed(void *arg) {
    ((struct probe *)arg)->closed++;
}

static void on_up(void *arg, struct db_conn *conn) {
    struct probe *probe = arg;
    probe->conn = conn;
    probe->ups++;
    ck_assert(db_conn_is_up(conn));
    ck_assert_int_ne(db_conn_backend_pid(conn), 0);
    if (probe->on_up)
        probe->on_up(probe);
}

static void on_down(void *arg, struct db_conn *conn, const struct error *error, bool first) {
    struct probe *probe = arg;
    ck_assert(!db_conn_is_up(conn));
    ck_assert_int_eq(db_conn_backend_pid(conn), 0);
    probe->downs++;
    probe->first = first;
    probe->down = *error;
}

static void on_notify(void *arg, const char *channel, const char *payload) {
    struct probe *probe = arg;
    probe->notifies++;
    snprintf(probe->channel, sizeof(probe->channel), "%s", channel);
    snprintf(probe->payload, sizeof(probe->payload), "%s", payload);
    if (probe->on_notify)
        probe->on_notify(probe);
}

static void on_answer(void *arg, const struct db_reply *reply, const struct error *error) {
    struct probe *probe = arg;
    struct answer *last = &probe->last;
    *last = (struct answer){.good = !error};
    ck_assert((reply == NULL) == (error != NULL));
    if (error) {
        last->error = *error;
    } else {
        last->results = reply->count;
        const PGresult *result = reply->count ? reply->results[reply->count - 1] : NULL;
        if (result && PQntuples(result) > 0)
            snprintf(last->text, sizeof(last->text), "%s", PQgetvalue(result, 0, 0));
    }
    if (probe->answers < 64)
        probe->each[probe->answers] = *last;
    probe->answers++;
    if (probe->on_answer)
        probe->on_answer(probe);
}

static struct db_conn_options options_for(struct probe *probe, const char *url) {
    return (struct db_conn_options){.url = url,
                                    .application_name = "test-db-conn",
                                    .arg = probe,
                                    .on_up = on_up,
                                    .on_down = on_down,
                                    .on_notify = on_notify};
}

static void probe_start(struct probe *probe, const char *url) {
    struct db_conn_options options = options_for(probe, url);
    uv_update_time(&loop);
    probe->conn = db_conn_new(&loop, &options);
}

static void probe_up(struct probe *probe, const char *url) {
    probe_start(probe, url);
    turn_until(&probe->ups, 1, 5000, "on_up");
}

static void probe_close(struct probe *probe) {
    db_conn_close(probe->conn, on_closed, probe);
    turn_until(&probe->closed, 1, 5000, "on_closed");
}

static void ask(struct probe *probe, const struct db_statement *statement, const char *value) {
    db_query(probe->conn, statement, value ? 1 : 0, (const char *const[]){value}, 5000, on_answer, probe);
}

// Sends, waits for the answer, returns the text; fails the test on an error.
static const char *ask_text(struct probe *probe, const struct db_statement *statement, const char *value) {
    int before = probe->answers;
    ask(probe, statement, value);
    ck_assert_int_eq(probe->answers, before); // never from inside
    turn_until(&probe->answers, before + 1, 5000, statement->sql);
    if (!probe->last.good)
        ck_abort_msg("%s: %s", statement->sql, probe->last.error.text);
    return probe->last.text;
}

static const char *database_url;

static PGconn *open_database(void) {
    database_url = fixture_database();
    return fixture_connect();
}

// The test's database by way of a proxy.
static struct tcp_proxy *proxy_start(char *ret_url, size_t size) {
    PGconn *direct = open_database();
    struct tcp_proxy *proxy = tcp_proxy_start(PQhost(direct), atoi(PQport(direct)));
    snprintf(ret_url, size, "postgres://%s:%s@127.0.0.1:%d/%s?sslmode=disable", PQuser(direct), PQpass(direct),
             tcp_proxy_port(proxy), PQdb(direct));
    return proxy;
}

static void set_up(void) {
    ck_assert_int_eq(uv_loop_init(&loop), 0);
}

// Nothing is left behind; a handle that is would hold this up until the test is late.
static void tear_down(void) {
    uv_run(&loop, UV_RUN_DEFAULT);             // a lookup of a name goes on after its connection was closed
    ck_assert_int_eq(uv_loop_close(&loop), 0); // nothing was left behind
}

static const struct db_statement add_one = {"test_add_one", "select $1::int + 1"};
static const struct db_statement length_of = {"test_length_of", "select coalesce(length($1::text), -1)"};
static const struct db_statement insert_row = {"test_insert", "insert into public.numbers values ($1::int)"};
static const struct db_statement count_rows = {"test_count", "select count(*) from public.numbers"};
static const struct db_statement sleep_long = {"test_sleep", "select pg_sleep(20)"};
static const struct db_statement own_pid = {"test_pid", "select pg_backend_pid()"};

// ---- batches

START_TEST(batch_commits_together) {
    PGconn *pg = open_database();
    sql_run(pg, "create table public.numbers (n int primary key)");
    struct probe probe = {0};
    probe_up(&probe, database_url);
    struct db_batch *batch = db_batch_begin(probe.conn);
    db_batch_add(batch, &insert_row, 1, (const char *const[]){"1"});
    db_batch_add(batch, &insert_row, 1, (const char *const[]){"2"});
    db_batch_add(batch, &count_rows, 0, NULL);
    db_batch_send(batch, 5000, on_answer, &probe);
    turn_until(&probe.answers, 1, 5000, "batch");
    ck_assert_msg(probe.last.good, "%s", probe.last.error.text);
    ck_assert_int_eq(probe.last.results, 3);
    ck_assert_str_eq(probe.last.text, "2"); // a statement sees what those before it did
    ck_assert_int_eq(sql_int(pg, "select count(*) from public.numbers"), 2);
    ck_assert_int_eq(sql_int(pg, "select count(distinct xmin::text) from public.numbers"), 1); // one transaction
    probe_close(&probe);
}
END_TEST

START_TEST(batch_with_an_error_leaves_nothing_and_does_not_touch_its_neighbours) {
    PGconn *pg = open_database();
    sql_run(pg, "create table public.numbers (n int primary key)");
    struct probe probe = {0};
    probe_up(&probe, database_url);
    ask(&probe, &insert_row, "1");
    struct db_batch *batch = db_batch_begin(probe.conn);
    db_batch_add(batch, &insert_row, 1, (const char *const[]){"2"});
    db_batch_add(batch, &insert_row, 1, (const char *const[]){"1"}); // there already
    db_batch_add(batch, &count_rows, 0, NULL);
    db_batch_send(batch, 5000, on_answer, &probe);
    ask(&probe, &insert_row, "3");
    turn_until(&probe.answers, 3, 5000, "answers");
    ck_assert(probe.each[0].good);
    ck_assert(!probe.each[1].good);
    ck_assert_int_eq(probe.each[1].error.code, ERROR_SQL);
    ck_assert_str_eq(probe.each[1].error.sqlstate, "23505");
    ck_assert(probe.each[2].good);
    ck_assert_str_eq(sql_text(pg, "select string_agg(n::text, ',' order by n) from public.numbers"), "1,3");
    ck_assert_int_eq(probe.downs, 0);
    probe_close(&probe);
}
END_TEST

static void count_in_order(struct probe *probe) {
    ck_assert_int_eq(atoi(probe->last.text), probe->answers);
}

START_TEST(many_batches_in_flight_are_answered_in_order) {
    struct probe probe = {.on_answer = count_in_order};
    probe_up(&probe, fixture_database());
    for (int i = 0; i < 5000; i++) {
        char value[12];
        snprintf(value, sizeof(value), "%d", i);
        ask(&probe, &add_one, value);
    }
    turn_until(&probe.answers, 5000, 20000, "answers");
    probe_close(&probe);
}
END_TEST

START_TEST(parameters_null_empty_and_large) {
    struct probe probe = {0};
    probe_up(&probe, fixture_database());
    db_query(probe.conn, &length_of, 1, (const char *const[]){NULL}, 5000, on_answer, &probe);
    ask(&probe, &length_of, "");
    size_t length = 8 << 20; // does not fit any socket buffer
    char *large = malloc(length + 1);
    memset(large, 'x', length);
    large[length] = '\0';
    ask(&probe, &length_of, large);
    free(large); // copied
    turn_until(&probe.answers, 3, 10000, "answers");
    ck_assert_str_eq(probe.each[0].text, "-1");
    ck_assert_str_eq(probe.each[1].text, "0");
    ck_assert_str_eq(probe.each[2].text, "8388608");
    probe_close(&probe);
}
END_TEST

START_TEST(empty_batch_is_answered) {
    struct probe probe = {0};
    probe_up(&probe, fixture_database());
    db_batch_send(db_batch_begin(probe.conn), 5000, on_answer, &probe);
    turn_until(&probe.answers, 1, 5000, "answer");
    ck_assert(probe.last.good);
    ck_assert_int_eq(probe.last.results, 0);
    probe_close(&probe);
}
END_TEST

// ---- prepared statements

static const struct db_statement prepared_names = {
    "test_names", "select string_agg(name, ',' order by name) from pg_prepared_statements where name like 'test%'"};

START_TEST(statements_are_prepared_once_and_again_after_a_reconnect) {
    struct probe probe = {0};
    probe_up(&probe, fixture_database());
    ask_text(&probe, &add_one, "1");
    ask_text(&probe, &add_one, "2");
    ck_assert_str_eq(ask_text(&probe, &prepared_names, NULL), "test_add_one,test_names");
    db_conn_reset(probe.conn, "test");
    turn_until(&probe.ups, 2, 5000, "on_up");
    ck_assert_str_eq(ask_text(&probe, &prepared_names, NULL), "test_names");
    ck_assert_str_eq(ask_text(&probe, &add_one, "41"), "42");
    probe_close(&probe);
}
END_TEST

START_TEST(failed_prepare_is_told_to_all_in_flight_and_tried_again) {
    PGconn *pg = open_database();
    struct probe probe = {0};
    probe_up(&probe, database_url);
    ask(&probe, &add_one, "1");
    ask(&probe, &count_rows, NULL); // no such table
    ask(&probe, &count_rows, NULL); // counts on the prepare ahead of it
    ask(&probe, &add_one, "2");
    turn_until(&probe.answers, 4, 5000, "answers");
    ck_assert_str_eq(probe.each[0].text, "2");
    ck_assert_str_eq(probe.each[1].error.sqlstate, "42P01");
    ck_assert_str_eq(probe.each[2].error.sqlstate, "42P01");
    ck_assert_str_eq(probe.each[3].text, "3");
    sql_run(pg, "create table public.numbers (n int)");
    ck_assert_str_eq(ask_text(&probe, &count_rows, NULL), "0");
    probe_close(&probe);
}
END_TEST

START_TEST(changed_result_type_fails_once_without_blaming_the_row) {
    static const struct db_statement read_all = {"test_read_all", "select * from public.numbers"};
    PGconn *pg = open_database();
    sql_run(pg, "create table public.numbers (n int); insert into public.numbers values (7)");
    struct probe probe = {0};
    probe_up(&probe, database_url);
    ck_assert_str_eq(ask_text(&probe, &read_all, NULL), "7");
    sql_run(pg, "alter table public.numbers alter n type text");
    ask(&probe, &read_all, NULL);
    ask(&probe, &read_all, NULL);
    turn_until(&probe.answers, 3, 5000, "answers");
    for (int i = 1; i < 3; i++) {
        ck_assert(!probe.each[i].good);
        ck_assert(db_error_is_system(&probe.each[i].error));
    }
    ck_assert_str_eq(ask_text(&probe, &read_all, NULL), "7");
    ck_assert_str_eq(ask_text(&probe, &add_one, "1"), "2");
    ck_assert_int_eq(probe.downs, 0);
    probe_close(&probe);
}
END_TEST

START_TEST(prepared_statements_dropped_by_somebody_else_come_back) {
    static const struct db_statement discard = {NULL, "deallocate all"};
    struct probe probe = {0};
    probe_up(&probe, fixture_database());
    ask_text(&probe, &add_one, "1");
    ask_text(&probe, &discard, NULL);
    ask(&probe, &add_one, "1");
    turn_until(&probe.answers, 3, 5000, "answer");
    ck_assert(!probe.last.good);
    ck_assert(db_error_is_system(&probe.last.error));
    ck_assert_str_eq(ask_text(&probe, &add_one, "1"), "2");
    probe_close(&probe);
}
END_TEST

// ---- sessions

static const struct db_statement settings = {
    "test_settings",
    "select concat_ws('|', current_setting('transaction_isolation'), current_setting('synchronous_commit'), "
    "current_setting('statement_timeout'), current_setting('lock_timeout'), "
    "current_setting('idle_in_transaction_session_timeout'), current_setting('jit'), current_setting('search_path'), "
    "current_setting('timezone'), current_setting('datestyle'), current_setting('client_min_messages'), "
    "current_setting('standard_conforming_strings'), current_setting('bytea_output'))"};
static const char settings_expected[] =
    "read committed|on|30s|10s|5s|off|pg_catalog, pg_temp|UTC|ISO, MDY|warning|on|hex";

START_TEST(session_does_not_depend_on_the_database) {
    PGconn *pg = open_database();
    char sql[600];
    snprintf(
        sql, sizeof(sql),
        "alter database %s set search_path = public; alter database %s set synchronous_commit = off; alter database "
        "%s set default_transaction_isolation = serializable; alter database %s set timezone = 'Asia/Tokyo'",
        PQdb(pg), PQdb(pg), PQdb(pg), PQdb(pg));
    sql_run(pg, sql);
    struct probe probe = {0};
    probe_up(&probe, database_url);
    ck_assert_str_eq(ask_text(&probe, &settings, NULL), settings_expected);
    probe_close(&probe);
}
END_TEST

START_TEST(pooled_batches_bring_their_settings_and_leave_none) {
    static const struct db_statement prepared = {"test_prepared", "select count(*) from pg_prepared_statements"};
    open_database();
    struct probe probe = {0};
    struct db_conn_options options = options_for(&probe, database_url);
    options.pooled = true;
    probe.conn = db_conn_new(&loop, &options);
    turn_until(&probe.ups, 1, 5000, "on_up");
    ck_assert_str_eq(ask_text(&probe, &settings, NULL), settings_expected);
    ck_assert_int_eq(probe.last.results, 1); // that of the settings is hidden
    ck_assert_str_eq(ask_text(&probe, &prepared, NULL), "0");
    ask(&probe, &add_one, "x");
    ask(&probe, &add_one, "1");
    turn_until(&probe.answers, 4, 5000, "answers");
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
    turn_until(&probe.ups, 1, 5000, "on_up");
    sql_run(pg, "notify rowbell_events, 'one'");
    turn_until(&probe.notifies, 1, 5000, "notify");
    ck_assert_str_eq(probe.channel, "rowbell_events");
    ck_assert_str_eq(probe.payload, "one");
    db_conn_reset(probe.conn, "test");
    turn_until(&probe.ups, 2, 5000, "on_up");
    sql_run(pg, "notify \"Odd \"\"name\"\"\"");
    turn_until(&probe.notifies, 2, 5000, "notify");
    ck_assert_str_eq(probe.channel, "Odd \"name\"");
    ck_assert_str_eq(probe.payload, "");
    probe_close(&probe);
}
END_TEST

START_TEST(keepalive_holds_off_the_idle_session_timeout) {
    struct probe probe = {0};
    struct db_conn_options options = options_for(&probe, fixture_database());
    options.idle_session_timeout_ms = 300;
    options.keepalive_ms = 100;
    probe.conn = db_conn_new(&loop, &options);
    turn_until(&probe.ups, 1, 5000, "on_up");
    loop_turn_for(&loop, 900);
    ck_assert_int_eq(probe.downs, 0);
    ck_assert_uint_ge(db_conn_answered_ms(probe.conn), clock_ms() - 400);
    probe_close(&probe);
    probe = (struct probe){0};
    options.keepalive_ms = 0;
    probe.conn = db_conn_new(&loop, &options);
    turn_until(&probe.downs, 1, 5000, "idle_session_timeout");
    ck_assert_str_eq(probe.down.sqlstate, "57P05");
    ck_assert(!probe.first);
    probe_close(&probe);
}
END_TEST

// ---- losing it

START_TEST(terminated_backend_is_replaced) {
    PGconn *pg = open_database();
    struct probe probe = {0};
    probe_up(&probe, database_url);
    char sql[100];
    snprintf(sql, sizeof(sql), "select pg_terminate_backend(%d)", db_conn_backend_pid(probe.conn));
    sql_run(pg, sql); // idle
    turn_until(&probe.ups, 2, 5000, "on_up");
    ck_assert_int_eq(probe.downs, 1);
    ck_assert_int_eq(probe.down.code, ERROR_CONNECT);
    ck_assert_str_eq(probe.down.sqlstate, "57P01");
    ck_assert(!probe.first);
    ask(&probe, &sleep_long, NULL);
    ask(&probe, &add_one, "1");
    snprintf(sql, sizeof(sql), "select pg_terminate_backend(%d)", db_conn_backend_pid(probe.conn));
    sql_wait(pg, 5000,
             "select count(*) from pg_stat_activity where query like 'select pg_sleep%' and state = 'active'");
    sql_run(pg, sql); // at work
    turn_until(&probe.ups, 3, 5000, "on_up");
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
    turn_until(&probe.downs, 1, 5000, "on_down");
    ask(&probe, &add_one, "1"); // while it is down
    ck_assert_int_eq(probe.answers, 0);
    turn_until(&probe.answers, 1, 1000, "answer");
    ck_assert_int_eq(probe.last.error.code, ERROR_CONNECT);
    tcp_proxy_silence(proxy); // listens again, does not answer
    int accepted = tcp_proxy_accepted(proxy);
    uint64_t until = clock_ms() + 10000;
    while (tcp_proxy_accepted(proxy) == accepted && clock_ms() < until)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_gt(tcp_proxy_accepted(proxy), accepted);
    tcp_proxy_pass(proxy);
    turn_until(&probe.ups, 2, 10000, "on_up");
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
    turn_until(&probe.downs, 1, 2000, "on_down");
    ck_assert_uint_ge(clock_ms() - start, 200);
    ck_assert_int_eq(probe.answers, 2);
    ck_assert_int_eq(probe.each[0].error.code, ERROR_CONNECT);
    ck_assert_int_eq(probe.each[1].error.code, ERROR_TIMEOUT);
    ck_assert_int_eq(probe.down.code, ERROR_TIMEOUT);
    tcp_proxy_refuse(proxy); // the retry that hangs in the silence would otherwise wait its 10 s
    tcp_proxy_pass(proxy);
    turn_until(&probe.ups, 2, 10000, "on_up");
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
    turn_until(&probe.ups, 2, 5000, "on_up");
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
    turn_until(&probe.answers, 1, 10000, "answer");
    ck_assert_int_eq(probe.last.error.code, ERROR_TIMEOUT);
    probe_close(&probe);
    tcp_proxy_stop(proxy);
}
END_TEST

// ---- a start that fails

static void assert_first_down(const char *url, enum error_code code, const char *text) {
    struct probe probe = {0};
    probe_start(&probe, url);
    ck_assert_int_eq(probe.downs, 0); // never from inside
    turn_until(&probe.downs, 1, 5000, url);
    ck_assert(probe.first);
    ck_assert_msg(probe.down.code == code && strstr(probe.down.text, text), "%s: %s", error_code_name(probe.down.code),
                  probe.down.text);
    ck_assert_msg(!strstr(probe.down.text, "hunter2"), "%s", probe.down.text);
    ck_assert_int_eq(probe.ups, 0);
    probe_close(&probe);
}

START_TEST(start_tells_why_it_failed) {
    PGconn *pg = open_database();
    char url[300];
    snprintf(url, sizeof(url), "postgres://%s:hunter2@%s:%s/%s", PQuser(pg), PQhost(pg), PQport(pg), PQdb(pg));
    assert_first_down(url, ERROR_AUTH, "password authentication failed");
    snprintf(url, sizeof(url), "postgres://%s:%s@%s:%s/no_such_database", PQuser(pg), PQpass(pg), PQhost(pg),
             PQport(pg));
    assert_first_down(url, ERROR_AUTH, "\"no_such_database\" does not exist");
    snprintf(url, sizeof(url), "postgres://a:hunter2@%s:%s/x?sslmode=verify-full&sslrootcert=/no/such/file", PQhost(pg),
             PQport(pg));
    assert_first_down(url, ERROR_CONNECT, "failed: "); // the reason, not the advice on the lines after it
    assert_first_down("postgres://a:hunter2@127.0.0.1:1/x", ERROR_CONNECT, "Connection refused");
    assert_first_down("postgres://a:hunter2@localhost:1/x", ERROR_CONNECT, "Connection refused");
    assert_first_down("postgres://a:hunter2@no-such-host.invalid/x", ERROR_CONNECT, "no-such-host.invalid");
    assert_first_down("postgres://a:hunter2/x@127.0.0.1/x", ERROR_USAGE, "malformed");
    assert_first_down("postgres://a:hunter2%zz@127.0.0.1/x", ERROR_USAGE, "malformed");
    assert_first_down("a:hunter2@127.0.0.1/x", ERROR_USAGE, "malformed");
    assert_first_down(fixture_empty_database(), ERROR_SCHEMA, "rowbell migrate");
}
END_TEST

START_TEST(names_are_resolved) {
    PGconn *pg = open_database();
    char url[300];
    snprintf(url, sizeof(url), "postgres://%s:%s@localhost:%s/%s", PQuser(pg), PQpass(pg), PQport(pg), PQdb(pg));
    struct probe probe = {0};
    probe_up(&probe, url);
    probe_close(&probe);
}
END_TEST

START_TEST(schema_that_is_too_new_is_refused_until_it_fits) {
    PGconn *pg = open_database();
    sql_run(
        pg,
        "insert into rowbell.migrations (name, version, compatible_from, checksum) values ('9999', 9999, 9998, '')");
    struct probe probe = {0};
    probe_start(&probe, database_url);
    turn_until(&probe.downs, 1, 5000, "on_down");
    ck_assert_int_eq(probe.down.code, ERROR_SCHEMA);
    ck_assert_ptr_nonnull(strstr(probe.down.text, "version 9999, which needs a program of version >= 9998"));
    sql_run(pg, "delete from rowbell.migrations where version = 9999");
    turn_until(&probe.ups, 1, 5000, "on_up");
    sql_run(
        pg,
        "insert into rowbell.migrations (name, version, compatible_from, checksum) values ('9999', 9999, 9998, '')");
    db_conn_reset(probe.conn, "test");
    turn_until(&probe.downs, 3, 5000, "on_down"); // the reset, then the reason why it does not come back
    ck_assert_int_eq(probe.down.code, ERROR_SCHEMA);
    probe_close(&probe);
}
END_TEST

START_TEST(login_without_permission_is_told_the_grant) {
    PGconn *pg = open_database();
    char url[300], sql[300], role[64];
    snprintf(role, sizeof(role), "nobody_%s", PQdb(pg));
    snprintf(sql, sizeof(sql), "create role %s login password 'x'", role);
    sql_run(pg, sql);
    snprintf(url, sizeof(url), "postgres://%s:x@%s:%s/%s", role, PQhost(pg), PQport(pg), PQdb(pg));
    assert_first_down(url, ERROR_SCHEMA, "grant");
    snprintf(sql, sizeof(sql), "drop role %s", role);
    sql_run(pg, sql);
}
END_TEST

START_TEST(silent_server_is_given_up) {
    char url[300];
    struct tcp_proxy *proxy = proxy_start(url, sizeof(url));
    tcp_proxy_silence(proxy);
    struct probe probe = {0};
    uint64_t start = clock_ms();
    probe_start(&probe, url);
    turn_until(&probe.downs, 1, 13000, "on_down");
    ck_assert_uint_ge(clock_ms() - start, 9900);
    ck_assert_int_eq(probe.down.code, ERROR_TIMEOUT);
    probe_close(&probe);
    tcp_proxy_stop(proxy);
}
END_TEST

// An ErrorResponse as a server sends it instead of a greeting.
static size_t refusal_write(char *bytes, size_t size, const char *sqlstate, const char *text) {
    int length = snprintf(bytes, size, "E....SFATAL_VFATAL_C%s_M%s_Fx.c_L1_Rf_", sqlstate, text) + 1;
    for (int i = 5; i < length; i++)
        bytes[i] = bytes[i] == '_' ? '\0' : bytes[i];
    memcpy(bytes + 1, (char[]){0, 0, 0, (char)(length - 1)}, 4);
    return (size_t)length;
}

START_TEST(refusals_are_told_apart) {
    static const struct {
        enum error_code code;
        const char *sqlstate;
        const char *text;
    } cases[] = {
        {ERROR_CONNECT, "57P03", "the database system is starting up"},
        {ERROR_CONNECT, "53300", "sorry, too many clients already"},
        {ERROR_AUTH, "28000", "no pg-hba.conf entry"},
    };
    char url[300], bytes[200];
    struct tcp_proxy *proxy = proxy_start(url, sizeof(url));
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        tcp_proxy_answer(proxy, bytes, refusal_write(bytes, sizeof(bytes), cases[i].sqlstate, cases[i].text));
        struct probe probe = {0};
        probe_start(&probe, url);
        turn_until(&probe.downs, 1, 5000, cases[i].text);
        ck_assert_msg(probe.down.code == cases[i].code, "%s", probe.down.text);
        ck_assert_str_eq(probe.down.sqlstate, cases[i].sqlstate);
        ck_assert_msg(strstr(probe.down.text, cases[i].text), "%s", probe.down.text);
        probe_close(&probe);
    }
    tcp_proxy_answer(proxy, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
    struct probe probe = {0};
    probe_start(&probe, url);
    turn_until(&probe.downs, 1, 5000, "HTTP");
    ck_assert_int_eq(probe.down.code, ERROR_CONNECT);
    probe_close(&probe);
    tcp_proxy_stop(proxy);
}
END_TEST

START_TEST(errors_have_the_class_of_their_sqlstate) {
    static const struct {
        const char *sqlstate;
        enum error_code code;
        bool system;
    } cases[] = {
        {"23505", ERROR_SQL, false},    {"22P02", ERROR_SQL, false},    {"P0001", ERROR_SQL, false},
        {"40001", ERROR_SQL, true},     {"55P03", ERROR_SQL, true},     {"53100", ERROR_SQL, true},
        {"08006", ERROR_CONNECT, true}, {"57P01", ERROR_CONNECT, true}, {"28P01", ERROR_AUTH, true},
    };
    PGconn *pg = open_database();
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char sql[200];
        snprintf(sql, sizeof(sql),
                 "do $$ begin raise exception 'one%%two', e'\\n' using errcode = '%s', detail = 'secret'; end $$",
                 cases[i].sqlstate);
        PGresult *result = PQexec(pg, sql);
        struct error error;
        db_error_from_result(result, &error);
        PQclear(result);
        ck_assert_int_eq(error.code, cases[i].code);
        ck_assert_str_eq(error.sqlstate, cases[i].sqlstate);
        ck_assert_int_eq(db_error_is_system(&error), cases[i].system);
        ck_assert_str_eq(error.text, "one two");
    }
}
END_TEST

// ---- re-entrant calls

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
    turn_until(&probe.closed, 1, 5000, "on_closed");
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
    turn_until(&probe.closed, 1, 5000, "on_closed");
}
END_TEST

START_TEST(close_from_on_notify) {
    static const char *const channels[] = {"rowbell_events", NULL};
    PGconn *pg = open_database();
    struct probe probe = {.on_notify = close_now};
    struct db_conn_options options = options_for(&probe, database_url);
    options.channels = channels;
    probe.conn = db_conn_new(&loop, &options);
    turn_until(&probe.ups, 1, 5000, "on_up");
    sql_run(pg, "notify rowbell_events, '1'; notify rowbell_events, '2'");
    turn_until(&probe.closed, 1, 5000, "on_closed");
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
    turn_until(&probe.closed, 1, 5000, "on_closed");
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
    turn_until(&probe.answers, 6, 5000, "answers");
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
    turn_until(&probe.answers, 52, 5000, "answers");
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
    turn_until(&probe.answers, 20, 5000, "answers");
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
    sql_wait(pg, 5000, "select pg_try_advisory_lock(77)");
    probe_close(&probe);
}
END_TEST

static TCase *with_loop(TCase *tcase) {
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    return tcase;
}

static void add_tests(Suite *suite) {
    TCase *batches = with_loop(suite_case(suite, "batches", 40));
    tcase_add_test(batches, batch_commits_together);
    tcase_add_test(batches, batch_with_an_error_leaves_nothing_and_does_not_touch_its_neighbours);
    tcase_add_test(batches, many_batches_in_flight_are_answered_in_order);
    tcase_add_test(batches, parameters_null_empty_and_large);
    tcase_add_test(batches, empty_batch_is_answered);
    TCase *prepared = with_loop(suite_case(suite, "prepared", 20));
    tcase_add_test(prepared, statements_are_prepared_once_and_again_after_a_reconnect);
    tcase_add_test(prepared, failed_prepare_is_told_to_all_in_flight_and_tried_again);
    tcase_add_test(prepared, changed_result_type_fails_once_without_blaming_the_row);
    tcase_add_test(prepared, prepared_statements_dropped_by_somebody_else_come_back);
    TCase *sessions = with_loop(suite_case(suite, "sessions", 20));
    tcase_add_test(sessions, session_does_not_depend_on_the_database);
    tcase_add_test(sessions, pooled_batches_bring_their_settings_and_leave_none);
    tcase_add_test(sessions, notifications_arrive_also_after_a_reconnect);
    tcase_add_test(sessions, keepalive_holds_off_the_idle_session_timeout);
    TCase *losses = with_loop(suite_case(suite, "losses", 30));
    tcase_add_test(losses, terminated_backend_is_replaced);
    tcase_add_test(losses, server_away_for_a_while);
    tcase_add_test(losses, black_holed_connection_is_dropped_at_the_deadline);
    tcase_add_test(losses, stopped_backend_is_left_at_the_deadline);
    tcase_add_test(losses, large_batch_to_a_dead_peer_does_not_block);
    TCase *starts = with_loop(suite_case(suite, "starts", 40));
    tcase_add_test(starts, start_tells_why_it_failed);
    tcase_add_test(starts, names_are_resolved);
    tcase_add_test(starts, schema_that_is_too_new_is_refused_until_it_fits);
    tcase_add_test(starts, login_without_permission_is_told_the_grant);
    tcase_add_test(starts, silent_server_is_given_up);
    tcase_add_test(starts, refusals_are_told_apart);
    tcase_add_test(starts, errors_have_the_class_of_their_sqlstate);
    TCase *reentrant = with_loop(suite_case(suite, "reentrant", 20));
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

int main(void) {
    return suite_main("db_conn", add_tests);
}
