// Positions across failovers, with real streaming replication (G6): ids that were issued and lost become
// resets, older ones replay, none is issued twice; a switchover that loses nothing resets nobody. And gateways whose
// reads go to a standby.
#include "common/clock.h"
#include "tests/e2e/stream/world.h"
#include "tests/support/cluster.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { SERVERS = 3, LOST = 3 };

static struct cluster *servers[SERVERS];
static PGconn *primary;
static const char *writable_url;
static struct gateway gateways[2];

static struct gateway follow(void) {
    return gateway_start(WITH("--database-url", writable_url));
}

// servers[0] is the primary of a running Rowbell, servers[1] its standby.
static void world_of_servers(void) {
    world_reset();
    for (int i = 0; i < SERVERS; i++) {
        servers[i] = cluster_new();
    }
    cluster_start_primary(servers[0]);
    writable_url = clusters_url(servers, SERVERS, "read-write");
    const char *out;
    const char *err;
    ck_assert_msg(program_run("rowbell", WITH("migrate", "--database-url", writable_url), &out, &err) == 0, "%s", err);
    primary = cluster_connect(servers[0]);
    world_publish_posts(primary);
    sql_run(primary, "create table others (id text primary key); select rowbell.publish('others')");
    cluster_start_standby(servers[1], servers[0]);
    daemon_start("rowbell-relay", WITH("--database-url", writable_url));
    daemon_start("rowbell-dispatcher", WITH("--database-url", writable_url, "--lanes", "sse"));
    gateways[0] = follow();
    gateways[1] = follow();
}

static const char *name(const char *what, int round, int i) {
    static char names[4][40];
    static int at;
    char *text = names[at++ % 4];
    snprintf(text, 40, "%s-%d-%d", what, round, i);
    return text;
}

static void post_and_see(const char *key, struct watcher *watchers) {
    post(primary, key);
    for (int g = 0; g < 2; g++) {
        watcher_wait_key(&watchers[g], key);
    }
}

// What a client that shows this position is told, on each gateway.
static void check_resumes(int64_t position, const char *reset, const char *first_key) {
    for (int g = 0; g < 2; g++) {
        struct watcher late = {0};
        watcher_open_at(&late, &gateways[g], position);
        if (reset) {
            watcher_wait_reset(&late, reset);
        } else {
            watcher_wait_key(&late, first_key);
            ck_assert_int_eq(watcher_resets(&late), 0);
            ck_assert_int_eq(watcher_count_key(&late, first_key), 1);
        }
        watcher_free(&late);
    }
}

// One reset, and it came between what was lost and what came after.
static void check_told(const struct watcher *watcher, const char *reason, int round) {
    char end[120];
    const char *story = watcher_story(watcher);
    snprintf(end, sizeof end, "lost-%d-%d !%s after-%d-0", round, LOST - 1, reason, round);
    ck_assert_msg(strlen(story) > strlen(end) && strcmp(story + strlen(story) - strlen(end), end) == 0, "%s", story);
}

// Everything after the standby was cut off is lost with the primary.
static void lose_the_tail(int round, bool restarted, struct watcher *watchers, struct watcher *quiet) {
    int64_t lost[LOST];
    post_and_see(name("kept", round, 0), watchers);
    int64_t kept = watcher_position_of(&watchers[0], name("kept", round, 0));
    cluster_wait_caught_up(servers[round + 1], servers[round]);
    cluster_detach(servers[round + 1]);
    for (int i = 0; i < LOST; i++) {
        post_and_see(name("lost", round, i), watchers);
        lost[i] = watcher_position_of(&watchers[0], name("lost", round, i));
    }
    if (restarted) {
        watcher_leave(quiet);
        for (int g = 0; g < 2; g++) {
            watcher_leave(&watchers[g]);
            gateway_kill(&gateways[g]);
        }
    }
    cluster_kill(servers[round]);
    cluster_promote(servers[round + 1]);
    primary = cluster_connect(servers[round + 1]);
    for (int g = 0; g < 2 && restarted; g++) {
        gateways[g] = follow();
        watcher_open(&watchers[g], &gateways[g], "/events");
        watcher_wait_reset(&watchers[g], "id_ahead"); // nothing was appended yet
    }
    if (restarted) {
        watcher_open(quiet, &gateways[0], "/events?table=others");
    }
    // An append that finds nothing must not use up the jump that keeps lost ids from being issued again.
    sql_wait(primary, SOON_MS,
             "select count(*) from pg_stat_activity where application_name = 'rowbell-dispatcher-sse'"
             " and state = 'idle' and query like 'with here as%'");
    post(primary, name("after", round, 0));
    for (int g = 0; g < 2; g++) {
        watcher_wait_key(&watchers[g], name("after", round, 0));
        check_told(&watchers[g], restarted ? "id_ahead" : "stream_rewound", round);
        int64_t jump = watcher_position_of(&watchers[g], name("after", round, 0)) - lost[LOST - 1];
        ck_assert_msg(jump > 50000000, "only %" PRId64 " us after the last one that was lost", jump);
    }
    check_resumes(lost[0], "stream_rewound", NULL);
    check_resumes(lost[LOST - 1], "stream_rewound", NULL);
    check_resumes(kept, NULL, name("after", round, 0));
    char sql[100];
    snprintf(sql, sizeof sql, "insert into others values ('%s')", name("other", round, 0));
    sql_run(primary, sql);
    watcher_wait_key(quiet, name("other", round, 0));
    ck_assert_int_eq(watcher_resets(quiet), 0); // it saw nothing of what was lost
}

START_TEST(twice_to_a_standby_that_lost_the_tail) { // _i: gateways alive, both restarted in between
    struct watcher watchers[2] = {0};
    struct watcher quiet = {0};
    world_of_servers();
    watcher_open(&watchers[0], &gateways[0], "/events");
    watcher_open(&watchers[1], &gateways[1], "/events");
    watcher_open(&quiet, &gateways[0], "/events?table=others");
    watcher_wait_open(&quiet);
    watcher_wait_open(&watchers[0]);
    watcher_wait_open(&watchers[1]);
    lose_the_tail(0, _i == 1, watchers, &quiet);
    cluster_start_standby(servers[2], servers[1]);
    lose_the_tail(1, _i == 1, watchers, &quiet);
    // What the first failover lost is lost for ever, and what it kept is kept.
    check_resumes(watcher_position_of(&watchers[0], "lost-0-0"), "stream_rewound", NULL);
    check_resumes(watcher_position_of(&watchers[0], "kept-0-0"), NULL, "after-0-0");
    watcher_free(&watchers[0]);
    watcher_free(&watchers[1]);
    watcher_free(&quiet);
}
END_TEST

START_TEST(a_lossless_switchover_resets_nobody) {
    struct watcher watchers[2] = {0};
    world_of_servers();
    for (int g = 0; g < 2; g++) {
        watcher_open(&watchers[g], &gateways[g], "/events");
        watcher_wait_open(&watchers[g]);
    }
    post_and_see("before", watchers);
    post_and_see("last", watchers);
    int64_t before = watcher_position_of(&watchers[0], "before");
    int64_t last = watcher_position_of(&watchers[0], "last");
    cluster_shut_down(servers[0]);
    cluster_promote(servers[1]);
    primary = cluster_connect(servers[1]);
    check_resumes(before, NULL, "last");
    post_and_see("after", watchers);
    check_resumes(last, NULL, "after");
    for (int g = 0; g < 2; g++) {
        ck_assert_int_eq(watcher_resets(&watchers[g]), 0);
        watcher_free(&watchers[g]);
    }
}
END_TEST

// ---- gateways whose reads go to a standby ----

static struct gateway read_the_standby(void) {
    return gateway_start(WITH("--database-url", clusters_url(&servers[1], 1, "any"), "--direct-database-url",
                              writable_url, "--ring", "2"));
}

static struct watcher resumed(const struct gateway *gateway, int64_t position) {
    struct watcher watcher = {0};
    watcher_open_at(&watcher, gateway, position);
    return watcher;
}

START_TEST(a_standby_answers_and_only_the_primary_decides_what_is_ahead) {
    struct watcher watchers[2] = {0};
    world_of_servers();
    struct gateway gateway = read_the_standby();
    watcher_open(&watchers[0], &gateways[0], "/events");
    watcher_open(&watchers[1], &gateway, "/events");
    watcher_wait_open(&watchers[0]);
    watcher_wait_open(&watchers[1]);
    post_and_see("first", watchers);
    for (int i = 0; i < 5; i++) {
        post_and_see(name("p", 0, i), watchers);
    }
    int64_t first = watcher_position_of(&watchers[0], "first");

    // The ring is too short: the standby replays.
    cluster_wait_caught_up(servers[1], servers[0]);
    struct watcher late = resumed(&gateway, first);
    watcher_wait_key(&late, name("p", 0, 4));
    ck_assert_int_eq(late.count, 5);
    ck_assert_int_eq(watcher_resets(&late), 0);
    watcher_free(&late);

    // An id from nowhere: the standby does not know it, the primary says that there is none.
    late = resumed(&gateway, INT64_C(9007199254740991));
    watcher_wait_reset(&late, "id_ahead");
    watcher_free(&late);

    // The standby lags: nobody is reset, and the primary tells what it does not have after 5 s.
    PGconn *standby = cluster_connect(servers[1]);
    sql_run(standby, "select pg_wal_replay_pause()");
    sql_wait(standby, SOON_MS, "select pg_get_wal_replay_pause_state() = 'paused'");
    for (int i = 0; i < 5; i++) {
        post_and_see(name("q", 0, i), watchers);
    }
    uint64_t start_ms = clock_ms();
    late = resumed(&gateway, first);
    watcher_wait_key(&late, name("q", 0, 4));
    ck_assert_uint_ge(clock_ms() - start_ms, 4000);
    ck_assert_int_eq(late.count, 10);
    ck_assert_int_eq(watcher_resets(&late), 0);
    watcher_free(&late);

    // A standby that is away.
    cluster_kill(servers[1]);
    late = resumed(&gateway, first);
    watcher_wait_key(&late, name("q", 0, 4));
    ck_assert_int_eq(watcher_resets(&late), 0);
    watcher_free(&late);
    watcher_free(&watchers[0]);
    watcher_free(&watchers[1]);
}
END_TEST

// Field failure 13: an event was faster than the copy from which the page was read. Its position can be waited for
// there.
START_TEST(field_13_a_copy_that_lags_can_be_waited_for) {
    struct watcher watchers[2] = {0};
    char sql[100];
    world_of_servers();
    for (int g = 0; g < 2; g++) {
        watcher_open(&watchers[g], &gateways[g], "/events");
        watcher_wait_open(&watchers[g]);
    }
    post_and_see("old", watchers);
    cluster_wait_caught_up(servers[1], servers[0]);
    PGconn *copy = cluster_connect(servers[1]);
    sql_run(copy, "select pg_wal_replay_pause()");
    sql_wait(copy, SOON_MS, "select pg_get_wal_replay_pause_state() = 'paused'");
    post_and_see("new", watchers);
    PGconn *reader = cluster_connect(servers[1]);
    sql_run(reader, "set role rowbell_app");
    snprintf(sql, sizeof sql, "select rowbell.stream_reached(%" PRId64 ")", watcher_position_of(&watchers[0], "old"));
    ck_assert_str_eq(sql_text(reader, sql), "t");
    snprintf(sql, sizeof sql, "select rowbell.stream_reached(%" PRId64 ")", watcher_position_of(&watchers[0], "new"));
    ck_assert_str_eq(sql_text(reader, sql), "f");
    ck_assert_int_eq(sql_int(copy, "select count(*) from posts where id = 'new'"), 0);
    sql_run(copy, "select pg_wal_replay_resume()");
    sql_wait(reader, SOON_MS, sql);
    ck_assert_int_eq(sql_int(copy, "select count(*) from posts where id = 'new'"), 1);
    watcher_free(&watchers[0]);
    watcher_free(&watchers[1]);
}
END_TEST

void failover_tests(Suite *suite) {
    TCase *failover = suite_case(suite, "failover", 240);
    tcase_add_loop_test(failover, twice_to_a_standby_that_lost_the_tail, 0, 2);
    tcase_add_test(failover, a_lossless_switchover_resets_nobody);
    tcase_add_test(failover, field_13_a_copy_that_lags_can_be_waited_for);
    tcase_add_test(failover, a_standby_answers_and_only_the_primary_decides_what_is_ahead);
}
