// A connection of db_conn, what it was told, and the loop that it lives on.
#pragma once
#include "common/db_conn.h"
#include "tests/support/fixture.h"
#include "tests/support/tcp_proxy.h"
#include <uv.h>

extern uv_loop_t loop;
extern const char *database_url;
extern const struct db_statement add_one;   // $1 + 1
extern const struct db_statement length_of; // the length of $1; -1: NULL

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

PGconn *open_database(void); // sets database_url
// The test's database by way of a proxy.
struct tcp_proxy *proxy_start(char *ret_url, size_t size);

struct db_conn_options options_for(struct probe *probe, const char *url);
void probe_start(struct probe *probe, const char *url);
void probe_up(struct probe *probe, const char *url); // and waits for on_up
void probe_close(struct probe *probe);
// What a probe's connection calls; arg: the probe.
void on_down(void *arg, struct db_conn *conn, const struct error *error, bool first);
void on_answer(void *arg, const struct db_reply *reply, const struct error *error);
void on_closed(void *arg);
void ask(struct probe *probe, const struct db_statement *statement, const char *value);
// Sends, waits for the answer, returns the text; fails the test on an error.
const char *ask_text(struct probe *probe, const struct db_statement *statement, const char *value);
void turn_until(const int *count, int number, unsigned deadline_ms, const char *what);

TCase *loop_case(Suite *suite, const char *name, double timeout_s); // a suite_case whose tests have the loop

void batches_tests(Suite *suite);
void sessions_tests(Suite *suite);
void losses_tests(Suite *suite);
void starts_tests(Suite *suite);
void reentrant_tests(Suite *suite);
