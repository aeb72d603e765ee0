// A gateway on a log that the tests write, clients of it, and an application that it asks.
#pragma once
#include "tests/support/fixture.h"
#include "tests/support/gateway.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { SOON_MS = HANG_MS };

#define SECRET "a secret of forty characters, not fewer!"

extern PGconn *db;
void fresh_database(void); // sets db
// Appends count entries of this scope (an SQL expression) with the keys <prefix>0, ...; tells the gateways when `tell`.
// Returns the newest position.
int64_t append_rows(const char *scope, const char *table, const char *prefix, int count, bool tell);
int64_t append(const char *scope, const char *table, const char *prefix, int count);

// It logs all that it ever logs: no secret may be among that.
struct gateway gateway_told_all(const char *const *extra);
void wait_gateway(const struct gateway *gateway); // until it has everything that is in the log
// With these header lines.
struct sse_client *open_as(const struct gateway *gateway, const char *target, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int status_of(struct sse_client *client);
void wait_closed(struct sse_client *client, unsigned deadline_ms);
bool has(struct sse_client *client, const char *text);
void check_come_again(struct sse_client *client); // 200, the stream's type, a retry, the end
// A client that sees only its own: the foreign event is before the own one, so once that is there the other had its
// time.
void check_sees_only(const struct gateway *gateway, struct sse_client *client, const char *own, const char *foreign);

// Answers every request in its thread with what it was last told; keeps the last request's head.
extern struct app {
    int listener;
    int port;
    pthread_t thread;
    pthread_mutex_t lock;
    int status; // 0: nothing is answered, the connection stays open
    char body[8192];
    char request[32768];
    atomic_int count;
} app;
const char *app_start(const char *path); // its URL
void app_answer(int status, const char *body);
void app_stop(void);
void app_listen(void); // again, on the same port

void jwt_tests(Suite *suite);
void asked_tests(Suite *suite);
void isolation_tests(Suite *suite);
void configuration_tests(Suite *suite);
