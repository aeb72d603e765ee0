// A real HTTP/1.1 receiver: one thread, one poll(), any number of keep-alive connections. A request is recorded when
// its body is complete; its answer is written when its delay has passed and nothing holds it.
#include "tests/support/fixture.h"
#include "tests/support/support.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_CONNECTIONS = 1024, MAX_RECEIVERS = 8 };

struct connection {
    int fd;
    char *bytes; // what was read of the present request
    size_t length;
    char *answer; // NULL: no request waits for one
    uint64_t answer_at_ms;
    int hold; // the number of the hold that it waits in; 0: none
};

struct receiver {
    pthread_t thread;
    pthread_mutex_t lock; // guards what follows up to the next blank line
    struct received *requests;
    int count;
    int in_flight, max_in_flight;
    int status;
    char *headers;
    unsigned delay_ms;
    bool holding;
    char hold_text[64];
    int holds, released; // so many were begun; those up to this number are over
    int accepted;

    int listen_fd;
    int stop_pipe[2];
    int wake; // an eventfd: what the thread waits for has changed
    char url[64];
    struct connection connections[MAX_CONNECTIONS]; // the thread's own
    int connection_count;
};

static struct receiver *receivers[MAX_RECEIVERS];
static int receiver_total;

// Called on the thread, where failing the test is impossible: running out of memory ends the process.
static void *must(void *memory) {
    if (memory == NULL)
        abort();
    return memory;
}

static char *text_of(const char *bytes, size_t length) {
    char *text = must(malloc(length + 1));
    memcpy(text, bytes, length);
    text[length] = '\0';
    return text;
}

// "Name:  value\r\n" lines become "name: value\n".
static char *headers_of(const char *head, size_t length) {
    char *out = must(malloc(length * 2 + 1));
    size_t used = 0;
    for (const char *line = head, *end = head + length; line < end;) {
        const char *eol = memmem(line, (size_t)(end - line), "\r\n", 2);
        const char *stop = eol == NULL ? end : eol;
        const char *colon = memchr(line, ':', (size_t)(stop - line));
        if (colon != NULL) {
            for (const char *c = line; c < colon; c++)
                out[used++] = (char)tolower((unsigned char)*c);
            out[used++] = ':';
            out[used++] = ' ';
            const char *value = colon + 1;
            while (value < stop && (*value == ' ' || *value == '\t'))
                value++;
            memcpy(out + used, value, (size_t)(stop - value));
            used += (size_t)(stop - value);
            out[used++] = '\n';
        }
        line = eol == NULL ? end : eol + 2;
    }
    out[used] = '\0';
    return out;
}

const char *received_header(const struct received *received, const char *lower_case_name) {
    size_t length = strlen(lower_case_name);
    for (const char *line = received->headers; *line != '\0'; line = strchr(line, '\n') + 1) {
        if (strncmp(line, lower_case_name, length) == 0 && line[length] == ':') {
            const char *value = line + length + 2;
            char *text = support_keep(strndup(value, strcspn(value, "\n")));
            return text;
        }
    }
    return NULL;
}

static void answer_prepare(struct receiver *receiver, struct connection *connection, const struct received *request) {
    const char *extra = receiver->headers == NULL ? "" : receiver->headers;
    if (asprintf(&connection->answer, "HTTP/1.1 %d Test\r\n%sContent-Length: 2\r\n\r\nok", receiver->status, extra) < 0)
        abort();
    const char *text = receiver->hold_text;
    bool held = receiver->holding && (strstr(request->path, text) != NULL || strstr(request->body, text) != NULL);
    connection->hold = held ? receiver->holds : 0;
    connection->answer_at_ms = support_now_ms() + receiver->delay_ms;
}

// Takes one complete request off the connection's bytes; false when there is none yet.
static bool request_take(struct receiver *receiver, struct connection *connection) {
    const char *bytes = connection->bytes;
    const char *blank = connection->length == 0 ? NULL : memmem(bytes, connection->length, "\r\n\r\n", 4);
    if (blank == NULL)
        return false;
    size_t head_length = (size_t)(blank - bytes) + 4;
    char *head = text_of(bytes, head_length - 2);
    const char *length_header = strcasestr(head, "\r\ncontent-length:");
    size_t body_length = length_header == NULL ? 0 : strtoul(length_header + 17, NULL, 10);
    if (connection->length < head_length + body_length) {
        free(head);
        return false;
    }
    const char *first_line_end = strstr(head, "\r\n");
    const char *path = strchr(head, ' ') == NULL ? head : strchr(head, ' ') + 1;
    struct received request = {
        .path = text_of(path, strcspn(path, " \r\n")),
        .headers = headers_of(first_line_end + 2, strlen(first_line_end + 2)),
        .body = text_of(bytes + head_length, body_length),
        .at_ms = support_now_ms(),
    };
    free(head);
    pthread_mutex_lock(&receiver->lock);
    receiver->requests = must(realloc(receiver->requests, ((size_t)receiver->count + 1) * sizeof(*receiver->requests)));
    receiver->requests[receiver->count++] = request;
    if (++receiver->in_flight > receiver->max_in_flight)
        receiver->max_in_flight = receiver->in_flight;
    answer_prepare(receiver, connection, &request);
    pthread_mutex_unlock(&receiver->lock);
    size_t taken = head_length + body_length;
    memmove(connection->bytes, connection->bytes + taken, connection->length - taken);
    connection->length -= taken;
    return true;
}

static void request_ended(struct receiver *receiver, struct connection *connection) {
    free(connection->answer);
    connection->answer = NULL;
    pthread_mutex_lock(&receiver->lock);
    receiver->in_flight--;
    pthread_mutex_unlock(&receiver->lock);
}

static void connection_drop(struct receiver *receiver, int index) {
    struct connection *connection = &receiver->connections[index];
    if (connection->answer != NULL)
        request_ended(receiver, connection);
    close(connection->fd);
    free(connection->bytes);
    *connection = receiver->connections[--receiver->connection_count];
}

static bool connection_read(struct connection *connection) {
    char chunk[65536];
    ssize_t got = recv(connection->fd, chunk, sizeof(chunk), MSG_DONTWAIT);
    if (got <= 0)
        return got < 0 && (errno == EAGAIN || errno == EINTR);
    connection->bytes = must(realloc(connection->bytes, connection->length + (size_t)got + 1));
    memcpy(connection->bytes + connection->length, chunk, (size_t)got);
    connection->length += (size_t)got;
    return true;
}

// The answer is small, so the socket takes it at once or the peer is gone.
static bool connection_answer(struct receiver *receiver, struct connection *connection) {
    size_t length = strlen(connection->answer);
    bool sent = send(connection->fd, connection->answer, length, MSG_NOSIGNAL) == (ssize_t)length;
    request_ended(receiver, connection);
    return sent;
}

static bool is_held(struct receiver *receiver, const struct connection *connection) {
    pthread_mutex_lock(&receiver->lock);
    bool held = connection->hold > receiver->released;
    pthread_mutex_unlock(&receiver->lock);
    return held;
}

// False: the connection is over.
static bool connection_turn(struct receiver *receiver, struct connection *connection) {
    for (;;) {
        if (connection->answer != NULL) {
            if (connection->answer_at_ms > support_now_ms() || is_held(receiver, connection))
                return true;
            if (!connection_answer(receiver, connection))
                return false;
        }
        if (!request_take(receiver, connection))
            return true;
    }
}

static int next_timeout_ms(struct receiver *receiver) {
    int timeout_ms = -1;
    uint64_t now = support_now_ms();
    for (int i = 0; i < receiver->connection_count; i++) {
        const struct connection *connection = &receiver->connections[i];
        if (connection->answer == NULL || is_held(receiver, connection))
            continue;
        int wait_ms = connection->answer_at_ms > now ? (int)(connection->answer_at_ms - now) : 0;
        if (timeout_ms < 0 || wait_ms < timeout_ms)
            timeout_ms = wait_ms;
    }
    return timeout_ms;
}

static void *receiver_run(void *arg) {
    struct receiver *receiver = arg;
    enum { FIRST = 3 };
    struct pollfd fds[MAX_CONNECTIONS + FIRST];
    for (;;) {
        fds[0] = (struct pollfd){.fd = receiver->stop_pipe[0], .events = POLLIN};
        fds[1] = (struct pollfd){.fd = receiver->listen_fd,
                                 .events = receiver->connection_count < MAX_CONNECTIONS ? POLLIN : 0};
        fds[2] = (struct pollfd){.fd = receiver->wake, .events = POLLIN};
        int polled = receiver->connection_count;
        for (int i = 0; i < polled; i++)
            fds[i + FIRST] = (struct pollfd){.fd = receiver->connections[i].fd, .events = POLLIN};
        poll(fds, (nfds_t)polled + FIRST, next_timeout_ms(receiver));
        if (fds[0].revents != 0)
            break;
        eventfd_t woken;
        if (fds[2].revents != 0)
            eventfd_read(receiver->wake, &woken);
        // Downwards: a drop moves the last one here. Whoever is gone goes first: what a killed client had in flight
        // does not count beside the requests of the next.
        for (int i = polled - 1; i >= 0; i--)
            if (fds[i + FIRST].revents != 0 && !connection_read(&receiver->connections[i]))
                connection_drop(receiver, i);
        for (int i = receiver->connection_count - 1; i >= 0; i--)
            if (!connection_turn(receiver, &receiver->connections[i]))
                connection_drop(receiver, i);
        if (fds[1].revents != 0) {
            int fd = accept4(receiver->listen_fd, NULL, NULL, SOCK_CLOEXEC);
            if (fd >= 0) {
                receiver->connections[receiver->connection_count++] = (struct connection){.fd = fd};
                pthread_mutex_lock(&receiver->lock);
                receiver->accepted++;
                pthread_mutex_unlock(&receiver->lock);
            }
        }
    }
    while (receiver->connection_count > 0)
        connection_drop(receiver, 0);
    return NULL;
}

struct receiver *receiver_start(void) {
    ck_assert_int_lt(receiver_total, MAX_RECEIVERS);
    struct receiver *receiver = calloc(1, sizeof(*receiver));
    ck_assert_ptr_nonnull(receiver);
    receiver->status = 200;
    receiver->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    ck_assert_int_eq(bind(receiver->listen_fd, (struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(listen(receiver->listen_fd, 1024), 0);
    ck_assert_int_eq(getsockname(receiver->listen_fd, (struct sockaddr *)&address, &size), 0);
    snprintf(receiver->url, sizeof(receiver->url), "http://127.0.0.1:%d", ntohs(address.sin_port));
    ck_assert_int_eq(pipe2(receiver->stop_pipe, O_CLOEXEC), 0);
    receiver->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ck_assert_int_ge(receiver->wake, 0);
    pthread_mutex_init(&receiver->lock, NULL);
    ck_assert_int_eq(pthread_create(&receiver->thread, NULL, receiver_run, receiver), 0);
    receivers[receiver_total++] = receiver;
    return receiver;
}

const char *receiver_url(const struct receiver *receiver) {
    return receiver->url;
}

void receiver_answer(struct receiver *receiver, int status, const char *headers, unsigned delay_ms) {
    pthread_mutex_lock(&receiver->lock);
    free(receiver->headers);
    receiver->headers = headers == NULL ? NULL : strdup(headers);
    receiver->status = status;
    receiver->delay_ms = delay_ms;
    pthread_mutex_unlock(&receiver->lock);
}

void receiver_hold(struct receiver *receiver, const char *text) {
    pthread_mutex_lock(&receiver->lock);
    snprintf(receiver->hold_text, sizeof(receiver->hold_text), "%s", text);
    receiver->holding = true;
    receiver->holds++;
    pthread_mutex_unlock(&receiver->lock);
}

void receiver_release(struct receiver *receiver) {
    pthread_mutex_lock(&receiver->lock);
    receiver->holding = false;
    receiver->released = receiver->holds;
    pthread_mutex_unlock(&receiver->lock);
    eventfd_write(receiver->wake, 1);
}

static int read_int(struct receiver *receiver, const int *field) {
    pthread_mutex_lock(&receiver->lock);
    int value = *field;
    pthread_mutex_unlock(&receiver->lock);
    return value;
}

int receiver_count(struct receiver *receiver) {
    return read_int(receiver, &receiver->count);
}

int receiver_max_in_flight(struct receiver *receiver) {
    return read_int(receiver, &receiver->max_in_flight);
}

int receiver_connections(struct receiver *receiver) {
    return read_int(receiver, &receiver->accepted);
}

void receiver_wait(struct receiver *receiver, int count, unsigned deadline_ms) {
    uint64_t end = support_end_ms(deadline_ms);
    while (receiver_count(receiver) < count) {
        if (support_now_ms() >= end)
            ck_abort_msg("after %u ms the receiver has %d requests, not %d", deadline_ms, receiver_count(receiver),
                         count);
        support_pause();
    }
}

struct received receiver_get(struct receiver *receiver, int index) {
    pthread_mutex_lock(&receiver->lock);
    int count = receiver->count;
    struct received request = index >= 0 && index < count ? receiver->requests[index] : (struct received){0};
    pthread_mutex_unlock(&receiver->lock);
    if (request.path == NULL)
        ck_abort_msg("request %d of %d", index, count);
    return request;
}

void support_stop_receivers(void) {
    for (int i = 0; i < receiver_total; i++) {
        struct receiver *receiver = receivers[i];
        close(receiver->stop_pipe[1]);
        pthread_join(receiver->thread, NULL);
        close(receiver->stop_pipe[0]);
        close(receiver->wake);
        close(receiver->listen_fd);
        for (int r = 0; r < receiver->count; r++) {
            free(receiver->requests[r].path);
            free(receiver->requests[r].headers);
            free(receiver->requests[r].body);
        }
        free(receiver->requests);
        free(receiver->headers);
        pthread_mutex_destroy(&receiver->lock);
        free(receiver);
    }
    receiver_total = 0;
}
