// backoff: doubles, stops at most_ms, and no two processes do the same.
#include "common/backoff.h"
#include "tests/support/fixture.h"
#include "tests/unit/common/tests.h"

static void assert_about(uint64_t value, double expected) {
    ck_assert_double_ge((double)value, expected * 0.8 - 1);
    ck_assert_double_le((double)value, expected * 1.2 + 1);
}

START_TEST(backoff_doubles_to_the_most) {
    static const double expected[] = {100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000};
    for (int round = 0; round < 200; round++) {
        struct backoff backoff = {.first_ms = 100, .most_ms = 5000};
        for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
            assert_about(backoff_next_ms(&backoff), expected[i]);
        ck_assert_uint_eq(backoff.failures, sizeof expected / sizeof expected[0]);
        backoff_reset(&backoff);
        assert_about(backoff_next_ms(&backoff), 100);
    }
}
END_TEST

START_TEST(backoff_survives_years_of_failures) {
    struct backoff backoff = {.first_ms = 2000, .most_ms = UINT32_MAX, .failures = UINT32_MAX};
    assert_about(backoff_next_ms(&backoff), UINT32_MAX);
    ck_assert_uint_eq(backoff.failures, UINT32_MAX);
}
END_TEST

START_TEST(jitter_fills_its_range_and_stays_in_it) {
    uint64_t least = UINT64_MAX;
    uint64_t most = 0;
    for (int i = 0; i < 10000; i++) {
        uint64_t value = jitter_ms(1000, 0.5);
        ck_assert_uint_ge(value, 500);
        ck_assert_uint_le(value, 1500);
        least = value < least ? value : least;
        most = value > most ? value : most;
    }
    ck_assert_uint_lt(least, 520);
    ck_assert_uint_gt(most, 1480);
    ck_assert_uint_eq(jitter_ms(1000, 0), 1000);
    ck_assert_uint_eq(jitter_ms(0, 1), 0);
}
END_TEST

START_TEST(random_unit_is_uniform) {
    int tenths[10] = {0};
    for (int i = 0; i < 100000; i++) {
        double value = random_unit();
        ck_assert_double_ge(value, 0);
        ck_assert_double_lt(value, 1);
        tenths[(int)(value * 10)]++;
    }
    // The standard deviation of each is 95: 600 off is not chance.
    for (int i = 0; i < 10; i++) {
        ck_assert_int_gt(tenths[i], 9400);
        ck_assert_int_lt(tenths[i], 10600);
    }
}
END_TEST

void backoff_tests(Suite *suite) {
    TCase *backoff = suite_case(suite, "backoff", 10);
    tcase_add_test(backoff, backoff_doubles_to_the_most);
    tcase_add_test(backoff, backoff_survives_years_of_failures);
    tcase_add_test(backoff, jitter_fills_its_range_and_stays_in_it);
    tcase_add_test(backoff, random_unit_is_uniform);
}
