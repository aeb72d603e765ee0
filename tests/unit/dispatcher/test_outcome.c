#include "dispatcher/outcome.h"
#include "tests/support/fixture.h"
#include "tests/unit/dispatcher/webhook_tests.h"
#include <check.h>
#include <string.h>

#define NOW 1700000000 // Tue, 14 Nov 2023 22:13:20 GMT
#define DAY_MS 86400000u

static const struct {
    int status;
    enum verdict verdict;
    const char *class;
    bool disables;
    bool pauses; // with Retry-After: 7
} statuses[] = {
    {200, VERDICT_DELIVERED, "delivered", false, false}, {202, VERDICT_DELIVERED, "delivered", false, false},
    {204, VERDICT_DELIVERED, "delivered", false, false}, {299, VERDICT_DELIVERED, "delivered", false, false},
    {300, VERDICT_REJECTED, "rejected", false, false},   {301, VERDICT_REJECTED, "rejected", false, false},
    {307, VERDICT_REJECTED, "rejected", false, false},   {399, VERDICT_REJECTED, "rejected", false, false},
    {400, VERDICT_REJECTED, "http_4xx", false, false},   {401, VERDICT_REJECTED, "http_4xx", false, false},
    {404, VERDICT_REJECTED, "http_4xx", false, false},   {408, VERDICT_RETRY, "http_4xx", false, false},
    {409, VERDICT_REJECTED, "http_4xx", false, false},   {410, VERDICT_REJECTED, "http_4xx", true, false},
    {422, VERDICT_REJECTED, "http_4xx", false, false},   {425, VERDICT_RETRY, "http_4xx", false, false},
    {429, VERDICT_RETRY, "http_4xx", false, true},       {499, VERDICT_REJECTED, "http_4xx", false, false},
    {500, VERDICT_RETRY, "http_5xx", false, false},      {502, VERDICT_RETRY, "http_5xx", false, false},
    {503, VERDICT_RETRY, "http_5xx", false, true},       {504, VERDICT_RETRY, "http_5xx", false, false},
    {599, VERDICT_RETRY, "http_5xx", false, false},      {999, VERDICT_RETRY, "http_5xx", false, false},
    {101, VERDICT_RETRY, "connect", false, false},       {0, VERDICT_RETRY, "connect", false, false},
};

START_TEST(status_decides) {
    struct http_outcome http = {.status = statuses[_i].status};
    struct attempt_outcome outcome = outcome_of_answer(&http, NOW);
    ck_assert_int_eq(outcome.verdict, statuses[_i].verdict);
    ck_assert_str_eq(attempt_class_name(outcome.class), statuses[_i].class);
    ck_assert_int_eq(outcome.disable_subscription, statuses[_i].disables);
    ck_assert_int_eq(outcome.status, statuses[_i].status);
    ck_assert(!outcome.pause_endpoint); // there is no Retry-After
    ck_assert_uint_eq(outcome.after_ms, 0);

    http.retry_after = "7";
    outcome = outcome_of_answer(&http, NOW);
    ck_assert_int_eq(outcome.pause_endpoint, statuses[_i].pauses);
    ck_assert_uint_eq(outcome.after_ms, statuses[_i].verdict == VERDICT_RETRY ? 7000 : 0);
}
END_TEST

static const struct {
    enum http_failure failure;
    enum verdict verdict;
    const char *class;
} failures[] = {
    {HTTP_DNS, VERDICT_RETRY, "dns"},         {HTTP_EGRESS_DENIED, VERDICT_REJECTED, "egress_denied"},
    {HTTP_CONNECT, VERDICT_RETRY, "connect"}, {HTTP_TLS, VERDICT_RETRY, "tls"},
    {HTTP_TIMEOUT, VERDICT_RETRY, "timeout"}, {HTTP_BAD_ANSWER, VERDICT_RETRY, "connect"},
    {HTTP_CANCELLED, VERDICT_RETRY, "lost"},  {HTTP_REFUSED, VERDICT_REJECTED, "rejected"},
};

START_TEST(failure_decides) {
    // A status that came before the failure makes it no delivery where the body is needed (an index's answer).
    struct http_outcome http = {
        .failure = failures[_i].failure, .status = 200, .error = "why", .peer = "192.0.2.1:443"};
    struct attempt_outcome outcome = outcome_of_answer(&http, NOW);
    ck_assert_int_eq(outcome.verdict, failures[_i].verdict);
    ck_assert_str_eq(attempt_class_name(outcome.class), failures[_i].class);
    ck_assert_str_eq(outcome.error, "why");
    ck_assert_str_eq(outcome.peer, "192.0.2.1:443");
    ck_assert_int_eq(outcome.status, 200);
}
END_TEST

static const struct {
    const char *text;
    uint64_t ms;
} retry_afters[] = {
    {"0", 0},
    {"1", 1000},
    {"120", 120000},
    {"007", 7000},
    {"86400", DAY_MS},
    {"86401", DAY_MS},
    {"99999999999999999999999999", DAY_MS},
    {"", 0},
    {"-1", 0},
    {"+1", 0},
    {"1.5", 0},
    {"1 ", 0},
    {" 1", 0},
    {"1s", 0},
    {"0x10", 0},
    {"Tue, 14 Nov 2023 22:13:50 GMT", 30000},
    {"Tuesday, 14-Nov-23 22:13:50 GMT", 30000},
    {"Tue Nov 14 22:13:50 2023", 30000},
    {"Tue, 14 Nov 2023 22:13:20 GMT", 0}, // now
    {"Tue, 14 Nov 2023 22:13:19 GMT", 0}, // past
    {"Sun, 06 Nov 1994 08:49:37 GMT", 0},
    {"Thu, 16 Nov 2023 22:13:20 GMT", DAY_MS},
    {"Wed, 14 Nov 2023 22:13:50 GMT", 0}, // it was a Tuesday
    {"Tue, 14 Nov 2023 22:13:50 UTC", 0}, // GMT is the only zone
    {"Tue, 14 Nov 2023 22:13:50 +0000", 0},
    {"tue, 14 nov 2023 22:13:50 GMT", 0},  // case counts
    {"Tue, 14  Nov 2023 22:13:50 GMT", 0}, // two spaces
    {"Tue, 14 Nov 2023 22:13:50 GMT ", 0}, // something after it
    {"Thu, 31 Nov 2023 22:13:50 GMT", 0},  // no such day
    {"Tue, 14 Nov 2023 22:13:60 GMT", 0},  // no such second
    {"Fri,  1 Dec 2023 00:00:00 GMT", 0},  // two digits
    {"2023-11-14T22:13:50Z", 0},
};

START_TEST(a_date_is_as_far_as_from_the_answer_s_own_date) {
    static const char then[] = "Sun, 06 Nov 1994 08:49:37 GMT";
    ck_assert_uint_eq(retry_after_ms(then, "Sun, 06 Nov 1994 08:49:07 GMT", NOW), 30000);
    ck_assert_uint_eq(retry_after_ms(then, "Sun, 06 Nov 1994 08:49:38 GMT", NOW), 0);
    ck_assert_uint_eq(retry_after_ms(then, "Sat, 05 Nov 1994 00:00:00 GMT", NOW), DAY_MS);
    ck_assert_uint_eq(retry_after_ms("7", "Sun, 06 Nov 1994 08:49:07 GMT", NOW), 7000);
    // A date that is none leaves the database's time.
    ck_assert_uint_eq(retry_after_ms("Tue, 14 Nov 2023 22:13:50 GMT", "yesterday", NOW), 30000);
    struct http_outcome http = {.status = 503, .retry_after = then, .date = "Sun, 06 Nov 1994 08:49:30 GMT"};
    ck_assert_uint_eq(outcome_of_answer(&http, NOW).after_ms, 7000);
}
END_TEST

START_TEST(retry_after_is_read_strictly) {
    ck_assert_msg(retry_after_ms(retry_afters[_i].text, NULL, NOW) == retry_afters[_i].ms, "'%s': %lu",
                  retry_afters[_i].text, (unsigned long)retry_after_ms(retry_afters[_i].text, NULL, NOW));
}
END_TEST

START_TEST(receiver_disables_by_header) {
    static const int any[] = {200, 301, 400, 429, 500};
    for (size_t i = 0; i < sizeof any / sizeof *any; i++) {
        struct http_outcome http = {.status = any[i], .delivery_control = "Disable"};
        struct attempt_outcome outcome = outcome_of_answer(&http, NOW);
        ck_assert(outcome.disable_subscription);
        http.delivery_control = NULL;
        ck_assert_int_eq(outcome.verdict, outcome_of_answer(&http, NOW).verdict);
    }
}
END_TEST

START_TEST(receiver_aborts_a_message_by_header) {
    struct http_outcome http = {.status = 503, .delivery_control = "abort-message", .retry_after = "9"};
    struct attempt_outcome outcome = outcome_of_answer(&http, NOW);
    ck_assert_int_eq(outcome.verdict, VERDICT_ABORTED);
    ck_assert_str_eq(attempt_class_name(outcome.class), "aborted");
    ck_assert(!outcome.disable_subscription && !outcome.pause_endpoint);
    ck_assert_uint_eq(outcome.after_ms, 0);
    http.status = 422; // it would have been poison
    ck_assert_int_eq(outcome_of_answer(&http, NOW).verdict, VERDICT_ABORTED);
    http.status = 200;
    ck_assert_int_eq(outcome_of_answer(&http, NOW).verdict, VERDICT_DELIVERED);
}
END_TEST

START_TEST(an_unknown_control_changes_nothing) {
    struct http_outcome http = {.status = 500, .delivery_control = "disabled"};
    struct attempt_outcome outcome = outcome_of_answer(&http, NOW);
    ck_assert_int_eq(outcome.verdict, VERDICT_RETRY);
    ck_assert(!outcome.disable_subscription);
}
END_TEST

START_TEST(empty_texts_are_null) {
    struct http_outcome http = {.status = 200, .response_head = ""};
    struct attempt_outcome outcome = outcome_of_answer(&http, NOW);
    ck_assert_ptr_null(outcome.peer);
    ck_assert_ptr_null(outcome.response_head);
    ck_assert_ptr_null(outcome.error);
}
END_TEST

static const struct {
    int status;
    enum verdict verdict;
    const char *class;
    bool disables;
} by_policy[] = {
    {200, VERDICT_DELIVERED, "delivered", false}, // not named: as usual
    {202, VERDICT_RETRY, "rejected", false},      {302, VERDICT_DELIVERED, "delivered", false},
    {400, VERDICT_RETRY, "http_4xx", false}, // by its class
    {404, VERDICT_REJECTED, "http_4xx", true},    {409, VERDICT_DELIVERED, "delivered", false},
    {410, VERDICT_REJECTED, "http_4xx", false}, // without disabling
    {501, VERDICT_REJECTED, "http_5xx", false},   {500, VERDICT_RETRY, "http_5xx", false},
    {700, VERDICT_RETRY, "http_5xx", false},
};

START_TEST(a_policy_of_its_own_wins) {
    struct json_object *object =
        json_tokener_parse("{\"202\": \"retry\", \"302\": \"delivered\", \"404\": \"disable\", \"409\": \"delivered\", "
                           "\"410\": \"reject\", \"4xx\": \"retry\", \"501\": \"reject\"}");
    struct status_policy policy;
    struct error error;
    ck_assert(status_policy_read(&policy, object, &error));
    json_object_put(object);
    struct http_outcome http = {.status = by_policy[_i].status, .retry_after = "7"};
    struct attempt_outcome outcome = outcome_by_policy(&http, &policy, NOW);
    ck_assert_int_eq(outcome.verdict, by_policy[_i].verdict);
    ck_assert_str_eq(attempt_class_name(outcome.class), by_policy[_i].class);
    ck_assert_int_eq(outcome.disable_subscription, by_policy[_i].disables);
    ck_assert_uint_eq(outcome.after_ms, by_policy[_i].verdict == VERDICT_RETRY ? 7000 : 0);

    http.delivery_control = "abort-message"; // the receiver's own word is above both
    outcome = outcome_by_policy(&http, &policy, NOW);
    ck_assert_int_eq(outcome.verdict, by_policy[_i].verdict == VERDICT_DELIVERED ? VERDICT_DELIVERED : VERDICT_ABORTED);
    http.delivery_control = "disable";
    ck_assert(outcome_by_policy(&http, &policy, NOW).disable_subscription);
    http.failure = HTTP_TIMEOUT; // a policy is about answers
    ck_assert_int_eq(outcome_by_policy(&http, &policy, NOW).class, CLASS_TIMEOUT);
}
END_TEST

START_TEST(bad_policies_are_refused) {
    static const char *const texts[] = {"{\"4\": \"retry\"}",   "{\"604\": \"retry\"}", "{\"1xx\": \"retry\"}",
                                        "{\"4x4\": \"retry\"}", "{\"404\": \"maybe\"}", "{\"404\": 1}",
                                        "{\"404\": null}",      "{\"\": \"retry\"}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct json_object *object = json_tokener_parse(texts[i]);
        struct status_policy policy;
        struct error error;
        ck_assert_msg(!status_policy_read(&policy, object, &error), "%s", texts[i]);
        ck_assert_int_eq(error.code, ERROR_USAGE);
        json_object_put(object);
    }
}
END_TEST

void outcome_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "outcome", 10);
    tcase_add_loop_test(tcase, status_decides, 0, (int)(sizeof statuses / sizeof *statuses));
    tcase_add_loop_test(tcase, failure_decides, 0, (int)(sizeof failures / sizeof *failures));
    tcase_add_test(tcase, a_date_is_as_far_as_from_the_answer_s_own_date);
    tcase_add_loop_test(tcase, retry_after_is_read_strictly, 0, (int)(sizeof retry_afters / sizeof *retry_afters));
    tcase_add_test(tcase, receiver_disables_by_header);
    tcase_add_test(tcase, receiver_aborts_a_message_by_header);
    tcase_add_test(tcase, an_unknown_control_changes_nothing);
    tcase_add_test(tcase, empty_texts_are_null);
    tcase_add_loop_test(tcase, a_policy_of_its_own_wins, 0, (int)(sizeof by_policy / sizeof *by_policy));
    tcase_add_test(tcase, bad_policies_are_refused);
}
