// NOTIFY rowbell_jobs, which anybody may send: followed at a pace, and none is lost (G7).
#include "dispatcher/job_hints.h"
#include "tests/unit/dispatcher/dispatcher_tests.h"
#include <stdio.h>
#include <string.h>

static uv_loop_t loop;
static struct job_hints hints;
static int narrow, wide, wide_sse;  // how often what was followed
static int64_t lowest[SHARD_COUNT]; // that was said of webhook shards

static void follow(void *arg, const char *lane, uint64_t shards, int64_t seq) {
    bool sse = strcmp(lane, "sse") == 0;
    if (shards == UINT64_MAX) {
        *(sse ? &wide_sse : &wide) += 1;
        ck_assert_int_eq(seq, 0);
        return;
    }
    narrow++;
    for (int shard = 0; shard < SHARD_COUNT && !sse; shard++)
        if (shards & shard_bit(shard))
            lowest[shard] = seq;
}

// A clock that stands, so that what may be followed at once is a number, not a speed.
static void start(void) {
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    clock_stopped_ms = real_clock_ms();
    job_hints_init(&hints, &loop, "webhook", follow, NULL);
}

static void on_closed(void *arg) {
    *(bool *)arg = true;
}

static void stop(void) {
    bool closed = false;
    job_hints_close(&hints, on_closed, &closed);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert(closed);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

// The clock goes on; what is due then is followed.
static void pass(uint64_t ms) {
    clock_moved_ms += ms;
    uv_run(&loop, UV_RUN_ONCE);
}

static int storm(const char *payload, int count) {
    int before = narrow + wide;
    for (int i = 0; i < count; i++)
        job_hints_take(&hints, payload);
    return narrow + wide - before;
}

START_TEST(hints_have_a_pace_and_the_lowest_of_them_counts) {
    start();
    ck_assert_int_eq(storm("webhook 1 10", 1), 1);
    ck_assert_int_eq(lowest[1], 10);
    ck_assert_int_eq(storm("webhook 1 10", 1000), 100);
    job_hints_take(&hints, "webhook 3 50 webhook 4 5");
    job_hints_take(&hints, "webhook 3 20 sse 3 1");
    job_hints_take(&hints, "webhook 3 70");
    ck_assert_int_eq(lowest[3], 0); // not yet
    pass(10);
    ck_assert_int_eq(lowest[3], 20);
    ck_assert_int_eq(lowest[4], 5);
    job_hints_take(&hints, "webhook 3 80"); // what was followed is not said again
    pass(10);
    ck_assert_int_eq(lowest[3], 80);
    ck_assert_int_eq(wide + wide_sse, 0);
    stop();
}
END_TEST

START_TEST(what_cannot_be_read_wakes_everything_now_and_then) {
    static const char *const unread[] = {"requeue", "webhook 64 1", "webhook -1 1", "webhook x",
                                         "webhook 3 1 webhook 64 1"};
    start();
    for (size_t i = 0; i < sizeof unread / sizeof *unread; i++) {
        int before = wide;
        job_hints_take(&hints, unread[i]);
        ck_assert_msg(wide == before + 1, "%s", unread[i]);
        ck_assert_int_eq(wide_sse, wide); // the stream's lane, too
    }
    ck_assert_int_eq(lowest[3], 1);
    int before = wide;
    ck_assert_int_eq(storm("junk", 1000), 5 + 1); // the rest of ten, and one that has begun
    ck_assert_int_eq(storm("webhook 5 9", 1), 1); // which hides no others
    ck_assert_int_eq(lowest[5], 9);
    pass(1000);
    ck_assert_int_eq(wide, before + 7); // one a second, for all that came
    stop();
}
END_TEST

START_TEST(nothing_is_followed_after_the_end) {
    start();
    storm("webhook 1 10", 1000);
    job_hints_stop(&hints);
    int before = narrow;
    clock_moved_ms += 1000;
    uv_run(&loop, UV_RUN_DEFAULT); // nothing is waited for
    ck_assert_int_eq(narrow, before);
    stop();
}
END_TEST

void add_job_hints_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "job_hints", 20);
    tcase_add_test(tcase, hints_have_a_pace_and_the_lowest_of_them_counts);
    tcase_add_test(tcase, what_cannot_be_read_wakes_everything_now_and_then);
    tcase_add_test(tcase, nothing_is_followed_after_the_end);
}
