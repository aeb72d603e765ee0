// housekeeper: retention and what nobody else would notice: prunes events, attempts and the stream log,
// ends what removed subscriptions left, disables endpoints that failed for days, frees blocked subjects, alerts about a
// backlog, has the indexes of search engines rebuilt after a failover.
//
// Every dispatcher has one; a session lock lets one of them work at a time. It works in small steps on a session of its
// own, with a pause between them, so that deliveries never wait for it. It decides nothing by itself: each step is a
// function in the schema (migrations/functions/housekeeping.sql, search.sql), safe to be run by anybody at any time.
#pragma once
#include "common/error.h"
#include <uv.h>

struct housekeeper;

struct housekeeper_options {
    const char *url, *direct_url; // copied; the second may be NULL
    long keep_events_ms, keep_attempts_ms, keep_stream_ms;
};

// A database that is away is its silence: others tell of that.
struct housekeeper *housekeeper_new(uv_loop_t *loop, const struct housekeeper_options *options);
void housekeeper_close(struct housekeeper *housekeeper, void (*on_closed)(void *arg), void *arg); // NULL is allowed
