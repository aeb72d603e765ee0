// A gateway on a log that the tests write as the dispatcher's SSE lane does, and readers of bytes.
#pragma once
#include "tests/support/fixture.h"
#include "tests/support/gateway.h"
#include <stdbool.h>
#include <stdint.h>

enum { SOON_MS = HANG_MS };

extern PGconn *db;
void fresh_database(void); // sets db

// Appends `count` entries <prefix>0, <prefix>1, ... padded to `key_bytes`, as one batch; says nothing to anybody.
// Returns the newest position.
int64_t log_append_quietly(const char *table, const char *prefix, int count, int key_bytes);
int64_t log_append(const char *table, const char *prefix, int count); // and tells the gateways
int64_t log_newest(void);
void each_position(void (*each)(void *arg, int64_t position, int64_t prev, const char *key), void *arg, int64_t after);

struct sse_client *open_at(const struct gateway *gateway, int64_t position);
const char *body_of(struct sse_client *client);
void wait_position(struct sse_client *client, int64_t position);
bool stream_is_closed(void *client); // for wait_for
int count_of(const char *text, const char *part);
void check_has(const char *text, const char *part);
// Waits for what follows the format's last colon, then everything must be as it says.
void check_body(struct sse_client *client, const char *format, ...) __attribute__((format(printf, 2, 3)));
void wait_gateway(const struct gateway *gateway); // until it has everything that is in the log
// Opens at a position that cannot be resumed, and expects the reset, then an event as usual.
void check_reset(const struct gateway *gateway, const char *target, const char *header, const char *reason);
// One request on a connection of its own; returns everything that came back until the server closed.
const char *request(int port, const char *format, ...) __attribute__((format(printf, 2, 3)));

void opening_tests(Suite *suite);
void resuming_tests(Suite *suite);
void source_tests(Suite *suite);
void limit_tests(Suite *suite);
void http_tests(Suite *suite);
