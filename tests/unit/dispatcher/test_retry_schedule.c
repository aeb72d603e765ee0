// Who owns retries: the job's schedule (WEBHOOKS, "Retry, and who owns it").
#include "dispatcher/retry_schedule.h"
#include "tests/unit/dispatcher/dispatcher_tests.h"
#include <string.h>

static const uint64_t minute = 60000, hour = 3600000;

START_TEST(default_is_ten_attempts) {
    struct retry_schedule schedule;
    retry_schedule_default(&schedule);
    const uint64_t delays[] = {5000,      5 * minute, 30 * minute, 2 * hour, 5 * hour,
                               10 * hour, 14 * hour,  20 * hour,   24 * hour};
    for (int failures = 1; failures <= 9; failures++) {
        uint64_t delay;
        ck_assert(retry_schedule_next(&schedule, failures, 0, 0.5, &delay));
        ck_assert_uint_eq(delay, delays[failures - 1]);
    }
    uint64_t untouched = 7;
    ck_assert(!retry_schedule_next(&schedule, 10, 0, 0.5, &untouched));
    ck_assert(!retry_schedule_next(&schedule, 1000, 0, 0.5, &untouched));
    ck_assert_uint_eq(untouched, 7);
}
END_TEST

START_TEST(jitter_is_a_fifth_either_way) {
    struct retry_schedule schedule;
    retry_schedule_default(&schedule);
    uint64_t least, most;
    retry_schedule_next(&schedule, 1, 0, 0, &least);
    retry_schedule_next(&schedule, 1, 0, 0.9999999, &most);
    ck_assert_uint_eq(least, 4000);
    ck_assert_uint_eq(most, 6000);
}
END_TEST

START_TEST(retry_after_is_a_floor_and_not_varied) {
    struct retry_schedule schedule;
    retry_schedule_default(&schedule);
    uint64_t delay;
    ck_assert(retry_schedule_next(&schedule, 1, 60000, 0, &delay));
    ck_assert_uint_eq(delay, 60000);
    ck_assert(retry_schedule_next(&schedule, 2, 1000, 0.5, &delay));
    ck_assert_uint_eq(delay, 5 * minute);
    ck_assert(!retry_schedule_next(&schedule, 10, 60000, 0, &delay)); // it never extends the budget
}
END_TEST

START_TEST(settings_override) {
    static const struct {
        const char *settings;
        int count; // -1: refused
    } cases[] = {
        {"{}", 9},
        {"{\"url\": \"x\"}", 9},
        {"{\"retry\": null}", 9},
        {"{\"retry\": []}", 0},
        {"{\"retry\": [0, 1000]}", 2},
        {"{\"retry\": \"1s\"}", -1},
        {"{\"retry\": [1.5]}", -1},
        {"{\"retry\": [-1]}", -1},
        {"{\"retry\": [\"1\"]}", -1},
        {"{\"retry\": [2592000001]}", -1},
        {"{\"retry\": {}}", -1},
        {"{\"retry\": "
         "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}",
         -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct retry_schedule schedule = {.count = -1};
        struct error error = {0};
        bool ok = retry_schedule_from_settings(cases[i].settings, &schedule, &error);
        ck_assert_msg(ok == (cases[i].count >= 0), "%s", cases[i].settings);
        ck_assert_msg(schedule.count == cases[i].count, "%s: %d delays", cases[i].settings, schedule.count);
        if (!ok)
            ck_assert_ptr_nonnull(strstr(error.text, "retry"));
    }
    struct retry_schedule schedule;
    ck_assert(retry_schedule_from_settings("{\"retry\": [0, 1000]}", &schedule, NULL));
    uint64_t delay;
    ck_assert(retry_schedule_next(&schedule, 1, 0, 0.9, &delay));
    ck_assert_uint_eq(delay, 0);
    ck_assert(retry_schedule_next(&schedule, 2, 0, 0.5, &delay));
    ck_assert_uint_eq(delay, 1000);
    ck_assert(!retry_schedule_next(&schedule, 3, 0, 0.5, &delay));
}
END_TEST

void add_retry_schedule_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "retry_schedule", 10);
    tcase_add_test(tcase, default_is_ten_attempts);
    tcase_add_test(tcase, jitter_is_a_fifth_either_way);
    tcase_add_test(tcase, retry_after_is_a_floor_and_not_varied);
    tcase_add_test(tcase, settings_override);
}
