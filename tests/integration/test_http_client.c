// The webhook client against peers that do everything wrong.
#include "common/http_client.h"
#include "common/http_connection.h"
#include "common/resolver.h"
#include "tests/support/fixture.h"
#include "tests/support/script_server.h"
#include "tests/support/tls_server.h"
#include <arpa/inet.h>
#include <check.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define OK_EMPTY "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
#define BODY "{\"id\":1}"

static uv_loop_t loop;
static struct script_server server;
static struct egress_policy egress;
static struct http_client *client;

static void start(const char *const *allowed, size_t count, const char *ca_file) {
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert(egress_policy_init(&egress, &(struct config_list){(const char **)allowed, count}, NULL));
    script_server_start(&server, &loop);
    server.script.answer = OK_EMPTY;
    client = http_client_new(
        &loop, &(struct http_client_options){.user_agent = "rowbell/test", .egress = &egress, .ca_file = ca_file});
}

static void start_allowing_loopback(void) {
    static const char *const loopback[] = {"127.0.0.0/8"};
    start(loopback, 1, NULL);
}

static void on_client_closed(void *arg) {
    *(bool *)arg = true;
}

static void close_listener(uv_handle_t *handle, void *arg) {
    (void)arg;
    if (handle == (uv_handle_t *)&server.listener && !uv_is_closing(handle))
        uv_close(handle, NULL);
}

// Nothing may be left in the loop: what is would hold up a process that ends.
static void stop(void) {
    bool closed = false;
    http_client_close(client, on_client_closed, &closed);
    while (!closed)
        uv_run(&loop, UV_RUN_ONCE);
    uv_walk(&loop, close_listener, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    egress_policy_close(&egress);
}

struct result {
    struct http_outcome outcome;
    char retry_after[128];
    char delivery_control[64];
    char response_head[4097];
    int calls;
};

static void copy_view(char *ret_text, size_t size, const char *view) {
    snprintf(ret_text, size, "%s", view ? view : "(none)");
}

static void on_done(void *arg, const struct http_outcome *outcome) {
    struct result *result = arg;
    result->outcome = *outcome;
    copy_view(result->retry_after, sizeof result->retry_after, outcome->retry_after);
    copy_view(result->delivery_control, sizeof result->delivery_control, outcome->delivery_control);
    copy_view(result->response_head, sizeof result->response_head, outcome->response_head);
    result->calls++;
    uv_stop(&loop); // UV_RUN_ONCE would wait for another event after a timer's callback
}

static const struct http_call usual = {
    .body = BODY, .body_length = sizeof BODY - 1, .deadline_ms = 5000, .connect_ms = 2000, .allow_http = true};

static void wait_done(const struct result *result) {
    while (result->calls == 0)
        uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(result->calls, 1);
}

static struct result post(struct http_call call) {
    struct result result = {0};
    http_client_send(client, &call, on_done, &result);
    ck_assert_int_eq(result.calls, 0); // never from inside
    wait_done(&result);
    return result;
}

static const char *url_to(const char *host, const char *path) {
    static char url[512];
    snprintf(url, sizeof url, "http://%s:%d%s", host, server.port, path);
    return url;
}

static struct result post_to(const char *url) {
    struct http_call call = usual;
    call.url = url;
    return post(call);
}

static struct result post_script(struct script script) {
    server.script = script;
    return post_to(url_to("127.0.0.1", "/hook"));
}

#define CHECK_FAILURE(result, expected)                                                                                \
    ck_assert_msg((result).outcome.failure == (expected), "failure %d instead of %d: %s", (result).outcome.failure,    \
                  (expected), (result).outcome.error)

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
    "127.0.0.1",
    "127.1",
    "0x7f.1",
    "0x7f000001",
    "2130706433",
    "017700000001",
    "0177.0.0.1",
    "127.0.0.1.",
    "localhost",
    "localhost.",
    "LOCALHOST",
    "%31%32%37.0.0.1",
    "0",
    "0.0.0.0",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "169.254.169.254",
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

START_TEST(a_name_goes_to_its_allowed_address) {
    start_allowing_loopback(); // "localhost" is ::1 as well, which is denied
    struct result result = post_to(url_to("localhost", "/"));
    CHECK_FAILURE(result, HTTP_OK);
    ck_assert_double_gt(result.outcome.dns_ms, 0);
    ck_assert_int_eq(strncmp(result.outcome.peer, "127.0.0.1:", 10), 0);
    ck_assert(strstr(server.last_request, "\r\nHost: localhost:"));
    result = post_to(url_to("localhost.", "/"));
    CHECK_FAILURE(result, HTTP_OK);
    result = post_to(url_to("localhost", "/"));
    CHECK_FAILURE(result, HTTP_OK);
    ck_assert_double_eq(result.outcome.dns_ms, 0); // known
    stop();
}
END_TEST

START_TEST(a_name_without_an_address_is_dns) {
    start_allowing_loopback();
    struct result result = post_to("http://no-such-name.invalid/");
    CHECK_FAILURE(result, HTTP_DNS);
    ck_assert_double_eq(result.outcome.connect_ms, -1);
    ck_assert_str_eq(result.outcome.peer, "");
    stop();
}
END_TEST

START_TEST(a_dripping_body_costs_one_deadline) {
    start_allowing_loopback();
    server.script = (struct script){
        .answer = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", .then = THEN_DRIP, .filler = "x"};
    struct http_call call = usual;
    call.url = url_to("127.0.0.1", "/");
    call.deadline_ms = 300;
    struct result result = post(call);
    CHECK_FAILURE(result, HTTP_TIMEOUT);
    ck_assert_int_eq(result.outcome.status, 200);
    ck_assert_double_ge(result.outcome.total_ms, 298);
    ck_assert_double_lt(result.outcome.total_ms, 1500);
    stop();
}
END_TEST

START_TEST(a_dripping_head_costs_one_deadline) {
    start_allowing_loopback();
    server.script = (struct script){.answer = "HTTP/1.1 200 OK\r\nX: ", .then = THEN_DRIP, .filler = "x"};
    struct http_call call = usual;
    call.url = url_to("127.0.0.1", "/");
    call.deadline_ms = 300;
    struct result result = post(call);
    CHECK_FAILURE(result, HTTP_TIMEOUT);
    ck_assert_double_lt(result.outcome.total_ms, 1500);
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
    struct result result = post(call);
    CHECK_FAILURE(result, HTTP_TIMEOUT);
    ck_assert_int_eq(result.outcome.status, 0);
    ck_assert_double_eq(result.outcome.first_byte_ms, -1);
    ck_assert_double_ge(result.outcome.total_ms, 198);
    ck_assert_double_lt(result.outcome.total_ms, 1500);
    stop();
}
END_TEST

START_TEST(a_peer_that_takes_no_connection_is_connect) {
    start_allowing_loopback();
    // A full accept queue: the kernel drops further SYNs.
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(listener, 0), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    int fillers[4];
    for (int i = 0; i < 4; i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(fillers[i], (struct sockaddr *)&address, sizeof address);
    }
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", ntohs(address.sin_port));
    struct http_call call = usual;
    call.url = url;
    call.connect_ms = 200;
    for (int i = 0; i < 3; i++) { // libcurl closes such a socket without a word, and its number comes back
        struct result result = post(call);
        CHECK_FAILURE(result, HTTP_CONNECT);
        ck_assert_double_eq(result.outcome.connect_ms, -1);
        ck_assert_double_lt(result.outcome.total_ms, 1500);
    }
    call.connect_ms = 2000;
    call.deadline_ms = 100;
    for (int i = 0; i < 3; i++) {
        struct result result = post(call);
        CHECK_FAILURE(result, HTTP_TIMEOUT);
    }
    for (int i = 0; i < 4; i++)
        close(fillers[i]);
    close(listener);
    stop();
}
END_TEST

// libcurl looks for dead connections whenever it makes one, and may find one that stood a moment ago: it was closed by
// its peer in the same turn of the loop.
START_TEST(a_connection_that_is_closed_while_it_opens_is_connect) {
    start_allowing_loopback();
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(listener, 0), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    int filler = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(filler, (struct sockaddr *)&address, sizeof address), 0);
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/", ntohs(address.sin_port));
    struct http_call call = usual;
    call.url = url;
    struct result closed = {0};
    http_client_send(client, &call, on_done, &closed);
    while (http_client_connections_opened(client) == 0)
        uv_run(&loop, UV_RUN_NOWAIT);
    close(accept(listener, NULL, NULL));
    close(accept(listener, NULL, NULL)); // the second SYN comes after a second, and libcurl looks each second
    struct result result = {0};
    call.url = url_to("127.0.0.1", "/");
    http_client_send(client, &call, on_done, &result);
    wait_done(&closed);
    wait_done(&result);
    CHECK_FAILURE(closed, HTTP_CONNECT);
    ck_assert_str_ne(closed.outcome.error, "");
    CHECK_FAILURE(result, HTTP_OK);
    close(filler);
    close(listener);
    stop();
}
END_TEST

START_TEST(a_refused_port_is_connect) {
    start_allowing_loopback();
    const char *url = url_to("127.0.0.1", "/");
    uv_close((uv_handle_t *)&server.listener, NULL);
    uv_run(&loop, UV_RUN_NOWAIT);
    for (int i = 0; i < 3; i++) { // a descriptor's number comes back
        struct result result = post_to(url);
        CHECK_FAILURE(result, HTTP_CONNECT);
        ck_assert_int_eq(result.outcome.status, 0);
    }
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
    CHECK_FAILURE(result, HTTP_BAD_ANSWER);
    ck_assert_double_lt(result.outcome.total_ms, 3000);
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
    {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", HTTP_BAD_ANSWER},
    {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", HTTP_BAD_ANSWER},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", HTTP_BAD_ANSWER},
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

START_TEST(the_answer_is_handed_over) {
    start_allowing_loopback();
    static const char answer[] = "HTTP/1.1 100 Continue\r\nRetry-After: 1\r\n\r\n"
                                 "HTTP/1.1 503 No\r\nRETRY-AFTER: \t120 \r\nwebhook-delivery:disable\r\n"
                                 "Retry-After: 7\r\nContent-Length: 14\r\n\r\n"
                                 "a\0b\x1b\xff\xc3\xa4\xed\xa0\x80\t\r\nz";
    struct result result = post_script((struct script){.answer = answer, .length = sizeof answer - 1});
    CHECK_FAILURE(result, HTTP_OK);
    ck_assert_int_eq(result.outcome.status, 503);
    ck_assert_str_eq(result.retry_after, "120");
    ck_assert_str_eq(result.delivery_control, "disable");
    ck_assert_str_eq(result.response_head, "a?b??\xc3\xa4???\t\r\nz");
    stop();
}
END_TEST

// What is asked of us is asked in the head (RFC 9110, 6.5.1).
START_TEST(trailers_are_not_headers) {
    start_allowing_loopback();
    struct result result = post_script((struct script){
        .answer = "HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\nRetry-After: 120\r\n"
                  "webhook-delivery: disable\r\n\r\n"});
    CHECK_FAILURE(result, HTTP_OK);
    ck_assert_int_eq(result.outcome.status, 503);
    ck_assert_str_eq(result.response_head, "no");
    ck_assert_str_eq(result.retry_after, "(none)");
    ck_assert_str_eq(result.delivery_control, "(none)");
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

START_TEST(connections_are_used_again) {
    enum { CONCURRENT = 10, ROUNDS = 100 };
    start_allowing_loopback();
    for (int round = 0; round < ROUNDS; round++) {
        struct result results[CONCURRENT] = {0};
        struct http_call call = usual;
        call.url = url_to("127.0.0.1", "/");
        for (int i = 0; i < CONCURRENT; i++)
            http_client_send(client, &call, on_done, &results[i]);
        ck_assert_uint_eq(http_client_in_flight(client), CONCURRENT);
        for (int i = 0; i < CONCURRENT; i++) {
            wait_done(&results[i]);
            CHECK_FAILURE(results[i], HTTP_OK);
            if (round > 0) {
                ck_assert_double_eq(results[i].outcome.connect_ms, 0);
                ck_assert_str_ne(results[i].outcome.peer, "");
            }
        }
    }
    ck_assert_int_eq(server.requests, CONCURRENT * ROUNDS);
    ck_assert_int_eq(server.connections, CONCURRENT);
    ck_assert_uint_eq(http_client_connections_opened(client), CONCURRENT);
    stop();
}
END_TEST

START_TEST(a_kept_connection_that_was_closed_is_replaced) {
    start_allowing_loopback();
    for (int i = 0; i < 5; i++) {
        struct result result = post_script((struct script){.answer = OK_EMPTY, .then = THEN_CLOSE});
        CHECK_FAILURE(result, HTTP_OK);
        while (server.open > 0)
            uv_run(&loop, UV_RUN_ONCE);
    }
    ck_assert_int_eq(server.requests, 5);
    ck_assert_int_eq(server.connections, 5);
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
    call.url = "http://no-such-name.invalid/";
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

static struct result post_tls(const struct tls_server *tls) {
    char url[64];
    snprintf(url, sizeof url, "https://127.0.0.1:%d/hook", tls->port);
    struct http_call call = usual;
    call.url = url;
    call.allow_http = false;
    return post(call);
}

START_TEST(tls_is_verified) {
    struct tls_server tls;
    tls_server_start(&tls, "IP:127.0.0.1");
    start_allowing_loopback();
    struct result result = post_tls(&tls);
    CHECK_FAILURE(result, HTTP_TLS);
    ck_assert(strstr(result.outcome.error, "self-signed") || strstr(result.outcome.error, "self signed"));
    ck_assert_double_ge(result.outcome.connect_ms, 0);
    ck_assert_double_eq(result.outcome.tls_ms, -1);
    stop();
    tls_server_stop(&tls);
}
END_TEST

START_TEST(tls_with_a_trusted_certificate_works) {
    static const char *const loopback[] = {"127.0.0.0/8"};
    struct tls_server tls;
    tls_server_start(&tls, "IP:127.0.0.1");
    start(loopback, 1, tls.ca_file);
    struct result result = post_tls(&tls);
    CHECK_FAILURE(result, HTTP_OK);
    ck_assert_double_gt(result.outcome.tls_ms, 0);
    ck_assert_str_eq(result.response_head, "ok");
    result = post_tls(&tls);
    CHECK_FAILURE(result, HTTP_OK);
    ck_assert_double_eq(result.outcome.tls_ms, 0);
    ck_assert_uint_eq(http_client_connections_opened(client), 1);
    stop();
    tls_server_stop(&tls);
}
END_TEST

static void tls_write(SSL *ssl, const char *text) {
    SSL_write(ssl, text, (int)strlen(text));
}

static void answer_and_update_keys(SSL *ssl) {
    tls_write(ssl, OK_EMPTY);
    SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED);
    SSL_do_handshake(ssl);
}

static void answer_and_say_goodbye(SSL *ssl) {
    tls_write(ssl, OK_EMPTY);
    SSL_shutdown(ssl); // TCP stays
}

static void answer_twice(SSL *ssl) {
    tls_write(ssl, OK_EMPTY);
    tls_write(ssl, "HTTP/1.1 500 Not Yours\r\nContent-Length: 0\r\n\r\n");
}

static void answer_in_records(SSL *ssl) {
    static char body[60001];
    memset(body, 'x', sizeof body - 1);
    tls_write(ssl, "HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n");
    tls_write(ssl, "\r\n");
    tls_write(ssl, body);
}

static void answer_half(SSL *ssl) {
    tls_write(ssl, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel");
    shutdown(SSL_get_fd(ssl), SHUT_RDWR);
}

static void answer_to_the_end(SSL *ssl) {
    tls_write(ssl, "HTTP/1.1 200 OK\r\n\r\nhello");
    SSL_shutdown(ssl);
}

static void answer_truncated(SSL *ssl) {
    tls_write(ssl, "HTTP/1.1 200 OK\r\n\r\nhello");
    shutdown(SSL_get_fd(ssl), SHUT_RDWR); // an attacker's, for all we know
}

static const struct {
    tls_server_answer *answer;
    int version;
    enum http_failure failure;
    uint64_t connections; // that two requests need
} tls_answers[] = {
    {answer_and_update_keys, 0, HTTP_OK, 1},
    {answer_and_say_goodbye, 0, HTTP_OK, 2},
    {answer_twice, 0, HTTP_OK, 2},
    {answer_in_records, 0, HTTP_OK, 1},
    {answer_half, 0, HTTP_BAD_ANSWER, 2},
    {answer_to_the_end, 0, HTTP_OK, 2},
    {answer_truncated, 0, HTTP_OK, 2}, // libcurl forgives it; the status is what counts
    {answer_and_say_goodbye, TLS1_2_VERSION, HTTP_OK, 2},
    {answer_twice, TLS1_2_VERSION, HTTP_OK, 2},
};

START_TEST(tls_answers_in_pieces) {
    static const char *const loopback[] = {"127.0.0.0/8"};
    struct tls_server tls;
    tls_server_start_answering(&tls, tls_answers[_i].answer, tls_answers[_i].version);
    start(loopback, 1, tls.ca_file);
    for (int i = 0; i < 2; i++) {
        struct result result = post_tls(&tls);
        CHECK_FAILURE(result, tls_answers[_i].failure);
        ck_assert_int_eq(result.outcome.status, 200);
        uint64_t before = uv_hrtime();
        while (tls_answers[_i].connections == 2 && tls.ended == i)
            uv_run(&loop, UV_RUN_NOWAIT);
        ck_assert_uint_lt(uv_hrtime() - before, 2000000000); // long before it would have idled enough
    }
    ck_assert_uint_eq(http_client_connections_opened(client), tls_answers[_i].connections);
    stop();
    tls_server_stop(&tls);
}
END_TEST

// More than the buffers on the way take: written when there is room, with the same bytes (SSL_write's rule).
START_TEST(tls_takes_a_large_request) {
    static const char *const loopback[] = {"127.0.0.0/8"};
    struct tls_server tls;
    tls_server_start(&tls, "IP:127.0.0.1");
    start(loopback, 1, tls.ca_file);
    char url[64];
    snprintf(url, sizeof url, "https://127.0.0.1:%d/hook", tls.port);
    struct http_call call = usual;
    call.url = url;
    call.body_length = 16 << 20;
    char *body = malloc(call.body_length);
    memset(body, 'x', call.body_length);
    body[call.body_length - 1] = '}';
    call.body = body;
    for (int i = 0; i < 2; i++) {
        struct result result = post(call);
        CHECK_FAILURE(result, HTTP_OK);
        ck_assert_str_eq(result.response_head, "ok");
    }
    ck_assert_uint_eq(http_client_connections_opened(client), 1);
    free(body);
    stop();
    tls_server_stop(&tls);
}
END_TEST

static atomic_bool has_asked;

static void answer_and_renegotiate(SSL *ssl) {
    tls_write(ssl, OK_EMPTY);
    SSL_renegotiate(ssl);
    SSL_do_handshake(ssl); // asks
    struct pollfd peer = {.fd = SSL_get_fd(ssl), .events = POLLIN};
    poll(&peer, 1, -1); // the client agreed; it hears no more
    has_asked = true;
    peer.events = POLLRDHUP;
    poll(&peer, 1, -1);
}

static double cpu_ms(void) {
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (double)used.tv_sec * 1e3 + (double)used.tv_nsec / 1e6;
}

// A renegotiation that the peer asks for and does not go on with: a write waits for reading, while the socket may be
// written to.
START_TEST(a_renegotiation_does_not_spin) {
    static const char *const loopback[] = {"127.0.0.0/8"};
    struct tls_server tls;
    tls_server_start_answering(&tls, answer_and_renegotiate, TLS1_2_VERSION);
    start(loopback, 1, tls.ca_file);
    struct result result = post_tls(&tls);
    CHECK_FAILURE(result, HTTP_OK);
    while (!has_asked)
        uv_run(&loop, UV_RUN_NOWAIT);
    char url[64];
    snprintf(url, sizeof url, "https://127.0.0.1:%d/hook", tls.port);
    struct http_call call = usual;
    call.url = url;
    call.deadline_ms = 500;
    double before = cpu_ms();
    result = post(call);
    CHECK_FAILURE(result, HTTP_TIMEOUT);
    ck_assert_double_lt(cpu_ms() - before, 100);
    stop();
    tls_server_stop(&tls);
}
END_TEST

START_TEST(tls_for_another_name_is_refused) {
    static const char *const loopback[] = {"127.0.0.0/8"};
    struct tls_server tls;
    tls_server_start(&tls, "DNS:example.test");
    start(loopback, 1, tls.ca_file);
    struct result result = post_tls(&tls);
    CHECK_FAILURE(result, HTTP_TLS);
    stop();
    tls_server_stop(&tls);
}
END_TEST

START_TEST(tls_with_a_peer_that_speaks_http_is_tls) {
    start_allowing_loopback();
    server.script = (struct script){0};
    char url[64];
    snprintf(url, sizeof url, "https://127.0.0.1:%d/", server.port);
    struct http_call call = usual;
    call.url = url;
    call.connect_ms = 200;
    struct result result = post(call); // the handshake gets no answer
    CHECK_FAILURE(result, HTTP_TLS);
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

START_TEST(a_connection_idles_three_seconds) {
    start_allowing_loopback();
    struct result result = post_script((struct script){.answer = OK_EMPTY});
    CHECK_FAILURE(result, HTTP_OK);
    ck_assert_int_eq(server.open, 1);
    uv_update_time(&loop);
    uint64_t before = uv_now(&loop);
    while (server.open > 0) // nobody asks for it
        uv_run(&loop, UV_RUN_ONCE);
    uv_update_time(&loop);
    ck_assert_uint_ge(uv_now(&loop) - before, 2900);
    stop();
}
END_TEST

// What a connection was trusted or shown for does not hold for a call with other certificates.
START_TEST(calls_with_other_certificates_share_no_connection) {
    static const char *const loopback[] = {"127.0.0.0/8"};
    struct tls_server tls;
    tls_server_start(&tls, "IP:127.0.0.1"); // it serves one connection at a time: a second gets no handshake
    start(loopback, 1, tls.ca_file);
    struct result result = post_tls(&tls);
    CHECK_FAILURE(result, HTTP_OK);
    char *certificate;
    char *key;
    tls_identity_make(&certificate, &key);
    char url[64];
    snprintf(url, sizeof url, "https://127.0.0.1:%d/hook", tls.port);
    struct http_call call = usual;
    call.url = url;
    call.connect_ms = 100;
    call.ca_pem = certificate; // of somebody else
    result = post(call);
    CHECK_FAILURE(result, HTTP_TLS);
    call.ca_pem = NULL;
    call.certificate_pem = certificate;
    call.key_pem = key;
    result = post(call);
    CHECK_FAILURE(result, HTTP_TLS);
    ck_assert_uint_eq(http_client_connections_opened(client), 3);
    result = post_tls(&tls);
    CHECK_FAILURE(result, HTTP_OK);
    ck_assert_uint_eq(http_client_connections_opened(client), 3);
    free(certificate);
    free(key);
    stop();
    tls_server_stop(&tls);
}
END_TEST

struct opening {
    struct http_connection *connection;
    bool ended;
};

static void on_opened(void *user) {
    ((struct opening *)user)->ended = true;
    uv_stop(&loop);
}

static void on_ready(void *user, int events) {
    (void)user, (void)events;
}

static int listener_make(const char *host, int port, int backlog) {
    struct sockaddr_in address;
    uv_ip4_addr(host, port, &address);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(listener, backlog), 0);
    return listener;
}

// Of several addresses, those that refuse and those that do not answer are passed over, and no descriptor of theirs
// stays behind.
START_TEST(the_next_address_is_tried) {
    static const char *const lists[][3] = {{"127.0.0.2", "127.0.0.3", "127.0.0.1"},
                                           {"127.0.0.4", "127.0.0.1", "127.0.0.1"},
                                           {"::1", "127.0.0.1", "127.0.0.1"}};
    static const char *const allowed[] = {"127.0.0.0/8", "::1/128"};
    start(allowed, 2, NULL);
    int deaf = listener_make("127.0.0.4", server.port, 0);
    struct sockaddr_in address;
    uv_ip4_addr("127.0.0.4", server.port, &address);
    int filler = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(filler, (struct sockaddr *)&address, sizeof address), 0);

    struct http_pool *pool = http_pool_new(
        &loop,
        &(struct http_pool_options){.egress = &egress, .max_connections = 10, .opened = on_opened, .ready = on_ready});
    struct http_target target = {.host = "several.test", .origin = "http://several.test"};
    snprintf(target.port, sizeof target.port, "%d", server.port);
    for (int round = 0; round < 2; round++) {
        struct resolver_answer addresses = {.count = 3};
        for (int i = 0; i < 3; i++)
            if (uv_ip4_addr(lists[_i][i], 0, (struct sockaddr_in *)&addresses.addresses[i]) != 0)
                ck_assert_int_eq(uv_ip6_addr(lists[_i][i], 0, (struct sockaddr_in6 *)&addresses.addresses[i]), 0);
        struct http_connect to = {.target = &target, .addresses = &addresses, .connect_ms = _i == 1 ? 1000 : 4000};
        struct opening opening = {0};
        opening.connection = http_pool_connect(pool, &to, &opening);
        while (!opening.ended)
            uv_run(&loop, UV_RUN_DEFAULT);
        const struct http_connection_facts *facts = http_connection_facts(opening.connection);
        ck_assert_msg(facts->open, "%s", facts->error);
        ck_assert_int_eq(strncmp(facts->peer, "127.0.0.1:", 10), 0);
        ck_assert_double_lt(facts->connect_ms, 1000);
        http_connection_release(opening.connection, false);
    }
    bool closed = false;
    http_pool_close(pool, on_client_closed, &closed);
    while (!closed)
        uv_run(&loop, UV_RUN_ONCE);
    close(filler);
    close(deaf);
    stop();
}
END_TEST

struct lookup {
    int calls;
    size_t count;
    enum error_code code;
};

static void on_lookup(void *arg, const struct resolver_answer *answer, const struct error *error) {
    struct lookup *lookup = arg;
    lookup->calls++;
    lookup->count = answer ? answer->count : 0;
    lookup->code = error ? error->code : ERROR_NONE;
    ck_assert((answer == NULL) != (error == NULL));
}

START_TEST(names_are_looked_up_once) {
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    struct resolver *resolver = resolver_new(&loop);
    struct resolver_answer answer;
    struct lookup lookups[6] = {0};
    ck_assert(resolver_peek(resolver, "::1", &answer));
    ck_assert_int_eq(answer.addresses[0].ss_family, AF_INET6);
    ck_assert(!resolver_peek(resolver, "localhost", &answer));
    static const char *const hosts[] = {"localhost", "localhost", "127.0.0.1", "", "no-such-name.invalid", "localhost"};
    for (int i = 0; i < 6; i++)
        resolver_lookup(resolver, hosts[i], on_lookup, &lookups[i]);
    for (int i = 0; i < 6; i++)
        ck_assert_int_eq(lookups[i].calls, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    static const bool found[] = {true, true, true, false, false, true};
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(lookups[i].calls, 1);
        ck_assert_int_eq(lookups[i].count > 0, found[i]);
        ck_assert_int_eq(lookups[i].code, found[i] ? ERROR_NONE : ERROR_CONNECT);
    }
    ck_assert(resolver_peek(resolver, "localhost", &answer));
    ck_assert(!resolver_peek(resolver, "no-such-name.invalid", &answer));
    resolver_lookup(resolver, "another-name.invalid", on_lookup, &lookups[0]);
    resolver_close(resolver);
    ck_assert_int_eq(lookups[0].calls, 1);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(lookups[0].calls, 2);
    ck_assert_int_eq(lookups[0].code, ERROR_CANCELLED);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *client_case = suite_case(suite, "http_client", 20);
    tcase_add_test(client_case, a_post_is_what_was_given);
    tcase_add_loop_test(client_case, no_form_of_a_forbidden_address_is_reached, 0,
                        (int)(sizeof forbidden_hosts / sizeof *forbidden_hosts));
    tcase_add_loop_test(client_case, urls_that_are_not_for_webhooks_are_refused, 0,
                        (int)(sizeof forbidden_urls / sizeof *forbidden_urls));
    tcase_add_test(client_case, http_needs_to_be_allowed);
    tcase_add_test(client_case, headers_cannot_carry_a_line_break);
    tcase_add_test(client_case, redirects_are_not_followed);
    tcase_add_test(client_case, a_name_goes_to_its_allowed_address);
    tcase_add_test(client_case, a_name_without_an_address_is_dns);
    tcase_add_test(client_case, a_dripping_body_costs_one_deadline);
    tcase_add_test(client_case, a_dripping_head_costs_one_deadline);
    tcase_add_test(client_case, an_endless_body_is_cut_and_its_status_counts);
    tcase_add_test(client_case, a_silent_receiver_costs_one_deadline);
    tcase_add_test(client_case, a_peer_that_takes_no_connection_is_connect);
    tcase_add_test(client_case, a_connection_that_is_closed_while_it_opens_is_connect);
    tcase_add_test(client_case, a_refused_port_is_connect);
    tcase_add_loop_test(client_case, too_many_header_bytes_are_a_bad_answer, 0, 4);
    tcase_add_test(client_case, header_limit_is_16_kib);
    tcase_add_loop_test(client_case, what_is_no_answer_is_a_failure, 0,
                        (int)(sizeof wrong_answers / sizeof *wrong_answers));
    tcase_add_test(client_case, the_answer_is_handed_over);
    tcase_add_test(client_case, trailers_are_not_headers);
    tcase_add_test(client_case, a_zero_byte_in_a_header_is_a_bad_answer);
    tcase_add_test(client_case, body_limit_is_64_kib);
    tcase_add_test(client_case, a_cut_character_is_replaced);
    tcase_add_test(client_case, compressed_bodies_are_not_expanded);
    tcase_add_test(client_case, connections_are_used_again);
    tcase_add_test(client_case, a_kept_connection_that_was_closed_is_replaced);
    tcase_add_test(client_case, no_request_is_repeated_behind_our_back);
    tcase_add_test(client_case, closing_cancels_what_is_in_flight);
    tcase_add_test(client_case, a_call_may_be_sent_from_a_callback);
    tcase_add_test(client_case, tls_is_verified);
    tcase_add_test(client_case, tls_with_a_trusted_certificate_works);
    tcase_add_loop_test(client_case, tls_answers_in_pieces, 0, (int)(sizeof tls_answers / sizeof *tls_answers));
    tcase_add_test(client_case, tls_takes_a_large_request);
    tcase_add_test(client_case, a_renegotiation_does_not_spin);
    tcase_add_test(client_case, tls_for_another_name_is_refused);
    tcase_add_test(client_case, tls_with_a_peer_that_speaks_http_is_tls);
    tcase_add_test(client_case, an_answer_may_end_with_its_connection);
    tcase_add_test(client_case, a_204_or_304_has_no_body);
    tcase_add_loop_test(client_case, bytes_after_an_answer_end_the_connection, 0, 3);
    tcase_add_loop_test(client_case, a_request_may_be_answered_before_its_end, 0, 2);
    tcase_add_test(client_case, a_connection_idles_three_seconds);
    tcase_add_test(client_case, calls_with_other_certificates_share_no_connection);
    tcase_add_loop_test(client_case, the_next_address_is_tried, 0, 3);
    tcase_add_test(client_case, names_are_looked_up_once);
}

int main(void) {
    return suite_main("http_client", add_tests);
}
