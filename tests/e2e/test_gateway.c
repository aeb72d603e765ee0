// The gateway with the real program on real PostgreSQL and Redis: the wire to the byte, G5 (every event or a reset that
// covers it), G6 (positions mean the same on every gateway), G9 (Redis and the process are disposable). The log is
// written here as the dispatcher's SSE lane writes it.
#include "common/buffer.h"
#include "common/clock.h"
#include "common/stream_message.h"
#include "tests/support/fixture.h"
#include "tests/support/redis_server.h"
#include <arpa/inet.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SOON_MS = 10000 };

// ---- the log ----

static PGconn *db;

// A database of its own, with an installation of its own: clones of one template would share a Redis channel.
static void fresh_database(void) {
    fixture_database();
    db = fixture_connect();
    sql_run(db, "update rowbell.installation set id = replace(gen_random_uuid()::text, '-', '')");
}

// Appends `count` entries <prefix>0, <prefix>1, ... padded to `key_bytes`, as one batch; says nothing to anybody.
// Returns the newest position.
static int64_t log_append_quietly(const char *table, const char *prefix, int count, int key_bytes) {
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

static int64_t log_append(const char *table, const char *prefix, int count) {
    int64_t newest = log_append_quietly(table, prefix, count, (int)strlen(prefix) + 4);
    sql_run(db, "select pg_notify('rowbell_stream', (select max(position)::text from rowbell.stream_log))");
    return newest;
}

static int64_t log_newest(void) {
    return sql_int(db, "select max(position) from rowbell.stream_log where stream_id = 1");
}

// ---- the gateway ----

struct gateway {
    struct daemon *daemon;
    int port;
    int admin_port;
};

static struct gateway gateway_start(const char *const *extra) {
    const char *arguments[40] = {"--listen", "127.0.0.1:0"};
    for (size_t i = 0; extra && extra[i]; i++) {
        arguments[2 + i] = extra[i];
    }
    struct gateway gateway = {.daemon = daemon_start("rowbell-gateway", arguments)};
    daemon_wait_log(gateway.daemon, "stream_ready", SOON_MS);
    gateway.port = daemon_log_port(gateway.daemon, "listen");
    gateway.admin_port = daemon_log_port(gateway.daemon, "admin");
    return gateway;
}
#define WITH(...) ((const char *const[]){__VA_ARGS__, NULL})

static double gateway_metric(const struct gateway *gateway, const char *name) {
    char url[100];
    const char *body;
    snprintf(url, sizeof url, "http://127.0.0.1:%d/metrics", gateway->admin_port);
    ck_assert_int_eq(http_get(url, &body), 200);
    char pattern[200];
    snprintf(pattern, sizeof pattern, "\n%s ", name);
    const char *line = strstr(body, pattern);
    return line ? strtod(line + strlen(pattern), NULL) : 0;
}

static struct sse_client *open_at(const struct gateway *gateway, int64_t position) {
    char header[64];
    snprintf(header, sizeof header, "Last-Event-ID: %" PRId64 "\r\n", position);
    return sse_open(gateway->port, "/events", header);
}

// ---- streams ----

static const char *body_of(struct sse_client *client) {
    const char *head_end = strstr(sse_bytes(client), "\r\n\r\n");
    return head_end ? head_end + 4 : "";
}

static void wait_position(struct sse_client *client, int64_t position) {
    char text[64];
    snprintf(text, sizeof text, "id: %" PRId64 "\n", position);
    sse_wait(client, text, SOON_MS);
}

static int count_of(const char *text, const char *part) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part)) {
        count++;
    }
    return count;
}

static void check_body(struct sse_client *client, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void check_body(struct sse_client *client, const char *format, ...) {
    char expected[2000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(expected, sizeof expected, format, arguments);
    va_end(arguments);
    sse_wait(client, expected[0] ? strrchr(expected, ':') : "", SOON_MS);
    ck_assert_str_eq(body_of(client), expected);
}

// Until the gateway has everything that is in the log.
static void wait_gateway(const struct gateway *gateway) {
    uint64_t end = clock_ms() + SOON_MS;
    while (gateway_metric(gateway, "rowbell_stream_position") != (double)log_newest()) {
        ck_assert_msg(clock_ms() < end, "the gateway does not reach the log's end");
    }
}

// Opens at a position that cannot be resumed, and expects the reset, then an event as usual.
static void check_reset(const struct gateway *gateway, const char *target, const char *header, const char *reason) {
    wait_gateway(gateway);
    struct sse_client *client = sse_open(gateway->port, target, header);
    check_body(client, "retry: 3000\n: rowbell\n\nevent: reset\nid: %" PRId64 "\ndata: {\"reason\":\"%s\"}\n\n",
               log_newest(), reason);
    wait_position(client, log_append("posts", "after", 1));
    ck_assert_int_eq(count_of(sse_bytes(client), "event: reset"), 1);
    sse_close(client);
}

// One request on a connection of its own; returns everything that came back until the server closed.
static const char *request(int port, const char *format, ...) __attribute__((format(printf, 2, 3)));
static const char *request(int port, const char *format, ...) {
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

static void check_has(const char *text, const char *part) {
    ck_assert_msg(strstr(text, part) != NULL, "no '%s' in:\n%s", part, text);
}

// ---- opening ----

START_TEST(fresh_stream_to_the_byte) {
    fresh_database();
    struct gateway gateway = gateway_start(NULL);
    struct sse_client *client = sse_open(gateway.port, "/events", NULL);
    int64_t opened = log_newest();
    wait_position(client, opened);
    char head[1000];
    const char *date = strstr(sse_bytes(client), "Date: ");
    ck_assert_ptr_nonnull(date);
    snprintf(head, sizeof head,
             "HTTP/1.1 200 OK\r\nDate: %.29s\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
             "Cache-Control: no-store, no-transform\r\nX-Accel-Buffering: no\r\nConnection: close\r\n\r\n"
             "retry: 3000\n: rowbell\n\nid: %" PRId64 "\n\n",
             date + 6, opened);
    ck_assert_str_eq(sse_bytes(client), head);

    struct sse_client *pinged = sse_open(gateway.port, "/events?ping=1", NULL);
    check_body(pinged, "retry: 3000\n: rowbell\n\nevent: ping\nid: %" PRId64 "\ndata: {}\n\n", opened);
}
END_TEST

START_TEST(empty_and_zero_are_fresh) {
    static const struct {
        const char *target;
        const char *header;
    } cases[] = {{"/events", "Last-Event-ID:\r\n"},
                 {"/events", "Last-Event-ID: 0\r\n"},
                 {"/events?last_event_id=", NULL},
                 {"/events?lastEventId=0", NULL}};
    fresh_database();
    struct gateway gateway = gateway_start(NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sse_client *client = sse_open(gateway.port, cases[i].target, cases[i].header);
        check_body(client, "retry: 3000\n: rowbell\n\nid: %" PRId64 "\n\n", log_newest());
    }
}
END_TEST

START_TEST(change_arrives_live_to_the_byte) { // G5
    fresh_database();
    struct gateway gateway = gateway_start(NULL);
    struct sse_client *client = sse_open(gateway.port, "/events", NULL);
    int64_t opened = log_newest();
    wait_position(client, opened);
    int64_t position = log_append("posts", "p1", 1);
    check_body(client,
               "retry: 3000\n: rowbell\n\nid: %" PRId64 "\n\nevent: change\nid: %" PRId64
               "\ndata: {\"table\":\"posts\",\"key\":\"p10xxx\",\"op\":\"update\"}\n\n",
               opened, position);
    ck_assert(gateway_metric(&gateway, "rowbell_stream_subscribers") == 1);
    ck_assert(gateway_metric(&gateway, "rowbell_stream_position") == (double)position);
}
END_TEST

START_TEST(table_parameter_filters_live_and_replay) {
    fresh_database();
    struct gateway gateway = gateway_start(WITH("--ring", "2"));
    int64_t start = log_newest();
    struct sse_client *live = sse_open(gateway.port, "/events?table=a&table=c", NULL);
    wait_position(live, start);
    log_append("a", "first", 1);
    int64_t hidden = log_append("b", "hidden", 5);
    int64_t last = log_append("c", "last", 1);
    char target[100];
    snprintf(target, sizeof target, "/events?table=a&table=c&last_event_id=%" PRId64, start);
    struct sse_client *replayed = sse_open(gateway.port, target, NULL); // past the ring: from the log
    struct sse_client *clients[] = {live, replayed};
    for (int i = 0; i < 2; i++) {
        wait_position(clients[i], last);
        ck_assert_int_eq(count_of(sse_bytes(clients[i]), "event: change"), 2);
        char id[40];
        snprintf(id, sizeof id, "%" PRId64, hidden); // an id of what was filtered out is never written
        ck_assert_ptr_null(strstr(sse_bytes(clients[i]), id));
    }
}
END_TEST

// ---- resuming ----

START_TEST(resumes_without_gap_or_duplicate) { // G5; _i: the ring has it, the log has it
    fresh_database();
    struct gateway gateway = gateway_start(WITH("--ring", _i == 0 ? "16384" : "3"));
    int64_t start = log_append("posts", "seen", 1);
    struct sse_client *client = sse_open(gateway.port, "/events", NULL);
    wait_position(client, start);
    sse_close(client);
    int64_t missed = log_append("posts", "missed", 20);
    struct sse_client *other = sse_open(gateway.port, "/events", NULL);
    wait_position(other, missed);
    client = open_at(&gateway, start);
    int64_t live = log_append("posts", "live", 3);
    wait_position(client, live);
    const char *body = body_of(client);
    ck_assert_int_eq(count_of(body, "event: change"), 23);
    ck_assert_int_eq(count_of(body, "event: reset"), 0);
    int64_t before = start;
    for (const char *at = body; (at = strstr(at, "\nid: ")) != NULL; at++) {
        int64_t id = strtoll(at + 5, NULL, 10);
        ck_assert_int_gt(id, before);
        before = id;
    }
    ck_assert(gateway_metric(&gateway, _i == 0 ? "rowbell_stream_opened_total{how=\"ring\"}"
                                               : "rowbell_stream_opened_total{how=\"log\"}") == 1);
}
END_TEST

START_TEST(the_header_wins_over_the_parameter) {
    fresh_database();
    struct gateway gateway = gateway_start(NULL);
    int64_t old = log_append("posts", "old", 1);
    int64_t newer = log_append("posts", "newer", 1);
    char target[100];
    char header[100];
    snprintf(target, sizeof target, "/events?lastEventId=%" PRId64, old);
    snprintf(header, sizeof header, "Last-Event-ID: %" PRId64 "\r\n", newer);
    wait_position(sse_open(gateway.port, target, NULL), newer);
    struct sse_client *client = sse_open(gateway.port, target, header);
    wait_position(client, log_append("posts", "live", 1));
    ck_assert_int_eq(count_of(sse_bytes(client), "event: change"), 1);
}
END_TEST

START_TEST(positions_that_cannot_be_resumed) { // DESIGN 7, each reason
    fresh_database();
    struct gateway gateway = gateway_start(WITH("--ring", "4", "--max-replay", "5"));
    char header[100];
    check_reset(&gateway, "/events", "Last-Event-ID: garbage\r\n", "id_unreadable");
    check_reset(&gateway, "/events?last_event_id=-5", NULL, "id_unreadable");
    check_reset(&gateway, "/events", "Last-Event-ID: 12345678901234567890123456789\r\n", "id_unreadable");
    check_reset(&gateway, "/events", "Last-Event-ID: 5\r\n", "history_expired");
    check_reset(&gateway, "/events", "Last-Event-ID: 9007199254740991\r\n", "id_ahead");

    int64_t lost = log_append("posts", "lost", 1);
    log_append("posts", "kept", 6);
    snprintf(header, sizeof header, "Last-Event-ID: %" PRId64 "\r\n", lost);
    check_reset(&gateway, "/events", header, "replay_limit"); // seen by the log
    char sql[200];
    snprintf(sql, sizeof sql, "delete from rowbell.stream_log where position = %" PRId64, lost);
    sql_run(db, sql);
    check_reset(&gateway, "/events", header, "stream_rewound");

    int64_t old = log_append("posts", "old", 1);
    log_append("posts", "kept", 10);
    snprintf(sql, sizeof sql, "delete from rowbell.stream_log where position <= %" PRId64, old);
    sql_run(db, sql);
    snprintf(header, sizeof header, "Last-Event-ID: %" PRId64 "\r\n", old);
    check_reset(&gateway, "/events", header, "history_expired");
    ck_assert(gateway_metric(&gateway, "rowbell_stream_resets_total{reason=\"history_expired\"}") == 2);
}
END_TEST

START_TEST(replay_limit_by_the_ring_and_exactly) {
    fresh_database();
    struct gateway gateway = gateway_start(WITH("--max-replay", "5"));
    int64_t start = log_newest();
    int64_t newest = log_append("posts", "p", 5);
    struct sse_client *client = open_at(&gateway, start);
    wait_position(client, newest);
    ck_assert_int_eq(count_of(sse_bytes(client), "event: change"), 5);
    char header[100];
    snprintf(header, sizeof header, "Last-Event-ID: %" PRId64 "\r\n", start);
    wait_position(client, log_append("posts", "q", 1));
    check_reset(&gateway, "/events", header, "replay_limit");
    // What it may not see does not count.
    int64_t others = log_append("others", "o", 20);
    client = sse_open(gateway.port, "/events", NULL);
    wait_position(client, others);
    char target[100];
    snprintf(target, sizeof target, "/events?table=posts&last_event_id=%" PRId64, newest);
    client = sse_open(gateway.port, target, NULL);
    wait_position(client, log_append("posts", "r", 1));
    ck_assert_int_eq(count_of(sse_bytes(client), "event: reset"), 0);
}
END_TEST

START_TEST(a_restored_database_tells_those_who_saw_more) { // G6
    fresh_database();
    struct gateway gateway = gateway_start(NULL);
    int64_t kept = log_append("posts", "kept", 1);
    wait_gateway(&gateway); // so that the ring serves both: who still waits for the log at a rewind is sent away
    struct sse_client *early = open_at(&gateway, kept);
    char target[100];
    snprintf(target, sizeof target, "/events?table=rare&last_event_id=%" PRId64, kept);
    struct sse_client *quiet = sse_open(gateway.port, target, NULL);
    sse_wait(quiet, ": rowbell\n\n", SOON_MS);
    int64_t lost = log_append("posts", "lost", 3);
    wait_position(early, lost);
    char sql[300];
    snprintf(sql, sizeof sql, "delete from rowbell.stream_log where position > %" PRId64, kept);
    sql_run(db, sql);
    snprintf(sql, sizeof sql,
             "insert into rowbell.stream_log (stream_id, position, prev, event_seq, name, key, op)"
             " values (1, %" PRId64 ", %" PRId64 ", 1, 'rare', 'new', 'create')",
             lost + 60000000, kept);
    sql_run(db, sql);
    sse_wait(early, "stream_rewound", SOON_MS);
    char reset[100];
    snprintf(reset, sizeof reset, "event: reset\nid: %" PRId64 "\n", kept);
    check_has(sse_bytes(early), reset);
    wait_position(early, lost + 60000000);
    wait_position(quiet, lost + 60000000);
    ck_assert_int_eq(count_of(sse_bytes(quiet), "event: reset"), 0); // it saw nothing of what was lost
    snprintf(target, sizeof target, "Last-Event-ID: %" PRId64 "\r\n", lost);
    struct sse_client *late = sse_open(gateway.port, "/events", target);
    sse_wait(late, "stream_rewound", SOON_MS);
}
END_TEST

START_TEST(positions_mean_the_same_on_every_gateway) { // G6
    fresh_database();
    struct gateway gateways[] = {gateway_start(NULL), gateway_start(WITH("--ring", "2"))};
    struct sse_client *clients[] = {sse_open(gateways[0].port, "/events", NULL),
                                    sse_open(gateways[1].port, "/events", NULL)};
    wait_position(clients[0], log_newest());
    wait_position(clients[1], log_newest());
    int64_t newest = log_append("posts", "p", 10);
    wait_position(clients[0], newest);
    wait_position(clients[1], newest);
    ck_assert_str_eq(body_of(clients[0]), body_of(clients[1]));
    for (int i = 0; i < 2; i++) {
        struct sse_client *moved = open_at(&gateways[1 - i], newest - 4);
        wait_position(moved, newest);
        ck_assert_int_eq(count_of(sse_bytes(moved), "event: change"), 4);
    }
}
END_TEST

START_TEST(an_id_of_a_gateway_that_is_ahead_is_resumed) { // G6
    fresh_database();
    struct gateway gateway = gateway_start(NULL);
    int64_t here = log_newest();
    int64_t ahead = log_append_quietly("posts", "ahead", 2, 9); // this gateway does not know yet
    struct sse_client *client = open_at(&gateway, ahead);
    sse_wait(client, "rowbell\n\n", SOON_MS);
    wait_position(client, log_append("posts", "next", 1));
    ck_assert_int_eq(count_of(sse_bytes(client), "event: change"), 1);
    ck_assert_int_eq(count_of(sse_bytes(client), "event: reset"), 0);
    ck_assert_int_lt(here, ahead);
}
END_TEST

START_TEST(a_restart_resumes_from_memory_of_nobody) { // G6, G9
    fresh_database();
    struct gateway gateway = gateway_start(NULL);
    int64_t seen = log_append("posts", "seen", 1);
    struct sse_client *client = sse_open(gateway.port, "/events", NULL);
    wait_position(client, seen);
    daemon_signal(gateway.daemon, SIGKILL);
    daemon_wait_exit(gateway.daemon, SOON_MS);
    int64_t missed = log_append("posts", "missed", 7);
    gateway = gateway_start(NULL);
    client = open_at(&gateway, seen);
    wait_position(client, missed);
    ck_assert_int_eq(count_of(sse_bytes(client), "event: change"), 7);
    // The ring was filled from the log, so that a crowd that comes back costs no query.
    ck_assert(gateway_metric(&gateway, "rowbell_stream_opened_total{how=\"ring\"}") == 1);
}
END_TEST

// ---- Redis ----

static void each_position(void (*each)(void *arg, int64_t position, int64_t prev, const char *key), void *arg,
                          int64_t after) {
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

// What the dispatcher says after a commit, here one message an entry.
static void publish_entry(void *arg, int64_t position, int64_t prev, const char *key) {
    struct redis *redis = arg;
    struct buffer message = {0};
    char channel[200];
    stream_channel(channel, sizeof channel, sql_text(db, "select id from rowbell.installation"), 1);
    stream_message_begin(&message, prev, position, 1);
    stream_message_entry(&message, &(struct stream_entry){.name = "posts", .key = key, .op = "update"});
    redis_command(redis, "PUBLISH %s %b", channel, message.bytes, message.length);
    buffer_free(&message);
}

static void publish_after(struct redis *redis, int64_t position) {
    each_position(publish_entry, redis, position);
}

START_TEST(redis_carries_and_the_log_completes) { // G5, G9
    fresh_database();
    struct redis redis = {0};
    redis_start(&redis);
    struct gateway gateway = gateway_start(WITH("--redis-url", redis.url));
    daemon_wait_log(gateway.daemon, "redis_up", SOON_MS);
    struct sse_client *client = sse_open(gateway.port, "/events", NULL);
    int64_t start = log_newest();
    wait_position(client, start);

    int64_t newest = log_append_quietly("posts", "published", 5, 12);
    publish_after(&redis, start);
    wait_position(client, newest);
    ck_assert(gateway_metric(&gateway, "rowbell_redis_connected") == 1);

    newest = log_append_quietly("posts", "silent", 3, 9); // its publish is lost
    wait_position(client, newest);
    ck_assert(gateway_metric(&gateway, "rowbell_stream_gap_fills_total") >= 3);

    int64_t before = newest;
    newest = log_append_quietly("posts", "again", 2, 9);
    publish_after(&redis, before - 2); // with two that are known
    wait_position(client, newest);

    redis_command(&redis, "FLUSHALL");
    before = newest;
    newest = log_append_quietly("posts", "flushed", 2, 9);
    publish_after(&redis, before);
    wait_position(client, newest);

    redis_kill(&redis);
    daemon_wait_log(gateway.daemon, "redis_down", SOON_MS);
    newest = log_append_quietly("posts", "without", 4, 9);
    wait_position(client, newest);

    redis_start(&redis);
    uint64_t end = clock_ms() + SOON_MS;
    while (gateway_metric(&gateway, "rowbell_redis_connected") != 1) {
        ck_assert_msg(clock_ms() < end, "the gateway does not come back to Redis");
    }
    before = newest;
    newest = log_append_quietly("posts", "back", 2, 9);
    publish_after(&redis, before);
    wait_position(client, newest);

    ck_assert_int_eq(count_of(body_of(client), "event: change"), 18);
    ck_assert_int_eq(count_of(body_of(client), "event: reset"), 0);
    redis_stop(&redis);
}
END_TEST

START_TEST(a_message_larger_than_the_ring_loses_nothing) { // G5
    enum { COUNT = 100 };
    fresh_database();
    struct redis redis = {0};
    redis_start(&redis);
    struct gateway gateway = gateway_start(WITH("--redis-url", redis.url, "--ring", "10"));
    daemon_wait_log(gateway.daemon, "redis_up", SOON_MS);
    struct sse_client *client = sse_open(gateway.port, "/events", NULL);
    int64_t start = log_newest();
    wait_position(client, start);
    int64_t newest = log_append_quietly("posts", "p", COUNT, 5);
    struct buffer message = {0};
    char channel[200];
    stream_channel(channel, sizeof channel, sql_text(db, "select id from rowbell.installation"), 1);
    stream_message_begin(&message, start, newest - COUNT + 1, COUNT);
    for (int i = 0; i < COUNT; i++) {
        stream_message_entry(&message, &(struct stream_entry){.name = "posts", .key = "p", .op = "update"});
    }
    redis_command(&redis, "PUBLISH %s %b", channel, message.bytes, message.length);
    wait_position(client, newest);
    ck_assert_int_eq(count_of(body_of(client), "event: change"), COUNT);
    buffer_free(&message);
    redis_stop(&redis);
}
END_TEST

START_TEST(garbage_on_the_channel_changes_nothing) {
    fresh_database();
    struct redis redis = {0};
    redis_start(&redis);
    struct gateway gateway = gateway_start(WITH("--redis-url", redis.url));
    daemon_wait_log(gateway.daemon, "redis_up", SOON_MS);
    struct sse_client *client = sse_open(gateway.port, "/events", NULL);
    int64_t start = log_newest();
    wait_position(client, start);
    char channel[200];
    stream_channel(channel, sizeof channel, sql_text(db, "select id from rowbell.installation"), 1);
    redis_command(&redis, "PUBLISH %s %s", channel, "rowbell-stream 99 something newer");
    redis_command(&redis, "PUBLISH %s %s", channel, "");
    redis_command(&redis, "PUBLISH %s %s", channel, "rowbell-stream 1 1 2 1\n\\N\tposts\tforged\tupdate\n");
    int64_t newest = log_append_quietly("posts", "real", 1, 6);
    publish_after(&redis, start);
    wait_position(client, newest);
    ck_assert_ptr_null(strstr(body_of(client), "forged"));
    redis_stop(&redis);
}
END_TEST

START_TEST(redis_that_is_not_there_only_slows) { // G9
    fresh_database();
    struct gateway gateway = gateway_start(WITH("--redis-url", "redis://127.0.0.1:1"));
    struct sse_client *client = sse_open(gateway.port, "/events", NULL);
    wait_position(client, log_newest());
    // The log is looked at every 200 ms then: five in turn would take five seconds by the ordinary check.
    uint64_t start_ms = clock_ms();
    for (int i = 0; i < 5; i++) {
        wait_position(client, log_append_quietly("posts", "p", 1, 4));
    }
    ck_assert_uint_lt(clock_ms() - start_ms, 3000);
    char url[100];
    const char *body;
    snprintf(url, sizeof url, "http://127.0.0.1:%d/readyz", gateway.admin_port);
    ck_assert_int_eq(http_get(url, &body), 200);
}
END_TEST

START_TEST(database_away_and_back_loses_nothing) { // G5
    fresh_database();
    struct gateway gateway = gateway_start(NULL);
    struct sse_client *client = sse_open(gateway.port, "/events", NULL);
    wait_position(client, log_newest());
    sql_run(db, "select pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name = 'rowbell-gateway' and datname = current_database()");
    daemon_wait_log(gateway.daemon, "database_down", SOON_MS);
    int64_t newest = log_append("posts", "p", 3);
    wait_position(client, newest);
    ck_assert_int_eq(count_of(body_of(client), "event: change"), 3);
    ck_assert_int_eq(count_of(body_of(client), "event: reset"), 0);
}
END_TEST

START_TEST(a_replay_waits_for_a_database_that_is_away_for_a_moment) {
    fresh_database();
    struct gateway gateway = gateway_start(WITH("--ring", "2"));
    int64_t start = log_newest();
    int64_t newest = log_append("posts", "p", 9);
    wait_gateway(&gateway);
    sql_run(db, "select pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name = 'rowbell-gateway' and datname = current_database()");
    struct sse_client *client = open_at(&gateway, start);
    wait_position(client, newest);
    ck_assert_int_eq(count_of(body_of(client), "event: change"), 9);
}
END_TEST

// ---- time, slowness, limits ----

START_TEST(heartbeats_are_comments_or_pings) {
    fresh_database();
    struct gateway gateway = gateway_start(WITH("--heartbeat", "300ms"));
    struct sse_client *plain = sse_open(gateway.port, "/events", NULL);
    struct sse_client *pinged = sse_open(gateway.port, "/events?ping=1", NULL);
    sse_wait(plain, "\n\n:\n\n:\n\n", SOON_MS);
    sse_wait(pinged, "\n\nevent: ping\ndata: {}\n\nevent: ping\ndata: {}\n\n", SOON_MS);
    ck_assert_int_eq(count_of(body_of(plain), "ping"), 0);
}
END_TEST

// What a browser would have after reading these bytes: whole blocks only, since a partial one is discarded.
struct page {
    int64_t last_id;
    int64_t covered; // everything up to here is covered by a reset
    int64_t *seen;   // rising
    int changes;
    int resets;
};

static void page_read(struct page *page, const char *body) {
    const char *end;
    for (; (end = strstr(body, "\n\n")) != NULL; body = end + 2) {
        const char *id = strstr(body, "id: ");
        if (!id || id > end) {
            continue;
        }
        int64_t position = strtoll(id + 4, NULL, 10);
        if (strncmp(body, "event: change", 13) == 0) {
            ck_assert_msg(position > page->last_id, "%" PRId64 " after %" PRId64, position, page->last_id);
            page->seen = reallocarray(page->seen, (size_t)page->changes + 1, sizeof page->seen[0]);
            page->seen[page->changes++] = position;
        } else if (strncmp(body, "event: reset", 12) == 0) {
            page->resets++;
            page->covered = position;
        }
        page->last_id = position;
    }
}

static int compare_positions(const void *a, const void *b) {
    int64_t left = *(const int64_t *)a;
    int64_t right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static void check_seen(void *arg, int64_t position, int64_t prev, const char *key) {
    const struct page *page = arg;
    bool seen = page->changes > 0 &&
                bsearch(&position, page->seen, (size_t)page->changes, sizeof page->seen[0], compare_positions) != NULL;
    ck_assert_msg(seen || position <= page->covered, "position %" PRId64 " was neither seen nor covered by a reset",
                  position);
}

static bool closed(void *arg) {
    return sse_closed(arg);
}

static bool slow_was_disconnected(void *arg) {
    return gateway_metric(arg, "rowbell_stream_disconnects_total{reason=\"slow\"}") == 1;
}

static int64_t append_wide(int count, int key_bytes) {
    int64_t newest = log_append_quietly("posts", "p", count, key_bytes);
    sql_run(db, "select pg_notify('rowbell_stream', (select max(position)::text from rowbell.stream_log))");
    return newest;
}

START_TEST(a_slow_reader_is_disconnected_and_loses_nothing) { // G5, G7
    fresh_database();
    struct gateway gateway = gateway_start(NULL);
    int64_t start = log_newest();
    struct sse_client *slow = open_at(&gateway, start);
    struct sse_client *quick = open_at(&gateway, start);
    struct page page = {.last_id = start};
    int64_t newest = start;
    int appended = 0;
    // The slow one reads nothing: the kernel's buffers fill, then 1,024 events wait for it, then it is closed.
    while (!slow_was_disconnected(&gateway)) {
        ck_assert_int_lt(appended, 60000);
        newest = append_wide(100, 600);
        appended += 100;
        wait_position(quick, newest); // the other is not held up
    }
    ck_assert_int_gt(appended, 1024);
    wait_for(closed, slow, SOON_MS, "the slow stream's end");
    page_read(&page, body_of(slow));
    ck_assert_int_gt(page.changes, 0);
    ck_assert_int_lt(page.changes, appended);
    struct sse_client *again = open_at(&gateway, page.last_id);
    wait_position(again, append_wide(1, 20));
    page_read(&page, body_of(again));
    each_position(check_seen, &page, start);
    free(page.seen);
}
END_TEST

START_TEST(a_reader_that_the_ring_left_behind_gets_it_from_the_log) { // G5
    enum { BATCHES = 30, BATCH = 30 };
    fresh_database();
    struct gateway gateway = gateway_start(WITH("--ring", "40"));
    int64_t start = log_newest();
    struct sse_client *slow = open_at(&gateway, start);
    struct sse_client *quick = open_at(&gateway, start);
    struct page page = {.last_id = start};
    int64_t newest = start;
    for (int i = 0; i < BATCHES; i++) {
        newest = append_wide(BATCH, 600);
        wait_position(quick, newest);
    }
    wait_position(slow, newest);
    page_read(&page, body_of(slow));
    ck_assert_int_eq(page.resets, 0);
    ck_assert_int_eq(page.changes, BATCHES * BATCH);
    ck_assert(gateway_metric(&gateway, "rowbell_stream_replay_seconds_count") > 0); // it did go that way
    free(page.seen);
}
END_TEST

// Random readers on two gateways: they read or not, break off in the middle of a block, come back anywhere.
START_TEST(random_readers_see_everything_or_a_reset) { // G5, G6
    enum { READERS = 8, STEPS = 120 };
    unsigned seed = (unsigned)_i * 7919 + 17;
    fresh_database();
    struct gateway gateways[] = {
        gateway_start(WITH("--max-replay", "60", "--buffer", "61", "--ring", "40")),
        gateway_start(WITH("--max-replay", "60", "--buffer", "61", "--ring", "2000")),
    };
    int64_t start = log_newest();
    struct sse_client *clients[READERS] = {0};
    struct page pages[READERS];
    for (int r = 0; r < READERS; r++) {
        pages[r] = (struct page){.last_id = start};
    }
    for (int step = 0; step < STEPS; step++) {
        if (rand_r(&seed) % 3 != 0) {
            append_wide(1 + rand_r(&seed) % (rand_r(&seed) % 8 == 0 ? 100 : 10), 20 + rand_r(&seed) % 900);
        }
        int r = rand_r(&seed) % READERS;
        if (!clients[r]) {
            clients[r] = open_at(&gateways[rand_r(&seed) % 2], pages[r].last_id);
        } else if (rand_r(&seed) % 2 == 0) {
            sse_bytes(clients[r]);
        } else {
            char *bytes = strdup(body_of(clients[r]));
            size_t length = strlen(bytes);
            bytes[length == 0 ? 0 : (size_t)rand_r(&seed) % (length + 1)] = '\0'; // it broke off here
            page_read(&pages[r], bytes);
            free(bytes);
            sse_close(clients[r]);
            clients[r] = NULL;
        }
    }
    int64_t newest = append_wide(1, 20);
    for (int r = 0; r < READERS; r++) {
        if (clients[r]) {
            page_read(&pages[r], body_of(clients[r]));
            sse_close(clients[r]);
        }
        if (pages[r].last_id != newest) { // else it has all, and an open stream would say nothing more
            clients[r] = open_at(&gateways[r % 2], pages[r].last_id);
            wait_position(clients[r], newest);
            page_read(&pages[r], body_of(clients[r]));
        }
        each_position(check_seen, &pages[r], start);
        free(pages[r].seen);
    }
}
END_TEST

START_TEST(beyond_the_cap_clients_are_told_to_wait) {
    fresh_database();
    struct gateway gateway = gateway_start(WITH("--max-connections", "2"));
    struct sse_client *first = sse_open(gateway.port, "/events", NULL);
    struct sse_client *second = sse_open(gateway.port, "/events", NULL);
    sse_wait(first, "\nid: ", SOON_MS);
    sse_wait(second, "\nid: ", SOON_MS);
    struct sse_client *third = sse_open(gateway.port, "/events", NULL);
    wait_for(closed, third, SOON_MS, "the end of a stream beyond the cap");
    check_has(sse_bytes(third), "HTTP/1.1 200 OK\r\n");
    check_has(sse_bytes(third), "text/event-stream");
    ck_assert_int_eq(strncmp(body_of(third), "retry: ", 7), 0);
    ck_assert_ptr_null(strstr(body_of(third), "id:"));
    ck_assert(!sse_closed(first)); // nobody is evicted
    sse_close(second);
    uint64_t end = clock_ms() + SOON_MS;
    while (gateway_metric(&gateway, "rowbell_stream_subscribers") > 1) {
        ck_assert_msg(clock_ms() < end, "the gateway does not notice that a client left");
    }
    sse_wait(sse_open(gateway.port, "/events", NULL), "\nid: ", SOON_MS);
}
END_TEST

START_TEST(sigterm_closes_streams_a_few_at_a_time) {
    enum { STREAMS = 20 };
    fresh_database();
    struct gateway gateway = gateway_start(WITH("--drain", "3s"));
    struct sse_client *clients[STREAMS];
    for (int i = 0; i < STREAMS; i++) {
        clients[i] = sse_open(gateway.port, "/events", NULL);
        sse_wait(clients[i], "\nid: ", SOON_MS);
    }
    uint64_t start = clock_ms();
    daemon_signal(gateway.daemon, SIGTERM);
    wait_for(closed, clients[0], SOON_MS, "the first close");
    ck_assert(!sse_closed(clients[STREAMS - 1])); // not all in one instant
    ck_assert_int_eq(daemon_wait_exit(gateway.daemon, SOON_MS), 0);
    ck_assert_uint_lt(clock_ms() - start, 5000);
    int different = 0;
    long before = 0;
    for (int i = 0; i < STREAMS; i++) {
        wait_for(closed, clients[i], SOON_MS, "a close");
        const char *retry = strstr(body_of(clients[i]), "\n\nretry: ");
        ck_assert_msg(retry != NULL, "no retry in: %s", body_of(clients[i]));
        long retry_ms = strtol(retry + 9, NULL, 10);
        ck_assert_int_ge(retry_ms, 1500);
        ck_assert_int_le(retry_ms, 4500);
        different += retry_ms != before;
        before = retry_ms;
    }
    ck_assert_int_gt(different, STREAMS / 2);
}
END_TEST

START_TEST(sigterm_with_nobody_there_is_quick) {
    fresh_database();
    struct gateway gateway = gateway_start(NULL);
    uint64_t start = clock_ms();
    daemon_signal(gateway.daemon, SIGTERM);
    ck_assert_int_eq(daemon_wait_exit(gateway.daemon, SOON_MS), 0);
    ck_assert_uint_lt(clock_ms() - start, 2000);
}
END_TEST

// ---- HTTP ----

START_TEST(requests_that_are_wrong) {
    fresh_database();
    struct gateway gateway = gateway_start(NULL);
    int port = gateway.port;
    const char *tail = "Host: x\r\nConnection: close\r\n\r\n";
    const char *answer = request(port, "GET /events?tabel=posts HTTP/1.1\r\n%s", tail);
    check_has(answer, "HTTP/1.1 400 ");
    check_has(answer, "\"tabel\"");
    check_has(request(port, "GET /events?ping=yes HTTP/1.1\r\n%s", tail), "HTTP/1.1 400 ");
    check_has(request(port, "GET /events?table= HTTP/1.1\r\n%s", tail), "HTTP/1.1 400 ");
    check_has(request(port, "GET /events?table=%%zz HTTP/1.1\r\n%s", tail), "HTTP/1.1 400 ");
    check_has(request(port, "GET /events?last_event_id=1&lastEventId=2 HTTP/1.1\r\n%s", tail), "HTTP/1.1 400 ");
    check_has(request(port, "GET /event HTTP/1.1\r\n%s", tail), "HTTP/1.1 404 ");
    check_has(request(port, "GET / HTTP/1.1\r\n%s", tail), "HTTP/1.1 404 ");        // no --demo
    check_has(request(port, "GET /metrics HTTP/1.1\r\n%s", tail), "HTTP/1.1 404 "); // the admin listener's
    answer = request(port, "POST /events HTTP/1.1\r\nContent-Length: 0\r\n%s", tail);
    check_has(answer, "HTTP/1.1 405 ");
    check_has(answer, "\r\nAllow: GET, HEAD, OPTIONS\r\n");
    check_has(request(port, "GET /events HTTP/1.1\r\nAccept: application/json\r\n%s", tail), "HTTP/1.1 406 ");
    answer = request(port, "HEAD /events HTTP/1.1\r\n%s", tail);
    check_has(answer, "HTTP/1.1 200 ");
    check_has(answer, "text/event-stream");
    ck_assert_str_eq(strstr(answer, "\r\n\r\n"), "\r\n\r\n");
    answer = request(port, "OPTIONS /events HTTP/1.1\r\n%s", tail);
    check_has(answer, "HTTP/1.1 204 ");
    check_has(answer, "\r\nAllow: GET, HEAD, OPTIONS\r\n");
    ck_assert_ptr_null(strstr(answer, "Access-Control"));
}
END_TEST

START_TEST(cors_is_a_list) {
    fresh_database();
    struct gateway gateway =
        gateway_start(WITH("--cors-origin", "https://a.example", "--cors-origin", "https://b.example"));
    struct sse_client *listed = sse_open(gateway.port, "/events", "Origin: https://b.example\r\n");
    sse_wait(listed, "\r\nAccess-Control-Allow-Origin: https://b.example\r\n", SOON_MS);
    check_has(sse_bytes(listed), "\r\nVary: Origin\r\n");
    struct sse_client *other = sse_open(gateway.port, "/events", "Origin: https://evil.example\r\n");
    sse_wait(other, "\nid: ", SOON_MS);
    ck_assert_ptr_null(strstr(sse_bytes(other), "Access-Control"));
    const char *answer = request(gateway.port, "OPTIONS /events HTTP/1.1\r\nHost: x\r\nOrigin: https://a.example\r\n"
                                               "Access-Control-Request-Method: GET\r\nConnection: close\r\n\r\n");
    check_has(answer, "\r\nAccess-Control-Allow-Headers: Last-Event-ID");
}
END_TEST

START_TEST(documents_and_the_demo_page) {
    fresh_database();
    struct gateway gateway = gateway_start(WITH("--demo"));
    static const struct {
        const char *path;
        const char *holds;
    } files[] = {{"/openapi.json", "\"history_expired\""},
                 {"/", "id=\"changes\""},
                 {"/demo.js", "connect(\"/events\""},
                 {"/rowbell.js", "export function connect("},
                 {"/demo.css", "prefers-color-scheme"}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char url[100];
        const char *body;
        snprintf(url, sizeof url, "http://127.0.0.1:%d%s", gateway.port, files[i].path);
        ck_assert_int_eq(http_get(url, &body), 200);
        check_has(body, files[i].holds);
    }
}
END_TEST

// ---- starting ----

static void check_start(int expected, const char *const *arguments, const char *message) {
    const char *out;
    const char *err;
    int status = program_run("rowbell-gateway", arguments, &out, &err);
    ck_assert_msg(status == expected, "status %d, not %d: %s", status, expected, err);
    check_has(err, message);
    check_has(err, "rowbell-gateway: ");
}

START_TEST(starts_that_cannot_work) {
    check_start(3, WITH("--listen", "127.0.0.1:0", "--database-url", "postgres://nobody@127.0.0.1:1/x"), "refused");
    const char *empty = fixture_empty_database();
    check_start(4, WITH("--listen", "127.0.0.1:0", "--database-url", empty), "rowbell migrate");
    fresh_database();
    char wrong[300];
    snprintf(wrong, sizeof wrong, "postgres://postgres:wrong-password@127.0.0.1:%s/%s", PQport(db), PQdb(db));
    check_start(3, WITH("--listen", "127.0.0.1:0", "--database-url", wrong), "password");
    struct gateway gateway = gateway_start(NULL);
    char taken[40];
    snprintf(taken, sizeof taken, "127.0.0.1:%d", gateway.port);
    check_start(1, WITH("--listen", taken), "address already in use");
    check_start(2, WITH("--listen", "0.0.0.0:0"), "--allow-anonymous");
    check_start(2, WITH("--listen", "localhost:80"), "--listen");
    check_start(2, WITH("--auth", "jwt"), "--auth jwt");
    check_start(2, WITH("--redis-url", "http://x"), "--redis-url");
    check_start(2, WITH("--cors-origin", "*"), "--cors-origin");
    check_start(2, WITH("--ring", "0"), "--ring");
    check_start(2, WITH("--no-such-flag"), "--no-such-flag");
}
END_TEST

START_TEST(anonymous_beyond_loopback_when_told_so) {
    fresh_database();
    struct daemon *daemon =
        daemon_start("rowbell-gateway", WITH("--listen", "0.0.0.0:0", "--auth", "none", "--allow-anonymous"));
    daemon_wait_log(daemon, "stream_ready", SOON_MS);
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *opening = suite_case(suite, "opening", 60);
    tcase_add_test(opening, fresh_stream_to_the_byte);
    tcase_add_test(opening, empty_and_zero_are_fresh);
    tcase_add_test(opening, change_arrives_live_to_the_byte);
    tcase_add_test(opening, table_parameter_filters_live_and_replay);
    TCase *resuming = suite_case(suite, "resuming", 60);
    tcase_add_loop_test(resuming, resumes_without_gap_or_duplicate, 0, 2);
    tcase_add_test(resuming, the_header_wins_over_the_parameter);
    tcase_add_test(resuming, positions_that_cannot_be_resumed);
    tcase_add_test(resuming, replay_limit_by_the_ring_and_exactly);
    tcase_add_test(resuming, a_restored_database_tells_those_who_saw_more);
    tcase_add_test(resuming, positions_mean_the_same_on_every_gateway);
    tcase_add_test(resuming, an_id_of_a_gateway_that_is_ahead_is_resumed);
    tcase_add_test(resuming, a_restart_resumes_from_memory_of_nobody);
    TCase *sources = suite_case(suite, "sources", 60);
    tcase_add_test(sources, redis_carries_and_the_log_completes);
    tcase_add_test(sources, a_message_larger_than_the_ring_loses_nothing);
    tcase_add_test(sources, garbage_on_the_channel_changes_nothing);
    tcase_add_test(sources, redis_that_is_not_there_only_slows);
    tcase_add_test(sources, a_replay_waits_for_a_database_that_is_away_for_a_moment);
    tcase_add_test(sources, database_away_and_back_loses_nothing);
    TCase *limits = suite_case(suite, "limits", 120);
    tcase_add_test(limits, heartbeats_are_comments_or_pings);
    tcase_add_test(limits, a_slow_reader_is_disconnected_and_loses_nothing);
    tcase_add_test(limits, a_reader_that_the_ring_left_behind_gets_it_from_the_log);
    tcase_add_loop_test(limits, random_readers_see_everything_or_a_reset, 0, 3);
    tcase_add_test(limits, beyond_the_cap_clients_are_told_to_wait);
    tcase_add_test(limits, sigterm_closes_streams_a_few_at_a_time);
    tcase_add_test(limits, sigterm_with_nobody_there_is_quick);
    TCase *http = suite_case(suite, "http", 60);
    tcase_add_test(http, requests_that_are_wrong);
    tcase_add_test(http, cors_is_a_list);
    tcase_add_test(http, documents_and_the_demo_page);
    TCase *starting = suite_case(suite, "starting", 60);
    tcase_add_test(starting, starts_that_cannot_work);
    tcase_add_test(starting, anonymous_beyond_loopback_when_told_so);
}

int main(void) {
    return suite_main("gateway", add_tests);
}
