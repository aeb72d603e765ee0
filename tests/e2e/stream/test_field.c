// What broke in other servers of this sort, each as a test with its number. Elsewhere are: 2 (test_position.c),
// 5 and 12 (test_property.c), 7 (the suite auth), 10 and 11's other half (the suite client), 13 (test_failover.c).
#include "tests/e2e/stream/world.h"
#include "tests/support/support.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *key_of(const char *prefix, int i) {
    static char keys[4][40];
    static int at;
    char *text = keys[at++ % 4];
    snprintf(text, 40, "%s%d", prefix, i);
    return text;
}

static void post_many(PGconn *db, const char *prefix, int count) {
    for (int i = 0; i < count; i++) {
        post(db, key_of(prefix, i));
    }
}

// In whatever order: none is promised across batches.
static void check_has_all(struct watcher *watcher, const char *prefix, int count) {
    for (int i = 0; i < count; i++) {
        watcher_wait_key(watcher, key_of(prefix, i));
        ck_assert_msg(watcher_count_key(watcher, key_of(prefix, i)) == 1, "%s came %d times", key_of(prefix, i),
                      watcher_count_key(watcher, key_of(prefix, i)));
    }
}

START_TEST(field_01_redis_restarted_flushed_and_killed_under_load) { // G5, G9
    PGconn *db = world_database();
    struct redis redis = {0};
    struct watcher watchers[2] = {0};
    redis_start(&redis);
    world_relay_and_dispatcher(redis.url);
    struct gateway gateways[] = {gateway_start(WITH("--redis-url", redis.url)),
                                 gateway_start(WITH("--redis-url", redis.url))};
    for (int g = 0; g < 2; g++) {
        watcher_open(&watchers[g], &gateways[g], "/events");
        watcher_wait_open(&watchers[g]);
    }
    post_many(db, "before-", 20);
    redis_command(&redis, "FLUSHALL");
    post_many(db, "flushed-", 20);
    redis_kill(&redis);
    post_many(db, "down-", 20);
    redis_start(&redis);
    post_many(db, "back-", 20);
    redis_command(&redis, "CLIENT KILL TYPE pubsub");
    post_many(db, "cut-", 20);
    for (int g = 0; g < 2; g++) {
        static const char *const prefixes[] = {"before-", "flushed-", "down-", "back-", "cut-"};
        for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++) {
            check_has_all(&watchers[g], prefixes[i], 20);
        }
        ck_assert_int_eq(watcher_resets(&watchers[g]), 0);
        watcher_free(&watchers[g]);
    }
    redis_stop(&redis);
}
END_TEST

START_TEST(field_03_a_replay_is_bounded) { // _i: by the ring, by the log
    PGconn *db = world_database();
    world_relay_and_dispatcher(NULL);
    struct gateway gateway = gateway_start(WITH("--max-replay", "10", "--ring", _i == 0 ? "16384" : "3"));
    struct watcher live = {0};
    watcher_open(&live, &gateway, "/events");
    watcher_wait_open(&live);
    int64_t start = live.last_id;
    post_many(db, "p", 10);
    check_has_all(&live, "p", 10);
    struct watcher late = {0};
    watcher_open_at(&late, &gateway, start);
    check_has_all(&late, "p", 10);
    watcher_free(&late);
    post(db, "more");
    watcher_wait_key(&live, "more");
    watcher_open_at(&late, &gateway, start);
    watcher_wait_reset(&late, "replay_limit");
    post(db, "next");
    watcher_wait_key(&late, "next");
    ck_assert_str_eq(watcher_story(&late), "!replay_limit next"); // no flood
    watcher_free(&late);
    watcher_free(&live);
}
END_TEST

static bool was_disconnected(void *arg) {
    return gateway_metric(arg, "rowbell_stream_disconnects_total{reason=\"slow\"}") +
               gateway_metric(arg, "rowbell_stream_disconnects_total{reason=\"stalled\"}") >
           0;
}

struct beat {
    struct sse_client *client;
    size_t after; // bytes
};

static bool has_a_heartbeat(void *arg) {
    const struct beat *beat = arg;
    return strstr(sse_bytes(beat->client) + beat->after, ":\n\n") != NULL;
}

START_TEST(field_04_a_client_that_stops_delays_nobody_and_loses_nothing) { // G5, G7
    enum { READERS = 10, ROWS = 12000 };
    PGconn *db = world_database();
    world_relay_and_dispatcher(NULL);
    struct gateway gateway = gateway_start(WITH("--heartbeat", "500ms"));
    struct watcher readers[READERS] = {0};
    struct watcher stopped = {0};
    for (int i = 0; i < READERS; i++) {
        watcher_open(&readers[i], &gateway, "/events?table=posts");
        watcher_wait_open(&readers[i]);
    }
    watcher_open(&stopped, &gateway, "/events"); // and reads no more
    watcher_wait_open(&stopped);
    sql_run(db, "create table fill (id int primary key, tenant text); select rowbell.publish('fill')");
    // Batches, so that those who read are never more than the buffer behind. They get each while the stopped one takes
    // nothing of it, until it is so far behind, or has taken nothing for so long, that it is disconnected.
    for (int i = 0; i < ROWS / 500 && !was_disconnected(&gateway); i++) {
        char sql[200];
        snprintf(sql, sizeof sql, "insert into fill select i, repeat('x', 10) from generate_series(%d, %d) i", i * 500,
                 i * 500 + 499);
        sql_run(db, sql);
        post(db, key_of("fill", i));
        for (int r = 0; r < READERS; r++) {
            watcher_wait_key(&readers[r], key_of("fill", i));
        }
    }
    post(db, "during");
    for (int i = 0; i < READERS; i++) {
        watcher_wait_key(&readers[i], "during");
    }
    for (int i = 0; i < READERS; i++) {
        struct beat beat = {readers[i].client, strlen(sse_bytes(readers[i].client))};
        wait_for(has_a_heartbeat, &beat, SOON_MS, "a heartbeat");
    }
    wait_for(was_disconnected, &gateway, 2 * SOON_MS, "the end of the stopped client");
    // It wakes, takes what the kernel still had, comes back, and is replayed or reset.
    while (watcher_read(&stopped)) {
        support_pause();
    }
    watcher_leave(&stopped);
    watcher_open(&stopped, &gateway, "/events");
    post(db, "last");
    watcher_wait_key(&stopped, "last");
    ck_assert(watcher_resets(&stopped) > 0 || watcher_count_key(&stopped, "during") == 1);
    for (int i = 0; i < READERS; i++) {
        watcher_free(&readers[i]);
    }
    watcher_free(&stopped);
}
END_TEST

// ---- descriptors and memory ----

static int descriptors_of(pid_t pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *directory = opendir(path);
    ck_assert_ptr_nonnull(directory);
    int count = 0;
    while (readdir(directory)) {
        count++;
    }
    closedir(directory);
    return count;
}

static long resident_kib(pid_t pid) {
    char path[64];
    char line[256];
    long kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof line, file)) {
        sscanf(line, "VmRSS: %ld", &kib);
    }
    fclose(file);
    return kib;
}

// An open stream, which is then left: by FIN, by RST, by a FIN with bytes that nobody read, or, where we may, without a
// word: then only the next heartbeat finds nobody there.
static void come_and_go(int port, int how) {
    static const char request[] = "GET /events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n";
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_gt(send(fd, request, sizeof request - 1, MSG_NOSIGNAL), 0);
    char text[512];
    if (how != 2) {
        ck_assert_int_gt(recv(fd, text, sizeof text, 0), 0);
    }
    if (how == 1) {
        struct linger now = {.l_onoff = 1};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    }
    if (how == 3) {
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &on, sizeof on); // needs CAP_NET_ADMIN; else it is a FIN
    }
    close(fd);
}

struct base {
    struct gateway gateway;
    int descriptors;
};

static bool is_back_at_base(void *arg) {
    const struct base *base = arg;
    return descriptors_of(base->gateway.daemon->pid) <= base->descriptors &&
           gateway_metric(&base->gateway, "rowbell_stream_subscribers") == 0;
}

START_TEST(field_06_thousands_of_abrupt_closes_leave_nothing) {
    world_database();
    struct base base = {.gateway = gateway_start(WITH("--heartbeat", "500ms"))};
    for (int i = 0; i < 500; i++) { // what an allocator keeps for good
        come_and_go(base.gateway.port, i % 4);
    }
    base.descriptors = 1000000;
    wait_for(is_back_at_base, &base, SOON_MS, "no subscribers");
    base.descriptors = descriptors_of(base.gateway.daemon->pid) + 2; // the metrics' own connection
    // How many are open at once depends on the machine, and so does what the allocator keeps; a leak is in each round.
    enum { ROUNDS = 10 };
    int rounds = 0;
    for (bool grows = true; grows && rounds < ROUNDS; rounds++) {
        long kib = resident_kib(base.gateway.daemon->pid);
        for (int i = 0; i < 10000 / ROUNDS; i++) {
            come_and_go(base.gateway.port, i % 4);
        }
        wait_for(is_back_at_base, &base, SOON_MS, "the base");
        grows = resident_kib(base.gateway.daemon->pid) > kib + 40; // KiB: 40 bytes each
    }
#if !defined(__SANITIZE_ADDRESS__) // which keeps what was freed for a while
    ck_assert_msg(rounds < ROUNDS, "it grew in each of %d rounds", ROUNDS);
#endif
}
END_TEST

START_TEST(field_08_a_deploy_does_not_send_everybody_back_at_once) {
    enum { STREAMS = 240 }; // at most one each 50 ms in such a window
    world_database();
    struct gateway gateway = gateway_start(WITH("--drain", "60s"));
    struct watcher watchers[STREAMS] = {0};
    for (int i = 0; i < STREAMS; i++) {
        watcher_open(&watchers[i], &gateway, "/events");
        watcher_wait_open(&watchers[i]);
    }
    daemon_signal(gateway.daemon, SIGTERM);
    int closed = 0;
    while (closed < 3) {
        closed = 0;
        for (int i = 0; i < STREAMS; i++) {
            closed += sse_closed(watchers[i].client);
        }
        support_pause();
    }
    ck_assert_int_lt(closed, STREAMS / 2);
    int told = 0;
    for (int i = 0; i < STREAMS; i++) {
        told += strstr(sse_bytes(watchers[i].client), "\n\nretry: ") != NULL;
        watcher_free(&watchers[i]);
    }
    ck_assert_int_ge(told, closed);
}
END_TEST

START_TEST(field_09_a_low_number_that_commits_late_still_arrives) { // G2, G5
    PGconn *db = world_database();
    PGconn *late = fixture_connect();
    world_relay_and_dispatcher(NULL);
    struct gateway gateways[] = {gateway_start(NULL), gateway_start(WITH("--ring", "2"))};
    struct watcher watchers[2] = {0};
    for (int g = 0; g < 2; g++) {
        watcher_open(&watchers[g], &gateways[g], "/events");
        watcher_wait_open(&watchers[g]);
    }
    int64_t start = watchers[0].last_id;
    sql_run(late, "begin");
    post(late, "late");
    post_many(db, "p", 20);
    for (int g = 0; g < 2; g++) {
        check_has_all(&watchers[g], "p", 20);
        ck_assert_int_eq(watcher_count_key(&watchers[g], "late"), 0);
    }
    sql_run(late, "commit");
    for (int g = 0; g < 2; g++) {
        watcher_wait_key(&watchers[g], "late");
        struct watcher replayed = {0};
        watcher_open_at(&replayed, &gateways[g], start);
        watcher_wait_key(&replayed, "late");
        check_has_all(&replayed, "p", 20);
        ck_assert_int_eq(watcher_count_key(&replayed, "late"), 1);
        watcher_free(&replayed);
        watcher_free(&watchers[g]);
    }
}
END_TEST

START_TEST(field_11_who_is_turned_away_is_told_to_wait) {
    world_database();
    struct gateway gateway = gateway_start(WITH("--max-connections", "1"));
    struct watcher first = {0};
    watcher_open(&first, &gateway, "/events");
    watcher_wait_open(&first);
    for (int i = 0; i < 5; i++) {
        struct sse_client *refused = sse_open(gateway.port, "/events", NULL);
        const char *retry = strstr(sse_wait(refused, "\n\n", SOON_MS), "\r\n\r\nretry: ");
        ck_assert_ptr_nonnull(retry);
        ck_assert_int_ge(strtol(retry + 11, NULL, 10), 1500);
        sse_close(refused);
    }
    watcher_free(&first);
}
END_TEST

void field_tests(Suite *suite) {
    TCase *field = suite_case(suite, "field", 120);
    tcase_add_test(field, field_01_redis_restarted_flushed_and_killed_under_load);
    tcase_add_loop_test(field, field_03_a_replay_is_bounded, 0, 2);
    tcase_add_test(field, field_04_a_client_that_stops_delays_nobody_and_loses_nothing);
    tcase_add_test(field, field_06_thousands_of_abrupt_closes_leave_nothing);
    tcase_add_test(field, field_08_a_deploy_does_not_send_everybody_back_at_once);
    tcase_add_test(field, field_09_a_low_number_that_commits_late_still_arrives);
    tcase_add_test(field, field_11_who_is_turned_away_is_told_to_wait);
}
