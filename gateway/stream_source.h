// stream_source: where entries come from, and where they can be read again: the seam between the gateway and whatever
// keeps the log (docs/stream-source.md says how to write one). source_log.c is PostgreSQL alone, source_redis.c puts
// Redis in front of another source, source_memory.c keeps the log in memory.
//
// A source pushes what it hears to its listener, which may be lost, repeated or out of order, and answers reads, which
// are the truth. Each read calls its `done` exactly once, never from inside the call; what is in flight when the source
// is closed gets ERROR_CANCELLED. Views are valid during the callback.
#pragma once
#include "common/error.h"
#include "common/stream_message.h"
#include "gateway/scope_index.h"
#include "gateway/table_filter.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- what is pushed; each may be NULL ----

struct stream_listener {
    void *arg;
    // Reads can be answered (again). `installation` names the log among all others.
    void (*on_up)(void *arg, const char *installation);
    void (*on_down)(void *arg, const struct error *error, bool first); // first: it never was up
    void (*on_change)(void *arg);                                      // check_ms or is_up say something else now
    void (*on_news)(void *arg, int64_t newest);                        // the log reaches at least here
    void (*on_entry)(void *arg, const struct stream_entry *entry);
};

// ---- what is read ----

struct stream_page {
    bool holds;                         // the log holds the position asked about
    int64_t oldest;                     // of the log, only when it does not
    int64_t newest;                     // likewise
    const struct stream_entry *entries; // after that position, in order
    size_t count;
};
typedef void stream_page_done(void *arg, const struct stream_page *page, const struct error *error);
typedef void stream_position_done(void *arg, int64_t position, const struct error *error);

// What one client missed, that the ring no longer has.
struct stream_missed_ask {
    int64_t after;                     // the position that it shows
    int64_t head;                      // nothing above it is wanted
    size_t limit;                      // entries
    const struct table_filter *tables; // NULL: all. Borrowed during the call
    const struct scope_rights *rights; // NULL: every scope and none. Borrowed during the call
    bool primary;                      // of the place where the log is written, not of a copy
};
struct stream_missed {
    bool primary;     // the answer is the primary's: a copy may end early, or belong to a history that was given up
    bool holds;       // the log holds `after`
    bool holds_head;  // and `head`
    bool over_budget; // too many entries would have to be looked at
    int64_t oldest;
    int64_t newest;
    const struct stream_entry
        *entries; // in (after, head], in order, when it holds `after`; may be more than are asked for
    size_t count;
};
typedef void stream_missed_done(void *arg, const struct stream_missed *missed, const struct error *error);

// The keys that what is pushed may be signed with. Views.
typedef void stream_keys_done(void *arg, const struct stream_keys *keys, const struct error *error);

// Reads go to the log, the rest to the feed; what is put in front of a log replaces the feed and keeps the reads.
struct stream_source {
    void *arg;                     // the log
    uint64_t (*now_ms)(void *arg); // monotonic
    // The position right before the newest `depth` entries, or the oldest in the log.
    void (*begin)(void *arg, size_t depth, stream_position_done *done, void *done_arg);
    void (*read_after)(void *arg, int64_t position, size_t limit, stream_page_done *done, void *done_arg);
    // The newest of these positions that the log holds; 0 when none.
    void (*newest_held)(void *arg, const int64_t *positions, size_t count, stream_position_done *done, void *done_arg);
    void (*read_missed)(void *arg, const struct stream_missed_ask *ask, stream_missed_done *done, void *done_arg);
    void (*read_keys)(void *arg, stream_keys_done *done, void *done_arg); // NULL: it has none

    void *feed;
    void (*start)(void *feed, const struct stream_listener *listener); // once; copied
    // The log brought `count` entries that were not pushed. NULL: of no interest.
    void (*overlooked)(void *feed, size_t count);
    bool (*is_up)(void *feed);        // entries arrive by at least one of its ways
    unsigned (*check_ms)(void *feed); // how often the log is to be compared. NULL: always every STREAM_CHECK_MS
    void (*close)(void *feed);        // frees, the log too; the listener hears nothing more
};
