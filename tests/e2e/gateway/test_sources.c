// Where entries come from: Redis makes it fast, the log complete (G5, G9).
#include "common/buffer.h"
#include "common/clock.h"
#include "common/stream_message.h"
#include "tests/e2e/gateway/world.h"
#include "tests/support/redis_server.h"
#include "tests/support/stream_keys.h"
#include <stdio.h>
#include <string.h>

static void sign(struct buffer *message, const char *channel) {
    struct stream_keys keys = stream_keys_read(db);
    ck_assert(stream_message_sign(message, &keys.keys[0], channel));
}

// What the dispatcher says after a commit, here one message an entry.
static void publish_entry(void *arg, int64_t position, int64_t prev, const char *key) {
    struct redis *redis = arg;
    struct buffer message = {0};
    char channel[200];
    stream_channel(channel, sizeof channel, sql_text(db, "select id from rowbell.installation"), 1);
    stream_message_begin(&message, prev, position, 1);
    stream_message_entry(&message, &(struct stream_entry){.name = "posts", .key = key, .op = "update"});
    sign(&message, channel);
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
    sign(&message, channel);
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

START_TEST(redis_that_is_not_there_only_slows) { // G9; how often the log is looked at then: test_one_process.c
    fresh_database();
    struct gateway gateway = gateway_start(WITH("--redis-url", "redis://127.0.0.1:1"));
    struct sse_client *client = sse_open(gateway.port, "/events", NULL);
    wait_position(client, log_newest());
    for (int i = 0; i < 5; i++) {
        wait_position(client, log_append_quietly("posts", "p", 1, 4));
    }
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

void source_tests(Suite *suite) {
    TCase *sources = suite_case(suite, "sources", 60);
    tcase_add_test(sources, redis_carries_and_the_log_completes);
    tcase_add_test(sources, a_message_larger_than_the_ring_loses_nothing);
    tcase_add_test(sources, garbage_on_the_channel_changes_nothing);
    tcase_add_test(sources, redis_that_is_not_there_only_slows);
    tcase_add_test(sources, a_replay_waits_for_a_database_that_is_away_for_a_moment);
    tcase_add_test(sources, database_away_and_back_loses_nothing);
}
