// A stream in one process, without a database: source_memory behind stream, ring, replay and subscribers, on real
// sockets. What is appended arrives; who comes back is served from the ring or from the log; what was taken back
// resets.
#include "common/clock.h"
#include "gateway/metrics.h"
#include "gateway/replay.h"
#include "gateway/source_memory.h"
#include "gateway/source_redis.h"
#include "gateway/stream.h"
#include "gateway/subscriber.h"
#include "tests/support/fixture.h"
#include "tests/support/loop.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RING = 4, FIRST = 1000 };

static const struct metric metrics[] = {
#define METRIC(kind, id, name, labels, help) [METRIC_##id] = {METRIC_##kind, name, labels, help},
#include "gateway/metrics.def"
#undef METRIC
};

static uv_loop_t loop;
static struct source_memory *source;
static struct stream_source port;
static struct ring *ring;
static struct stream *stream;
static struct replay *replay;
static struct subscribers *subscribers;

static void on_entry(void *arg, const struct stream_entry *entry) {
    stream_offer(stream, entry);
}

static void on_rewound(void *arg, int64_t held, enum reset_reason reason) {
    subscribers_rewound(subscribers, held, reason);
}

// What main.c does: the stream is looked after when it is due, and a turn ends with one flush.
static void turn(void) {
    if (clock_ms() >= stream_due_ms(stream)) {
        stream_tick(stream);
    }
    uv_run(&loop, UV_RUN_NOWAIT);
    subscribers_flush(subscribers);
}

static void start(void) {
    metrics_init(metrics, GATEWAY_METRIC_COUNT);
    uv_loop_init(&loop);
    source = source_memory_new(&loop, FIRST);
    port = source_memory_port(source);
    ring = ring_new(RING);
    replay = replay_new(&loop, &port, 100);
    subscribers = subscribers_new(&(struct subscribers_options){.loop = &loop,
                                                                .ring = ring,
                                                                .replay = replay,
                                                                .heartbeat_ms = 3600000,
                                                                .stall_ms = 30000,
                                                                .retry_ms = 3000,
                                                                .buffer = 1024,
                                                                .max_replay = 100});
    stream = stream_new(&(struct stream_options){.source = port, .ring = ring, .on_rewound = on_rewound});
    port.start(port.feed, &(struct stream_listener){.on_entry = on_entry});
    uint64_t end_ms = clock_ms() + HANG_MS;
    while (!stream_is_ready(stream)) {
        ck_assert_uint_lt(clock_ms(), end_ms);
        turn();
    }
}

static void stop(void) {
    subscribers_close(subscribers);
    replay_close(replay);
    port.close(port.feed);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0); // every handle was closed
    stream_free(stream);
    ring_free(ring);
    metrics_free();
}

static int64_t append(const char *key) {
    return source_memory_append(source, &(struct stream_entry){.name = "t", .key = key, .op = "update"});
}

// A client that shows this position; 0: none.
struct client {
    int fd;
    char text[20000];
    size_t length;
};

static struct client client_open(int64_t position) {
    int ends[2];
    struct buffer head = {0};
    struct resume_ask ask = {position ? RESUME_ASK_POSITION : RESUME_ASK_FRESH, position};
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    uv_tcp_t *socket = calloc(1, sizeof *socket);
    uv_tcp_init(&loop, socket);
    ck_assert_int_eq(uv_tcp_open(socket, ends[0]), 0);
    buffer_text(&head, "HEAD\r\n\r\n");
    subscriber_open(subscribers, socket, &head, &ask, &(struct grant){.open = true}, NULL, false, NULL);
    buffer_free(&head);
    return (struct client){.fd = ends[1]};
}

static void client_wait(struct client *client, const char *text) {
    uint64_t end_ms = clock_ms() + HANG_MS;
    while (strstr(client->text, text) == NULL) {
        ck_assert_msg(clock_ms() < end_ms, "no %s in:\n%s", text, client->text);
        turn();
        ssize_t n =
            recv(client->fd, client->text + client->length, sizeof client->text - 1 - client->length, MSG_DONTWAIT);
        client->length += n > 0 ? (size_t)n : 0;
    }
}

static int count_of(const char *text, const char *part) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part)) {
        count++;
    }
    return count;
}

START_TEST(appended_is_delivered_and_replayed) { // G5
    start();
    struct client live = client_open(0);
    client_wait(&live, "id: 1000\n\n");
    int64_t first = append("first");
    client_wait(&live, "\"first\"");
    for (int i = 0; i < 20; i++) {
        char key[20];
        snprintf(key, sizeof key, "k%d", i);
        append(key);
        client_wait(&live, key);
    }
    struct client late = client_open(first); // the ring holds four
    client_wait(&late, "\"k19\"");
    append("last");
    client_wait(&late, "\"last\"");
    client_wait(&live, "\"last\"");
    ck_assert_int_eq(count_of(live.text, "event: change"), 22);
    ck_assert_int_eq(count_of(late.text, "event: change"), 21);
    ck_assert_int_eq(count_of(late.text, "event: reset"), 0);
    close(live.fd);
    close(late.fd);
    stop();
}
END_TEST

START_TEST(what_is_taken_back_or_pruned_resets) { // G6
    start();
    struct client live = client_open(0);
    append("kept");
    client_wait(&live, "\"kept\"");
    int64_t lost = append("lost");
    client_wait(&live, "\"lost\"");
    source_memory_take_back(source, 2);
    source_memory_append(
        source, &(struct stream_entry){.position = lost + 60000000, .name = "t", .key = "other", .op = "update"});
    client_wait(&live, "stream_rewound");
    client_wait(&live, "\"other\"");
    struct client late = client_open(lost);
    client_wait(&late, "stream_rewound");
    for (int i = 0; i < 10; i++) {
        append("more");
    }
    append("end");
    client_wait(&live, "\"end\"");
    source_memory_prune(source, 5);
    struct client old = client_open(FIRST);
    client_wait(&old, "history_expired");
    close(live.fd);
    close(late.fd);
    close(old.fd);
    stop();
}
END_TEST

START_TEST(what_was_appended_quietly_is_found_by_the_check) {
    start();
    struct client live = client_open(0);
    source_memory_append_quietly(source, &(struct stream_entry){.name = "t", .key = "quiet", .op = "update"});
    client_wait(&live, "\"quiet\"");
    close(live.fd);
    stop();
}
END_TEST

// ---- Redis in front of the log: how often the log is looked at

static void ignore_entry(void *arg, const struct stream_entry *entry) {
}
static void ignore_news(void *arg, int64_t newest) {
}
static void ignore_up(void *arg, const char *installation) {
}
static void ignore_down(void *arg, const struct error *error, bool first) {
}
static void count_change(void *arg) {
    (*(int *)arg)++;
}

// A log that is up, and never anything else.
static struct stream_listener redis_source;
static void log_start(void *feed, const struct stream_listener *listener) {
    redis_source = *listener;
}
static bool log_is_up(void *feed) {
    return true;
}
static void log_read_keys(void *arg, stream_keys_done *done, void *done_arg) {
    done(done_arg, &(struct stream_keys){0}, NULL);
}
static void log_close(void *feed) {
}

static struct stream_source redis_start_at(const char *url, int *changes) {
    struct stream_source log = {.read_keys = log_read_keys, .start = log_start, .is_up = log_is_up, .close = log_close};
    uv_loop_init(&loop);
    metrics_init(metrics, GATEWAY_METRIC_COUNT);
    struct stream_source feed = source_redis_new(&loop, url, NULL, 1, log);
    feed.start(feed.feed, &(struct stream_listener){.arg = changes,
                                                    .on_entry = ignore_entry,
                                                    .on_news = ignore_news,
                                                    .on_up = ignore_up,
                                                    .on_down = ignore_down,
                                                    .on_change = count_change});
    redis_source.on_up(redis_source.arg, "installation");
    return feed;
}

static void redis_stop_at(const struct stream_source *feed) {
    feed->close(feed->feed);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    metrics_free();
}

START_TEST(the_log_is_looked_at_as_often_as_redis_makes_it_needed) { // G9
    int changes = 0;
    struct stream_source feed = redis_start_at("redis://127.0.0.1:1", &changes);
    loop_turn_until(&loop, &changes, 1, HANG_MS, "it is not there");
    ck_assert_uint_eq(feed.check_ms(feed.feed), STREAM_POLL_MS);
    redis_stop_at(&feed);

    changes = 0;
    feed = redis_start_at(fixture_redis(), &changes);
    ck_assert_uint_eq(feed.check_ms(feed.feed), STREAM_POLL_MS); // not yet
    loop_turn_until(&loop, &changes, 1, HANG_MS, "the link is up");
    ck_assert_uint_eq(feed.check_ms(feed.feed), STREAM_CHECK_MS);
    feed.overlooked(feed.feed, 1); // it lives, and delivers nothing
    ck_assert_int_eq(changes, 2);
    ck_assert_uint_eq(feed.check_ms(feed.feed), STREAM_POLL_MS);
    redis_stop_at(&feed);
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "one_process", 60);
    tcase_add_test(tcase, appended_is_delivered_and_replayed);
    tcase_add_test(tcase, what_is_taken_back_or_pruned_resets);
    tcase_add_test(tcase, what_was_appended_quietly_is_found_by_the_check);
    tcase_add_test(tcase, the_log_is_looked_at_as_often_as_redis_makes_it_needed);
}

int main(void) {
    return suite_main("stream", add_tests);
}
