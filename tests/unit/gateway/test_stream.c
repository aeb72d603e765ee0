// stream.c on a log in memory and a time of its own: whatever Redis loses, repeats or reorders, the ring becomes the
// log (G5, G6).
#include "gateway/stream.h"
#include "tests/support/fixture.h"
#include "tests/unit/gateway/tests.h"
#include <stdlib.h>
#include <string.h>

enum { LOG_MOST = 20000 };

// A log, and at most one read that waits for its answer.
struct world {
    uint64_t now;
    int64_t positions[LOG_MOST]; // rising; [0] is the first row
    size_t count;
    size_t oldest;
    bool down;
    size_t reads;
    void (*answer)(struct world *world);
    int64_t position;
    size_t limit;
    size_t depth;
    int64_t *asked;
    size_t asked_count;
    stream_page_done *page_done;
    stream_position_done *position_done;
    void *done_arg;
    struct ring *ring;
    struct stream *stream;
    size_t ready;
    size_t filled;
    size_t rewound;
    int64_t rewound_to;
    enum reset_reason rewound_reason;
};

static struct world world;

static struct stream_entry log_entry(size_t i) {
    return (struct stream_entry){.position = world.positions[i],
                                 .prev = i == 0 ? 0 : world.positions[i - 1],
                                 .name = "t",
                                 .key = "k",
                                 .op = "update"};
}

static bool log_holds(int64_t position) {
    for (size_t i = world.oldest; i < world.count; i++) {
        if (world.positions[i] == position) {
            return true;
        }
    }
    return false;
}

static const struct error away = {.code = ERROR_CONNECT, .text = "away"};

static void answer_begin(struct world *w) {
    size_t at = w->count > w->oldest + w->depth ? w->count - 1 - w->depth : w->oldest;
    w->position_done(w->done_arg, w->down ? 0 : w->positions[at], w->down ? &away : NULL);
}

static void answer_page(struct world *w) {
    static struct stream_entry entries[LOG_MOST];
    struct stream_page page = {.holds = log_holds(w->position), .entries = entries};
    if (w->down) {
        w->page_done(w->done_arg, NULL, &away);
        return;
    }
    if (!page.holds) {
        page.oldest = w->positions[w->oldest];
        page.newest = w->positions[w->count - 1];
    }
    for (size_t i = w->oldest; page.holds && i < w->count && page.count < w->limit; i++) {
        if (w->positions[i] > w->position) {
            entries[page.count++] = log_entry(i);
        }
    }
    w->page_done(w->done_arg, &page, NULL);
}

static void answer_held(struct world *w) {
    int64_t newest = 0;
    for (size_t i = 0; i < w->asked_count; i++) {
        if (log_holds(w->asked[i]) && w->asked[i] > newest) {
            newest = w->asked[i];
        }
    }
    free(w->asked);
    w->position_done(w->done_arg, newest, w->down ? &away : NULL);
}

static uint64_t port_now(void *arg) {
    return world.now;
}

static void port_begin(void *arg, size_t depth, stream_position_done *done, void *done_arg) {
    ck_assert_ptr_null(world.answer); // one read at a time
    world.answer = answer_begin;
    world.depth = depth;
    world.position_done = done;
    world.done_arg = done_arg;
}

static void port_read_after(void *arg, int64_t position, size_t limit, stream_page_done *done, void *done_arg) {
    ck_assert_ptr_null(world.answer);
    world.answer = answer_page;
    world.reads++;
    world.position = position;
    world.limit = limit;
    world.page_done = done;
    world.done_arg = done_arg;
}

static void port_held(void *arg, const int64_t *positions, size_t count, stream_position_done *done, void *done_arg) {
    ck_assert_ptr_null(world.answer);
    world.answer = answer_held;
    world.asked = calloc(count, sizeof positions[0]);
    memcpy(world.asked, positions, count * sizeof positions[0]);
    world.asked_count = count;
    world.position_done = done;
    world.done_arg = done_arg;
}

static void on_ready(void *arg) {
    world.ready++;
}

static void on_filled(void *arg, size_t count) {
    world.filled += count;
}

static void on_rewound(void *arg, int64_t held, enum reset_reason reason) {
    world.rewound++;
    world.rewound_to = held;
    world.rewound_reason = reason;
    ck_assert_int_eq(held, ring_head(world.ring));
}

static void setup(size_t ring_capacity, size_t log_rows) {
    world = (struct world){.now = 1000000, .count = 1};
    world.positions[0] = 1000;
    for (size_t i = 1; i < log_rows; i++) {
        world.positions[world.count++] = 1000 + (int64_t)i * 2;
    }
    world.ring = ring_new(ring_capacity);
    world.stream = stream_new(&(struct stream_options){
        .source = {.now_ms = port_now, .begin = port_begin, .read_after = port_read_after, .newest_held = port_held},
        .ring = world.ring,
        .on_ready = on_ready,
        .on_filled = on_filled,
        .on_rewound = on_rewound,
    });
}

static void teardown(void) {
    stream_free(world.stream);
    ring_free(world.ring);
}

static void answer(void) {
    void (*waiting)(struct world *) = world.answer;
    world.answer = NULL;
    if (waiting) {
        waiting(&world);
    }
}

// Lets ms pass, answering each read at once.
static void pass(uint64_t ms) {
    uint64_t end = world.now + ms;
    for (;;) {
        answer();
        uint64_t due = stream_due_ms(world.stream);
        if (due > end) {
            break;
        }
        world.now = due > world.now ? due : world.now;
        stream_tick(world.stream);
        ck_assert_ptr_nonnull(world.answer); // it was due, so it asked
    }
    world.now = end;
}

static void append(int64_t position) {
    world.positions[world.count++] = position;
}

static void offer(size_t i) {
    struct stream_entry entry = log_entry(i);
    stream_offer(world.stream, &entry);
}

static void check_ring_is_the_logs_end(void) {
    ck_assert_int_eq(ring_head(world.ring), world.positions[world.count - 1]);
    for (uint64_t s = ring_begin(world.ring); s < ring_end(world.ring); s++) {
        size_t i = world.count - (size_t)(ring_end(world.ring) - s);
        ck_assert_int_eq(ring_at(world.ring, s)->position, world.positions[i]);
    }
}

START_TEST(starts_with_as_much_as_the_ring_holds) {
    setup(4000, 9000);
    ck_assert(!stream_is_ready(world.stream));
    pass(0);
    ck_assert(stream_is_ready(world.stream));
    ck_assert_uint_eq(world.ready, 1);
    ck_assert_uint_eq(ring_end(world.ring) - ring_begin(world.ring), 4000);
    check_ring_is_the_logs_end();
    teardown();
}
END_TEST

START_TEST(offered_in_order_needs_no_read) {
    setup(100, 1);
    pass(0);
    size_t reads = world.reads;
    append(1010);
    offer(1);
    append(1011);
    offer(2);
    ck_assert_int_eq(ring_head(world.ring), 1011);
    offer(1); // again
    check_ring_is_the_logs_end();
    pass(STREAM_CHECK_MS - 1);
    ck_assert_uint_eq(world.reads, reads);
    teardown();
}
END_TEST

START_TEST(two_appenders_out_of_order_need_no_read) {
    setup(100, 1);
    pass(0);
    size_t reads = world.reads;
    append(1010);
    append(1020);
    append(1030);
    offer(3);
    offer(2);
    ck_assert_int_eq(ring_head(world.ring), 1000);
    pass(STREAM_GAP_WAIT_MS - 1);
    offer(1);
    check_ring_is_the_logs_end();
    pass(STREAM_GAP_WAIT_MS);
    ck_assert_uint_eq(world.reads, reads);
    teardown();
}
END_TEST

START_TEST(a_lost_entry_is_read_after_five_milliseconds) {
    setup(100, 1);
    pass(0);
    append(1010);
    append(1020);
    offer(2);
    pass(STREAM_GAP_WAIT_MS);
    check_ring_is_the_logs_end();
    ck_assert_uint_eq(world.filled, 2);
    teardown();
}
END_TEST

START_TEST(a_silent_loss_is_found_by_the_check) {
    setup(100, 1);
    pass(0);
    append(1010);
    pass(STREAM_CHECK_MS);
    check_ring_is_the_logs_end();
    teardown();
}
END_TEST

START_TEST(a_hint_reads_at_once_and_while_reading_once_more) {
    setup(100, 1);
    pass(0);
    append(1010);
    stream_hint(world.stream, 1010);
    stream_tick(world.stream);
    append(1020);
    stream_hint(world.stream, 1020);
    pass(0);
    check_ring_is_the_logs_end();
    size_t reads = world.reads;
    stream_hint(world.stream, 1020); // known already
    pass(0);
    ck_assert_uint_eq(world.reads, reads);
    teardown();
}
END_TEST

START_TEST(a_database_that_is_away_is_asked_at_each_check_only) {
    setup(100, 1);
    world.down = true;
    pass(10 * STREAM_CHECK_MS);
    ck_assert(!stream_is_ready(world.stream));
    world.down = false;
    pass(STREAM_CHECK_MS);
    ck_assert(stream_is_ready(world.stream));
    world.down = true;
    size_t reads = world.reads;
    append(1010);
    append(1020);
    offer(2); // a gap that cannot be filled now
    pass(10 * STREAM_CHECK_MS);
    ck_assert_uint_le(world.reads - reads, 10 * STREAM_CHECK_MS / STREAM_POLL_MS + 1);
    world.down = false;
    pass(STREAM_CHECK_MS);
    check_ring_is_the_logs_end();
    teardown();
}
END_TEST

START_TEST(a_restored_log_rewinds_to_what_it_still_holds) {
    setup(100, 20);
    pass(0);
    world.count = 15; // five commits are lost
    int64_t held = world.positions[14];
    append(5000000); // and the new history goes on far above
    pass(STREAM_CHECK_MS);
    ck_assert_uint_eq(world.rewound, 1);
    ck_assert_int_eq(world.rewound_to, held);
    ck_assert_int_eq(world.rewound_reason, RESET_STREAM_REWOUND);
    check_ring_is_the_logs_end();
    teardown();
}
END_TEST

START_TEST(a_log_that_ends_early_is_believed_when_it_lasts) {
    setup(100, 20);
    pass(0);
    size_t all = world.count;
    world.count = 15; // a standby that lags, or a restore
    pass(STREAM_LAG_MS / 2);
    ck_assert_uint_eq(world.rewound, 0);
    world.count = all;
    pass(2 * STREAM_LAG_MS);
    ck_assert_uint_eq(world.rewound, 0);
    world.count = 15;
    pass(STREAM_LAG_MS + 2 * STREAM_CHECK_MS);
    ck_assert_uint_eq(world.rewound, 1);
    ck_assert_int_eq(world.rewound_to, world.positions[14]);
    teardown();
}
END_TEST

START_TEST(nothing_held_any_more_resets_to_the_logs_end) {
    setup(10, 100);
    pass(0);
    world.count = 50; // everything in the ring is lost
    append(5000000);
    pass(STREAM_CHECK_MS);
    ck_assert_uint_eq(world.rewound, 1);
    ck_assert_int_eq(world.rewound_to, 5000000);
    teardown();
}
END_TEST

START_TEST(away_for_longer_than_the_log_keeps_is_expired) {
    setup(100, 20);
    pass(0);
    world.down = true;
    for (int64_t i = 0; i < 50; i++) {
        append(2000 + i);
    }
    world.oldest = 40;
    pass(STREAM_CHECK_MS);
    world.down = false;
    pass(2 * STREAM_CHECK_MS);
    ck_assert_uint_eq(world.rewound, 1);
    ck_assert_int_eq(world.rewound_reason, RESET_HISTORY_EXPIRED);
    check_ring_is_the_logs_end();
    teardown();
}
END_TEST

// Entries are appended and published in any order; publishes are lost, repeated, late; the database goes away.
START_TEST(random_losses_end_in_the_log) {
    unsigned seed = (unsigned)_i + 1;
    setup(1 + (size_t)rand_r(&seed) % 300, 1 + (size_t)rand_r(&seed) % 50);
    pass(0);
    for (int step = 0; step < 400; step++) {
        size_t first = world.count;
        size_t batch = 1 + (size_t)rand_r(&seed) % 20;
        int64_t position = world.positions[world.count - 1] + 1 + rand_r(&seed) % 50;
        for (size_t i = 0; i < batch; i++) {
            append(position + (int64_t)i);
        }
        if (rand_r(&seed) % 10 == 0) {
            world.down = !world.down;
        }
        for (size_t i = 0; i < batch; i++) {
            size_t which = first + (rand_r(&seed) % 4 == 0 ? (size_t)rand_r(&seed) % batch : i);
            if (rand_r(&seed) % 10 != 0) {
                offer(which);
            }
        }
        if (rand_r(&seed) % 2 == 0) {
            pass((uint64_t)rand_r(&seed) % 20);
        } else {
            stream_tick(world.stream); // an answer that is late by one step
        }
        int64_t head = ring_head(world.ring);
        ck_assert_msg(log_holds(head), "seed %d step %d", _i, step);
    }
    world.down = false;
    pass(3 * STREAM_CHECK_MS);
    check_ring_is_the_logs_end();
    ck_assert_uint_eq(world.rewound, 0);
    teardown();
}
END_TEST

void stream_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "stream", 30);
    tcase_add_test(tcase, starts_with_as_much_as_the_ring_holds);
    tcase_add_test(tcase, offered_in_order_needs_no_read);
    tcase_add_test(tcase, two_appenders_out_of_order_need_no_read);
    tcase_add_test(tcase, a_lost_entry_is_read_after_five_milliseconds);
    tcase_add_test(tcase, a_silent_loss_is_found_by_the_check);
    tcase_add_test(tcase, a_hint_reads_at_once_and_while_reading_once_more);
    tcase_add_test(tcase, a_database_that_is_away_is_asked_at_each_check_only);
    tcase_add_test(tcase, a_restored_log_rewinds_to_what_it_still_holds);
    tcase_add_test(tcase, a_log_that_ends_early_is_believed_when_it_lasts);
    tcase_add_test(tcase, nothing_held_any_more_resets_to_the_logs_end);
    tcase_add_test(tcase, away_for_longer_than_the_log_keeps_is_expired);
    tcase_add_loop_test(tcase, random_losses_end_in_the_log, 0, 30);
}
