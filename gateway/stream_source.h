// stream_source: the port through which stream.c reads the log and the clock. source_log.c is PostgreSQL; a test has
// one in memory with a time of its own.
//
// Each read calls its `done` exactly once, never from inside the call. stream.c has one read in flight at a time.
#pragma once
#include "common/error.h"
#include "common/stream_message.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stream_page {
    bool holds;                         // the log holds the position asked about
    int64_t oldest;                     // of the log, only when it does not
    int64_t newest;                     // likewise
    const struct stream_entry *entries; // after that position, in order; views, valid during the callback
    size_t count;
};
typedef void stream_page_done(void *arg, const struct stream_page *page, const struct error *error);
typedef void stream_position_done(void *arg, int64_t position, const struct error *error);

struct stream_source {
    void *arg;
    uint64_t (*now_ms)(void *arg); // monotonic
    // The position right before the newest `depth` entries, or the oldest in the log.
    void (*begin)(void *arg, size_t depth, stream_position_done *done, void *done_arg);
    void (*read_after)(void *arg, int64_t position, size_t limit, stream_page_done *done, void *done_arg);
    // The newest of these positions that the log holds; 0 when none.
    void (*newest_held)(void *arg, const int64_t *positions, size_t count, stream_position_done *done, void *done_arg);
};
