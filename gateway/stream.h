// stream: keeps the ring equal to the log (docs/stream-source.md). The core includes no loop and no clock: whoever owns
// it calls stream_tick when stream_due_ms says so.
//
// Entries come two ways. Redis offers them as they are committed; an offered entry whose predecessor is the head is
// appended. Everything else is the log's business: it is read after the head when a predecessor does not come within
// GAP_WAIT_MS, when somebody says that there is news, and at every check. So Redis only makes it fast.
#pragma once
#include "gateway/resume.h"
#include "gateway/ring.h"
#include "gateway/stream_source.h"
#include <stdbool.h>
#include <stdint.h>

enum {
    STREAM_CHECK_MS = 1000, // head is compared with the log this often
    STREAM_POLL_MS = 200,   // and this often while the fast way is down
    STREAM_GAP_WAIT_MS = 5, // for the predecessor of an entry
    STREAM_PAGE = 1000,     // rows in one read
    STREAM_LAG_MS = 5000,   // a log that ends before the head may be a standby that lags
};

struct stream;

struct stream_options {
    struct stream_source source;
    struct ring *ring; // borrows
    void *arg;         // for the callbacks; each may be NULL
    // The ring holds everything that the log holds, for the first time.
    void (*on_ready)(void *arg);
    // The log brought `count` entries that were not offered.
    void (*on_filled)(void *arg, size_t count);
    // The log lost entries: the ring was cut back to `held`, its new head. Whoever has seen a later position (for
    // RESET_HISTORY_EXPIRED: everybody) must be told.
    void (*on_rewound)(void *arg, int64_t held, enum reset_reason reason);
};

struct stream *stream_new(const struct stream_options *options);
void stream_free(struct stream *stream); // a read in flight must have been answered, or never will be

void stream_offer(struct stream *stream, const struct stream_entry *entry);
void stream_hint(struct stream *stream, int64_t newest); // the log reaches at least here
void stream_wake(struct stream *stream);                 // something was (re)connected: compare now
void stream_set_check_ms(struct stream *stream, unsigned check_ms);

uint64_t stream_due_ms(const struct stream *stream); // UINT64_MAX while a read is in flight
void stream_tick(struct stream *stream);
bool stream_is_ready(const struct stream *stream);
