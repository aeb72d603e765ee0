#include "gateway/source_memory.h"
#include "common/clock.h"
#include "common/memory.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

// A read that waits for its answer.
struct read {
    struct read *prev, *next;
    void (*answer)(struct source_memory *source, const struct read *read);
    int64_t position;
    size_t limit; // or depth
    int64_t *positions;
    struct stream_missed_ask missed;
    stream_page_done *page_done;
    stream_position_done *position_done;
    stream_missed_done *missed_done;
    void *done_arg;
};

struct source_memory {
    struct stream_listener listener;
    struct stream_entry *kept; // their strings are owned
    size_t count;
    size_t capacity;
    size_t oldest; // the first that is still there
    struct read *reads;
    bool down;
    uv_loop_t *loop;
    uint64_t now_ms;   // by hand
    uv_timer_t *timer; // with a loop
};

static const struct error away = {.code = ERROR_CONNECT, .text = "the log is away"};
static const struct error cancelled = {.code = ERROR_CANCELLED, .text = "the log is closed"};

// ---- entries ----

size_t source_memory_count(const struct source_memory *source) {
    return source->count;
}

struct stream_entry source_memory_at(const struct source_memory *source, size_t i) {
    assert(i < source->count);
    return source->kept[i];
}

static int64_t newest(const struct source_memory *source) {
    return source->kept[source->count - 1].position;
}

static int64_t oldest(const struct source_memory *source) {
    return source->kept[source->oldest].position;
}

// The first entry that is there and above the position.
static size_t first_above(const struct source_memory *source, int64_t position) {
    size_t low = source->oldest;
    size_t high = source->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (source->kept[middle].position <= position) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

bool source_memory_holds(const struct source_memory *source, int64_t position) {
    size_t above = first_above(source, position);
    return above > source->oldest && source->kept[above - 1].position == position;
}

static void entry_free(struct stream_entry *entry) {
    free((char *)entry->scope);
    free((char *)entry->name);
    free((char *)entry->key);
    free((char *)entry->op);
}

int64_t source_memory_append_quietly(struct source_memory *source, const struct stream_entry *entry) {
    if (source->count == source->capacity) {
        source->capacity = source->capacity > 0 ? 2 * source->capacity : 64;
        source->kept = memory_resize(source->kept, source->capacity, sizeof *source->kept);
    }
    int64_t prev = source->count > 0 ? newest(source) : 0;
    int64_t position = entry->position;
    if (position == 0) {
        position = (int64_t)clock_wall_us() > prev ? (int64_t)clock_wall_us() : prev + 1;
    }
    assert(position > prev);
    source->kept[source->count++] = (struct stream_entry){
        .position = position,
        .prev = prev,
        .scope = memory_copy_text(entry->scope),
        .name = memory_copy_text(entry->name),
        .key = memory_copy_text(entry->key),
        .op = memory_copy_text(entry->op),
    };
    return position;
}

int64_t source_memory_append(struct source_memory *source, const struct stream_entry *entry) {
    int64_t position = source_memory_append_quietly(source, entry);
    if (source->listener.on_entry) {
        source->listener.on_entry(source->listener.arg, &source->kept[source->count - 1]);
    }
    return position;
}

void source_memory_prune(struct source_memory *source, size_t oldest_left) {
    assert(oldest_left < source->count); // the newest is never pruned
    source->oldest = oldest_left > source->oldest ? oldest_left : source->oldest;
}

void source_memory_take_back(struct source_memory *source, size_t count) {
    assert(count > source->oldest);
    while (source->count > count) {
        entry_free(&source->kept[--source->count]);
    }
}

// ---- answers ----

static void answer_begin(struct source_memory *source, const struct read *read) {
    size_t there = source->count - source->oldest;
    size_t at = there > read->limit ? source->count - 1 - read->limit : source->oldest;
    read->position_done(read->done_arg, source->kept[at].position, NULL);
}

static void answer_page(struct source_memory *source, const struct read *read) {
    size_t at = first_above(source, read->position);
    struct stream_page page = {
        .holds = source_memory_holds(source, read->position), .oldest = oldest(source), .newest = newest(source)};
    if (page.holds) {
        page.entries = source->kept + at;
        page.count = source->count - at < read->limit ? source->count - at : read->limit;
    }
    read->page_done(read->done_arg, &page, NULL);
}

static void answer_held(struct source_memory *source, const struct read *read) {
    int64_t held = 0;
    for (size_t i = 0; i < read->limit; i++) {
        if (read->positions[i] > held && source_memory_holds(source, read->positions[i])) {
            held = read->positions[i];
        }
    }
    read->position_done(read->done_arg, held, NULL);
}

static void answer_missed(struct source_memory *source, const struct read *read) {
    const struct stream_missed_ask *ask = &read->missed;
    size_t at = first_above(source, ask->after);
    struct stream_missed missed = {
        .primary = true,
        .holds = source_memory_holds(source, ask->after),
        .holds_head = source_memory_holds(source, ask->head),
        .oldest = oldest(source),
        .newest = newest(source),
    };
    // All of them: who asked looks at tables and scopes again anyhow, and nothing is copied.
    if (missed.holds) {
        size_t end = first_above(source, ask->head);
        missed.entries = source->kept + at;
        missed.count = end > at ? end - at : 0;
    }
    read->missed_done(read->done_arg, &missed, NULL);
}

static void read_fail(const struct read *read, const struct error *error) {
    if (read->page_done) {
        read->page_done(read->done_arg, NULL, error);
    } else if (read->position_done) {
        read->position_done(read->done_arg, 0, error);
    } else {
        read->missed_done(read->done_arg, NULL, error);
    }
}

bool source_memory_is_asked(const struct source_memory *source) {
    return source->reads != NULL;
}

bool source_memory_answer(struct source_memory *source) {
    struct read *read = source->reads;
    if (!read) {
        return false;
    }
    DL_DELETE(source->reads, read); // first: an answer may ask again
    if (source->down) {
        read_fail(read, &away);
    } else {
        read->answer(source, read);
    }
    free(read->positions);
    free(read);
    return true;
}

// ---- the port ----

static uint64_t port_now_ms(void *arg) {
    const struct source_memory *source = arg;
    return source->loop ? clock_ms() : source->now_ms;
}

static void on_timer(uv_timer_t *timer) {
    struct source_memory *source = timer->data;
    while (source_memory_answer(source)) {
    }
}

static void read_wait(struct source_memory *source, struct read read) {
    struct read *kept = memory_alloc(sizeof *kept);
    *kept = read;
    DL_APPEND(source->reads, kept);
    if (source->timer) {
        uv_timer_start(source->timer, on_timer, 0, 0);
    }
}

static void port_begin(void *arg, size_t depth, stream_position_done *done, void *done_arg) {
    read_wait(arg, (struct read){.answer = answer_begin, .limit = depth, .position_done = done, .done_arg = done_arg});
}

static void port_read_after(void *arg, int64_t position, size_t limit, stream_page_done *done, void *done_arg) {
    read_wait(arg, (struct read){
                       .answer = answer_page,
                       .position = position,
                       .limit = limit,
                       .page_done = done,
                       .done_arg = done_arg,
                   });
}

static void port_newest_held(void *arg, const int64_t *positions, size_t count, stream_position_done *done,
                             void *done_arg) {
    int64_t *copy = memory_alloc(count * sizeof *copy);
    memcpy(copy, positions, count * sizeof *copy);
    read_wait(arg, (struct read){
                       .answer = answer_held,
                       .positions = copy,
                       .limit = count,
                       .position_done = done,
                       .done_arg = done_arg,
                   });
}

static void port_read_missed(void *arg, const struct stream_missed_ask *ask, stream_missed_done *done, void *done_arg) {
    struct read read = {.answer = answer_missed, .missed = *ask, .missed_done = done, .done_arg = done_arg};
    read.missed.tables = NULL; // borrowed only during the call
    read.missed.rights = NULL;
    read_wait(arg, read);
}

static void feed_start(void *feed, const struct stream_listener *listener) {
    struct source_memory *source = feed;
    source->listener = *listener;
    if (listener->on_up) {
        listener->on_up(listener->arg, "memory");
    }
}

static bool feed_is_up(void *feed) {
    const struct source_memory *source = feed;
    return !source->down;
}

static void on_timer_closed(uv_handle_t *handle) {
    free(handle);
}

static void feed_close(void *feed) {
    struct source_memory *source = feed;
    struct read *read, *following;
    DL_FOREACH_SAFE(source->reads, read, following) {
        read_fail(read, &cancelled);
        free(read->positions);
        free(read);
    }
    for (size_t i = 0; i < source->count; i++) {
        entry_free(&source->kept[i]);
    }
    if (source->timer) {
        uv_close((uv_handle_t *)source->timer, on_timer_closed);
    }
    free(source->kept);
    free(source);
}

struct source_memory *source_memory_new(uv_loop_t *loop, int64_t first) {
    struct source_memory *source = memory_alloc(sizeof *source);
    source->loop = loop;
    source->now_ms = 1000000;
    if (loop) {
        source->timer = memory_alloc(sizeof *source->timer);
        uv_timer_init(loop, source->timer);
        source->timer->data = source;
    }
    source_memory_append_quietly(source, &(struct stream_entry){.position = first, .name = "", .op = "delete"});
    return source;
}

struct stream_source source_memory_port(struct source_memory *source) {
    return (struct stream_source){
        .arg = source,
        .now_ms = port_now_ms,
        .begin = port_begin,
        .read_after = port_read_after,
        .newest_held = port_newest_held,
        .read_missed = port_read_missed,
        .feed = source,
        .start = feed_start,
        .is_up = feed_is_up,
        .close = feed_close,
    };
}

void source_memory_set_down(struct source_memory *source, bool down) {
    source->down = down;
}

void source_memory_pass(struct source_memory *source, uint64_t ms) {
    source->now_ms += ms;
}
