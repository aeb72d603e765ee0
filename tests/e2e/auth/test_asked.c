// --auth callout and --auth header: somebody else says who it is.
#include "common/clock.h"
#include "tests/e2e/auth/world.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>

// ---- callout ----

static struct gateway callout_gateway(const char *timeout) {
    const char *url = app_start("/rowbell/auth?x=1");
    fresh_database();
    return gateway_told_all(WITH("--auth", "callout", "--callout-url", url, "--callout-timeout", timeout));
}

START_TEST(the_application_admits) {
    struct gateway gateway = callout_gateway("60s");
    app_answer(200, "{\"scopes\":[\"acme\",\"*\"],\"tables\":[\"posts\",\"tags\"],\"expires_in\":300,\"more\":{}}");
    struct sse_client *client =
        open_as(&gateway, "/events?table=posts&table=users",
                "Cookie: sid=1\r\nCookie: t=2\r\nAuthorization: Token abc\r\nX-Other: secret\r\n");
    check_sees_only(&gateway, client, "acme", "globex");
    ck_assert_ptr_nonnull(strstr(app.request, "GET /rowbell/auth?x=1 HTTP/1.1\r\n"));
    ck_assert_msg(strcasestr(app.request, "\r\ncookie: sid=1; t=2\r\n") != NULL, "%s", app.request);
    ck_assert_ptr_nonnull(strcasestr(app.request, "\r\nauthorization: Token abc\r\n"));
    ck_assert_ptr_null(strcasestr(app.request, "x-other"));
    append("'acme'", "users", "users-", 1); // asked for, not allowed
    append("'acme'", "tags", "tags-", 1);   // allowed, not asked for
    append("'acme'", "posts", "posts-", 1);
    sse_wait(client, "posts-0", SOON_MS);
    ck_assert(!has(client, "users-") && !has(client, "tags-"));
    ck_assert_int_eq(atomic_load(&app.count), 1); // one request a connection
    app_answer(200, "{\"scopes\":\"acme\",\"tables\":[]}");
    client = open_as(&gateway, "/events", "X: y\r\n");
    sse_wait(client, ": rowbell\n\n", SOON_MS);
    struct sse_client *other;
    app_answer(200, "{\"scopes\":\"acme\"}");
    other = open_as(&gateway, "/events", "X: y\r\n");
    sse_wait(other, ": rowbell\n\n", SOON_MS);
    append("'acme'", "posts", "again-", 1);
    sse_wait(other, "again-0", SOON_MS);
    ck_assert(!has(client, "event: change")); // no table
    app_stop();
}
END_TEST

START_TEST(the_application_refuses_or_fails) {
    struct gateway gateway = callout_gateway("60s");
    app_answer(401, "{\"scopes\":[\"acme\"]}");
    ck_assert_int_eq(status_of(open_as(&gateway, "/events", "X: y\r\n")), 401);
    app_answer(403, "");
    ck_assert_int_eq(status_of(open_as(&gateway, "/events", "X: y\r\n")), 403);
    static const struct {
        int status;
        const char *body;
    } failures[] = {
        {500, "{\"scopes\":[\"acme\"]}"},
        {302, ""},
        {204, ""},
        {404, ""},
        {200, ""},
        {200, "[]"},
        {200, "true"},
        {200, "{\"scopes\":[\"acme\"]"},
        {200, "{\"scopes\":{\"acme\":true}}"},
        {200, "{\"scopes\":[\"acme\"],\"scopes\":[\"globex\"]}"},
        {200, "{\"scopes\":[\"acme\"],\"tables\":\"posts\"}"},
        {200, "{\"scopes\":[\"acme\"],\"tables\":[1]}"},
        {200, "{\"scopes\":[\"acme\"],\"expires_in\":0}"},
        {200, "{\"scopes\":[\"acme\"],\"expires_in\":-1}"},
        {200, "{\"scopes\":[\"acme\"],\"expires_in\":\"300\"}"},
    };
    for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++) {
        app_answer(failures[i].status, failures[i].body);
        check_come_again(open_as(&gateway, "/events", "Authorization: Bearer kept-secret\r\n"));
    }
    app_stop();
    check_come_again(open_as(&gateway, "/events", "Cookie: kept-secret\r\n")); // nobody listens
    app_listen();
    app_answer(200, "{\"scopes\":[\"acme\"]}");
    check_sees_only(&gateway, open_as(&gateway, "/events", "X: y\r\n"), "acme", "globex");
    app_stop();
    daemon_signal(gateway.daemon, SIGTERM);
    daemon_wait_exit(gateway.daemon, SOON_MS);
    ck_assert_ptr_null(strstr(gateway.daemon->log, "kept-secret"));
}
END_TEST

START_TEST(an_application_that_is_silent_is_not_waited_for_for_ever) {
    struct gateway gateway = callout_gateway("500ms");
    app_answer(0, "");
    check_come_again(open_as(&gateway, "/events", "X: y\r\n"));
    app_stop();
}
END_TEST

START_TEST(what_the_application_admits_ends) {
    struct gateway gateway = callout_gateway("60s");
    app_answer(200, "{\"scopes\":[\"acme\"],\"expires_in\":1}");
    struct sse_client *client = open_as(&gateway, "/events", "X: y\r\n");
    ck_assert_int_eq(status_of(client), 200);
    wait_closed(client, HANG_MS);
    ck_assert(has(client, "retry: "));
    app_answer(401, "");
    ck_assert_int_eq(status_of(open_as(&gateway, "/events", "Last-Event-ID: 1\r\n")), 401);
    app_stop();
}
END_TEST

START_TEST(a_gateway_ends_in_time_while_the_application_is_silent) {
    struct gateway gateway = callout_gateway("60s");
    app_answer(0, "");
    struct sse_client *client = open_as(&gateway, "/events", "X: y\r\n");
    uint64_t end = clock_ms() + SOON_MS;
    while (atomic_load(&app.count) == 0) {
        ck_assert_uint_lt(clock_ms(), end);
    }
    daemon_signal(gateway.daemon, SIGTERM);
    ck_assert_int_eq(daemon_wait_exit(gateway.daemon, HANG_MS), 0);
    check_come_again(client);
    app_stop();
}
END_TEST

// ---- header ----

START_TEST(a_proxy_s_header_is_believed) {
    fresh_database();
    struct gateway gateway =
        gateway_told_all(WITH("--auth", "header", "--trusted-peer", "127.0.0.1/32", "--trusted-peer", "10.0.0.0/8"));
    check_sees_only(&gateway, open_as(&gateway, "/events", "X-Rowbell-Scopes: acme, initech\r\n"), "acme", "globex");
    check_sees_only(&gateway, open_as(&gateway, "/events", "x-rowbell-scopes: acme, initech\r\n"), "initech", "globex");
    check_sees_only(&gateway, open_as(&gateway, "/events", "X-Rowbell-Scopes: a%%2Cb%%C3%%A9\r\n"), "a,b\u00e9", "a");
    ck_assert_int_eq(status_of(open_as(&gateway, "/events", "X: y\r\n")), 401);
    ck_assert_int_eq(status_of(open_as(&gateway, "/events", "X-Rowbell-Scopes: acme\r\nX-Rowbell-Scopes: globex\r\n")),
                     403);
    static const char *const bad[] = {"a%", "a%4", "a%zz", "%00", "%ff", "a%2"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_int_eq(status_of(open_as(&gateway, "/events", "X-Rowbell-Scopes: acme,%s\r\n", bad[i])), 403);
    }
    struct sse_client *nothing = open_as(&gateway, "/events", "X-Rowbell-Scopes: *, ,\r\n");
    struct sse_client *acme = open_as(&gateway, "/events", "X-Rowbell-Scopes: acme\r\n");
    sse_wait(nothing, ": rowbell\n\n", SOON_MS);
    sse_wait(acme, ": rowbell\n\n", SOON_MS);
    append("'*'", "posts", "everyone-", 1);
    append("'acme'", "posts", "last-", 1);
    sse_wait(acme, "last-0", SOON_MS);
    ck_assert(!has(nothing, "event: change"));
}
END_TEST

START_TEST(a_foreign_peer_s_header_is_not) {
    fresh_database();
    struct gateway gateway = gateway_told_all(WITH("--auth", "header", "--trusted-peer", "127.0.0.2/32"));
    struct sse_client *client =
        open_as(&gateway, "/events", "X-Rowbell-Scopes: acme\r\nX-Forwarded-For: 127.0.0.2\r\n");
    ck_assert_int_eq(status_of(client), 403);
    ck_assert_int_eq(status_of(open_as(&gateway, "/events", "X: y\r\n")), 403);
}
END_TEST

void asked_tests(Suite *suite) {
    TCase *callout = suite_case(suite, "callout", 60);
    tcase_add_test(callout, the_application_admits);
    tcase_add_test(callout, the_application_refuses_or_fails);
    tcase_add_test(callout, an_application_that_is_silent_is_not_waited_for_for_ever);
    tcase_add_test(callout, what_the_application_admits_ends);
    tcase_add_test(callout, a_gateway_ends_in_time_while_the_application_is_silent);
    TCase *header = suite_case(suite, "header", 60);
    tcase_add_test(header, a_proxy_s_header_is_believed);
    tcase_add_test(header, a_foreign_peer_s_header_is_not);
}
