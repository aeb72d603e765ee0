// Heartbeats, slow readers, caps, drain.
#include "common/clock.h"
#include "tests/e2e/gateway/world.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    wait_for(stream_is_closed, slow, SOON_MS, "the slow stream's end");
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
    wait_for(stream_is_closed, third, SOON_MS, "the end of a stream beyond the cap");
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

static void open_streams(const struct gateway *gateway, struct sse_client *clients[], int count) {
    for (int i = 0; i < count; i++) {
        clients[i] = sse_open(gateway->port, "/events", NULL);
        sse_wait(clients[i], "\nid: ", SOON_MS);
    }
}

START_TEST(sigterm_tells_each_stream_when_to_come_back) {
    enum { STREAMS = 20 };
    fresh_database();
    struct gateway gateway = gateway_start(WITH("--drain", "4s"));
    struct sse_client *clients[STREAMS];
    open_streams(&gateway, clients, STREAMS);
    daemon_signal(gateway.daemon, SIGTERM);
    ck_assert_int_eq(daemon_wait_exit(gateway.daemon, SOON_MS), 0);
    int different = 0;
    long before = 0;
    for (int i = 0; i < STREAMS; i++) {
        wait_for(stream_is_closed, clients[i], SOON_MS, "a close");
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

// The whole window is for those who have streams: another gateway, told before, is still busy with its own.
START_TEST(sigterm_with_nobody_there_is_quick) {
    enum { STREAMS = 200 }; // one each 50 ms
    fresh_database();
    struct gateway busy = gateway_start(NULL), idle = gateway_start(NULL);
    struct sse_client *clients[STREAMS];
    open_streams(&busy, clients, STREAMS);
    daemon_signal(busy.daemon, SIGTERM);
    wait_for(stream_is_closed, clients[0], SOON_MS, "its beginning");
    daemon_signal(idle.daemon, SIGTERM);
    ck_assert_int_eq(daemon_wait_exit(idle.daemon, SOON_MS), 0);
    ck_assert(!sse_closed(clients[STREAMS - 1]));
}
END_TEST

void limit_tests(Suite *suite) {
    TCase *limits = suite_case(suite, "limits", 120);
    tcase_add_test(limits, heartbeats_are_comments_or_pings);
    tcase_add_test(limits, a_slow_reader_is_disconnected_and_loses_nothing);
    tcase_add_test(limits, a_reader_that_the_ring_left_behind_gets_it_from_the_log);
    tcase_add_loop_test(limits, random_readers_see_everything_or_a_reset, 0, 3);
    tcase_add_test(limits, beyond_the_cap_clients_are_told_to_wait);
    tcase_add_test(limits, sigterm_tells_each_stream_when_to_come_back);
    tcase_add_test(limits, sigterm_with_nobody_there_is_quick);
}
