// What is written, what is refused instead, and what becomes of a request that nobody answers.
#include "tests/integration/http_client/world.h"
#include <stdlib.h>
#include <string.h>

START_TEST(a_post_is_what_was_given) {
    start_allowing_loopback();
    const char *headers[] = {"content-type: application/json", "webhook-id: evt", "x-empty:", NULL};
    struct http_call call = usual;
    call.url = url_to("127.0.0.1", "/hook?a=b");
    call.headers = headers;
    struct result result = post(call);
    CHECK_FAILURE(result, HTTP_OK);
    ck_assert_int_eq(result.outcome.status, 200);
    char expected[512];
    snprintf(expected, sizeof expected,
             "POST /hook?a=b HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: rowbell/test\r\nAccept: */*\r\n"
             "content-type: application/json\r\nwebhook-id: evt\r\nx-empty:\r\nContent-Length: 8\r\n\r\n" BODY,
             server.port);
    ck_assert_str_eq(server.last_request, expected);
    ck_assert_double_eq(result.outcome.dns_ms, 0);
    ck_assert_double_ge(result.outcome.connect_ms, 0);
    ck_assert_double_eq(result.outcome.tls_ms, -1);
    ck_assert_double_gt(result.outcome.first_byte_ms, 0);
    ck_assert_double_ge(result.outcome.total_ms, result.outcome.first_byte_ms);
    char peer[64];
    snprintf(peer, sizeof peer, "127.0.0.1:%d", server.port);
    ck_assert_str_eq(result.outcome.peer, peer);
    stop();
}
END_TEST

static const char *const forbidden_hosts[] = {
    "127.0.0.1",          "localhost",       "LOCALHOST",     "0.0.0.0",           "[::1]",           "[::]",
    "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "169.254.169.254",
    "10.0.0.1",
};

START_TEST(no_form_of_a_forbidden_address_is_reached) {
    start(NULL, 0, NULL);
    struct result result = post_to(url_to(forbidden_hosts[_i], "/"));
    CHECK_FAILURE(result, HTTP_EGRESS_DENIED);
    ck_assert_int_eq(result.outcome.status, 0);
    ck_assert_int_eq(server.connections, 0);
    ck_assert_uint_eq(http_client_connections_opened(client), 0);
    stop();
}
END_TEST

// An address is judged when the name was resolved, and again when the socket is opened. Each by itself: the policy
// changes in between.
START_TEST(an_address_is_judged_when_it_is_known) {
    start_allowing_loopback();
    size_t allowed = egress.count;
    struct http_call call = usual;
    struct result result = {0};
    call.url = url_to("127.0.0.1", "/");
    egress.count = 0;
    http_client_send(client, &call, on_done, &result);
    egress.count = allowed;
    wait_done(&result);
    CHECK_FAILURE(result, HTTP_EGRESS_DENIED);
    ck_assert_int_eq(server.connections, 0);
    stop();
}
END_TEST

START_TEST(an_address_is_judged_when_a_socket_is_opened) {
    start_allowing_loopback();
    size_t allowed = egress.count;
    struct http_call call = usual;
    struct result result = {0};
    call.url = url_to("127.0.0.1", "/");
    http_client_send(client, &call, on_done, &result);
    egress.count = 0;
    wait_done(&result);
    CHECK_FAILURE(result, HTTP_EGRESS_DENIED);
    ck_assert_int_eq(server.connections, 0);
    egress.count = allowed;
    stop();
}
END_TEST

static const char *const forbidden_urls[] = {
    "",
    "hook",
    "//127.0.0.1/",
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:6379/_FLUSHALL",
    "http://",
    "http:///x",
    "http://user@example.com/",
    "http://user:password@example.com/",
    "http://example.com@127.0.0.1/",
    "http://example.com:80@127.0.0.1/",
    "http://@127.0.0.1/",
    "http://example.com/#fragment",
    "http://exa mple.com/",
    "http://example.com/a b",
    "http://example.com/\r\nHost: x",
    "http://ex\xc3\xa4mple.com/",
    "http://example.com:99999/",
    "http://example.com:0x50/",
    "http://[fe80::1%25lo]/",
    "http://[::1/",
};

START_TEST(urls_that_are_not_for_webhooks_are_refused) {
    start_allowing_loopback();
    struct result result = post_to(forbidden_urls[_i]);
    CHECK_FAILURE(result, HTTP_REFUSED);
    ck_assert_int_eq(strncmp(result.outcome.error, "url: ", 5), 0);
    struct error error;
    ck_assert(!http_url_check(forbidden_urls[_i], true, &error));
    ck_assert_int_eq(error.code, ERROR_USAGE);
    stop();
}
END_TEST

START_TEST(http_needs_to_be_allowed) {
    struct error error;
    ck_assert(http_url_check("https://example.com/hook?x=%20", false, &error));
    ck_assert(http_url_check("https://xn--exmple-cua.com:8443", false, &error));
    ck_assert(http_url_check("https://[2001:db8::1]/", false, &error));
    ck_assert(http_url_check("http://example.com/", true, &error));
    ck_assert(!http_url_check("http://example.com/", false, &error));
    char url[2100] = "https://example.com/";
    memset(url + strlen(url), 'a', 2048 - strlen(url));
    ck_assert(http_url_check(url, false, &error));
    strcat(url, "a");
    ck_assert(!http_url_check(url, false, &error));

    start_allowing_loopback();
    struct http_call call = usual;
    call.url = url_to("127.0.0.1", "/");
    call.allow_http = false;
    struct result result = post(call);
    CHECK_FAILURE(result, HTTP_REFUSED);
    ck_assert_int_eq(server.connections, 0);
    stop();
}
END_TEST

START_TEST(headers_cannot_carry_a_line_break) {
    static const char *const bad[] = {"x: a\r\nevil: 1", "x: a\nevil: 1", "x: a\r"};
    start_allowing_loopback();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *headers[] = {bad[i], NULL};
        struct http_call call = usual;
        call.url = url_to("127.0.0.1", "/");
        call.headers = headers;
        struct result result = post(call);
        CHECK_FAILURE(result, HTTP_REFUSED);
    }
    ck_assert_int_eq(server.requests, 0);
    stop();
}
END_TEST

START_TEST(redirects_are_not_followed) {
    start_allowing_loopback();
    char answer[256];
    snprintf(answer, sizeof answer,
             "HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:%d/other\r\nContent-Length: 0\r\n\r\n", server.port);
    struct result result = post_script((struct script){.answer = answer});
    CHECK_FAILURE(result, HTTP_OK);
    ck_assert_int_eq(result.outcome.status, 307);
    ck_assert_int_eq(server.requests, 1);
    stop();
}
END_TEST

// The receiver may have handled the request whose answer did not come.
START_TEST(no_request_is_repeated_behind_our_back) {
    start_allowing_loopback();
    struct result result = post_script((struct script){.answer = OK_EMPTY});
    CHECK_FAILURE(result, HTTP_OK);
    result = post_script((struct script){.then = THEN_CLOSE});
    CHECK_FAILURE(result, HTTP_CONNECT);
    ck_assert_int_eq(server.requests, 2);
    result = post_script((struct script){.answer = OK_EMPTY}); // the handle is good for the next
    CHECK_FAILURE(result, HTTP_OK);
    ck_assert_int_eq(server.requests, 3);
    stop();
}
END_TEST

START_TEST(closing_cancels_what_is_in_flight) {
    start_allowing_loopback();
    server.script = (struct script){0};
    struct result results[5] = {0};
    struct http_call call = usual;
    call.url = url_to("127.0.0.1", "/");
    for (int i = 0; i < 3; i++)
        http_client_send(client, &call, on_done, &results[i]);
    while (server.requests < 3)
        uv_run(&loop, UV_RUN_ONCE);
    http_client_send(client, &call, on_done, &results[3]); // not written yet
    call.url = "http://no-such-name.example/";
    http_client_send(client, &call, on_done, &results[4]); // still resolving
    stop();
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(results[i].calls, 1);
        CHECK_FAILURE(results[i], HTTP_CANCELLED);
    }
}
END_TEST

static void on_done_send_again(void *arg, const struct http_outcome *outcome) {
    int *left = arg;
    ck_assert_int_eq(outcome->failure, *left % 2 ? HTTP_REFUSED : HTTP_OK);
    if (--*left == 0)
        return;
    struct http_call call = usual;
    call.url = *left % 2 ? "refused" : url_to("127.0.0.1", "/");
    http_client_send(client, &call, on_done_send_again, left);
}

START_TEST(a_call_may_be_sent_from_a_callback) {
    start_allowing_loopback();
    int left = 20;
    struct http_call call = usual;
    call.url = url_to("127.0.0.1", "/");
    http_client_send(client, &call, on_done_send_again, &left);
    while (left > 0)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(server.requests, 10);
    stop();
}
END_TEST

// The peer answers to the head of a large request; then it closes, or it waits.
START_TEST(a_request_may_be_answered_before_its_end) {
    start_allowing_loopback();
    server.script = (struct script){.answer = "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n",
                                    .then = _i == 0 ? THEN_CLOSE : THEN_KEEP,
                                    .at_head = true};
    struct http_call call = usual;
    call.url = url_to("127.0.0.1", "/");
    call.body_length = 32 << 20;
    char *body = malloc(call.body_length);
    memset(body, 'x', call.body_length);
    call.body = body;
    struct result result = post(call);
    free(body);
    CHECK_FAILURE(result, HTTP_OK);
    ck_assert_int_eq(result.outcome.status, 413);
    while (server.open > 0) // a connection with half a request on it is of no use
        uv_run(&loop, UV_RUN_ONCE);
    stop();
}
END_TEST

void requests_tests(Suite *suite) {
    TCase *requests = suite_case(suite, "requests", 20);
    tcase_add_test(requests, a_post_is_what_was_given);
    tcase_add_test(requests, an_address_is_judged_when_it_is_known);
    tcase_add_test(requests, an_address_is_judged_when_a_socket_is_opened);
    tcase_add_loop_test(requests, no_form_of_a_forbidden_address_is_reached, 0,
                        (int)(sizeof forbidden_hosts / sizeof *forbidden_hosts));
    tcase_add_loop_test(requests, urls_that_are_not_for_webhooks_are_refused, 0,
                        (int)(sizeof forbidden_urls / sizeof *forbidden_urls));
    tcase_add_test(requests, http_needs_to_be_allowed);
    tcase_add_test(requests, headers_cannot_carry_a_line_break);
    tcase_add_test(requests, redirects_are_not_followed);
    tcase_add_test(requests, no_request_is_repeated_behind_our_back);
    tcase_add_test(requests, closing_cancels_what_is_in_flight);
    tcase_add_test(requests, a_call_may_be_sent_from_a_callback);
    tcase_add_loop_test(requests, a_request_may_be_answered_before_its_end, 0, 2);
}
