// A rate is kept in every window of time, whoever asks and when.
#include "dispatcher/pace.h"
#include "tests/unit/dispatcher/dispatcher_tests.h"
#include <limits.h>

enum { SECONDS = 30, MOST = 200000 };

// Sends all that is allowed, asking at steps of step_ms; fails if any window of span_ms holds more than most. A passed
// ck_assert is a system call, so what is looked at a million times is an if.
static int run(double rate, unsigned step_ms, uint64_t span_ms, int most) {
    static uint64_t sent_ms[MOST];
    struct pace pace = {0};
    int count = 0, first = 0;
    pace_set(&pace, rate, 1000);
    for (uint64_t now = 1000; now < 1000 + SECONDS * 1000; now += step_ms) {
        int allowed = pace_allows(&pace, now);
        if (allowed < 0)
            ck_abort_msg("%d allowed", allowed);
        pace_take(&pace, now, allowed);
        for (int i = 0; i < allowed; i++)
            sent_ms[count++] = now;
        while (first < count && sent_ms[first] + span_ms <= now)
            first++;
        if (count - first > most)
            ck_abort_msg("%d in %d ms at rate %f", count - first, (int)span_ms, rate);
        if (pace_next_ms(&pace) < now)
            ck_abort_msg("the next one was allowed before now");
    }
    return count;
}

START_TEST(no_second_holds_more_than_the_rate) {
    static const int rates[] = {1, 2, 5, 7, 50, 99, 100, 997, 1000, 5000};
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        int count = run(rates[i], 1, 1000, rates[i]);
        ck_assert_msg(count >= rates[i] * SECONDS * 9 / 10, "only %d at %d a second", count, rates[i]);
        run(rates[i], 7, 1000, rates[i]);
        run(rates[i], 33, 1000, rates[i]);
    }
}
END_TEST

START_TEST(one_a_minute_is_one_a_minute) {
    struct pace pace = {0};
    pace_set(&pace, 1.0 / 60, 1000);
    ck_assert_int_eq(pace_allows(&pace, 1000), 1);
    pace_take(&pace, 1000, 1);
    ck_assert_int_eq(pace_allows(&pace, 60999), 0);
    ck_assert_uint_eq(pace_next_ms(&pace), 61000);
    // Late by far: the next one is a whole minute after it.
    pace_take(&pace, 90000, 1);
    ck_assert_int_eq(pace_allows(&pace, 149999), 0);
    ck_assert_int_eq(pace_allows(&pace, 150000), 1);
    // A new owner: the last one went 50 s ago.
    struct pace other = {0};
    pace_set(&other, 1.0 / 60, 200000);
    pace_continue(&other, 200000, 50000);
    ck_assert_uint_eq(pace_next_ms(&other), 210000);
    // A new rate begins at once; the same one changes nothing.
    pace_set(&other, 1.0 / 60, 200001);
    ck_assert_int_eq(pace_allows(&other, 200001), 0);
    pace_set(&other, 0, 200001);
    ck_assert_int_eq(pace_allows(&other, 200001), INT_MAX);
}
END_TEST

START_TEST(what_is_left_of_a_group_may_go_later) {
    struct pace pace = {0};
    pace_set(&pace, 1000, 1000);
    ck_assert_int_eq(pace_allows(&pace, 1000), 20);
    pace_take(&pace, 1000, 5);
    ck_assert_int_eq(pace_allows(&pace, 1010), 15);
    pace_take(&pace, 1010, 15);
    ck_assert_int_eq(pace_allows(&pace, 1019), 0);
    ck_assert_int_eq(pace_allows(&pace, 1020), 20);
}
END_TEST

START_TEST(a_ramp_doubles_each_second) {
    struct pace_ramp ramp = {0};
    ck_assert_int_eq(pace_ramp_allows(&ramp, 5000), INT_MAX);
    pace_ramp_begin(&ramp, 5000);
    int per_second[5] = {0};
    for (uint64_t ms = 0; ms < 5000; ms++) {
        int allowed = pace_ramp_allows(&ramp, 5000 + ms);
        ck_assert_int_le(allowed, 1);
        pace_ramp_take(&ramp, allowed);
        per_second[ms / 1000] += allowed;
        if (!allowed)
            ck_assert_uint_ge(pace_ramp_next_ms(&ramp), 5000 + ms);
    }
    static const int expected[] = {10, 20, 40, 80, 160};
    for (int i = 0; i < 5; i++)
        ck_assert_msg(per_second[i] >= expected[i] - 2 && per_second[i] <= expected[i] + 2, "%d in second %d",
                      per_second[i], i);
    ck_assert_int_eq(pace_ramp_allows(&ramp, 15000), INT_MAX);
}
END_TEST

void add_pace_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "pace", 10);
    tcase_add_test(tcase, no_second_holds_more_than_the_rate);
    tcase_add_test(tcase, one_a_minute_is_one_a_minute);
    tcase_add_test(tcase, what_is_left_of_a_group_may_go_later);
    tcase_add_test(tcase, a_ramp_doubles_each_second);
}
