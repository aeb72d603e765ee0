// tail against a server of bytes.
#include "tests/e2e/cli/world.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// A server that answers each connection with the next script and closes it; what clients sent is kept.
struct script_server {
    int fd;
    int port;
    const char *const *answers; // ends with NULL; the last one is repeated
    char requests[8][2048];
    int count;
    pthread_t thread;
};

static void *serve(void *arg) {
    struct script_server *server = arg;
    const char *const *answer = server->answers;
    int client;
    while ((client = accept(server->fd, NULL, NULL)) >= 0) {
        char *request = server->requests[server->count];
        size_t length = 0;
        ssize_t got = 0;
        while (length < 2047 && strstr(request, "\r\n\r\n") == NULL &&
               (got = recv(client, request + length, 2047 - length, 0)) > 0)
            length += (size_t)got;
        server->count += server->count < 7;
        send(client, *answer, strlen(*answer), MSG_NOSIGNAL);
        answer += answer[1] != NULL;
        shutdown(client, SHUT_RDWR);
        close(client);
    }
    return NULL;
}

static const char *server_start(struct script_server *server, const char *const *answers, char *url, size_t size) {
    *server = (struct script_server){.answers = answers};
    server->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    ck_assert_int_eq(bind(server->fd, (struct sockaddr *)&address, length), 0);
    ck_assert_int_eq(listen(server->fd, 10), 0);
    ck_assert_int_eq(getsockname(server->fd, (struct sockaddr *)&address, &length), 0);
    server->port = ntohs(address.sin_port);
    ck_assert_int_eq(pthread_create(&server->thread, NULL, serve, server), 0);
    snprintf(url, size, "http://127.0.0.1:%d/events", server->port);
    return url;
}

static void server_stop(struct script_server *server) {
    shutdown(server->fd, SHUT_RDWR);
    pthread_join(server->thread, NULL);
    close(server->fd);
}

#define STREAM "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nConnection: close\r\n\r\n"

START_TEST(test_tail_reconnects_with_the_last_id) {
    static const char *const answers[] = {
        STREAM "retry: 500\n\nid: 10\n\nevent: change\nid: 11\ndata: "
               "{\"table\":\"posts\",\"key\":\"p1\",\"op\":\"update\"}\n\n"
               "event: change\nid: 12\ndata: {\"tab",
        "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        STREAM "event: change\nid: 12\ndata: {\"table\":\"posts\",\"key\":null,\"op\":\"delete\"}\n\n"
               "event: reset\nid: 13\ndata: {\"reason\":\"history_expired\"}\n\nevent: change\nid: 14\ndata: {}\n\n",
        NULL};
    struct script_server server;
    char url[100];
    server_start(&server, answers, url, sizeof(url));
    expect_status(RUN("tail", "--url", url, "--count", "3", "--table", "a&b", "--table", "posts", "--header", "X-A: b"),
                  0);
    ck_assert_str_eq(out, "11  change  update posts p1\n12  change  delete posts (all)\n13  reset   history_expired\n");
    expect_text(err, "rowbell: the stream ended");
    server_stop(&server);
    ck_assert_int_eq(server.count, 3);
    expect_text(server.requests[0], "GET /events?table=a%26b&table=posts HTTP/1.1\r\n");
    expect_text(server.requests[0], "Accept: text/event-stream\r\n");
    expect_text(server.requests[0], "X-A: b\r\n");
    ck_assert_ptr_null(strstr(server.requests[0], "Last-Event-ID"));
    expect_text(server.requests[1], "Last-Event-ID: 11\r\n");
    expect_text(server.requests[2], "Last-Event-ID: 11\r\n");
}
END_TEST

START_TEST(test_tail_json) {
    set_up();
    static const char *const answers[] = {
        STREAM "event: change\nid: 11\ndata: {\"table\":\"posts\",\"key\":\"p1\",\"op\":\"update\"}\n\n", NULL};
    struct script_server server;
    char url[100];
    server_start(&server, answers, url, sizeof(url));
    expect_status(RUN("tail", "--url", url, "--count", "1", "--last-event-id", "7", "--json"), 0);
    expect_json(
        "j = '{\"event\": \"change\", \"id\": \"11\", \"data\": {\"table\": \"posts\", \"key\": \"p1\", \"op\": "
        "\"update\"}}'");
    server_stop(&server);
    expect_text(server.requests[0], "Last-Event-ID: 7\r\n");
}
END_TEST

START_TEST(test_tail_refusals) {
    static const struct {
        const char *answers[2];
        int status;
        const char *text;
    } cases[] = {
        {{"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"}, 1, "answered 401: give credentials with --header"},
        {{"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot here\n"}, 1, "no event stream (not here)"},
        {{"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi"},
         1,
         "is it a gateway's /events?"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct script_server server;
        char url[100];
        server_start(&server, cases[i].answers, url, sizeof(url));
        expect_status(RUN("tail", "--url", url), cases[i].status);
        expect_text(err, cases[i].text);
        server_stop(&server);
    }
    expect_status(RUN("tail", "--url", "http://127.0.0.1:1/events"), 3);
    expect_text(err, "is rowbell-gateway running, and is --url right?");
    expect_status(RUN("tail", "--url", "nonsense"), 2);
    expect_text(err, "expected http://host:8080/events");
    expect_status(RUN("tail", "--count", "none"), 2);
}
END_TEST

void tail_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "tail", 60);
    tcase_add_test(tcase, test_tail_reconnects_with_the_last_id);
    tcase_add_test(tcase, test_tail_json);
    tcase_add_test(tcase, test_tail_refusals);
}
