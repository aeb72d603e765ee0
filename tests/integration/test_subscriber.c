// Subscribers on real sockets, without a gateway around them: what a socket that takes nothing does to itself and to
// others (G7), and that a turn is one write.
#include "gateway/metrics.h"
#include "gateway/subscriber.h"
#include "tests/support/fixture.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STALL_MS = 1500 };

static const struct metric metrics[] = {
#define METRIC(kind, id, name, labels, help) [METRIC_##id] = {METRIC_##kind, name, labels, help},
#include "gateway/metrics.def"
#undef METRIC
};

static uv_loop_t loop;
static struct ring *ring;
static struct subscribers *subscribers;
static int64_t position = 1000;

static void setup(size_t buffer) {
    metrics_init(metrics, GATEWAY_METRIC_COUNT);
    uv_loop_init(&loop);
    ring = ring_new(100000);
    ring_start(ring, position);
    subscribers = subscribers_new(&(struct subscribers_options){.loop = &loop,
                                                                .ring = ring,
                                                                .heartbeat_ms = 3600000,
                                                                .stall_ms = STALL_MS,
                                                                .retry_ms = 3000,
                                                                .buffer = buffer,
                                                                .max_replay = 100});
}

static void teardown(void) {
    subscribers_close(subscribers);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0); // every handle was closed
    ring_free(ring);
    metrics_free();
}

// A TCP connection over loopback, accepted from a listener that is made for streams; the client's end is returned.
static int connect_tuned(uint64_t heartbeat_ms, int *ret_accepted) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int small = 8192; // or the window moves in steps of 64 KiB
    setsockopt(client, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    subscribers_tune(listener, heartbeat_ms);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    ck_assert_int_eq(connect(client, (struct sockaddr *)&address, size), 0);
    *ret_accepted = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    close(listener);
    return client;
}

// Our end is a fresh subscriber, the client's is returned.
static int connected(void) {
    int fd;
    int client = connect_tuned(3600000, &fd);
    uv_tcp_t *socket = calloc(1, sizeof *socket);
    uv_tcp_init(&loop, socket);
    ck_assert_int_eq(uv_tcp_open(socket, fd), 0);
    struct buffer head = {0};
    buffer_text(&head, "HEAD\r\n\r\n");
    subscriber_open(subscribers, socket, &head, &(struct resume_ask){RESUME_ASK_FRESH, 0},
                    &(struct grant){.open = true}, NULL, false, NULL);
    buffer_free(&head);
    return client;
}

static int option_of(int fd, int level, int name) {
    int value = -1;
    socklen_t size = sizeof value;
    ck_assert_int_eq(getsockopt(fd, level, name, &value, &size), 0);
    return value;
}

START_TEST(streams_inherit_their_options_from_the_listener) {
    int quiet, lively;
    int clients[] = {connect_tuned(3600000, &quiet), connect_tuned(15000, &lively)};
    int fds[] = {quiet, lively};
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(option_of(fds[i], SOL_SOCKET, SO_SNDBUF), 2 * 16384); // the kernel doubles what is asked
        ck_assert_int_eq(option_of(fds[i], IPPROTO_TCP, TCP_USER_TIMEOUT), 30000);
    }
    ck_assert_int_eq(option_of(quiet, SOL_SOCKET, SO_KEEPALIVE), 1);
    ck_assert_int_eq(option_of(quiet, IPPROTO_TCP, TCP_KEEPIDLE), 60);
    ck_assert_int_eq(option_of(quiet, IPPROTO_TCP, TCP_KEEPINTVL), 10);
    ck_assert_int_eq(option_of(quiet, IPPROTO_TCP, TCP_KEEPCNT), 3);
    ck_assert_int_eq(option_of(lively, SOL_SOCKET, SO_KEEPALIVE), 0);
    for (int i = 0; i < 2; i++) {
        close(clients[i]);
        close(fds[i]);
    }
}
END_TEST

static void append(int count, int key_bytes) {
    char *key = malloc((size_t)key_bytes + 1);
    memset(key, 'k', (size_t)key_bytes);
    key[key_bytes] = '\0';
    for (int i = 0; i < count; i++) {
        int64_t prev = position++;
        ring_append(ring, frame_new(&(struct stream_entry){
                              .position = position, .prev = prev, .name = "t", .key = key, .op = "update"}));
    }
    free(key);
    subscribers_flush(subscribers);
}

static double disconnects(const char *reason) {
    return metric_value(METRIC_STREAM_DISCONNECTS, reason, NULL);
}

static size_t client_read(int client, char *bytes, size_t size) {
    ssize_t got = recv(client, bytes, size, MSG_DONTWAIT);
    ck_assert(got >= 0 || errno == EAGAIN || errno == ECONNRESET);
    return got > 0 ? (size_t)got : 0;
}

START_TEST(a_socket_that_takes_nothing_is_closed) {
    setup(100000);
    int stuck = connected();
    int quick = connected();
    char *bytes = malloc(1 << 20);
    append(5000, 500); // more than the kernel holds
    uint64_t start = uv_now(&loop);
    while (disconnects("stalled") < 1) {
        uv_run(&loop, UV_RUN_ONCE);
        client_read(quick, bytes, 1 << 20);
        ck_assert_uint_lt(uv_now(&loop) - start, HANG_MS);
    }
    ck_assert_uint_ge(uv_now(&loop) - start, STALL_MS);
    ck_assert_uint_eq(subscribers_count(subscribers), 1); // the other one took something all the time
    free(bytes);
    close(stuck);
    close(quick);
    teardown();
}
END_TEST

START_TEST(a_socket_that_takes_a_little_stays) {
    setup(100000);
    int client = connected();
    char bytes[20000];
    append(5000, 500);
    // Longer than stall_ms in all, but never that long without taking anything.
    uint64_t start = uv_now(&loop);
    while (uv_now(&loop) - start < 2 * STALL_MS) {
        uv_run(&loop, UV_RUN_ONCE);
        client_read(client, bytes, sizeof bytes);
    }
    ck_assert_uint_eq(subscribers_count(subscribers), 1);
    close(client);
    teardown();
}
END_TEST

START_TEST(what_a_full_socket_gets_is_whole) {
    setup(100000);
    int client = connected();
    enum { EVENTS = 3000, MOST = EVENTS * 700 };
    append(EVENTS, 500);
    char *all = calloc(1, MOST);
    size_t length = 0;
    uint64_t start = uv_now(&loop);
    char last[40];
    snprintf(last, sizeof last, "id: %lld\n", (long long)position);
    while (strstr(all + (length > 2000 ? length - 2000 : 0), last) == NULL) {
        uv_run(&loop, UV_RUN_NOWAIT);
        length += client_read(client, all + length, MOST - 1 - length);
        uv_update_time(&loop);
        ck_assert_uint_lt(uv_now(&loop) - start, HANG_MS);
    }
    int64_t expected = position - EVENTS;
    int count = 0;
    for (const char *at = all; (at = strstr(at, "event: change\nid: ")) != NULL; at++) {
        ck_assert_int_eq(strtoll(at + 18, NULL, 10), ++expected);
        count++;
    }
    ck_assert_int_eq(count, EVENTS);
    free(all);
    close(client);
    teardown();
}
END_TEST

START_TEST(one_that_is_too_far_behind_is_closed_at_once) {
    setup(1000);
    int client = connected();
    append(1000, 500); // allowed: it may take them
    ck_assert_uint_eq(subscribers_count(subscribers), 1);
    append(1000, 500);
    ck_assert_uint_eq(subscribers_count(subscribers), 0);
    ck_assert(disconnects("slow") == 1);
    close(client);
    teardown();
}
END_TEST

START_TEST(clients_that_leave_in_any_way_are_forgotten) {
    setup(100000);
    int clients[60];
    for (int i = 0; i < 60; i++) {
        clients[i] = connected();
    }
    append(1000, 500);
    for (int i = 0; i < 60; i++) {
        struct linger reset = {.l_onoff = i % 3 == 0};
        setsockopt(clients[i], SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        if (i % 3 == 1) {
            shutdown(clients[i], SHUT_WR);
        } else {
            close(clients[i]);
        }
    }
    uint64_t start = uv_now(&loop);
    while (subscribers_count(subscribers) > 0) {
        uv_run(&loop, UV_RUN_ONCE);
        ck_assert_uint_lt(uv_now(&loop) - start, HANG_MS);
    }
    teardown();
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "subscriber", 30);
    tcase_add_test(tcase, streams_inherit_their_options_from_the_listener);
    tcase_add_test(tcase, a_socket_that_takes_nothing_is_closed);
    tcase_add_test(tcase, a_socket_that_takes_a_little_stays);
    tcase_add_test(tcase, what_a_full_socket_gets_is_whole);
    tcase_add_test(tcase, one_that_is_too_far_behind_is_closed_at_once);
    tcase_add_test(tcase, clients_that_leave_in_any_way_are_forgotten);
}

int main(void) {
    return suite_main("gateway", add_tests);
}
