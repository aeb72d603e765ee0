// The happy path is: BEGINNING asks where to start, LOADING reads pages until one is short, FOLLOWING appends what is
// offered and compares with the log at each check. The failure modes are: a read that fails (asked again at the next
// check, or when something reconnects), entries that never arrive (the log has them), and a log that no longer holds
// the head (REWINDING: a restore or a failover took commits back).
//
//   BEGINNING --position--> LOADING --short page--> FOLLOWING <--position that is still held--+
//       ^                     |                        |                                      |
//       +----head not held----+                        +--head not held--> REWINDING ---------+
#include "gateway/stream.h"
#include "common/hint.h"
#include "common/log.h"
#include "common/memory.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

// Entries that wait for their predecessor; past this many the log is read anyhow.
enum { STASH_MOST = 1024 };
// Reads that a hint caused and that found nothing: a few at once, then one in STREAM_POLL_MS, however many come.
enum { IDLE_HINTS_BURST = 10 };

enum stream_state { BEGINNING, LOADING, FOLLOWING, REWINDING };

static const bool allowed[4][4] = {
    [BEGINNING] = {[LOADING] = true},
    [LOADING] = {[FOLLOWING] = true, [BEGINNING] = true},
    [FOLLOWING] = {[REWINDING] = true},
    [REWINDING] = {[FOLLOWING] = true},
};

struct stream {
    struct stream_options options;
    enum stream_state state;
    bool asking;          // a read is in flight
    bool again;           // news came while it was
    int64_t hinted;       // 0, or how far the log reaches as a hint says, for which the next read is
    int64_t hinted_later; // the same of a hint that came while a read is in flight
    bool hint_asked;      // the read in flight is for the sake of a hint
    struct hint_pace hints;
    int64_t given_up; // positions up to here were taken back: what is offered of them is the log's to say
    unsigned check_ms;
    uint64_t check_due_ms;
    uint64_t gap_due_ms;             // 0: no gap
    int64_t gap_asked;               // the entry that had no predecessor when the read in flight was sent
    uint64_t absent_since_ms;        // when the log ended before the head for the first time; 0: it does not
    int64_t log_newest;              // with REWINDING
    struct frame *stash[STASH_MOST]; // owned, positions rise
    size_t stash_count;
};

static uint64_t now_ms(const struct stream *stream) {
    return stream->options.source.now_ms(stream->options.source.arg);
}

static void move_to(struct stream *stream, enum stream_state state) {
    assert(allowed[stream->state][state]);
    stream->state = state;
}

struct stream *stream_new(const struct stream_options *options) {
    struct stream *stream = memory_alloc(sizeof *stream);
    stream->options = *options;
    stream->check_ms = STREAM_CHECK_MS;
    stream->hints = (struct hint_pace){.every_ms = STREAM_POLL_MS, .burst = IDLE_HINTS_BURST};
    return stream;
}

static void stash_clear(struct stream *stream) {
    for (size_t i = 0; i < stream->stash_count; i++) {
        frame_free(stream->stash[i]);
    }
    stream->stash_count = 0;
    stream->gap_due_ms = 0;
}

void stream_free(struct stream *stream) {
    if (stream) {
        stash_clear(stream);
        free(stream);
    }
}

bool stream_is_ready(const struct stream *stream) {
    return stream->state == FOLLOWING || stream->state == REWINDING;
}

void stream_set_check_ms(struct stream *stream, unsigned check_ms) {
    stream->check_ms = check_ms;
    uint64_t latest = now_ms(stream) + check_ms;
    if (stream->check_due_ms > latest) {
        stream->check_due_ms = latest;
    }
}

void stream_wake(struct stream *stream) {
    stream->check_due_ms = 0;
    stream->again = stream->asking;
}

// Somebody says that the log reaches so far, who may be anybody.
static void follow_hint(struct stream *stream, int64_t position) {
    int64_t *hinted = stream->asking ? &stream->hinted_later : &stream->hinted;
    uint64_t due = hint_due_ms(&stream->hints, now_ms(stream));
    if (*hinted < position) {
        *hinted = position;
    }
    if (!stream->asking && stream->check_due_ms > due) {
        stream->check_due_ms = due;
    }
}

void stream_hint(struct stream *stream, int64_t newest) {
    if (newest > ring_head(stream->options.ring)) {
        follow_hint(stream, newest);
    }
}

// ---- offered entries ----

// Appends what now has its predecessor, drops what came another way, and decides whether there is a gap.
static void stash_drain(struct stream *stream) {
    struct ring *ring = stream->options.ring;
    size_t done = 0;
    while (done < stream->stash_count) {
        struct frame *frame = stream->stash[done];
        if (frame->position <= ring_head(ring)) {
            frame_free(frame);
        } else if (frame->prev == ring_head(ring)) {
            ring_append(ring, frame);
        } else {
            break;
        }
        done++;
    }
    stream->stash_count -= done;
    memmove(stream->stash, stream->stash + done, stream->stash_count * sizeof stream->stash[0]);
    if (stream->stash_count == 0) {
        stream->gap_due_ms = 0;
    } else if (stream->gap_due_ms == 0 || done > 0) {
        stream->gap_due_ms = now_ms(stream) + STREAM_GAP_WAIT_MS;
    }
}

static void stash_add(struct stream *stream, const struct stream_entry *entry) {
    size_t at = stream->stash_count;
    while (at > 0 && stream->stash[at - 1]->position > entry->position) {
        at--;
    }
    bool known = at > 0 && stream->stash[at - 1]->position == entry->position;
    if (known || stream->stash_count == STASH_MOST) {
        return; // the gap is read from the log, and this entry with it
    }
    memmove(stream->stash + at + 1, stream->stash + at, (stream->stash_count - at) * sizeof stream->stash[0]);
    stream->stash[at] = frame_new(entry);
    stream->stash_count++;
}

void stream_offer(struct stream *stream, const struct stream_entry *entry) {
    struct ring *ring = stream->options.ring;
    if (stream->state != FOLLOWING) {
        return; // the log is being read, and has it
    }
    if (entry->position <= ring_head(ring)) {
        uint64_t sequence;
        // Inside what the ring covers and yet not there: two histories. The log decides.
        if (entry->position > ring_base(ring) && !ring_find(ring, entry->position, &sequence)) {
            follow_hint(stream, INT64_MAX);
        }
        return;
    }
    // A message of the time before a failover, which somebody has kept, must not bring back what was lost.
    if (entry->position <= stream->given_up) {
        follow_hint(stream, entry->position);
        return;
    }
    if (stream->stash_count == 0 && entry->prev == ring_head(ring)) {
        ring_append(ring, frame_new(entry));
        return;
    }
    stash_add(stream, entry);
    stash_drain(stream);
}

// ---- reads of the log ----

uint64_t stream_due_ms(const struct stream *stream) {
    if (stream->asking) {
        return UINT64_MAX;
    }
    if (stream->gap_due_ms != 0 && stream->gap_due_ms < stream->check_due_ms) {
        return stream->gap_due_ms;
    }
    return stream->check_due_ms;
}

// A page fits into the ring, so that nobody who is up to date is left behind by one.
static size_t page_size(const struct stream *stream) {
    size_t capacity = ring_capacity(stream->options.ring);
    return capacity < STREAM_PAGE ? capacity : STREAM_PAGE;
}

static void on_position(void *arg, int64_t position, const struct error *error);
static void on_page(void *arg, const struct stream_page *page, const struct error *error);

static void ask_held(struct stream *stream) {
    const struct ring *ring = stream->options.ring;
    size_t count = 0;
    int64_t *positions = memory_alloc((ring_capacity(ring) + 1) * sizeof *positions);
    positions[count++] = ring_base(ring);
    for (uint64_t s = ring_begin(ring); s < ring_end(ring); s++) {
        positions[count++] = ring_at(ring, s)->position;
    }
    stream->options.source.newest_held(stream->options.source.arg, positions, count, on_position, stream);
    free(positions);
}

void stream_tick(struct stream *stream) {
    const struct stream_source *source = &stream->options.source;
    if (stream->asking || now_ms(stream) < stream_due_ms(stream)) {
        return;
    }
    stream->asking = true;
    stream->again = false;
    stream->hint_asked = stream->hinted > 0;
    stream->hinted = 0;
    stream->gap_asked = stream->stash_count > 0 ? stream->stash[0]->position : 0;
    switch (stream->state) {
    case BEGINNING:
        source->begin(source->arg, ring_capacity(stream->options.ring), on_position, stream);
        break;
    case LOADING:
    case FOLLOWING:
        source->read_after(source->arg, ring_head(stream->options.ring), page_size(stream), on_page, stream);
        break;
    case REWINDING:
        ask_held(stream);
        break;
    }
}

// A read ended; the next is due at once or at the next check. A gap that it did not close is not asked about in a hot
// loop; one that appeared meanwhile keeps its time.
static void answered(struct stream *stream, bool at_once) {
    uint64_t now = now_ms(stream);
    stream->asking = false;
    stream->check_due_ms = at_once || stream->again ? 0 : now + stream->check_ms;
    if (stream->hinted_later > ring_head(stream->options.ring)) {
        follow_hint(stream, stream->hinted_later);
    }
    stream->hinted_later = 0;
    if (stream->gap_due_ms != 0 && stream->stash[0]->position == stream->gap_asked) {
        stream->gap_due_ms = now_ms(stream) + STREAM_POLL_MS;
    }
}

static void tell_rewound(struct stream *stream, enum reset_reason reason) {
    int64_t held = ring_head(stream->options.ring);
    log_warn("stream_rewound", LOG_INT("held", held), LOG_TEXT("reason", reset_reason_name(reason)));
    if (stream->options.on_rewound) {
        stream->options.on_rewound(stream->options.arg, held, reason);
    }
}

static void on_position(void *arg, int64_t position, const struct error *error) {
    struct stream *stream = arg;
    struct ring *ring = stream->options.ring;
    if (error) {
        answered(stream, false);
        return;
    }
    if (stream->state == BEGINNING) {
        ring_start(ring, position);
        move_to(stream, LOADING);
    } else {
        move_to(stream, FOLLOWING);
        stream->given_up = ring_head(ring);
        if (position > 0) {
            ring_truncate(ring, position);
        } else {
            ring_start(ring, stream->log_newest);
        }
        tell_rewound(stream, RESET_STREAM_REWOUND);
    }
    answered(stream, true);
}

static void on_head_absent(struct stream *stream, const struct stream_page *page) {
    struct ring *ring = stream->options.ring;
    if (stream->state == LOADING) {
        move_to(stream, BEGINNING); // pruned away under us; nobody has been told anything yet
        answered(stream, false);
        return;
    }
    // A log that ends before the head may be a standby's that lags, so that is believed only when it lasts. One that
    // goes on after it without holding it has another history for certain.
    uint64_t now = now_ms(stream);
    if (page->newest < ring_head(ring)) {
        if (stream->absent_since_ms == 0) {
            stream->absent_since_ms = now;
        }
        if (now - stream->absent_since_ms < STREAM_LAG_MS) {
            answered(stream, false);
            return;
        }
    }
    stream->absent_since_ms = 0;
    stash_clear(stream);
    if (page->oldest > ring_head(ring)) {
        // We were away for longer than the log keeps.
        ring_start(ring, page->newest);
        tell_rewound(stream, RESET_HISTORY_EXPIRED);
    } else {
        stream->log_newest = page->newest;
        move_to(stream, REWINDING);
    }
    answered(stream, true);
}

static void on_page(void *arg, const struct stream_page *page, const struct error *error) {
    struct stream *stream = arg;
    struct ring *ring = stream->options.ring;
    if (error) {
        answered(stream, false);
        return;
    }
    if (!page->holds) {
        on_head_absent(stream, page);
        return;
    }
    stream->absent_since_ms = 0;
    size_t filled = 0;
    for (size_t i = 0; i < page->count; i++) {
        // Offers may have moved the head while the read was under way.
        if (page->entries[i].position > ring_head(ring)) {
            ring_append(ring, frame_new(&page->entries[i]));
            filled++;
        }
    }
    stash_drain(stream);
    bool more = page->count == page_size(stream);
    if (stream->hint_asked && filled == 0) {
        hint_spend(&stream->hints, now_ms(stream));
    }
    if (stream->state == FOLLOWING && filled > 0 && stream->options.on_filled) {
        stream->options.on_filled(stream->options.arg, filled);
    }
    if (stream->state == LOADING && !more) {
        move_to(stream, FOLLOWING);
        if (stream->options.on_ready) {
            stream->options.on_ready(stream->options.arg);
        }
    }
    answered(stream, more);
}
