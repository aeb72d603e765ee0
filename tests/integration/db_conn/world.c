#include "tests/integration/db_conn/world.h"
#include "tests/support/loop.h"
#include <stdio.h>
#include <stdlib.h>

uv_loop_t loop;
const char *database_url;
const struct db_statement add_one = {"test_add_one", "select $1::int + 1"};
const struct db_statement length_of = {"test_length_of", "select coalesce(length($1::text), -1)"};

void turn_until(const int *count, int number, unsigned deadline_ms, const char *what) {
    loop_turn_until(&loop, count, number, deadline_ms, what);
}

void on_closed(void *arg) {
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

void on_down(void *arg, struct db_conn *conn, const struct error *error, bool first) {
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

void on_answer(void *arg, const struct db_reply *reply, const struct error *error) {
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

struct db_conn_options options_for(struct probe *probe, const char *url) {
    return (struct db_conn_options){.url = url,
                                    .application_name = "test-db-conn",
                                    .arg = probe,
                                    .on_up = on_up,
                                    .on_down = on_down,
                                    .on_notify = on_notify};
}

void probe_start(struct probe *probe, const char *url) {
    struct db_conn_options options = options_for(probe, url);
    uv_update_time(&loop);
    probe->conn = db_conn_new(&loop, &options);
}

void probe_up(struct probe *probe, const char *url) {
    probe_start(probe, url);
    turn_until(&probe->ups, 1, HANG_MS, "on_up");
}

void probe_close(struct probe *probe) {
    db_conn_close(probe->conn, on_closed, probe);
    turn_until(&probe->closed, 1, HANG_MS, "on_closed");
}

void ask(struct probe *probe, const struct db_statement *statement, const char *value) {
    db_query(probe->conn, statement, value ? 1 : 0, (const char *const[]){value}, HANG_MS, on_answer, probe);
}

const char *ask_text(struct probe *probe, const struct db_statement *statement, const char *value) {
    int before = probe->answers;
    ask(probe, statement, value);
    ck_assert_int_eq(probe->answers, before); // never from inside
    turn_until(&probe->answers, before + 1, HANG_MS, statement->sql);
    if (!probe->last.good)
        ck_abort_msg("%s: %s", statement->sql, probe->last.error.text);
    return probe->last.text;
}

PGconn *open_database(void) {
    database_url = fixture_database();
    return fixture_connect();
}

struct tcp_proxy *proxy_start(char *ret_url, size_t size) {
    PGconn *direct = open_database();
    struct tcp_proxy *proxy = tcp_proxy_start(PQhost(direct), atoi(PQport(direct)));
    snprintf(ret_url, size, "postgres://%s:%s@127.0.0.1:%d/%s?sslmode=disable", PQuser(direct), PQpass(direct),
             tcp_proxy_port(proxy), PQdb(direct));
    return proxy;
}

static void set_up(void) {
    ck_assert_int_eq(uv_loop_init(&loop), 0);
}

// A handle that is left behind would hold this up until the test is late.
static void tear_down(void) {
    uv_run(&loop, UV_RUN_DEFAULT);             // a lookup of a name goes on after its connection was closed
    ck_assert_int_eq(uv_loop_close(&loop), 0); // nothing was left behind
}

TCase *loop_case(Suite *suite, const char *name, double timeout_s) {
    TCase *tcase = suite_case(suite, name, timeout_s);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    return tcase;
}
