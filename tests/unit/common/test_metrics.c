// metrics: the text that Prometheus reads (exposition format 0.0.4).
#include "common/metrics.h"
#include "tests/support/fixture.h"
#include "tests/unit/common/tests.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { PASSES, ATTEMPTS, PENDING, LATENCY, LANE_SECONDS, METRICS };
static const struct metric table[METRICS] = {
    [PASSES] = {METRIC_COUNTER, "t_passes_total", "", "passes"},
    [ATTEMPTS] = {METRIC_COUNTER, "t_attempts_total", "lane,class", "attempts"},
    [PENDING] = {METRIC_GAUGE, "t_pending", "state", "a \\ and\na newline"},
    [LATENCY] = {METRIC_HISTOGRAM, "t_latency_seconds", "", "latency"},
    [LANE_SECONDS] = {METRIC_HISTOGRAM, "t_lane_seconds", "lane", "by lane"},
};

static struct buffer page;

static void setup(void) {
    metrics_init(table, METRICS);
}

static void teardown(void) {
    metrics_free();
    buffer_free(&page);
}

static const char *scrape(void) {
    buffer_clear(&page);
    metrics_write(&page);
    return page.bytes;
}

static void assert_line(const char *line) {
    char whole[300];
    snprintf(whole, sizeof whole, "\n%s\n", line);
    ck_assert_msg(strstr(scrape(), whole) != NULL, "no line %s in:\n%s", line, page.bytes);
}

START_TEST(metrics_without_labels_start_at_zero) {
    assert_line("t_passes_total 0");
    ck_assert_ptr_null(strstr(scrape(), "t_attempts_total{"));
    ck_assert_double_eq(metric_value(ATTEMPTS, "webhook", "delivered"), 0);
}
END_TEST

START_TEST(metrics_count_by_labels) {
    metric_add(PASSES, NULL, NULL, 1);
    metric_add(PASSES, NULL, NULL, 2);
    metric_add(ATTEMPTS, "webhook", "delivered", 1);
    metric_add(ATTEMPTS, "webhook", "http_5xx", 1);
    metric_add(ATTEMPTS, "webhook", "delivered", 1);
    metric_set(PENDING, "poisoned", NULL, 7);
    metric_set(PENDING, "poisoned", NULL, 1764446400000123);
    assert_line("t_passes_total 3");
    assert_line("t_attempts_total{lane=\"webhook\",class=\"delivered\"} 2");
    assert_line("t_attempts_total{lane=\"webhook\",class=\"http_5xx\"} 1");
    assert_line("t_pending{state=\"poisoned\"} 1764446400000123");
    ck_assert_double_eq(metric_value(ATTEMPTS, "webhook", "delivered"), 2);
}
END_TEST

START_TEST(metrics_escape_values_and_help) {
    metric_set(PENDING, "a\"b\\c\nd", NULL, 0.5);
    assert_line("t_pending{state=\"a\\\"b\\\\c\\nd\"} 0.5");
    assert_line("# HELP t_pending a \\\\ and\\na newline");
    assert_line("# TYPE t_pending gauge");
    metric_set(PENDING, "nan", NULL, NAN);
    metric_set(PENDING, "inf", NULL, -INFINITY);
    assert_line("t_pending{state=\"nan\"} NaN");
    assert_line("t_pending{state=\"inf\"} -Inf");
}
END_TEST

START_TEST(metrics_histograms_are_cumulative) {
    metric_observe(LATENCY, NULL, 0.001); // a bound belongs to its bucket
    metric_observe(LATENCY, NULL, 0.03);
    metric_observe(LATENCY, NULL, 100);
    metric_observe(LANE_SECONDS, "webhook", 0.3);
    assert_line("# TYPE t_latency_seconds histogram");
    assert_line("t_latency_seconds_bucket{le=\"0.001\"} 1");
    assert_line("t_latency_seconds_bucket{le=\"0.025\"} 1");
    assert_line("t_latency_seconds_bucket{le=\"0.05\"} 2");
    assert_line("t_latency_seconds_bucket{le=\"60\"} 2");
    assert_line("t_latency_seconds_bucket{le=\"+Inf\"} 3");
    assert_line("t_latency_seconds_count 3");
    assert_line("t_latency_seconds_sum 100.031");
    assert_line("t_lane_seconds_bucket{lane=\"webhook\",le=\"0.5\"} 1");
    assert_line("t_lane_seconds_sum{lane=\"webhook\"} 0.3");
}
END_TEST

START_TEST(metrics_name_the_build) {
    assert_line("rowbell_build_info{version=\"" ROWBELL_VERSION "\"} 1");
    ck_assert_int_eq(page.bytes[page.length - 1], '\n');
}
END_TEST

START_TEST(metrics_init_starts_anew) {
    metric_add(PASSES, NULL, NULL, 5);
    metrics_init(table, METRICS);
    ck_assert_double_eq(metric_value(PASSES, NULL, NULL), 0);
}
END_TEST

START_TEST(metrics_refuse_a_missing_label) {
    metric_add(ATTEMPTS, "webhook", NULL, 1);
}
END_TEST

START_TEST(metrics_refuse_a_label_too_many) {
    metric_add(PASSES, "webhook", NULL, 1);
}
END_TEST

START_TEST(metrics_refuse_another_kind) {
    metric_set(PASSES, NULL, NULL, 1);
}
END_TEST

START_TEST(metrics_refuse_a_counter_that_falls) {
    metric_add(PASSES, NULL, NULL, -1);
}
END_TEST

void metrics_tests(Suite *suite) {
    TCase *metrics = suite_case(suite, "metrics", 10);
    tcase_add_checked_fixture(metrics, setup, teardown);
    tcase_add_test(metrics, metrics_without_labels_start_at_zero);
    tcase_add_test(metrics, metrics_count_by_labels);
    tcase_add_test(metrics, metrics_escape_values_and_help);
    tcase_add_test(metrics, metrics_histograms_are_cumulative);
    tcase_add_test(metrics, metrics_name_the_build);
    tcase_add_test(metrics, metrics_init_starts_anew);
    tcase_add_test_raise_signal(metrics, metrics_refuse_a_missing_label, SIGABRT);
    tcase_add_test_raise_signal(metrics, metrics_refuse_a_label_too_many, SIGABRT);
    tcase_add_test_raise_signal(metrics, metrics_refuse_another_kind, SIGABRT);
    tcase_add_test_raise_signal(metrics, metrics_refuse_a_counter_that_falls, SIGABRT);
}
