// redis_conn: one Redis connection on a libuv loop (hiredis async with our own adapter) that comes back by itself, with
// a timeout on everything and a PING when nothing arrives. Either a publisher or a subscriber. Losing it is never an
// error for the caller: Redis is fast, the log is complete (docs/guarantees.md, G9). Redis is no trusted party: what it
// sends is bounded (redis_guard), and what it says of an error is not repeated where it may quote what we sent.
#pragma once
#include "common/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

struct redis_conn;

struct redis_conn_options {
    const char *url;     // redis[s]://[user:password@]host[:port][/db]; copied
    const char *ca_file; // rediss: certificate authorities (PEM) instead of the system's, or NULL; copied
    const char *channel; // subscriber: this channel is subscribed to at every connect; NULL: a publisher; copied
    void *arg;
    void (*on_up)(void *arg); // connected (and subscribed)
    void (*on_down)(void *arg, const struct error *error);
    void (*on_message)(void *arg, const char *bytes, size_t length); // view
};

bool redis_url_check(const char *url, struct error *ret_error); // ERROR_USAGE
struct redis_conn *redis_conn_new(uv_loop_t *loop, const struct redis_conn_options *options);
bool redis_conn_is_up(const struct redis_conn *conn);
// Sent if up, else dropped: true when it was handed to the socket.
bool redis_conn_publish(struct redis_conn *conn, const char *channel, const char *bytes, size_t length);
void redis_conn_reset(struct redis_conn *conn,
                      const char *reason); // reconnect: a link that is alive and delivers nothing
void redis_conn_close(struct redis_conn *conn, void (*on_closed)(void *arg), void *arg); // NULL conn is allowed
