#include "gateway/ring.h"
#include "tests/support/fixture.h"
#include "tests/unit/gateway/tests.h"
#include <stdlib.h>

static void append(struct ring *ring, int64_t position) {
    ring_append(ring, frame_new(&(struct stream_entry){
                          .position = position, .prev = ring_head(ring), .name = "t", .key = "k", .op = "update"}));
}

START_TEST(empty_ring_covers_its_base_only) {
    struct ring *ring = ring_new(4);
    uint64_t sequence;
    ring_start(ring, 100);
    ck_assert_int_eq(ring_head(ring), 100);
    ck_assert(ring_find(ring, 100, &sequence));
    ck_assert_uint_eq(sequence, ring_end(ring));
    ck_assert(!ring_find(ring, 99, &sequence));
    ck_assert(!ring_find(ring, 101, &sequence));
    ring_free(ring);
}
END_TEST

START_TEST(oldest_falls_out_and_becomes_the_base) {
    struct ring *ring = ring_new(4);
    uint64_t sequence;
    ring_start(ring, 100);
    for (int64_t position = 110; position <= 160; position += 10) {
        append(ring, position);
    }
    ck_assert_int_eq(ring_base(ring), 120);
    ck_assert_int_eq(ring_head(ring), 160);
    ck_assert_uint_eq(ring_end(ring) - ring_begin(ring), 4);
    ck_assert(!ring_find(ring, 110, &sequence));
    ck_assert(ring_find(ring, 120, &sequence));
    ck_assert_int_eq(ring_at(ring, sequence)->position, 130);
    ck_assert(ring_find(ring, 150, &sequence));
    ck_assert_int_eq(ring_at(ring, sequence)->position, 160);
    ck_assert(ring_find(ring, 160, &sequence));
    ck_assert_uint_eq(sequence, ring_end(ring));
    ck_assert(!ring_find(ring, 155, &sequence)); // between two: not a position
    ring_free(ring);
}
END_TEST

START_TEST(truncate_goes_back_and_on_from_there) {
    struct ring *ring = ring_new(8);
    uint64_t sequence;
    ring_start(ring, 100);
    append(ring, 110);
    append(ring, 120);
    append(ring, 130);
    ring_truncate(ring, 120);
    ck_assert_int_eq(ring_head(ring), 120);
    ck_assert(!ring_find(ring, 130, &sequence));
    append(ring, 125);
    ck_assert_int_eq(ring_head(ring), 125);
    ring_truncate(ring, 100);
    ck_assert_int_eq(ring_head(ring), 100);
    ck_assert_uint_eq(ring_begin(ring), ring_end(ring));
    ring_free(ring);
}
END_TEST

START_TEST(start_keeps_sequences_rising) {
    struct ring *ring = ring_new(2);
    ring_start(ring, 1);
    append(ring, 2);
    append(ring, 3);
    append(ring, 4);
    uint64_t end = ring_end(ring);
    ring_start(ring, 1000);
    ck_assert_uint_eq(ring_end(ring), end);
    ck_assert_int_eq(ring_head(ring), 1000);
    ring_free(ring);
}
END_TEST

// Against a plain array, for random operations.
START_TEST(random_operations_keep_the_invariants) {
    unsigned seed = (unsigned)_i + 1;
    enum { CAPACITY = 5, MOST = 2000 };
    int64_t model[MOST];
    size_t count = 1;
    struct ring *ring = ring_new(CAPACITY);
    model[0] = 10;
    ring_start(ring, 10);
    for (int step = 0; step < 1000; step++) {
        if (rand_r(&seed) % 8 == 0) {
            size_t held = (size_t)(ring_end(ring) - ring_begin(ring));
            count -= (size_t)rand_r(&seed) % (held + 1);
            ring_truncate(ring, model[count - 1]);
        } else {
            model[count] = model[count - 1] + 1 + rand_r(&seed) % 3;
            append(ring, model[count]);
            count++;
        }
        size_t held = (size_t)(ring_end(ring) - ring_begin(ring));
        ck_assert_msg(held <= CAPACITY && held < count, "seed %d step %d", _i, step);
        ck_assert_int_eq(ring_head(ring), model[count - 1]);
        ck_assert_int_eq(ring_base(ring), model[count - 1 - held]);
        for (size_t i = 0; i < held; i++) {
            uint64_t sequence;
            ck_assert_int_eq(ring_at(ring, ring_begin(ring) + i)->position, model[count - held + i]);
            ck_assert(ring_find(ring, model[count - held + i], &sequence));
            ck_assert_uint_eq(sequence, ring_begin(ring) + i + 1);
        }
    }
    ring_free(ring);
}
END_TEST

void ring_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "ring", 20);
    tcase_add_test(tcase, empty_ring_covers_its_base_only);
    tcase_add_test(tcase, oldest_falls_out_and_becomes_the_base);
    tcase_add_test(tcase, truncate_goes_back_and_on_from_there);
    tcase_add_test(tcase, start_keeps_sequences_rising);
    tcase_add_loop_test(tcase, random_operations_keep_the_invariants, 0, 10);
}
