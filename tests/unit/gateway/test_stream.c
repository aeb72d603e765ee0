// stream.c on a log in memory and a time of its own: whatever Redis loses, repeats or reorders, the ring becomes the
// log (G5, G6).
#include "gateway/source_memory.h"
#include "gateway/stream.h"
#include "tests/support/fixture.h"
#include "tests/unit/gateway/tests.h"
#include <stdlib.h>
#include <string.h>

// A log whose reads are answered when the test says so, at most one at a time.
struct world {
    uint64_t now;
    struct source_memory *source;
    struct stream_source port;
    size_t reads;
    struct ring *ring;
    struct stream *stream;
    size_t ready;
    size_t filled;
    size_t rewound;
    int64_t rewound_to;
    enum reset_reason rewound_reason;
};

static struct world world;

static size_t log_count(void) {
    return source_memory_count(world.source);
}

static int64_t position_at(size_t i) {
    return source_memory_at(world.source, i).position;
}

static int64_t log_newest(void) {
    return position_at(log_count() - 1);
}

static void append(int64_t position) {
    source_memory_append_quietly(world.source,
                                 &(struct stream_entry){.position = position, .name = "t", .key = "k", .op = "update"});
}

static void counted_read_after(void *arg, int64_t position, size_t limit, stream_page_done *done, void *done_arg) {
    ck_assert(!source_memory_is_asked(world.source)); // one read at a time
    world.reads++;
    world.port.read_after(arg, position, limit, done, done_arg);
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
    world = (struct world){.now = 1000000, .source = source_memory_new(NULL, 1000)};
    world.port = source_memory_port(world.source);
    for (size_t i = 1; i < log_rows; i++) {
        append(1000 + (int64_t)i * 2);
    }
    struct stream_source source = world.port;
    source.read_after = counted_read_after;
    world.ring = ring_new(ring_capacity);
    world.stream = stream_new(&(struct stream_options){
        .source = source,
        .ring = world.ring,
        .on_ready = on_ready,
        .on_filled = on_filled,
        .on_rewound = on_rewound,
    });
}

static void teardown(void) {
    world.port.close(world.port.feed);
    stream_free(world.stream);
    ring_free(world.ring);
}

// Lets ms pass, answering each read at once.
static void pass(uint64_t ms) {
    uint64_t end = world.now + ms;
    for (;;) {
        source_memory_answer(world.source);
        uint64_t due = stream_due_ms(world.stream);
        if (due > end) {
            break;
        }
        if (due > world.now) {
            source_memory_pass(world.source, due - world.now);
            world.now = due;
        }
        stream_tick(world.stream);
        ck_assert(source_memory_is_asked(world.source)); // it was due, so it asked
    }
    source_memory_pass(world.source, end - world.now);
    world.now = end;
}

static void offer(size_t i) {
    struct stream_entry entry = source_memory_at(world.source, i);
    stream_offer(world.stream, &entry);
}

static void check_ring_is_the_logs_end(void) {
    ck_assert_int_eq(ring_head(world.ring), log_newest());
    for (uint64_t s = ring_begin(world.ring); s < ring_end(world.ring); s++) {
        size_t i = log_count() - (size_t)(ring_end(world.ring) - s);
        ck_assert_int_eq(ring_at(world.ring, s)->position, position_at(i));
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
    source_memory_set_down(world.source, true);
    pass(10 * STREAM_CHECK_MS);
    ck_assert(!stream_is_ready(world.stream));
    source_memory_set_down(world.source, false);
    pass(STREAM_CHECK_MS);
    ck_assert(stream_is_ready(world.stream));
    source_memory_set_down(world.source, true);
    size_t reads = world.reads;
    append(1010);
    append(1020);
    offer(2); // a gap that cannot be filled now
    pass(10 * STREAM_CHECK_MS);
    ck_assert_uint_le(world.reads - reads, 10 * STREAM_CHECK_MS / STREAM_POLL_MS + 1);
    source_memory_set_down(world.source, false);
    pass(STREAM_CHECK_MS);
    check_ring_is_the_logs_end();
    teardown();
}
END_TEST

START_TEST(a_restored_log_rewinds_to_what_it_still_holds) {
    setup(100, 20);
    pass(0);
    source_memory_take_back(world.source, 15); // five commits are lost
    int64_t held = position_at(14);
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
    source_memory_take_back(world.source, 15); // a standby that lags, or a restore
    pass(STREAM_LAG_MS / 2);
    ck_assert_uint_eq(world.rewound, 0);
    for (int64_t i = 15; i < 20; i++) {
        append(1000 + i * 2);
    }
    pass(2 * STREAM_LAG_MS);
    ck_assert_uint_eq(world.rewound, 0);
    source_memory_take_back(world.source, 15);
    pass(STREAM_LAG_MS + 2 * STREAM_CHECK_MS);
    ck_assert_uint_eq(world.rewound, 1);
    ck_assert_int_eq(world.rewound_to, position_at(14));
    teardown();
}
END_TEST

START_TEST(nothing_held_any_more_resets_to_the_logs_end) {
    setup(10, 100);
    pass(0);
    source_memory_take_back(world.source, 50); // everything in the ring is lost
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
    source_memory_set_down(world.source, true);
    for (int64_t i = 0; i < 50; i++) {
        append(2000 + i);
    }
    source_memory_prune(world.source, 40);
    pass(STREAM_CHECK_MS);
    source_memory_set_down(world.source, false);
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
    bool down = false;
    setup(1 + (size_t)rand_r(&seed) % 300, 1 + (size_t)rand_r(&seed) % 50);
    pass(0);
    for (int step = 0; step < 400; step++) {
        size_t first = log_count();
        size_t batch = 1 + (size_t)rand_r(&seed) % 20;
        int64_t position = log_newest() + 1 + rand_r(&seed) % 50;
        for (size_t i = 0; i < batch; i++) {
            append(position + (int64_t)i);
        }
        if (rand_r(&seed) % 10 == 0) {
            down = !down;
            source_memory_set_down(world.source, down);
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
        ck_assert_msg(source_memory_holds(world.source, head), "seed %d step %d", _i, step);
    }
    source_memory_set_down(world.source, false);
    pass(3 * STREAM_CHECK_MS);
    check_ring_is_the_logs_end();
    ck_assert_uint_eq(world.rewound, 0);
    teardown();
}
END_TEST

// Any login may NOTIFY rowbell_stream, and who reaches Redis may repeat what he has seen there.
START_TEST(a_storm_of_hints_costs_a_read_now_and_then) {
    setup(100, 1);
    pass(0);
    append(1010);
    offer(1);
    pass(STREAM_CHECK_MS);
    size_t reads = world.reads;
    for (int i = 0; i < 10000; i++) {
        stream_hint(world.stream, INT64_MAX);
        stream_offer(world.stream, &(struct stream_entry){.position = 1005, .prev = 1004, .name = "t", .op = "update"});
        if (i % 10 == 0) {
            stream_tick(world.stream); // more of them come while it is read
        } else {
            pass(1);
        }
    }
    ck_assert_uint_le(world.reads - reads, 10 + 9000 / STREAM_POLL_MS + 9000 / STREAM_CHECK_MS + 2);
    // What is true is found all the same, and soon.
    append(1020);
    stream_hint(world.stream, 1020);
    pass(STREAM_POLL_MS);
    check_ring_is_the_logs_end();
    ck_assert_uint_eq(world.rewound, 0);
    teardown();
}
END_TEST

START_TEST(hints_that_are_true_are_followed_at_once) {
    setup(2000, 1);
    pass(0);
    for (int i = 0; i < 1000; i++) {
        append(log_newest() + 10);
        stream_hint(world.stream, log_newest());
        pass(1);
        check_ring_is_the_logs_end();
    }
    teardown();
}
END_TEST

// A message of before the failover, kept by somebody, goes on from the head that the log was cut back to.
START_TEST(what_a_failover_took_back_is_not_brought_back) {
    setup(100, 3);
    append(1010);
    append(1012);
    pass(0);
    struct stream_entry lost = source_memory_at(world.source, 3);
    struct stream_entry copy = {
        .position = lost.position, .prev = lost.prev, .name = "t", .key = "lost", .op = "update"};
    source_memory_take_back(world.source, 3);
    pass(STREAM_CHECK_MS + STREAM_LAG_MS + STREAM_CHECK_MS);
    ck_assert_uint_eq(world.rewound, 1);
    for (int i = 0; i < 100; i++) {
        stream_offer(world.stream, &copy);
        pass(STREAM_CHECK_MS);
    }
    ck_assert_uint_eq(world.rewound, 1); // nobody was reset again
    check_ring_is_the_logs_end();
    append(1000 + 60000000);
    offer(3);
    check_ring_is_the_logs_end();
    teardown();
}
END_TEST

// Inside of what the ring covers and yet not in it; or of before a failover, and above what the log was cut back to.
// Somebody's lie, or the log went on without us: it is asked, at once.
START_TEST(an_entry_of_another_history_is_looked_up_at_once) {
    setup(100, 5);
    pass(0);
    size_t reads = world.reads;
    stream_offer(world.stream, &(struct stream_entry){.position = 1005, .prev = 1004, .name = "t", .op = "update"});
    pass(0);
    ck_assert_uint_eq(world.reads, reads + 1);
    check_ring_is_the_logs_end();
    source_memory_take_back(world.source, 3);
    pass(STREAM_CHECK_MS + STREAM_LAG_MS + STREAM_CHECK_MS);
    ck_assert_uint_eq(world.rewound, 1);
    append(1006); // as before, when 1006 and 1008 were lost
    reads = world.reads;
    offer(3);
    pass(0);
    ck_assert_uint_eq(world.reads, reads + 1);
    check_ring_is_the_logs_end();
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
    tcase_add_test(tcase, a_storm_of_hints_costs_a_read_now_and_then);
    tcase_add_test(tcase, hints_that_are_true_are_followed_at_once);
    tcase_add_test(tcase, what_a_failover_took_back_is_not_brought_back);
    tcase_add_test(tcase, an_entry_of_another_history_is_looked_up_at_once);
    tcase_add_loop_test(tcase, random_losses_end_in_the_log, 0, 30);
}
