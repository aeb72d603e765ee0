// The HTTP server and the admin endpoint on real sockets. Server and client share this thread: the client's sockets do
// not block, and the loop is turned until the expected bytes are there.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include "common/admin_endpoint.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "common/http_server.h"
#include "common/metrics.h"
#include "tests/support/fixture.h"

static uv_loop_t loop;
static struct http_server *server;
static struct http_exchange *waiting; // of /later
static uv_tcp_t *taken;               // of /stream
static int handled;
static bool closed;

static void handle(void *arg, struct http_exchange *exchange, const struct http_request *request) {
    struct buffer body = {0};
    handled++;
    if (strcmp(request->path, "/later") == 0) {
        waiting = exchange;
        return;
    }
    if (strcmp(request->path, "/stream") == 0) {
        taken = http_exchange_take(exchange);
        ck_assert_str_eq(request->path, "/stream"); // still readable until the handler returns
        return;
    }
    if (strcmp(request->path, "/big") == 0) {
        size_t length = (size_t)atoi(request->query);
        char *bytes = malloc(length);
        memset(bytes, 'x', length);
        http_exchange_respond(exchange, 200, "text/plain", NULL, bytes, length);
        free(bytes);
        return;
    }
    buffer_format(&body, "%s %s?%s %s %.*s", request->method, request->path, request->query,
                  http_exchange_peer(exchange), (int)request->body_length, request->body);
    http_exchange_respond(exchange, 200, "text/plain", "X-Extra: 1\r\n", body.bytes, body.length);
    buffer_free(&body);
}

static void start_server(struct http_server_options options) {
    struct error error = {0};
    uv_loop_init(&loop);
    options.listen = options.listen == NULL ? "127.0.0.1:0" : options.listen;
    options.handle = handle;
    server = http_server_new(&loop, &options, &error);
    ck_assert_msg(server != NULL, "%s", error.text);
}

static void on_closed(void *arg) {
    closed = true;
}

// Waits until the loop or fd (-1: none) has something to do, and turns the loop.
static void turn_or(int fd) {
    struct pollfd fds[2] = {{.fd = uv_backend_fd(&loop), .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    int timeout_ms = uv_backend_timeout(&loop);
    poll(fds, 2, timeout_ms < 0 || timeout_ms > 20 ? 20 : timeout_ms);
    uv_run(&loop, UV_RUN_NOWAIT);
}

static void turn(void) {
    turn_or(-1);
}

// Turns the loop until it has nothing to do: what was sent on loopback has arrived when send() returns. Two quiet
// turns, since libuv starts to watch a new socket only in the turn after.
static void settle(void) {
    struct pollfd backend = {.fd = uv_backend_fd(&loop), .events = POLLIN};
    for (int quiet = 0; quiet < 2; quiet++) {
        uv_run(&loop, UV_RUN_NOWAIT);
        if (poll(&backend, 1, 0) > 0)
            quiet = -1;
    }
}

// Closes the server; every handle and block of it must be gone then (a leak shows under the sanitizer).
static void stop_server(void) {
    uint64_t until_ms = clock_ms() + HANG_MS;
    http_server_close(server, on_closed, NULL);
    while (!closed && clock_ms() < until_ms)
        turn();
    ck_assert_msg(closed, "the server is not closed in time");
    while (uv_loop_alive(&loop) && clock_ms() < until_ms)
        turn();
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

struct client {
    int fd;
    struct buffer got;
    bool ended; // by the server
};

static struct client client_open(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct client client = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    ck_assert_msg(client.fd >= 0, "socket: %s", strerror(errno));
    ck_assert_int_eq(connect(client.fd, (struct sockaddr *)&address, sizeof address), 0);
    fcntl(client.fd, F_SETFL, O_NONBLOCK);
    return client;
}

static void client_read(struct client *client) {
    char bytes[65536];
    ssize_t count;
    while ((count = read(client->fd, bytes, sizeof bytes)) > 0)
        buffer_append(&client->got, bytes, (size_t)count);
    if (count == 0 || errno == ECONNRESET)
        client->ended = true;
}

static void client_send(struct client *client, const char *text) {
    ck_assert_int_eq(send(client->fd, text, strlen(text), MSG_NOSIGNAL), (int)strlen(text));
}

static int times(const char *text, const char *part) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part))
        count++;
    return count;
}

// Turns the loop until text came `count` times (NULL: until the server closes the connection).
static void client_wait(struct client *client, const char *text, int count) {
    uint64_t until_ms = clock_ms() + HANG_MS;
    do {
        turn_or(client->fd);
        client_read(client);
        if (text == NULL ? client->ended : times(buffer_cstr(&client->got), text) >= count)
            return;
    } while (clock_ms() < until_ms);
    ck_abort_msg("no %s in time; got: %.500s", text == NULL ? "close" : text, buffer_cstr(&client->got));
}

static void client_close(struct client *client) {
    close(client->fd);
    buffer_free(&client->got);
}

// One request on a connection of its own, until the server closes it.
static void expect_refusal(const char *bytes, size_t length, const char *status_line) {
    struct client client = client_open(http_server_port(server));
    for (size_t at = 0; at < length;) { // in pieces: the refusal comes early, and a reset would fail the next piece
        size_t piece = length - at < 10000 ? length - at : 10000;
        ssize_t sent = send(client.fd, bytes + at, piece, MSG_NOSIGNAL);
        ck_assert_msg(sent > 0 || errno == EAGAIN, "send: %s", strerror(errno));
        at += sent > 0 ? (size_t)sent : 0;
        settle();
    }
    client_wait(&client, NULL, 1);
    ck_assert_msg(strncmp(buffer_cstr(&client.got), status_line, strlen(status_line)) == 0, "%s instead of %s",
                  buffer_cstr(&client.got), status_line);
    ck_assert_ptr_nonnull(strstr(client.got.bytes, "\r\nConnection: close\r\n"));
    client_close(&client);
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"

START_TEST(answers_have_the_headers_of_their_protocol) {
    start_server((struct http_server_options){0});
    struct client client = client_open(http_server_port(server));
    time_t before = time(NULL);
    client_send(&client, GET("/a%20b?q"));
    client_wait(&client, "GET /a b?q 127.0.0.1 ", 1);
    const char *got = client.got.bytes;
    ck_assert(strncmp(got, "HTTP/1.1 200 OK\r\nDate: ", 23) == 0);
    struct tm tm = {0};
    const char *rest = strptime(strstr(got, "Date: ") + 6, "%a, %d %b %Y %H:%M:%S GMT\r\n", &tm);
    ck_assert_ptr_nonnull(rest);
    ck_assert(before - 1 <= timegm(&tm) && timegm(&tm) <= time(NULL)); // made once a second
    ck_assert_ptr_nonnull(strstr(got, "\r\nContent-Type: text/plain\r\nContent-Length: 21\r\nX-Extra: 1\r\n"));
    ck_assert_ptr_nonnull(strstr(got, "\r\nConnection: keep-alive\r\n\r\n"));
    client_close(&client);
    stop_server();
}
END_TEST

START_TEST(a_connection_serves_many_requests) {
    start_server((struct http_server_options){0});
    struct client client = client_open(http_server_port(server));
    for (int i = 1; i <= 5; i++) {
        client_send(&client, "POST /n HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
        client_wait(&client, "POST /n? 127.0.0.1 hello", i);
    }
    ck_assert(!client.ended);
    client_send(&client, "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    client_wait(&client, NULL, 1);
    ck_assert_ptr_nonnull(strstr(client.got.bytes, "Connection: close\r\n\r\nGET /last"));
    client_close(&client);
    stop_server();
}
END_TEST

START_TEST(http_1_0_closes_unless_asked) {
    start_server((struct http_server_options){0});
    struct client client = client_open(http_server_port(server));
    client_send(&client, "GET /1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    client_wait(&client, "Connection: keep-alive\r\n\r\nGET /1", 1);
    client_send(&client, "GET /2 HTTP/1.0\r\n\r\n");
    client_wait(&client, NULL, 1);
    ck_assert_ptr_nonnull(strstr(client.got.bytes, "Connection: close\r\n\r\nGET /2"));
    client_close(&client);
    stop_server();
}
END_TEST

START_TEST(head_has_the_length_and_no_body) {
    start_server((struct http_server_options){0});
    struct client client = client_open(http_server_port(server));
    client_send(&client, "HEAD /big?1234 HTTP/1.1\r\nHost: a\r\n\r\n" GET("/next"));
    client_wait(&client, "GET /next", 1);
    const char *end = strstr(client.got.bytes, "\r\n\r\n");
    ck_assert_ptr_nonnull(strstr(client.got.bytes, "Content-Length: 1234\r\n"));
    ck_assert(strncmp(end + 4, "HTTP/1.1 200", 12) == 0);
    client_close(&client);
    stop_server();
}
END_TEST

START_TEST(pipelined_requests_are_answered_in_order) {
    start_server((struct http_server_options){0});
    struct client client = client_open(http_server_port(server));
    client_send(&client, GET("/1") GET("/later") GET("/3") GET("/later") GET("/5"));
    client_wait(&client, "GET /1", 1);
    while (waiting == NULL)
        turn();
    ck_assert_int_eq(handled, 2); // the third waits for the second
    struct http_exchange *exchange = waiting;
    waiting = NULL;
    http_exchange_respond(exchange, 200, NULL, NULL, "first", 5);
    client_wait(&client, "GET /3", 1);
    ck_assert_ptr_nonnull(waiting);
    http_exchange_respond(waiting, 204, NULL, NULL, NULL, 0);
    client_wait(&client, "GET /5", 1);
    const char *no_content = strstr(client.got.bytes, "HTTP/1.1 204 No Content\r\n");
    ck_assert_ptr_nonnull(no_content);
    ck_assert(strstr(client.got.bytes, "first") < strstr(client.got.bytes, "GET /3"));
    ck_assert(strstr(client.got.bytes, "GET /3") < no_content);
    ck_assert_ptr_null(strstr(no_content, "Content-Length: 0"));
    client_close(&client);
    stop_server();
}
END_TEST

START_TEST(a_half_closed_client_gets_its_answers) {
    start_server((struct http_server_options){0});
    struct client client = client_open(http_server_port(server));
    client_send(&client, GET("/1") GET("/2"));
    shutdown(client.fd, SHUT_WR);
    client_wait(&client, NULL, 1);
    ck_assert_ptr_nonnull(strstr(client.got.bytes, "GET /2"));
    client_close(&client);
    stop_server();
}
END_TEST

START_TEST(a_large_answer_waits_for_its_reader) {
    start_server((struct http_server_options){0});
    struct client client = client_open(http_server_port(server));
    client_send(&client, GET("/big?20000000") GET("/after"));
    while (handled == 0)
        turn();
    settle();
    ck_assert_int_eq(handled, 1); // what follows is not read while the socket is full
    client_wait(&client, "GET /after", 1);
    ck_assert_uint_gt(client.got.length, 20000000);
    client_close(&client);
    stop_server();
}
END_TEST

START_TEST(a_reader_may_be_slow_but_not_stand_still) {
    enum { LENGTH = 30000000, PIECE = 100000 };
    start_server((struct http_server_options){.write_timeout_ms = 1000});
    struct client still = client_open(http_server_port(server));
    struct client slow = client_open(http_server_port(server));
    static char piece[PIECE];
    uint64_t before_ms = clock_ms(), next_ms = before_ms;
    size_t got = 0;
    client_send(&still, GET("/big?30000000"));
    client_send(&slow, GET("/big?30000000"));
    while (recv(still.fd, piece, 1, MSG_PEEK) <= 0) // it has begun
        turn();
    // So slow that it outlives the other twice over; then it takes the rest.
    bool hurries = false;
    while (got < LENGTH) {
        turn();
        hurries = hurries || clock_ms() - before_ms > 3000;
        if (clock_ms() < next_ms && !hurries)
            continue;
        ssize_t count = read(slow.fd, piece, PIECE);
        ck_assert_msg(count > 0 || errno == EAGAIN, "cut after %zu bytes", got);
        got += count > 0 ? (size_t)count : 0;
        next_ms += 25;
    }
    client_wait(&still, NULL, 1);
    ck_assert_uint_lt(still.got.length, LENGTH);
    client_close(&still);
    client_close(&slow);
    stop_server();
}
END_TEST

START_TEST(limits_are_answered_with_their_status) {
    start_server((struct http_server_options){0});
    struct buffer wire = {0};
    buffer_text(&wire, "GET / HTTP/1.1\r\nHost: a\r\nX: ");
    for (int i = 0; i < 60000; i++)
        buffer_char(&wire, 'x');
    expect_refusal(wire.bytes, wire.length, "HTTP/1.1 431 Request Header Fields Too Large\r\n");
    buffer_clear(&wire);
    buffer_text(&wire, "GET /");
    for (int i = 0; i < 60000; i++)
        buffer_char(&wire, 'x');
    expect_refusal(wire.bytes, wire.length, "HTTP/1.1 414 URI Too Long\r\n");
    buffer_clear(&wire);
    // The whole body is sent before the answer is read: a reset must not destroy the answer.
    buffer_text(&wire, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
    for (int i = 0; i < 100000; i++)
        buffer_char(&wire, 'x');
    expect_refusal(wire.bytes, wire.length, "HTTP/1.1 413 Content Too Large\r\n");
    buffer_free(&wire);
    static const char *const refused[][2] = {
        {"BREW / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 501 Not Implemented\r\n"},
        {"GET / HTTP/2.0\r\n\r\n", "HTTP/1.1 505 HTTP Version Not Supported\r\n"},
        {"GET /\r\n", "HTTP/1.1 400 Bad Request\r\n"},
    };
    for (size_t i = 0; i < 3; i++)
        expect_refusal(refused[i][0], strlen(refused[i][0]), refused[i][1]);
    ck_assert_int_eq(handled, 0);
    stop_server();
}
END_TEST

START_TEST(continue_is_sent_to_who_waits_for_it) {
    start_server((struct http_server_options){0});
    struct client client = client_open(http_server_port(server));
    client_send(&client, "POST /c HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    client_wait(&client, "HTTP/1.1 100 Continue\r\n\r\n", 1);
    client_send(&client, "ok");
    client_wait(&client, "POST /c? 127.0.0.1 ok", 1);
    client_close(&client);
    stop_server();
}
END_TEST

START_TEST(slow_and_idle_clients_are_closed) {
    start_server((struct http_server_options){.request_timeout_ms = 1000, .idle_timeout_ms = 1500});
    struct client silent = client_open(http_server_port(server));
    struct client slow = client_open(http_server_port(server));
    struct client idle = client_open(http_server_port(server));
    client_send(&idle, GET("/idle"));
    client_wait(&idle, "GET /idle", 1);
    static const char head[] = "GET / HTTP/1.1\r\nHost: a\r\nX: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy";
    uint64_t started_ms = clock_ms();
    size_t sent = 0;
    while (!slow.ended && clock_ms() - started_ms < HANG_MS) { // a byte now and then does not extend the time
        if (clock_ms() - started_ms > sent * 100 && sent < sizeof head - 1)
            send(slow.fd, head + sent++, 1, MSG_NOSIGNAL);
        turn();
        client_read(&slow);
    }
    ck_assert(slow.ended);
    ck_assert_uint_ge(clock_ms() - started_ms, 900);
    ck_assert_uint_lt(sent, sizeof head - 1);
    ck_assert_ptr_nonnull(strstr(buffer_cstr(&slow.got), "HTTP/1.1 408 Request Timeout\r\n"));
    client_wait(&silent, NULL, 1);
    ck_assert_uint_eq(silent.got.length, 0);
    client_wait(&idle, NULL, 1);
    client_close(&silent);
    client_close(&slow);
    client_close(&idle);
    stop_server();
}
END_TEST

START_TEST(a_request_that_is_being_handled_has_no_deadline) {
    start_server((struct http_server_options){.request_timeout_ms = 500, .idle_timeout_ms = 500});
    struct client client = client_open(http_server_port(server));
    struct client silent = client_open(http_server_port(server));
    client_send(&client, GET("/later"));
    client_wait(&silent, NULL, 1); // so the deadline of this one has passed too
    struct client another = client_open(http_server_port(server));
    client_wait(&another, NULL, 1); // once more
    ck_assert_ptr_nonnull(waiting);
    http_exchange_respond(waiting, 200, NULL, NULL, "late", 4);
    client_wait(&client, "late", 1);
    client_close(&client);
    client_close(&silent);
    client_close(&another);
    stop_server();
}
END_TEST

static void on_taken_closed(uv_handle_t *handle) {
    free(handle);
    taken = NULL;
}

START_TEST(a_taken_connection_is_the_takers_and_no_longer_counts) {
    start_server((struct http_server_options){.max_connections = 1});
    struct client stream = client_open(http_server_port(server));
    client_send(&stream, GET("/stream") "dropped");
    while (taken == NULL)
        turn();
    uv_buf_t frame = uv_buf_init("data: 1\n\n", 9);
    ck_assert_int_eq(uv_try_write((uv_stream_t *)taken, &frame, 1), 9);
    client_wait(&stream, "data: 1\n\n", 1);
    ck_assert_str_eq(stream.got.bytes, "data: 1\n\n");
    struct client other = client_open(http_server_port(server));
    client_send(&other, GET("/other"));
    client_wait(&other, "GET /other", 1);
    http_server_close(server, on_closed, NULL); // the taken one lives on
    while (!closed)
        turn();
    ck_assert_int_eq(uv_try_write((uv_stream_t *)taken, &frame, 1), 9);
    client_wait(&stream, "data: 1\n\n", 2);
    uv_close((uv_handle_t *)taken, on_taken_closed);
    while (taken != NULL)
        turn();
    client_wait(&stream, NULL, 1);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    client_close(&stream);
    client_close(&other);
}
END_TEST

START_TEST(a_connection_may_be_taken_later) {
    start_server((struct http_server_options){0});
    struct client client = client_open(http_server_port(server));
    client_send(&client, GET("/later") GET("/never"));
    while (waiting == NULL)
        turn();
    taken = http_exchange_take(waiting);
    ck_assert_ptr_null(taken->data);
    uv_close((uv_handle_t *)taken, on_taken_closed);
    client_wait(&client, NULL, 1);
    ck_assert_int_eq(handled, 1);
    client_close(&client);
    stop_server();
}
END_TEST

static int open_descriptors(void) {
    int count = 0;
    for (int fd = 0; fd < 1000; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

START_TEST(who_says_nothing_is_connected_and_costs_nothing_yet) {
    start_server((struct http_server_options){.request_timeout_ms = 200});
    struct client silent;
    uint64_t started_ms;
    for (;;) {
        started_ms = clock_ms();
        silent = client_open(http_server_port(server)); // connect() has succeeded: a probe sees an open port
        int before = open_descriptors();
        settle();
        if (clock_ms() - started_ms < 1000) { // for so long the kernel keeps it for itself
            ck_assert_int_eq(open_descriptors(), before);
            break;
        }
        client_close(&silent);
    }
    client_wait(&silent, NULL, 1); // it was accepted a moment later, and timed from then
    ck_assert_uint_ge(clock_ms() - started_ms, 200);
    ck_assert_uint_eq(silent.got.length, 0);
    struct client late = client_open(http_server_port(server));
    settle();
    client_send(&late, GET("/late"));
    client_wait(&late, "GET /late", 1);
    client_close(&silent);
    client_close(&late);
    stop_server();
}
END_TEST

static void pause_and_answer(void *arg, struct http_exchange *exchange, const struct http_request *request) {
    handled++;
    http_server_pause(server);
    http_exchange_respond(exchange, 200, NULL, NULL, "last", 4);
}

START_TEST(a_handler_may_pause_the_server_that_accepts) {
    struct error error = {0};
    uv_loop_init(&loop);
    server = http_server_new(&loop, &(struct http_server_options){.listen = "127.0.0.1:0", .handle = pause_and_answer},
                             &error);
    struct client clients[3];
    for (int i = 0; i < 3; i++) {
        clients[i] = client_open(http_server_port(server));
        client_send(&clients[i], GET("/"));
    }
    client_wait(&clients[0], NULL, 1);
    ck_assert_ptr_nonnull(strstr(clients[0].got.bytes, "Connection: close\r\n\r\nlast"));
    ck_assert_int_eq(handled, 1); // the others were not accepted any more
    for (int i = 0; i < 3; i++)
        client_close(&clients[i]);
    stop_server();
}
END_TEST

START_TEST(beyond_the_cap_whoever_only_waits_makes_room) {
    start_server((struct http_server_options){.max_connections = 2});
    struct client first = client_open(http_server_port(server));
    client_send(&first, GET("/1"));
    client_wait(&first, "GET /1", 1);
    struct client second = client_open(http_server_port(server));
    client_send(&second, "GET /2 HTTP/1.1\r\nHost");
    struct client third = client_open(http_server_port(server));
    client_send(&third, GET("/3"));
    client_wait(&third, "GET /3", 1);
    client_wait(&first, NULL, 1); // the oldest was closed, without a word
    client_send(&second, ": a\r\n\r\n");
    client_wait(&second, "GET /2", 1); // the next one was not
    client_close(&first);
    client_close(&second);
    client_close(&third);
    stop_server();
}
END_TEST

START_TEST(connections_beyond_the_cap_are_told_so_when_all_are_answered) {
    start_server((struct http_server_options){.max_connections = 1});
    struct client first = client_open(http_server_port(server));
    client_send(&first, GET("/later"));
    while (waiting == NULL)
        turn();
    expect_refusal(GET("/3"), strlen(GET("/3")), "HTTP/1.1 503 Service Unavailable\r\n");
    http_exchange_respond(waiting, 200, "text/plain", NULL, "late", 4);
    waiting = NULL;
    client_wait(&first, "late", 1);
    client_close(&first);
    stop_server();
}
END_TEST

// In a process of its own, where descriptors can be made scarce.
static int serve_without_descriptors(void) {
    start_server((struct http_server_options){.request_timeout_ms = 60000});
    struct client served = client_open(http_server_port(server));
    client_send(&served, GET("/1"));
    client_wait(&served, "GET /1", 1);
    enum { WAITING = 20 };
    struct client clients[WAITING];
    for (int i = 0; i < WAITING; i++) {
        clients[i] = client_open(http_server_port(server)); // in the backlog: not accepted yet
        client_send(&clients[i], "GET");                    // or the kernel would hold them back for a second
    }
    int lowest = dup(0);
    close(lowest);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = (rlim_t)lowest;
    setrlimit(RLIMIT_NOFILE, &limit);
    // The loop is not kept busy by the listener, which has clients that it cannot accept.
    enum { AWAY = 5 };
    int turns = 0, turned_away = 0;
    for (uint64_t began_ms = clock_ms(); turned_away < AWAY || clock_ms() - began_ms < 1000; turns++) {
        uv_run(&loop, UV_RUN_ONCE);
        turned_away = 0;
        for (int i = 0; i < WAITING; i++) {
            client_read(&clients[i]);
            turned_away += clients[i].ended;
        }
    }
    client_send(&served, GET("/2")); // who is connected is served
    client_wait(&served, "GET /2", 1);
    limit.rlim_cur = before;
    setrlimit(RLIMIT_NOFILE, &limit);
    struct client late = client_open(http_server_port(server));
    client_send(&late, GET("/3"));
    client_wait(&late, "GET /3", 1);
    fprintf(stderr, "%d turns, %d turned away\n", turns, turned_away);
    for (int i = 0; i < WAITING; i++)
        client_close(&clients[i]);
    client_close(&served);
    client_close(&late);
    stop_server();
    return turns < 20 * turned_away && turned_away < WAITING ? 0 : 3;
}

START_TEST(out_of_descriptors_the_server_rests_and_recovers) {
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        _exit(serve_without_descriptors());
    int status = 0;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
}
END_TEST

START_TEST(a_taken_port_is_an_error_that_names_it) {
    struct error error = {0};
    char listen[64];
    char expected[256];
    start_server((struct http_server_options){0});
    snprintf(listen, sizeof listen, "127.0.0.1:%d", http_server_port(server));
    ck_assert_str_eq(http_server_address(server), listen);
    struct http_server_options options = {.listen = listen, .handle = handle};
    ck_assert_ptr_null(http_server_new(&loop, &options, &error));
    snprintf(expected, sizeof expected,
             "listen on %s: address already in use (give another port; port 0 takes a free one)", listen);
    ck_assert_str_eq(error.text, expected);
    ck_assert_int_eq(error.code, ERROR_IO);
    options.listen = "127.0.0.1";
    ck_assert_ptr_null(http_server_new(&loop, &options, &error));
    ck_assert_int_eq(error.code, ERROR_USAGE);
    stop_server();
}
END_TEST

START_TEST(several_servers_share_a_port) {
    struct error error = {0};
    struct http_server_options options = {.reuse_port = true, .handle = handle};
    start_server(options);
    char listen[64];
    snprintf(listen, sizeof listen, "%s", http_server_address(server));
    options.listen = listen;
    struct http_server *second = http_server_new(&loop, &options, &error);
    ck_assert_msg(second != NULL, "%s", error.text);
    http_server_close(second, NULL, NULL);
    struct client client = client_open(http_server_port(server)); // the closed one takes no client any more
    client_send(&client, GET("/1"));
    client_wait(&client, "GET /1", 1);
    client_close(&client);
    stop_server();
}
END_TEST

START_TEST(ipv6_is_served) {
    start_server((struct http_server_options){.listen = "[::1]:0"});
    ck_assert(strncmp(http_server_address(server), "[::1]:", 6) == 0);
    stop_server();
}
END_TEST

START_TEST(a_paused_server_finishes_what_it_has) {
    start_server((struct http_server_options){0});
    int port = http_server_port(server);
    struct client idle = client_open(port), handling = client_open(port), halfway = client_open(port);
    client_send(&idle, GET("/idle"));
    client_wait(&idle, "GET /idle", 1);
    client_send(&halfway, "GET /half HTTP/1.1\r\n");
    client_send(&handling, GET("/later"));
    while (waiting == NULL)
        turn();
    settle();
    http_server_pause(server);
    http_server_pause(server); // twice is once
    client_wait(&idle, NULL, 1);
    client_send(&halfway, "Host: a\r\n\r\n");
    client_wait(&halfway, NULL, 1);
    ck_assert_ptr_nonnull(strstr(halfway.got.bytes, "Connection: close\r\n\r\nGET /half"));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), -1);
    close(fd);
    http_server_close(server, on_closed, NULL);
    settle();
    ck_assert(!closed); // an answer is owed
    http_exchange_respond(waiting, 200, NULL, NULL, "owed", 4);
    client_wait(&handling, NULL, 1);
    ck_assert_ptr_nonnull(strstr(handling.got.bytes, "owed"));
    client_close(&handling);
    while (!closed)
        turn();
    client_close(&idle);
    client_close(&halfway);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

START_TEST(a_pause_during_an_answer_closes_behind_it) {
    start_server((struct http_server_options){0});
    struct client client = client_open(http_server_port(server));
    client_send(&client, GET("/big?20000000"));
    settle(); // the socket is full: the answer is being written, and promised to keep the connection
    http_server_pause(server);
    client_wait(&client, NULL, 1);
    ck_assert_uint_gt(client.got.length, 20000000);
    client_close(&client);
    stop_server();
}
END_TEST

START_TEST(clients_that_vanish_leave_nothing) {
    start_server((struct http_server_options){0});
    struct linger reset = {.l_onoff = 1, .l_linger = 0};
    for (int i = 0; i < 300; i++) {
        struct client client = client_open(http_server_port(server));
        client_send(&client, i % 3 == 0 ? "GET /cut" : i % 3 == 1 ? GET("/big?3000000") : GET("/1") GET("/2"));
        if (i % 2 == 0)
            setsockopt(client.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        if (i % 5 != 0)
            turn();
        client_close(&client);
    }
    struct client client = client_open(http_server_port(server));
    client_send(&client, GET("/still"));
    client_wait(&client, "GET /still", 1);
    client_close(&client);
    stop_server();
}
END_TEST

static void set_gauge(void *arg) {
    metric_set(0, NULL, NULL, 7);
}

static void expect_admin(int port, const char *request, const char *status_line, const char *part) {
    struct client client = client_open(port);
    client_send(&client, request);
    client_send(&client, " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    client_wait(&client, NULL, 1);
    ck_assert_msg(strncmp(client.got.bytes, status_line, strlen(status_line)) == 0, "%s: %s", request,
                  client.got.bytes);
    ck_assert_msg(strstr(client.got.bytes, part) != NULL, "%s: %s", request, client.got.bytes);
    client_close(&client);
}

START_TEST(admin_says_how_the_process_is) {
    static const struct metric table[] = {{METRIC_GAUGE, "rowbell_test", "", "A gauge"}};
    struct error error = {0};
    metrics_init(table, 1);
    uv_loop_init(&loop);
    struct admin_endpoint *admin = admin_endpoint_new(&loop, "127.0.0.1:0", &error);
    ck_assert_msg(admin != NULL, "%s", error.text);
    int port = atoi(strrchr(admin_endpoint_address(admin), ':') + 1);
    expect_admin(port, "GET /healthz", "HTTP/1.1 200 OK\r\n", "\r\n\r\nok\n");
    expect_admin(port, "GET /readyz", "HTTP/1.1 503 Service Unavailable\r\n", "\r\n\r\nstarting\n");
    admin_endpoint_set_ready(admin, NULL);
    expect_admin(port, "GET /readyz", "HTTP/1.1 200 OK\r\n", "\r\n\r\nready\n");
    admin_endpoint_set_ready(admin, "database: not connected");
    expect_admin(port, "GET /readyz?x", "HTTP/1.1 503 Service Unavailable\r\n", "\r\n\r\ndatabase: not connected\n");
    admin_endpoint_on_scrape(admin, set_gauge, NULL);
    expect_admin(port, "GET /metrics", "HTTP/1.1 200 OK\r\n",
                 "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n");
    expect_admin(port, "GET /metrics", "HTTP/1.1 200 OK\r\n", "\nrowbell_test 7\n");
    expect_admin(port, "HEAD /metrics", "HTTP/1.1 200 OK\r\n", "Connection: close\r\n\r\n");
    expect_admin(port, "POST /metrics", "HTTP/1.1 405 Method Not Allowed\r\n", "\r\nAllow: GET, HEAD\r\n");
    expect_admin(port, "GET /", "HTTP/1.1 404 Not Found\r\n", "/healthz");
    expect_admin(port, "POST /nothing", "HTTP/1.1 404 Not Found\r\n", "/healthz");
    admin_endpoint_close(admin);
    uint64_t until_ms = clock_ms() + HANG_MS;
    while (uv_loop_alive(&loop) && clock_ms() < until_ms)
        turn();
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    metrics_free();
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *protocol = suite_case(suite, "protocol", 30);
    tcase_add_test(protocol, answers_have_the_headers_of_their_protocol);
    tcase_add_test(protocol, a_connection_serves_many_requests);
    tcase_add_test(protocol, http_1_0_closes_unless_asked);
    tcase_add_test(protocol, head_has_the_length_and_no_body);
    tcase_add_test(protocol, pipelined_requests_are_answered_in_order);
    tcase_add_test(protocol, a_half_closed_client_gets_its_answers);
    tcase_add_test(protocol, continue_is_sent_to_who_waits_for_it);
    TCase *limits = suite_case(suite, "limits", 30);
    tcase_add_test(limits, a_large_answer_waits_for_its_reader);
    tcase_add_test(limits, a_reader_may_be_slow_but_not_stand_still);
    tcase_add_test(limits, limits_are_answered_with_their_status);
    tcase_add_test(limits, slow_and_idle_clients_are_closed);
    tcase_add_test(limits, a_request_that_is_being_handled_has_no_deadline);
    tcase_add_test(limits, who_says_nothing_is_connected_and_costs_nothing_yet);
    tcase_add_test(limits, beyond_the_cap_whoever_only_waits_makes_room);
    tcase_add_test(limits, connections_beyond_the_cap_are_told_so_when_all_are_answered);
    tcase_add_test(limits, out_of_descriptors_the_server_rests_and_recovers);
    tcase_add_test(limits, clients_that_vanish_leave_nothing);
    TCase *life = suite_case(suite, "life", 30);
    tcase_add_test(life, a_taken_connection_is_the_takers_and_no_longer_counts);
    tcase_add_test(life, a_connection_may_be_taken_later);
    tcase_add_test(life, a_taken_port_is_an_error_that_names_it);
    tcase_add_test(life, several_servers_share_a_port);
    tcase_add_test(life, ipv6_is_served);
    tcase_add_test(life, a_paused_server_finishes_what_it_has);
    tcase_add_test(life, a_pause_during_an_answer_closes_behind_it);
    tcase_add_test(life, a_handler_may_pause_the_server_that_accepts);
    tcase_add_test(life, admin_says_how_the_process_is);
}

int main(void) {
    return suite_main("http_server", add_tests);
}
