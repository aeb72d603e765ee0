#include "tests/e2e/auth/world.h"
#include "common/clock.h"
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// ---- the log ----

PGconn *db;

void fresh_database(void) {
    fixture_database();
    db = fixture_connect();
    sql_run(db, "update rowbell.installation set id = replace(gen_random_uuid()::text, '-', '')");
}

int64_t append_rows(const char *scope, const char *table, const char *prefix, int count, bool tell) {
    char sql[1500];
    snprintf(sql, sizeof sql,
             "with newest as (select max(position) as p from rowbell.stream_log where stream_id = 1),"
             " batch as (select p, greatest(p + 1, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as f"
             "             from newest)"
             " insert into rowbell.stream_log (stream_id, position, prev, event_seq, scope, name, key, op)"
             " select 1, f + i, case when i = 0 then p else f + i - 1 end, i, %s, '%s', '%s' || i, 'update'"
             "   from batch, generate_series(0, %d - 1) as i order by i",
             scope, table, prefix, count);
    sql_run(db, sql);
    if (tell) {
        sql_run(db, "select pg_notify('rowbell_stream', (select max(position)::text from rowbell.stream_log))");
    }
    return sql_int(db, "select max(position) from rowbell.stream_log where stream_id = 1");
}

int64_t append(const char *scope, const char *table, const char *prefix, int count) {
    return append_rows(scope, table, prefix, count, true);
}

// ---- the gateway ----

struct gateway gateway_told_all(const char *const *extra) {
    const char *arguments[40] = {"--log-level", "debug"};
    for (size_t i = 0; extra[i]; i++) {
        arguments[2 + i] = extra[i];
    }
    return gateway_start(arguments);
}

void wait_gateway(const struct gateway *gateway) {
    uint64_t end = clock_ms() + 4 * SOON_MS; // for 50,000 entries and sanitizers
    double newest = (double)sql_int(db, "select max(position) from rowbell.stream_log where stream_id = 1");
    while (gateway_metric(gateway, "rowbell_stream_position") != newest) {
        ck_assert_msg(clock_ms() < end, "the gateway does not reach the log's end");
    }
}

struct sse_client *open_as(const struct gateway *gateway, const char *target, const char *format, ...) {
    char *headers = malloc(100000);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(headers, 100000, format, arguments);
    va_end(arguments);
    struct sse_client *client = sse_open(gateway->port, target, headers);
    free(headers);
    return client;
}

int status_of(struct sse_client *client) {
    return atoi(sse_wait(client, "\r\n\r\n", SOON_MS) + strlen("HTTP/1.1 "));
}

static bool is_closed(void *client) {
    return sse_closed(client);
}

void wait_closed(struct sse_client *client, unsigned deadline_ms) {
    wait_for(is_closed, client, deadline_ms, "the end of the stream");
}

bool has(struct sse_client *client, const char *text) {
    return strstr(sse_bytes(client), text) != NULL;
}

void check_come_again(struct sse_client *client) {
    ck_assert_int_eq(status_of(client), 200);
    wait_closed(client, SOON_MS);
    ck_assert(has(client, "Content-Type: text/event-stream"));
    const char *body = strstr(sse_bytes(client), "\r\n\r\n") + 4;
    ck_assert_msg(strncmp(body, "retry: ", 7) == 0 && strcmp(strchr(body, '\n'), "\n\n") == 0, "%s", body);
}

void check_sees_only(const struct gateway *gateway, struct sse_client *client, const char *own, const char *foreign) {
    char quoted[100];
    char key[40];
    static int round;
    ck_assert_int_eq(status_of(client), 200);
    sse_wait(client, ": rowbell\n\n", SOON_MS);
    snprintf(key, sizeof key, "own-%d-", ++round);
    snprintf(quoted, sizeof quoted, "'%s'", foreign);
    int64_t filtered = append(quoted, "posts", "foreign-", 1);
    snprintf(quoted, sizeof quoted, "'%s'", own);
    append(quoted, "posts", key, 1);
    sse_wait(client, key, SOON_MS);
    ck_assert(!has(client, "foreign-"));
    char id[40];
    snprintf(id, sizeof id, "id: %" PRId64 "\n", filtered);
    ck_assert(!has(client, id)); // nor its position
    (void)gateway;
}

// ---- an application ----

struct app app = {.lock = PTHREAD_MUTEX_INITIALIZER};

void app_answer(int status, const char *body) {
    pthread_mutex_lock(&app.lock);
    app.status = status;
    snprintf(app.body, sizeof app.body, "%s", body);
    pthread_mutex_unlock(&app.lock);
}

static void *app_serve(void *arg) {
    for (;;) {
        int fd = accept(app.listener, NULL, NULL);
        if (fd < 0) {
            return NULL;
        }
        char request[sizeof app.request];
        size_t length = 0;
        ssize_t got;
        do {
            got = recv(fd, request + length, sizeof request - 1 - length, 0);
            length += got > 0 ? (size_t)got : 0;
            request[length] = '\0';
        } while (got > 0 && !strstr(request, "\r\n\r\n"));
        pthread_mutex_lock(&app.lock);
        memcpy(app.request, request, length + 1);
        char *answer = NULL;
        int size = asprintf(&answer,
                            "HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                            "Connection: close\r\n\r\n%s",
                            app.status, strlen(app.body), app.body);
        bool silent = app.status == 0;
        pthread_mutex_unlock(&app.lock);
        atomic_fetch_add(&app.count, 1);
        if (!silent) {
            send(fd, answer, (size_t)size, MSG_NOSIGNAL);
            close(fd);
        }
        free(answer);
    }
}

void app_listen(void) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)app.port)};
    socklen_t size = sizeof address;
    int yes = 1;
    app.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(app.listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    ck_assert_int_eq(bind(app.listener, (struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(listen(app.listener, 100), 0);
    getsockname(app.listener, (struct sockaddr *)&address, &size);
    app.port = ntohs(address.sin_port);
    ck_assert_int_eq(pthread_create(&app.thread, NULL, app_serve, NULL), 0);
}

const char *app_start(const char *path) {
    static char url[100];
    app.port = 0;
    app_listen();
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", app.port, path);
    return url;
}

void app_stop(void) {
    shutdown(app.listener, SHUT_RDWR);
    pthread_join(app.thread, NULL);
    close(app.listener);
}
