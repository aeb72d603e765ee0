// An SSE client that keeps what came over the wire as it came, head included; and a plain GET.
#include "tests/support/fixture.h"
#include "tests/support/support.h"
#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_CLIENTS = 256 };

struct sse_client {
    int fd; // -1 after sse_close
    bool closed;
    char *bytes;
    size_t length;
};

static struct sse_client *clients[MAX_CLIENTS];
static int client_count;

struct sse_client *sse_open(int port, const char *target, const char *extra_headers) {
    ck_assert_int_lt(client_count, MAX_CLIENTS);
    struct sse_client *client = calloc(1, sizeof(*client));
    ck_assert_ptr_nonnull(client);
    client->bytes = calloc(1, 1);
    client->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    clients[client_count++] = client;
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (connect(client->fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        ck_abort_msg("connect to port %d: %s", port, strerror(errno));
    char *request = NULL;
    int length = asprintf(&request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept: text/event-stream\r\n%s\r\n",
                          target, port, extra_headers == NULL ? "" : extra_headers);
    ck_assert_int_eq(send(client->fd, request, (size_t)length, MSG_NOSIGNAL), length);
    free(request);
    return client;
}

const char *sse_bytes(struct sse_client *client) {
    char chunk[65536];
    while (!client->closed) {
        ssize_t got = recv(client->fd, chunk, sizeof(chunk), MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (got <= 0) {
            client->closed = true;
            break;
        }
        client->bytes = realloc(client->bytes, client->length + (size_t)got + 1);
        ck_assert_ptr_nonnull(client->bytes);
        memcpy(client->bytes + client->length, chunk, (size_t)got);
        client->length += (size_t)got;
        client->bytes[client->length] = '\0';
    }
    return client->bytes;
}

const char *sse_wait(struct sse_client *client, const char *text, unsigned deadline_ms) {
    uint64_t end = support_end_ms(deadline_ms);
    while (strstr(sse_bytes(client), text) == NULL) {
        if (client->closed)
            ck_abort_msg("the stream was closed without '%s':\n%s", text, client->bytes);
        if (support_now_ms() >= end)
            ck_abort_msg("after %u ms no '%s' in:\n%s", deadline_ms, text, client->bytes);
        support_pause();
    }
    return client->bytes;
}

bool sse_closed(struct sse_client *client) {
    sse_bytes(client);
    return client->closed;
}

void sse_close(struct sse_client *client) {
    if (client->fd >= 0)
        close(client->fd);
    client->fd = -1;
    client->closed = true;
}

void support_stop_sse_clients(void) {
    for (int i = 0; i < client_count; i++) {
        sse_close(clients[i]);
        free(clients[i]->bytes);
        free(clients[i]);
    }
    client_count = 0;
}

struct body {
    char *bytes;
    size_t length;
};

static size_t body_append(char *bytes, size_t size, size_t count, void *arg) {
    struct body *body = arg;
    body->bytes = realloc(body->bytes, body->length + size * count + 1);
    if (body->bytes == NULL)
        return 0;
    memcpy(body->bytes + body->length, bytes, size * count);
    body->length += size * count;
    body->bytes[body->length] = '\0';
    return size * count;
}

int http_get(const char *url, const char **ret_body) {
    struct body body = {.bytes = calloc(1, 1)};
    CURL *easy = curl_easy_init();
    ck_assert_ptr_nonnull(easy);
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)HANG_MS);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, body_append);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &body);
    CURLcode code = curl_easy_perform(easy);
    long status = 0;
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(easy);
    support_keep(body.bytes);
    if (code != CURLE_OK)
        ck_abort_msg("GET %s: %s", url, curl_easy_strerror(code));
    if (ret_body != NULL)
        *ret_body = body.bytes;
    return (int)status;
}
