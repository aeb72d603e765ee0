#include "dispatcher/lanes.h"
#include "dispatcher/pg_array.h"
#include "tests/unit/dispatcher/dispatcher_tests.h"
#include <string.h>

static bool read(const char *names, const char *concurrency, struct lanes *lanes, struct error *error) {
    struct config_list name_list = {.items = &names, .count = names != NULL};
    struct config_list concurrency_list = {.items = &concurrency, .count = concurrency != NULL};
    return lanes_read(&name_list, &concurrency_list, lanes, error);
}

START_TEST(words_between_commas_are_read) {
    struct lanes lanes;
    ck_assert(read("webhook,sse", "webhook=17,sse=1", &lanes, NULL));
    ck_assert(lanes.wanted[LANE_WEBHOOK] && lanes.wanted[LANE_SSE]);
    ck_assert_int_eq(lanes.concurrency[LANE_WEBHOOK], 17);
    ck_assert(read("sse", NULL, &lanes, NULL));
    ck_assert(!lanes.wanted[LANE_WEBHOOK] && lanes.wanted[LANE_SSE]);
    ck_assert_int_eq(lanes.concurrency[LANE_WEBHOOK], 256);
}
END_TEST

START_TEST(what_is_wrong_is_named) {
    static const struct {
        const char *names, *concurrency, *text;
    } cases[] = {
        {"fax", NULL, "fax"},
        {"webhook,", "webhook", "webhook is not"},
        {"webhook", "webhook=", "webhook="},
        {"webhook", "webhook=0", "webhook=0"},
        {"webhook", "webhook=1x", "webhook=1x"},
        {"webhook", "webhook=99999", "webhook=99999"},
        {"webhook", "sse=2", "sse=2"},
        {"webhook", "webhookx=2", "webhookx=2"},
        {NULL, NULL, "at least one"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct lanes lanes;
        struct error error = {0};
        ck_assert(!read(cases[i].names, cases[i].concurrency, &lanes, &error));
        ck_assert_int_eq(error.code, ERROR_USAGE);
        ck_assert_msg(strstr(error.text, cases[i].text), "%s", error.text);
    }
}
END_TEST

static void sum(void *arg, int value) {
    *(int *)arg = *(int *)arg * 10 + value;
}

START_TEST(array_literals) {
    struct buffer array = {0};
    pg_array_begin(&array);
    pg_array_text(&array, "a\"b\\c, {}");
    pg_array_text(&array, NULL);
    pg_array_text(&array, "");
    pg_array_int(&array, -5);
    pg_array_number(&array, -1);
    pg_array_number(&array, 1.5);
    ck_assert_str_eq(pg_array_end(&array), "{\"a\\\"b\\\\c, {}\",NULL,\"\",-5,NULL,1.500}");
    pg_array_begin(&array);
    ck_assert_str_eq(pg_array_end(&array), "{}");
    buffer_free(&array);
    int total = 0;
    pg_array_each_int("{1,2,3}", sum, &total);
    pg_array_each_int("{}", sum, &total);
    ck_assert_int_eq(total, 123);
}
END_TEST

void add_lanes_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "lanes", 10);
    tcase_add_test(tcase, words_between_commas_are_read);
    tcase_add_test(tcase, what_is_wrong_is_named);
    tcase_add_test(tcase, array_literals);
}
