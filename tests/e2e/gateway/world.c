#include "tests/e2e/gateway/world.h"
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

int64_t log_append_quietly(const char *table, const char *prefix, int count, int key_bytes) {
    char sql[1200];
    snprintf(sql, sizeof sql,
             "with newest as (select max(position) as p from rowbell.stream_log where stream_id = 1),"
             " batch as (select p, greatest(p + 1, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as f"
             "             from newest)"
             " insert into rowbell.stream_log (stream_id, position, prev, event_seq, scope, name, key, op)"
             " select 1, f + i, case when i = 0 then p else f + i - 1 end, i, null, '%s', rpad('%s' || i, %d, 'x'),"
             "        'update'"
             "   from batch, generate_series(0, %d - 1) as i order by i",
             table, prefix, key_bytes, count);
    sql_run(db, sql);
    return sql_int(db, "select max(position) from rowbell.stream_log where stream_id = 1");
}

int64_t log_append(const char *table, const char *prefix, int count) {
    int64_t newest = log_append_quietly(table, prefix, count, (int)strlen(prefix) + 4);
    sql_run(db, "select pg_notify('rowbell_stream', (select max(position)::text from rowbell.stream_log))");
    return newest;
}

int64_t log_newest(void) {
    return sql_int(db, "select max(position) from rowbell.stream_log where stream_id = 1");
}

// ---- streams ----

struct sse_client *open_at(const struct gateway *gateway, int64_t position) {
    char header[64];
    snprintf(header, sizeof header, "Last-Event-ID: %" PRId64 "\r\n", position);
    return sse_open(gateway->port, "/events", header);
}

const char *body_of(struct sse_client *client) {
    const char *head_end = strstr(sse_bytes(client), "\r\n\r\n");
    return head_end ? head_end + 4 : "";
}

void wait_position(struct sse_client *client, int64_t position) {
    char text[64];
    snprintf(text, sizeof text, "id: %" PRId64 "\n", position);
    sse_wait(client, text, SOON_MS);
}

int count_of(const char *text, const char *part) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part)) {
        count++;
    }
    return count;
}

void check_body(struct sse_client *client, const char *format, ...) {
    char expected[2000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(expected, sizeof expected, format, arguments);
    va_end(arguments);
    sse_wait(client, expected[0] ? strrchr(expected, ':') : "", SOON_MS);
    ck_assert_str_eq(body_of(client), expected);
}

void wait_gateway(const struct gateway *gateway) {
    uint64_t end = clock_ms() + SOON_MS;
    while (gateway_metric(gateway, "rowbell_stream_position") != (double)log_newest()) {
        ck_assert_msg(clock_ms() < end, "the gateway does not reach the log's end");
    }
}

void check_reset(const struct gateway *gateway, const char *target, const char *header, const char *reason) {
    wait_gateway(gateway);
    struct sse_client *client = sse_open(gateway->port, target, header);
    check_body(client, "retry: 3000\n: rowbell\n\nevent: reset\nid: %" PRId64 "\ndata: {\"reason\":\"%s\"}\n\n",
               log_newest(), reason);
    wait_position(client, log_append("posts", "after", 1));
    ck_assert_int_eq(count_of(sse_bytes(client), "event: reset"), 1);
    sse_close(client);
}

const char *request(int port, const char *format, ...) {
    static char answer[65536];
    char text[4000];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval limit = {.tv_sec = SOON_MS / 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(send(fd, text, (size_t)length, MSG_NOSIGNAL), length);
    size_t got = 0;
    ssize_t n;
    while ((n = recv(fd, answer + got, sizeof answer - 1 - got, 0)) > 0) {
        got += (size_t)n;
    }
    ck_assert_msg(n == 0, "the connection was not closed after: %s", text);
    answer[got] = '\0';
    close(fd);
    return answer;
}

void check_has(const char *text, const char *part) {
    ck_assert_msg(strstr(text, part) != NULL, "no '%s' in:\n%s", part, text);
}

bool stream_is_closed(void *arg) {
    return sse_closed(arg);
}

void each_position(void (*each)(void *arg, int64_t position, int64_t prev, const char *key), void *arg, int64_t after) {
    char sql[200];
    snprintf(sql, sizeof sql,
             "select position, prev, key from rowbell.stream_log where position > %" PRId64 " order by position",
             after);
    PGresult *result = PQexec(db, sql);
    ck_assert_int_eq(PQresultStatus(result), PGRES_TUPLES_OK);
    for (int row = 0; row < PQntuples(result); row++) {
        each(arg, strtoll(PQgetvalue(result, row, 0), NULL, 10), strtoll(PQgetvalue(result, row, 1), NULL, 10),
             PQgetvalue(result, row, 2));
    }
    PQclear(result);
}
