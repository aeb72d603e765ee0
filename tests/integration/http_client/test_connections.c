// Names, addresses, and connections that are made, kept and closed.
#include "common/http_connection.h"
#include "common/resolver.h"
#include "tests/integration/http_client/world.h"
#include "tests/support/loop.h"
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

START_TEST(a_name_goes_to_its_allowed_address) {
    start_allowing_loopback(); // "localhost" is ::1 as well, which is denied
    struct result result = post_to(url_to("localhost", "/"));
    CHECK_FAILURE(result, HTTP_OK);
    ck_assert_int_eq(strncmp(result.outcome.peer, "127.0.0.1:", 10), 0);
    ck_assert(strstr(server.last_request, "\r\nHost: localhost:"));
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
    ck_assert_str_eq(result.outcome.error, "dns nxdomain: no-such-name.invalid: there is no such name");
    stop();
}
END_TEST

// A listener whose accept queue holds one connection, and its URL.
static int listen_without_queue(struct sockaddr_in *ret_address, char *ret_url, size_t size) {
    *ret_address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof *ret_address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)ret_address, length), 0);
    ck_assert_int_eq(listen(listener, 0), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)ret_address, &length), 0);
    snprintf(ret_url, size, "http://127.0.0.1:%d/", ntohs(ret_address->sin_port));
    return listener;
}

START_TEST(a_peer_that_takes_no_connection_is_connect) {
    start_allowing_loopback();
    // A full accept queue: the kernel drops further SYNs.
    struct sockaddr_in address;
    char url[64];
    int listener = listen_without_queue(&address, url, sizeof url);
    int fillers[4];
    for (int i = 0; i < 4; i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(fillers[i], (struct sockaddr *)&address, sizeof address);
    }
    struct http_call call = usual;
    call.url = url;
    call.connect_ms = 200;
    for (int i = 0; i < 3; i++) { // libcurl closes such a socket without a word, and its number comes back
        struct result result = post(call);
        CHECK_FAILURE(result, HTTP_CONNECT); // and not the timeout that it would be at the deadline
        ck_assert_double_eq(result.outcome.connect_ms, -1);
    }
    call.connect_ms = HANG_MS / 2;
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
    struct sockaddr_in address;
    char url[64];
    int listener = listen_without_queue(&address, url, sizeof url);
    int filler = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(filler, (struct sockaddr *)&address, sizeof address), 0);
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

struct opening {
    struct http_connection *connection;
    int ended;
};

static void on_opened(void *user) {
    ((struct opening *)user)->ended++;
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
    struct http_target target = {.host = "several.test"};
    snprintf(target.port, sizeof target.port, "%d", server.port);
    snprintf(target.origin, sizeof target.origin, "http://several.test:%d", server.port);
    for (int round = 0; round < 2; round++) {
        struct resolver_answer addresses = {.count = 3};
        for (int i = 0; i < 3; i++)
            if (uv_ip4_addr(lists[_i][i], 0, &addresses.addresses[i].v4) != 0)
                ck_assert_int_eq(uv_ip6_addr(lists[_i][i], 0, &addresses.addresses[i].v6), 0);
        // Who refuses is not waited for: of that time, an address that says nothing may take half.
        struct http_connect to = {.target = &target, .addresses = &addresses, .connect_ms = _i == 1 ? 4000 : HANG_MS};
        struct opening opening = {0};
        opening.connection = http_pool_connect(pool, &to, &opening);
        loop_turn_until(&loop, &opening.ended, 1, HANG_MS / 4, "a connection");
        const struct http_connection_facts *facts = http_connection_facts(opening.connection);
        ck_assert_msg(facts->open, "%s", facts->error);
        ck_assert_int_eq(strncmp(facts->peer, "127.0.0.1:", 10), 0);
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

void connections_tests(Suite *suite) {
    TCase *connections = suite_case(suite, "connections", 20);
    tcase_add_test(connections, a_name_goes_to_its_allowed_address);
    tcase_add_test(connections, a_name_without_an_address_is_dns);
    tcase_add_test(connections, a_peer_that_takes_no_connection_is_connect);
    tcase_add_test(connections, a_connection_that_is_closed_while_it_opens_is_connect);
    tcase_add_test(connections, a_refused_port_is_connect);
    tcase_add_test(connections, connections_are_used_again);
    tcase_add_test(connections, a_kept_connection_that_was_closed_is_replaced);
    tcase_add_test(connections, a_connection_idles_three_seconds);
    tcase_add_loop_test(connections, the_next_address_is_tried, 0, 3);
}
