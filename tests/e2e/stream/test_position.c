// Last-Event-ID, each case of docs/stream.md, on two gateways of which one is behind the other (G5, G6); entries that
// were given up; a Redis link that lives and delivers nothing.
#include "tests/e2e/stream/world.h"
#include "tests/support/tcp_proxy.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum gateway_kind { AHEAD, BEHIND, GATEWAYS };

// What each gateway tells a client that shows this id. Both know b1 b2 b3; only the first knows c1 c2 c3 when the
// client comes. Then the second catches up, and z is posted.
static const struct {
    const char *what;
    const char *key;    // the id is this key's position
    const char *header; // or this
    const char *story[GATEWAYS];
} cases[] = {
    {"no id", NULL, NULL, {"z", "c1 c2 c3 z"}},
    {"empty", NULL, "Last-Event-ID:\r\n", {"z", "c1 c2 c3 z"}},
    {"0", NULL, "Last-Event-ID: 0\r\n", {"z", "c1 c2 c3 z"}},
    {"unreadable", NULL, "Last-Event-ID: 12x\r\n", {"!id_unreadable z", "!id_unreadable c1 c2 c3 z"}},
    {"negative", NULL, "Last-Event-ID: -1\r\n", {"!id_unreadable z", "!id_unreadable c1 c2 c3 z"}},
    {"too long",
     NULL,
     "Last-Event-ID: 99999999999999999999999999\r\n",
     {"!id_unreadable z", "!id_unreadable c1 c2 c3 z"}},
    {"pruned", "pruned", NULL, {"!history_expired z", "!history_expired c1 c2 c3 z"}},
    {"older than the installation",
     NULL,
     "Last-Event-ID: 7\r\n",
     {"!history_expired z", "!history_expired c1 c2 c3 z"}},
    {"more than is replayed", "far", NULL, {"!replay_limit z", "!replay_limit c1 c2 c3 z"}},
    {"lost", "lost", NULL, {"!stream_rewound z", "!stream_rewound c1 c2 c3 z"}},
    {"from the log", "b1", NULL, {"b2 b3 c1 c2 c3 z", "b2 b3 c1 c2 c3 z"}},
    {"the end of the one behind", "b3", NULL, {"c1 c2 c3 z", "c1 c2 c3 z"}},
    {"of the gateway that is ahead", "c2", NULL, {"c3 z", "c3 z"}},
    {"the newest of all", "c3", NULL, {"z", "z"}},
    {"from nowhere", NULL, "Last-Event-ID: 9007199254740991\r\n", {"!id_ahead z", "!id_ahead c1 c2 c3 z"}},
};
enum { CASES = sizeof cases / sizeof cases[0] };

START_TEST(every_last_event_id_on_two_replicas_one_behind) { // field failure 2
    static struct watcher watchers[CASES][GATEWAYS];
    const char *behind_url;
    PGconn *db = world_database();
    world_relay_and_dispatcher(NULL);
    struct tcp_proxy *proxy = world_proxy(db, &behind_url);
    struct gateway gateways[] = {
        gateway_start(WITH("--ring", "2", "--max-replay", "5")),
        gateway_start(WITH("--ring", "2", "--max-replay", "5", "--direct-database-url", behind_url)),
    };
    struct watcher sees[GATEWAYS] = {0};
    for (int g = 0; g < GATEWAYS; g++) {
        watcher_open(&sees[g], &gateways[g], "/events");
        watcher_wait_open(&sees[g]);
    }
    static const char *const keys[] = {"pruned", "far", "lost", "x1", "x2", "x3", "b1", "b2", "b3"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        post(db, keys[i]);
        watcher_wait_key(&sees[AHEAD], keys[i]);
        watcher_wait_key(&sees[BEHIND], keys[i]);
    }
    char sql[300];
    snprintf(sql, sizeof sql, "delete from rowbell.stream_log where position <= %" PRId64 " or position = %" PRId64,
             watcher_position_of(&sees[AHEAD], "pruned"), watcher_position_of(&sees[AHEAD], "lost"));
    sql_run(db, sql);
    tcp_proxy_silence(proxy);
    static const char *const later[] = {"c1", "c2", "c3"};
    for (size_t i = 0; i < sizeof later / sizeof later[0]; i++) {
        post(db, later[i]);
        watcher_wait_key(&sees[AHEAD], later[i]); // order is promised only so
    }

    for (int c = 0; c < CASES; c++) {
        for (int g = 0; g < GATEWAYS; g++) {
            struct watcher *watcher = &watchers[c][g];
            *watcher = (struct watcher){.headers = cases[c].header};
            watcher->last_id = cases[c].key ? watcher_position_of(&sees[AHEAD], cases[c].key) : 0;
            watcher_open(watcher, &gateways[g], "/events");
        }
    }
    for (int c = 0; c < CASES; c++) {
        for (int g = 0; g < GATEWAYS; g++) {
            sse_wait(watchers[c][g].client, ": rowbell\n\n", SOON_MS);
            if (cases[c].story[g][0] == '!') { // told while the one behind is still behind
                sse_wait(watchers[c][g].client, "event: reset\n", SOON_MS);
            }
        }
    }
    watcher_read(&sees[BEHIND]);
    ck_assert_int_eq(watcher_position_of(&sees[BEHIND], "c1"), 0); // it was behind all the time
    tcp_proxy_pass(proxy);
    watcher_wait_key(&sees[BEHIND], "c3");
    post(db, "z");
    for (int c = 0; c < CASES; c++) {
        for (int g = 0; g < GATEWAYS; g++) {
            watcher_wait_key(&watchers[c][g], "z");
            const char *story = watcher_story(&watchers[c][g]);
            ck_assert_msg(strcmp(story, cases[c].story[g]) == 0, "%s, the gateway that is %s: '%s', not '%s'",
                          cases[c].what, g == AHEAD ? "ahead" : "behind", story, cases[c].story[g]);
            watcher_free(&watchers[c][g]);
        }
    }
    watcher_free(&sees[AHEAD]);
    watcher_free(&sees[BEHIND]);
    tcp_proxy_stop(proxy);
}
END_TEST

START_TEST(an_entry_that_is_given_up_resets_everybody) { // G5; stream_damaged
    PGconn *db = world_database();
    sql_run(db, "create function refuse() returns trigger language plpgsql as $$ begin"
                " if new.key = 'bad' then raise exception 'refused' using errcode = '22000'; end if;"
                " return new; end $$;"
                "create trigger refuse before insert on rowbell.stream_log for each row execute function refuse()");
    world_relay_and_dispatcher(NULL);
    struct gateway gateways[] = {gateway_start(NULL), gateway_start(WITH("--ring", "1"))};
    struct watcher all = {0};
    struct watcher others = {0};
    watcher_open(&all, &gateways[0], "/events");
    watcher_open(&others, &gateways[0], "/events?table=others");
    watcher_wait_open(&all);
    watcher_wait_open(&others);
    int64_t start = all.last_id;
    post(db, "bad");
    // Its tries are 2, 4, 8 and 16 s apart; three of them are left out here.
    sql_wait(db, SOON_MS, "select count(*) from rowbell.jobs where attempts = 1");
    sql_run(db, "update rowbell.jobs set attempts = 4 where attempts = 1");
    post(db, "good");
    watcher_wait_key(&all, "good"); // it held up nobody
    watcher_wait_reset(&all, "stream_damaged");
    watcher_wait_reset(&others, "stream_damaged");
    sql_wait(db, SOON_MS, "select count(*) = 1 from rowbell.jobs_waiting where state = 'poisoned'");
    post(db, "next");
    watcher_wait_key(&all, "next");
    // Which of the two came first is a race between a retry and a post.
    const char *story = watcher_story(&all);
    ck_assert_msg(strcmp(story, "good !stream_damaged next") == 0 || strcmp(story, "!stream_damaged good next") == 0,
                  "%s", story);
    ck_assert_str_eq(watcher_story(&others), "!stream_damaged");
    // Who comes back from before is told by either gateway, from the ring and from the log.
    for (int g = 0; g < 2; g++) {
        struct watcher late = {0};
        watcher_open_at(&late, &gateways[g], start);
        watcher_wait_key(&late, "next");
        ck_assert_str_eq(watcher_story(&late), story);
        watcher_free(&late);
    }
    ck_assert(gateway_metric(&gateways[0], "rowbell_stream_resets_total{reason=\"stream_damaged\"}") == 2);
    watcher_free(&all);
    watcher_free(&others);
}
END_TEST

START_TEST(a_redis_link_that_lives_and_delivers_nothing) { // G5, G9
    PGconn *db = world_database();
    struct redis deaf = {0};
    struct redis real = {0};
    redis_start(&deaf);
    redis_start(&real);
    world_relay_and_dispatcher(real.url);
    struct gateway gateway = gateway_start(WITH("--redis-url", deaf.url)); // as after a failover behind it
    daemon_wait_log(gateway.daemon, "redis_up", SOON_MS);
    struct watcher watcher = {0};
    watcher_open(&watcher, &gateway, "/events");
    watcher_wait_open(&watcher);
    post(db, "first");
    watcher_wait_key(&watcher, "first");
    for (int i = 0; i < 5; i++) {
        char key[20];
        snprintf(key, sizeof key, "p%d", i);
        post(db, key);
        watcher_wait_key(&watcher, key);
    }
    daemon_wait_log(gateway.daemon, "redis_silent", SOON_MS);
    ck_assert_int_eq(watcher_resets(&watcher), 0);
    watcher_free(&watcher);
    redis_stop(&deaf);
    redis_stop(&real);
}
END_TEST

void position_tests(Suite *suite) {
    TCase *position = suite_case(suite, "position", 120);
    tcase_add_test(position, every_last_event_id_on_two_replicas_one_behind);
    tcase_add_test(position, an_entry_that_is_given_up_resets_everybody);
    tcase_add_test(position, a_redis_link_that_lives_and_delivers_nothing);
}
