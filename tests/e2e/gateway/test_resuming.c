// Last-Event-ID: G5, and G6 on more than one gateway.
#include "tests/e2e/gateway/world.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

// What polyfills send: where it began, as the page said, and where it is, under a name of theirs; and parameters of
// their own and of caches. eventsource-polyfill has the last form, event-source-polyfill the first two.
START_TEST(polyfills_resume_at_their_newest_id) {
    static const struct {
        const char *first, *between, *second;
    } queries[] = {
        {"table=posts&last_event_id=", "", "&lastEventId="},
        {"table=posts&last_event_id=", "&_=1764446400123", "&Last-Event-Id="},
        {"last_event_id=", "", "&last_event_id="},
        {"last_event_id=", "&evs_buffer_size_limit=262144&evs_preamble=2056", "&evs_last_event_id="},
    };
    fresh_database();
    struct gateway gateway = gateway_start(NULL);
    int64_t old = log_append("posts", "old", 1);
    int64_t newer = log_append("posts", "newer", 1);
    wait_position(sse_open(gateway.port, "/events", NULL), newer);
    struct sse_client *clients[2 * sizeof queries / sizeof queries[0]];
    size_t count = sizeof clients / sizeof clients[0];
    for (size_t i = 0; i < count; i++) { // in either order
        char target[200];
        snprintf(target, sizeof target, "/events?%s%" PRId64 "%s%s%" PRId64, queries[i / 2].first, i % 2 ? old : newer,
                 queries[i / 2].between, queries[i / 2].second, i % 2 ? newer : old);
        clients[i] = sse_open(gateway.port, target, NULL);
        sse_wait(clients[i], ": rowbell\n\n", SOON_MS);
    }
    int64_t live = log_append("posts", "live", 1);
    for (size_t i = 0; i < count; i++) {
        wait_position(clients[i], live);
        ck_assert_int_eq(count_of(sse_bytes(clients[i]), "event: change"), 1);
        ck_assert_int_eq(count_of(sse_bytes(clients[i]), "event: reset"), 0);
    }
}
END_TEST

START_TEST(positions_that_cannot_be_resumed) { // each reason of docs/stream.md
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

void resuming_tests(Suite *suite) {
    TCase *resuming = suite_case(suite, "resuming", 60);
    tcase_add_loop_test(resuming, resumes_without_gap_or_duplicate, 0, 2);
    tcase_add_test(resuming, the_header_wins_over_the_parameter);
    tcase_add_test(resuming, polyfills_resume_at_their_newest_id);
    tcase_add_test(resuming, positions_that_cannot_be_resumed);
    tcase_add_test(resuming, replay_limit_by_the_ring_and_exactly);
    tcase_add_test(resuming, a_restored_database_tells_those_who_saw_more);
    tcase_add_test(resuming, positions_mean_the_same_on_every_gateway);
    tcase_add_test(resuming, an_id_of_a_gateway_that_is_ahead_is_resumed);
    tcase_add_test(resuming, a_restart_resumes_from_memory_of_nobody);
}
