// What becomes of a job after an attempt: a table.
#include "dispatcher/job.h"
#include "tests/unit/dispatcher/dispatcher_tests.h"
#include <string.h>

static bool prepare(void *arg, struct subscription *subscription, struct error *ret_error) {
    return true;
}
static void forget(void *arg, struct subscription *subscription) {
}
static const struct sink sink = {.kind = "webhook", .prepare = prepare, .forget = forget};

START_TEST(fates) {
#define throttled .verdict = VERDICT_RETRY, .class = CLASS_HTTP_4XX, .status = 429
    static const struct {
        int attempt, uncounted;
        struct attempt_outcome outcome;
        const char *fate, *class;
        uint64_t delay_ms, pause_ms;
        bool throttled_long, uncounts;
    } cases[] = {
        {1, 0, {.verdict = VERDICT_DELIVERED, .class = CLASS_DELIVERED}, "delivered", "delivered", 0, 0, false, false},
        {1, 0, {.verdict = VERDICT_REJECTED, .class = CLASS_HTTP_4XX}, "poisoned", "http_4xx", 0, 0, false, false},
        {1, 0, {.verdict = VERDICT_RETRY, .class = CLASS_HTTP_5XX}, "waiting", "http_5xx", 100, 0, false, false},
        {2, 0, {.verdict = VERDICT_RETRY, .class = CLASS_TIMEOUT}, "waiting", "timeout", 200, 0, false, false},
        {3, 0, {.verdict = VERDICT_RETRY, .class = CLASS_DNS}, "poisoned", "dns", 0, 0, false, false},
        // Lost and manual attempts use up no step; a manual one is as the first.
        {3, 1, {.verdict = VERDICT_RETRY, .class = CLASS_DNS}, "waiting", "dns", 200, 0, false, false},
        {5, 5, {.verdict = VERDICT_RETRY, .class = CLASS_DNS}, "waiting", "dns", 100, 0, false, false},
        {1,
         0,
         {.verdict = VERDICT_RETRY, .class = CLASS_HTTP_4XX, .after_ms = 5000},
         "waiting",
         "http_4xx",
         5000,
         0,
         false,
         false},
        {1,
         0,
         {.verdict = VERDICT_RETRY, .class = CLASS_HTTP_4XX, .after_ms = 5000, .pause_endpoint = true},
         "waiting",
         "http_4xx",
         5000,
         5000,
         false,
         false},
        {1,
         0,
         {.verdict = VERDICT_RETRY, .class = CLASS_HTTP_4XX, .disable_subscription = true},
         "held",
         "http_4xx",
         0,
         0,
         false,
         false},
        // 429 with Retry-After uses up none, for so long and so often.
        {3, 0, {throttled, .after_ms = 700}, "waiting", "http_4xx", 700, 0, false, true},
        {3, 0, {throttled}, "poisoned", "http_4xx", 0, 0, false, false},
        {3, 0, {throttled, .after_ms = 700}, "poisoned", "http_4xx", 0, 0, true, false},
        {2, 0, {throttled, .after_ms = 700}, "waiting", "http_4xx", 700, 0, true, false},
        {10000, 0, {throttled, .after_ms = 700}, "poisoned", "http_4xx", 0, 0, false, false},
    };
#undef throttled
    struct endpoint_table table;
    endpoint_table_init(&table, &sink);
    struct subscription_change change = {.id = 1,
                                         .name = "w",
                                         .kind = "webhook",
                                         .state = "active",
                                         .settings = "{\"retry\": [100, 200]}",
                                         .secrets = "[]",
                                         .version = "1",
                                         .failing_ms = -1,
                                         .idle_ms = -1};
    endpoint_table_apply(&table, &change, 0);
    struct endpoint *endpoint = endpoint_find(&table, 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct claimed_job claimed = {.subscription_id = 1,
                                      .event_seq = 9,
                                      .attempt = cases[i].attempt,
                                      .uncounted = cases[i].uncounted,
                                      .throttled_long = cases[i].throttled_long,
                                      .event_id = "id",
                                      .type = "posts.update",
                                      .occurred_at = "t",
                                      .data = "{}"};
        struct job *job = job_new(NULL, endpoint, &claimed, 77, 1000);
        ck_assert_str_eq(job->delivery.type, "posts.update");
        ck_assert_ptr_null(job->delivery.subject);
        ck_assert_int_eq(endpoint->in_flight, 1);
        struct attempt_outcome outcome = cases[i].outcome;
        outcome.error = "an error";
        job_decide(job, &outcome, 0.5);
        ck_assert_msg(strcmp(job->end.fate, cases[i].fate) == 0, "case %zu: %s", i, job->end.fate);
        ck_assert_str_eq(job->end.class, cases[i].class);
        ck_assert_uint_eq(job->end.delay_ms, cases[i].delay_ms);
        ck_assert_uint_eq(job->end.pause_ms, cases[i].pause_ms);
        ck_assert_int_eq(job->end.uncounts, cases[i].uncounts);
        ck_assert_str_eq(job->end.error, "an error");
        ck_assert_int_eq(job->end.ref.token, 77);
        job_strip(job);
        ck_assert_ptr_null(job->end.error);
        endpoint_end(&table, endpoint, job->version, job->bytes, 1000, 1000);
        job_free(job);
    }
    endpoint_table_close(&table);
}
END_TEST

void add_job_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "job", 10);
    tcase_add_test(tcase, fates);
}
