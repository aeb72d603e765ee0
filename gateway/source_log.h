// source_log: the stream's log in PostgreSQL: LISTEN for news, and the reads of the port stream_source.
#pragma once
#include "common/error.h"
#include "gateway/stream_source.h"
#include <stdbool.h>
#include <uv.h>

enum { STREAM_ID = 1 }; // the stream `default`

struct source_log;

struct source_log_options {
    const char *url; // not through a transaction pooler: LISTEN would be swallowed
    void *arg;
    void (*on_up)(void *arg, const char *installation);                // after every (re)connect
    void (*on_down)(void *arg, const struct error *error, bool first); // first: there never was a connection
    void (*on_news)(void *arg, int64_t newest);                        // a dispatcher said NOTIFY
};

struct source_log *source_log_new(uv_loop_t *loop, const struct source_log_options *options);
bool source_log_is_up(const struct source_log *source);
struct stream_source source_log_port(struct source_log *source);
void source_log_close(struct source_log *source); // NULL is allowed; reads in flight are answered ERROR_CANCELLED
