// From COMMIT to the client: one transaction inserts a row that is captured and says NOTIFY; a bare LISTEN client and
// an EventSource (through relay, dispatcher and gateway) wait for it. Both clocks start when COMMIT is sent.
//
//   latency DATABASE_URL GATEWAY_PORT COUNT PAUSE_MS
//
// PAUSE_MS is the mean pause between two commits, spread from 0 to twice that. Prints name=value lines.
#include <arpa/inet.h>
#include <errno.h>
#include <libpq-fe.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void fail(const char *what) {
    fprintf(stderr, "latency: %s\n", what);
    exit(1);
}

static PGconn *database(const char *url) {
    PGconn *conn = PQconnectdb(url);
    if (PQstatus(conn) != CONNECTION_OK) {
        fail(PQerrorMessage(conn));
    }
    return conn;
}

static void run(PGconn *conn, const char *sql) {
    PGresult *result = PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
        fail(PQerrorMessage(conn));
    }
    PQclear(result);
}

static int stream_open(int port) {
    static const char request[] = "GET /events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n";
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        send(fd, request, sizeof request - 1, 0) != sizeof request - 1) {
        fail("the gateway does not answer");
    }
    return fd;
}

// Whether the event of row `number` came.
static bool stream_has(int fd, int number) {
    static char text[65536];
    static size_t length;
    char key[40];
    if (length > sizeof text / 2) {
        memmove(text, text + length - 1000, 1000);
        length = 1000;
    }
    ssize_t n = recv(fd, text + length, sizeof text - 1 - length, MSG_DONTWAIT);
    if (n == 0) {
        fail("the stream was closed");
    }
    length += n > 0 ? (size_t)n : 0;
    text[length] = '\0';
    snprintf(key, sizeof key, "\"key\":\"%d\"", number);
    return strstr(text, key) != NULL;
}

static bool listener_has(PGconn *conn, int number) {
    PGnotify *notify;
    bool has = false;
    PQconsumeInput(conn);
    while ((notify = PQnotifies(conn)) != NULL) {
        has = has || atoi(notify->extra) == number;
        PQfreemem(notify);
    }
    return has;
}

static int compare(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a;
    uint64_t right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static void print(const char *name, uint64_t *times, int count) {
    qsort(times, (size_t)count, sizeof *times, compare);
    printf("%s_p50_us=%llu\n%s_p99_us=%llu\n", name, (unsigned long long)times[count / 2], name,
           (unsigned long long)times[count * 99 / 100]);
}

int main(int argc, char **argv) {
    if (argc != 5) {
        return 2;
    }
    int count = atoi(argv[3]);
    int pause_us = 1000 * atoi(argv[4]);
    uint64_t *bare = calloc((size_t)count, sizeof *bare);
    uint64_t *stream = calloc((size_t)count, sizeof *stream);
    PGconn *writer = database(argv[1]);
    PGconn *listener = database(argv[1]);
    run(listener, "listen bench_bare");
    run(writer, "prepare add as insert into posts values ($1, 'hello')");
    int fd = stream_open(atoi(argv[2]));
    unsigned seed = 1;
    int last = 0;
    PGresult *newest = PQexec(writer, "select coalesce(max(id), 0) from posts");
    last = atoi(PQgetvalue(newest, 0, 0));
    PQclear(newest);
    for (int i = -20; i < count; i++) { // the first ones warm up
        char sql[200];
        int number = ++last;
        usleep((useconds_t)(rand_r(&seed) % (2 * pause_us)));
        run(writer, "begin");
        snprintf(sql, sizeof sql, "execute add(%d)", number);
        run(writer, sql);
        snprintf(sql, sizeof sql, "notify bench_bare, '%d'", number);
        run(writer, sql);
        uint64_t start = now_us();
        if (!PQsendQuery(writer, "commit")) {
            fail(PQerrorMessage(writer));
        }
        bool heard = false;
        bool seen = false;
        while (!heard || !seen) {
            struct pollfd polls[] = {{PQsocket(listener), POLLIN, 0}, {fd, POLLIN, 0}};
            if (poll(polls, 2, 10000) <= 0) {
                fail("nothing came for 10 s");
            }
            uint64_t now = now_us();
            if (!heard && listener_has(listener, number)) {
                heard = true;
                bare[i < 0 ? 0 : i] = now - start;
            }
            if (!seen && (polls[1].revents & POLLIN) && stream_has(fd, number)) {
                seen = true;
                stream[i < 0 ? 0 : i] = now - start;
            }
        }
        while (PQgetResult(writer)) {
        }
    }
    print("bare", bare, count);
    print("stream", stream, count);
    return 0;
}
