// The database's time between two looks at it, whatever this machine's clock says.
#include "common/database_clock.h"
#include "tests/support/fixture.h"
#include "tests/unit/common/tests.h"
#include <stdlib.h>

static const int64_t second = 1000000, start = 1700000000LL * 1000000;

START_TEST(an_exact_sample_outweighs_those_with_long_round_trips) {
    struct database_clock clock = {0};
    ck_assert_int_eq(database_clock_us(&clock, 5, 77), 77);
    unsigned seed = 1;
    int64_t now = 10 * second, ahead = start;
    double worst = 1e9;
    for (int i = 0; i < 2000; i++) {
        int64_t trip = 200 + rand_r(&seed) % 100000, there = rand_r(&seed) % trip;
        database_clock_sample(&clock, now, now + trip, now + there + ahead);
        worst = clock.error_us;
        now += trip + second / 20;
        int64_t wrong = llabs(database_clock_us(&clock, now, 0) - (now + ahead));
        if ((double)wrong > clock.error_us + 50 * (double)i + 100000)
            ck_abort_msg("%lld us wrong after %d", (long long)wrong, i);
    }
    ck_assert_int_lt((int64_t)worst, 5000);
    ck_assert_int_lt(llabs(database_clock_us(&clock, now, 0) - (now + ahead)), 5000);
}
END_TEST

START_TEST(a_clock_that_was_set_is_followed_at_once) {
    struct database_clock clock = {0};
    database_clock_sample(&clock, 0, 200, start + 100);
    ck_assert_int_eq(database_clock_us(&clock, second, 0), start + second);
    database_clock_sample(&clock, second, second + 50000, start + 3600 * second + second);
    ck_assert_int_lt(llabs(database_clock_us(&clock, second, 0) - (start + 3601 * second)), 50000);
    database_clock_sample(&clock, 2 * second, 2 * second + 200, start + 2 * second + 100);
    ck_assert_int_lt(llabs(database_clock_us(&clock, 2 * second, 0) - (start + 2 * second)), 1000);
}
END_TEST

START_TEST(a_slow_drift_is_followed) {
    struct database_clock clock = {0};
    for (int64_t now = 0; now < 3600 * second; now += second) // 100 ppm
        database_clock_sample(&clock, now, now + 1000, start + now + now / 10000 + 500);
    int64_t now = 3600 * second;
    ck_assert_int_lt(llabs(database_clock_us(&clock, now, 0) - (start + now + now / 10000)), 5000);
}
END_TEST

// An exact sample is worth less the older it is: after a while a coarse one counts for more.
START_TEST(an_old_sample_gives_way_to_a_coarse_one) {
    struct database_clock clock = {0};
    int64_t now = 1000 * second, ahead = start + 30000; // 30 ppm since then
    database_clock_sample(&clock, 0, 200, start + 100);
    database_clock_sample(&clock, now, now + 100000, now + 50000 + ahead);
    ck_assert_int_lt(llabs(database_clock_us(&clock, now, 0) - (now + ahead)), 5000);
}
END_TEST

void database_clock_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "database_clock", 10);
    tcase_add_test(tcase, an_exact_sample_outweighs_those_with_long_round_trips);
    tcase_add_test(tcase, a_clock_that_was_set_is_followed_at_once);
    tcase_add_test(tcase, a_slow_drift_is_followed);
    tcase_add_test(tcase, an_old_sample_gives_way_to_a_coarse_one);
}
