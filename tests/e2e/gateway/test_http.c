// Requests that are no stream, and starts that cannot work.
#include "tests/e2e/gateway/world.h"
#include <stdio.h>
#include <string.h>

START_TEST(requests_that_are_wrong) {
    fresh_database();
    struct gateway gateway = gateway_start(NULL);
    int port = gateway.port;
    const char *tail = "Host: localhost\r\nConnection: close\r\n\r\n";
    const char *answer = request(port, "GET /events?tabel=posts HTTP/1.1\r\n%s", tail);
    check_has(answer, "HTTP/1.1 400 ");
    check_has(answer, "\"tabel\"");
    check_has(request(port, "GET /events?ping=yes HTTP/1.1\r\n%s", tail), "HTTP/1.1 400 ");
    check_has(request(port, "GET /events?table= HTTP/1.1\r\n%s", tail), "HTTP/1.1 400 ");
    check_has(request(port, "GET /events?table=%%zz HTTP/1.1\r\n%s", tail), "HTTP/1.1 400 ");
    // A lost filter would widen the stream.
    static const char *const filters[] = {"tables=a",   "table[]=a",   "Table=a",
                                          "scope=acme", "scopes=acme", "_=1&tables=a"};
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
        check_has(request(port, "GET /events?%s HTTP/1.1\r\n%s", filters[i], tail), "HTTP/1.1 400 ");
    }
    check_has(request(port, "GET /event HTTP/1.1\r\n%s", tail), "HTTP/1.1 404 ");
    check_has(request(port, "GET / HTTP/1.1\r\n%s", tail), "HTTP/1.1 404 ");        // no --demo
    check_has(request(port, "GET /metrics HTTP/1.1\r\n%s", tail), "HTTP/1.1 404 "); // the admin listener's
    answer = request(port, "POST /events HTTP/1.1\r\nContent-Length: 0\r\n%s", tail);
    check_has(answer, "HTTP/1.1 405 ");
    check_has(answer, "\r\nAllow: GET, HEAD, OPTIONS\r\n");
    check_has(request(port, "GET /events HTTP/1.1\r\nAccept: application/json\r\n%s", tail), "HTTP/1.1 406 ");
    answer = request(port, "HEAD /events HTTP/1.1\r\n%s", tail);
    check_has(answer, "HTTP/1.1 200 ");
    check_has(answer, "text/event-stream");
    ck_assert_str_eq(strstr(answer, "\r\n\r\n"), "\r\n\r\n");
    answer = request(port, "OPTIONS /events HTTP/1.1\r\n%s", tail);
    check_has(answer, "HTTP/1.1 204 ");
    check_has(answer, "\r\nAllow: GET, HEAD, OPTIONS\r\n");
    ck_assert_ptr_null(strstr(answer, "Access-Control"));
}
END_TEST

START_TEST(cors_is_a_list) {
    fresh_database();
    struct gateway gateway =
        gateway_start(WITH("--cors-origin", "https://a.example", "--cors-origin", "https://b.example"));
    struct sse_client *listed = sse_open(gateway.port, "/events", "Origin: https://b.example\r\n");
    sse_wait(listed, "\r\nAccess-Control-Allow-Origin: https://b.example\r\n", SOON_MS);
    check_has(sse_bytes(listed), "\r\nVary: Origin\r\n");
    struct sse_client *other = sse_open(gateway.port, "/events", "Origin: https://evil.example\r\n");
    sse_wait(other, "\nid: ", SOON_MS);
    ck_assert_ptr_null(strstr(sse_bytes(other), "Access-Control"));
    const char *answer =
        request(gateway.port, "OPTIONS /events HTTP/1.1\r\nHost: localhost\r\nOrigin: https://a.example\r\n"
                              "Access-Control-Request-Method: GET\r\nConnection: close\r\n\r\n");
    check_has(answer, "\r\nAccess-Control-Allow-Headers: Last-Event-ID");
}
END_TEST

START_TEST(documents_and_the_demo_page) {
    fresh_database();
    struct gateway gateway = gateway_start(WITH("--demo"));
    static const struct {
        const char *path;
        const char *holds;
    } files[] = {{"/openapi.json", "\"history_expired\""},
                 {"/", "id=\"changes\""},
                 {"/demo.js", "connect(\"/events\""},
                 {"/rowbell.js", "export function connect("},
                 {"/demo.css", "prefers-color-scheme"}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char url[100];
        const char *body;
        snprintf(url, sizeof url, "http://127.0.0.1:%d%s", gateway.port, files[i].path);
        ck_assert_int_eq(http_get(url, &body), 200);
        check_has(body, files[i].holds);
    }
}
END_TEST

// ---- starting ----

static void check_start(int expected, const char *const *arguments, const char *message) {
    const char *out;
    const char *err;
    int status = program_run("rowbell-gateway", arguments, &out, &err);
    ck_assert_msg(status == expected, "status %d, not %d: %s", status, expected, err);
    check_has(err, message);
    check_has(err, "rowbell-gateway: ");
}

START_TEST(starts_that_cannot_work) {
    check_start(3,
                WITH("--auth", "none", "--listen", "127.0.0.1:0", "--database-url", "postgres://nobody@127.0.0.1:1/x"),
                "refused");
    const char *empty = fixture_empty_database();
    check_start(4, WITH("--auth", "none", "--listen", "127.0.0.1:0", "--database-url", empty), "rowbell migrate");
    fresh_database();
    char wrong[300];
    snprintf(wrong, sizeof wrong, "postgres://postgres:wrong-password@127.0.0.1:%s/%s", PQport(db), PQdb(db));
    check_start(3, WITH("--auth", "none", "--listen", "127.0.0.1:0", "--database-url", wrong), "password");
    struct gateway gateway = gateway_start(NULL);
    char taken[40];
    snprintf(taken, sizeof taken, "127.0.0.1:%d", gateway.port);
    check_start(1, WITH("--auth", "none", "--listen", taken), "address already in use");
    check_start(2, WITH("--listen", "127.0.0.1:0"), "--auth must be said");
    check_start(2, WITH("--auth", "none", "--listen", "0.0.0.0:0"), "--allow-anonymous");
    check_start(2, WITH("--auth", "none", "--listen", "localhost:80"), "--listen");
    check_start(2, WITH("--auth", "jwt"), "--auth jwt");
    check_start(2, WITH("--auth", "none", "--redis-url", "http://x"), "--redis-url");
    check_start(2, WITH("--auth", "none", "--trusted-proxy", "10.0.0.0/99"), "--trusted-proxy");
    check_start(2, WITH("--auth", "none", "--cors-origin", "*"), "--cors-origin");
    check_start(2, WITH("--auth", "none", "--ring", "0"), "--ring");
    check_start(2, WITH("--no-such-flag"), "--no-such-flag");
}
END_TEST

START_TEST(anonymous_beyond_loopback_when_told_so) {
    fresh_database();
    struct daemon *daemon =
        daemon_start("rowbell-gateway", WITH("--listen", "0.0.0.0:0", "--auth", "none", "--allow-anonymous"));
    daemon_wait_log(daemon, "stream_ready", SOON_MS);
}
END_TEST

void http_tests(Suite *suite) {
    TCase *http = suite_case(suite, "http", 60);
    tcase_add_test(http, requests_that_are_wrong);
    tcase_add_test(http, cors_is_a_list);
    tcase_add_test(http, documents_and_the_demo_page);
    TCase *starting = suite_case(suite, "starting", 60);
    tcase_add_test(starting, starts_that_cannot_work);
    tcase_add_test(starting, anonymous_beyond_loopback_when_told_so);
}
