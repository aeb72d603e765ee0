// sink_sse: the SSE lane. Moves jobs of the streams' subscriptions into rowbell.stream_log, where they get their
// positions, and tells the gateways. Any dispatcher appends to any stream: an advisory lock makes
// appenders take turns, so there are no shards, leases or acks; deleting the job and inserting the entry is one
// transaction (G3, G5). It has a connection of its own, so that it never waits behind webhook claims.
#pragma once
#include "common/error.h"
#include <stdbool.h>
#include <uv.h>

struct sink_sse;

struct sink_sse_options {
    const char *url;        // PostgreSQL; may be behind a transaction pooler. Copied
    const char *direct_url; // past it; may be NULL. Copied
    const char *redis_url;  // NULL: NOTIFY rowbell_stream with each append instead of PUBLISH. Copied
    const char *redis_ca;   // rediss: certificate authorities (PEM); NULL: the system's. Copied
    void *arg;
    void (*on_up)(void *arg);
    void (*on_down)(void *arg, const struct error *error, bool first);
    void (*on_drained)(void *arg); // nothing is left to append; may be called again and again. May be NULL
};

struct sink_sse *sink_sse_new(uv_loop_t *loop, const struct sink_sse_options *options);
void sink_sse_wake(struct sink_sse *sse);                 // NOTIFY rowbell_jobs said so
const char *sink_sse_unready(const struct sink_sse *sse); // NULL: ready; else why not (static)
// Begins no append; on_stopped once none is in flight (5 s at the most).
void sink_sse_stop(struct sink_sse *sse, void (*on_stopped)(void *arg), void *arg);
void sink_sse_close(struct sink_sse *sse, void (*on_closed)(void *arg), void *arg); // NULL is allowed
