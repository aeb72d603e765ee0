// Answers of peers that do everything wrong.
#include "tests/integration/http_client/world.h"
#include <string.h>

START_TEST(a_dripping_body_costs_one_deadline) { // _i: the body is asked for
    start_allowing_loopback();
    server.script = (struct script){
        .answer = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", .then = THEN_DRIP, .filler = "x"};
    struct http_call call = usual;
    call.url = url_to("127.0.0.1", "/");
    call.answer_max_bytes = _i == 1 ? 1 << 20 : 0;
    struct result result = {0};
    // Long enough for the head to come, wherever this runs.
    for (call.deadline_ms = 300; result.outcome.status == 0; call.deadline_ms *= 2) {
        result = post_within(call, 2 * call.deadline_ms);
        CHECK_FAILURE(result, _i == 1 || result.outcome.status == 0 ? HTTP_TIMEOUT : HTTP_OK);
        ck_assert_double_ge(result.outcome.total_ms, call.deadline_ms - 2);
    }
    ck_assert_int_eq(result.outcome.status, 200);
    stop();
}
END_TEST

START_TEST(a_dripping_head_costs_one_deadline) {
    start_allowing_loopback();
    server.script = (struct script){.answer = "HTTP/1.1 200 OK\r\nX: ", .then = THEN_DRIP, .filler = "x"};
    struct http_call call = usual;
    call.url = url_to("127.0.0.1", "/");
    call.deadline_ms = 300;
    struct result result = post_within(call, 600);
    CHECK_FAILURE(result, HTTP_TIMEOUT);
    stop();
}
END_TEST

START_TEST(an_endless_body_is_cut_and_its_status_counts) {
    start_allowing_loopback();
    static char chunk[16384 + 16];
    int head = sprintf(chunk, "4000\r\n");
    memset(chunk + head, 'y', 16384);
    strcpy(chunk + head + 16384, "\r\n");
    struct result result = post_script((struct script){
        .answer = "HTTP/1.1 202 OK\r\nTransfer-Encoding: chunked\r\n\r\n", .then = THEN_FLOOD, .filler = chunk});
    CHECK_FAILURE(result, HTTP_OK);
    ck_assert_int_eq(result.outcome.status, 202);
    ck_assert_uint_eq(strlen(result.response_head), 4096);
    ck_assert_uint_eq(strspn(result.response_head, "y"), 4096);
    while (server.open > 0) // the connection was closed, not kept
        uv_run(&loop, UV_RUN_ONCE);
    stop();
}
END_TEST

START_TEST(a_silent_receiver_costs_one_deadline) {
    start_allowing_loopback();
    server.script = (struct script){0};
    struct http_call call = usual;
    call.url = url_to("127.0.0.1", "/");
    call.deadline_ms = 200;
    struct result result = post_within(call, 400);
    CHECK_FAILURE(result, HTTP_TIMEOUT);
    ck_assert_int_eq(result.outcome.status, 0);
    ck_assert_double_eq(result.outcome.first_byte_ms, -1);
    ck_assert_double_ge(result.outcome.total_ms, 198);
    stop();
}
END_TEST

// A header section that is too long, in one line, in many, and in interim answers that never end; and a chunk that
// never comes.
START_TEST(too_many_header_bytes_are_a_bad_answer) {
    static const char *const fillers[] = {"x", "X-Filler: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n",
                                          "HTTP/1.1 103 Hints\r\nLink: </x>\r\n\r\n", "xxxxxxxxxxxxxxxx"};
    static const char *const answers[] = {"HTTP/1.1 200 OK\r\nX: ", "HTTP/1.1 200 OK\r\n",
                                          "HTTP/1.1 100 Continue\r\n\r\n",
                                          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;"};
    start_allowing_loopback();
    struct result result =
        post_script((struct script){.answer = answers[_i], .then = THEN_FLOOD, .filler = fillers[_i]});
    CHECK_FAILURE(result, _i == 3 ? HTTP_OK : HTTP_BAD_ANSWER); // the last has sent its head
    while (server.open > 0)
        uv_run(&loop, UV_RUN_ONCE);
    stop();
}
END_TEST

START_TEST(header_limit_is_16_kib) {
    static const size_t sizes[] = {16384, 16385};
    static char answer[20000];
    start_allowing_loopback();
    for (size_t i = 0; i < 2; i++) {
        size_t length = (size_t)sprintf(answer, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n");
        while (length < sizes[i] - 200)
            length += (size_t)sprintf(answer + length, "X-Filler: %050d\r\n", 0);
        sprintf(answer + length, "X-Last: %0*d\r\n\r\n", (int)(sizes[i] - length - strlen("X-Last: \r\n\r\n")), 0);
        ck_assert_uint_eq(strlen(answer), sizes[i]);
        struct result result = post_script((struct script){.answer = answer});
        CHECK_FAILURE(result, i == 0 ? HTTP_OK : HTTP_BAD_ANSWER);
    }
    stop();
}
END_TEST

static const struct {
    const char *answer;
    enum http_failure failure;
} wrong_answers[] = {
    {"hello\r\n\r\n", HTTP_BAD_ANSWER},
    {"HTTP/0.9 200 OK\r\n\r\n", HTTP_BAD_ANSWER},
    {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", HTTP_BAD_ANSWER},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", HTTP_BAD_ANSWER},
    {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc", HTTP_BAD_ANSWER},
    {"HTTP/1.1 200 OK\nContent-Length: 0\n\n", HTTP_BAD_ANSWER},
    {"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", HTTP_BAD_ANSWER},
    {"HTTP/2.0 200 OK\r\n\r\n", HTTP_BAD_ANSWER},
    {"HTTP/1.1 100 Continue\r\n\r\n", HTTP_BAD_ANSWER},
    {"HTTP/1.1 2", HTTP_BAD_ANSWER},
    // An interim answer has no body (RFC 9110, 15.2), so these bytes are none of an answer.
    {"HTTP/1.1 103 Hints\r\nContent-Length: 5\r\n\r\nhello" OK_EMPTY, HTTP_BAD_ANSWER},
    {"HTTP/1.1 103 Hints\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" OK_EMPTY, HTTP_BAD_ANSWER},
    {NULL, HTTP_CONNECT}, // closed without a word
};

START_TEST(what_is_no_answer_is_a_failure) {
    start_allowing_loopback();
    struct result result = post_script((struct script){.answer = wrong_answers[_i].answer, .then = THEN_CLOSE});
    CHECK_FAILURE(result, wrong_answers[_i].failure);
    ck_assert_str_ne(result.outcome.error, "");
    stop();
}
END_TEST

// The status came. Whoever asked for the body has a failure; for others the status is the answer.
static const struct {
    const char *answer;
    enum script_then then;
} broken_bodies[] = {
    {"HTTP/1.1 201 Created\r\nContent-Length: 10\r\n\r\nshort", THEN_CLOSE},
    {"HTTP/1.1 201 Created\r\nContent-Length: 10\r\n\r\n", THEN_RESET},
    {"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nsho", THEN_CLOSE},
    {"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n", THEN_CLOSE}, // no last chunk
    {"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n", THEN_RESET},
    {"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", THEN_KEEP},
    {"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nx: y\n\n", THEN_KEEP},
};

START_TEST(a_status_counts_though_its_body_breaks_off) {
    start_allowing_loopback();
    server.script = (struct script){.answer = broken_bodies[_i].answer, .then = broken_bodies[_i].then};
    struct http_call call = usual;
    call.url = url_to("127.0.0.1", "/");
    for (int i = 0; i < 2; i++) {
        call.answer_max_bytes = i == 1 ? 1 << 20 : 0;
        struct result result = post(call);
        CHECK_FAILURE(result, i == 1 ? HTTP_BAD_ANSWER : HTTP_OK);
        ck_assert_int_eq(result.outcome.status, 201);
        while (server.open > 0) // its connection is not used again
            uv_run(&loop, UV_RUN_ONCE);
    }
    ck_assert_int_eq(server.connections, 2);
    stop();
}
END_TEST

static void check_refusal(const struct result *result, const char *head, const char *retry_after,
                          const char *delivery_control) {
    CHECK_FAILURE(*result, HTTP_OK);
    ck_assert_int_eq(result->outcome.status, 503);
    ck_assert_str_eq(result->response_head, head);
    ck_assert_str_eq(result->retry_after, retry_after);
    ck_assert_str_eq(result->delivery_control, delivery_control);
}

START_TEST(the_answer_is_handed_over) {
    start_allowing_loopback();
    static const char answer[] = "HTTP/1.1 100 Continue\r\nRetry-After: 1\r\n\r\n"
                                 "HTTP/1.1 503 No\r\nRETRY-AFTER: \t120 \r\nwebhook-delivery:disable\r\n"
                                 "Retry-After: 7\r\nContent-Length: 14\r\n\r\n"
                                 "a\0b\x1b\xff\xc3\xa4\xed\xa0\x80\t\r\nz";
    struct result result = post_script((struct script){.answer = answer, .length = sizeof answer - 1});
    check_refusal(&result, "a?b??\xc3\xa4???\t\r\nz", "120", "disable");
    stop();
}
END_TEST

// What is asked of us is asked in the head (RFC 9110, 6.5.1).
START_TEST(trailers_are_not_headers) {
    start_allowing_loopback();
    struct result result = post_script((struct script){
        .answer = "HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\nRetry-After: 120\r\n"
                  "webhook-delivery: disable\r\n\r\n"});
    check_refusal(&result, "no", "(none)", "(none)");
    stop();
}
END_TEST

START_TEST(a_zero_byte_in_a_header_is_a_bad_answer) {
    static const char answer[] = "HTTP/1.1 200 OK\r\nRetry-After: 1\0002\r\nContent-Length: 0\r\n\r\n";
    start_allowing_loopback();
    struct result result = post_script((struct script){.answer = answer, .length = sizeof answer - 1});
    CHECK_FAILURE(result, HTTP_BAD_ANSWER);
    stop();
}
END_TEST

// The last body that is read whole leaves its connection for the next; one byte more does not.
START_TEST(body_limit_is_64_kib) {
    static char answer[66000];
    start_allowing_loopback();
    for (size_t size = 65536; size <= 65537; size++) {
        size_t head = (size_t)sprintf(answer, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", size);
        memset(answer + head, 'x', size);
        struct result result = post_script((struct script){.answer = answer, .length = head + size});
        CHECK_FAILURE(result, HTTP_OK);
        ck_assert_uint_eq(strlen(result.response_head), 4096);
    }
    ck_assert_int_eq(server.connections, 1);
    while (server.open > 0)
        uv_run(&loop, UV_RUN_ONCE);
    stop();
}
END_TEST

// A character that the 4 KiB limit cuts must not make the text invalid.
START_TEST(a_cut_character_is_replaced) {
    start_allowing_loopback();
    static char answer[8192] = "HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n";
    size_t head = strlen(answer);
    memset(answer + head, 'a', 5000);
    memcpy(answer + head + 4095, "\xc3\xa4", 2);
    struct result result = post_script((struct script){.answer = answer, .length = head + 5000});
    CHECK_FAILURE(result, HTTP_OK);
    ck_assert_uint_eq(strlen(result.response_head), 4096);
    ck_assert_int_eq(result.response_head[4095], '?');
    stop();
}
END_TEST

START_TEST(compressed_bodies_are_not_expanded) {
    start_allowing_loopback();
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x08";
    struct result result = post_script((struct script){.answer = answer, .length = sizeof answer - 1});
    CHECK_FAILURE(result, HTTP_OK);
    ck_assert(!strcasestr(server.last_request, "accept-encoding"));
    stop();
}
END_TEST

START_TEST(an_answer_may_end_with_its_connection) {
    start_allowing_loopback();
    struct result result = post_script((struct script){.answer = "HTTP/1.1 200 OK\r\n\r\nabc", .then = THEN_CLOSE});
    CHECK_FAILURE(result, HTTP_OK);
    ck_assert_str_eq(result.response_head, "abc");
    result = post_script((struct script){.answer = "HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc"});
    CHECK_FAILURE(result, HTTP_OK); // and HTTP/1.0 keeps none
    while (server.open > 0)
        uv_run(&loop, UV_RUN_ONCE);
    stop();
}
END_TEST

// What its headers say of a body does not count.
START_TEST(a_204_or_304_has_no_body) {
    static const char *const answers[] = {"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
                                          "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
                                          "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n"};
    start_allowing_loopback();
    for (int i = 0; i < 3; i++) {
        struct result result = post_script((struct script){.answer = answers[i]});
        CHECK_FAILURE(result, HTTP_OK);
        ck_assert_int_eq(result.outcome.status, i == 1 ? 304 : 204);
    }
    ck_assert_int_eq(server.connections, 1);
    stop();
}
END_TEST

// They would be read as the answer to the next request.
START_TEST(bytes_after_an_answer_end_the_connection) {
    static const char *const answers[] = {OK_EMPTY OK_EMPTY, OK_EMPTY "x",
                                          "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello"};
    start_allowing_loopback();
    struct result result = post_script((struct script){.answer = answers[_i]});
    CHECK_FAILURE(result, HTTP_OK);
    result = post_script((struct script){.answer = "HTTP/1.1 202 OK\r\nContent-Length: 0\r\n\r\n"});
    CHECK_FAILURE(result, HTTP_OK);
    ck_assert_int_eq(result.outcome.status, 202);
    ck_assert_int_eq(server.connections, 2);
    stop();
}
END_TEST

void answers_tests(Suite *suite) {
    TCase *answers = suite_case(suite, "answers", 20);
    tcase_add_loop_test(answers, a_dripping_body_costs_one_deadline, 0, 2);
    tcase_add_test(answers, a_dripping_head_costs_one_deadline);
    tcase_add_test(answers, an_endless_body_is_cut_and_its_status_counts);
    tcase_add_test(answers, a_silent_receiver_costs_one_deadline);
    tcase_add_loop_test(answers, too_many_header_bytes_are_a_bad_answer, 0, 4);
    tcase_add_test(answers, header_limit_is_16_kib);
    tcase_add_loop_test(answers, what_is_no_answer_is_a_failure, 0,
                        (int)(sizeof wrong_answers / sizeof *wrong_answers));
    tcase_add_loop_test(answers, a_status_counts_though_its_body_breaks_off, 0,
                        (int)(sizeof broken_bodies / sizeof *broken_bodies));
    tcase_add_test(answers, the_answer_is_handed_over);
    tcase_add_test(answers, trailers_are_not_headers);
    tcase_add_test(answers, a_zero_byte_in_a_header_is_a_bad_answer);
    tcase_add_test(answers, body_limit_is_64_kib);
    tcase_add_test(answers, a_cut_character_is_replaced);
    tcase_add_test(answers, compressed_bodies_are_not_expanded);
    tcase_add_test(answers, an_answer_may_end_with_its_connection);
    tcase_add_test(answers, a_204_or_304_has_no_body);
    tcase_add_loop_test(answers, bytes_after_an_answer_end_the_connection, 0, 3);
}
