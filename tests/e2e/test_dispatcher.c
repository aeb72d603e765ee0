// The dispatcher's guarantees with the real program on real PostgreSQL and a real receiver: G4 handling at least once,
// and none twice without a crash; G5, G6 the stream's append; G7 isolation of endpoints; G9 disposable processes. Jobs
// are put in by SQL, as a relay would.
#include "common/stream_message.h"
#include "tests/e2e/delivery.h"
#include "tests/support/stream_keys.h"
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

START_TEST(jobs_are_delivered_and_recorded) { // G4
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    int subscription = webhook(conn, "w", receiver, "");
    queue(conn, subscription, 50);
    sql_run(conn, "select rowbell.record('thing.happened', 'a/1', '{\"x\": [1, \"ü\"]}')");
    queue(conn, subscription, 1);
    struct daemon *daemon = start(plain);
    receiver_wait(receiver, 52, WAIT_MS);
    sql_wait(conn, WAIT_MS, NO_JOBS);
    ck_assert_int_eq(distinct_ids(receiver), 52);
    ck_assert_int_eq(attempts(conn, "delivered"), 52);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.attempts where status = 200 and attempt = 1 and "
                                   "peer like '127.0.0.1:%' and total_ms > 0 and first_byte_ms > 0 and started_at > "
                                   "now() - interval '1 minute'"),
                     52);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs_waiting"), 0);
    ck_assert_str_eq(sql_text(conn, "select last_success_at is not null and failing_since is null from "
                                    "rowbell.subscription_state"),
                     "t");
    bool row_change = false, domain_event = false;
    for (int i = 0; i < 52; i++) {
        struct received got = receiver_get(receiver, i);
        row_change = row_change || strstr(got.body, "\"data\":{\"table\":\"posts\",\"key\":\"7\",\"op\":\"create\"}");
        domain_event = domain_event || (strstr(got.body, "\"type\":\"thing.happened\"") &&
                                        strstr(got.body, "\"subject\":\"a/1\"") && strstr(got.body, "\"ü\""));
    }
    ck_assert(row_change);
    ck_assert(domain_event);
    stop(daemon);
}
END_TEST

START_TEST(a_failure_is_tried_again_with_the_same_id) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    receiver_answer(receiver, 500, NULL, 0);
    queue(conn, webhook(conn, "w", receiver, ", \"retry\": [300, 3600000, 300]"), 1);
    start(plain);
    sql_wait(conn, WAIT_MS, "select count(*) = 1 from rowbell.jobs_waiting where attempts = 2");
    // The first wait is over, and the second is an hour, give or take a fifth.
    ck_assert_str_eq(
        sql_text(conn, "select min(started_at) + interval '0.2 s' < max(started_at) from rowbell.attempts"), "t");
    ck_assert_str_eq(sql_text(conn, "select run_at - max(started_at) between interval '47 min' and interval '73 min' "
                                    "from rowbell.jobs_waiting, rowbell.attempts group by run_at"),
                     "t");
    receiver_answer(receiver, 200, NULL, 0);
    sql_run(conn, "select rowbell.retry_job('w', event_seq) from rowbell.jobs_waiting");
    sql_wait(conn, WAIT_MS, "select count(*) = 1 from rowbell.attempts where class = 'delivered'");
    ck_assert_int_eq(distinct_ids(receiver), 1);
    ck_assert_str_eq(sql_text(conn, "select string_agg(class || attempt, ' ' order by attempt) from rowbell.attempts"),
                     "http_5xx1 http_5xx2 delivered3");
    ck_assert_int_eq(sql_int(conn, "select (select count(*) from rowbell.jobs) + count(*) from rowbell.jobs_waiting"),
                     0);
    ck_assert_str_eq(sql_text(conn, "select failing_since is null and last_failure_at is not null from "
                                    "rowbell.subscription_state"),
                     "t");
}
END_TEST

START_TEST(the_last_failure_poisons) { // G4: never silently
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    receiver_answer(receiver, 503, NULL, 0);
    int subscription = webhook(conn, "w", receiver, ", \"retry\": [20, 20]");
    queue(conn, subscription, 3);
    struct daemon *daemon = start(plain);
    sql_wait(conn, WAIT_MS, "select count(*) = 3 from rowbell.jobs_waiting where state = 'poisoned'");
    daemon_wait_log(daemon, "job_poisoned", WAIT_MS);
    ck_assert_int_eq(attempts(conn, "http_5xx"), 9);
    ck_assert_int_eq(receiver_count(receiver), 9);
    ck_assert_str_eq(sql_text(conn, "select string_agg(distinct last_class || attempts, '') from rowbell.jobs_waiting"),
                     "http_5xx3");
    // A requeue begins the schedule anew, and its notification is enough.
    receiver_answer(receiver, 200, NULL, 0);
    sql_run(conn, "select rowbell.requeue_jobs()");
    sql_wait(conn, WAIT_MS, "select count(*) = 3 from rowbell.attempts where class = 'delivered'");
    sql_wait(conn, WAIT_MS, "select count(*) = 0 from rowbell.jobs_waiting");
}
END_TEST

START_TEST(a_refusal_poisons_at_once_and_410_disables) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    receiver_answer(receiver, 400, NULL, 0);
    int subscription = webhook(conn, "w", receiver, ", \"max_in_flight\": 1");
    queue(conn, subscription, 1);
    start(plain);
    sql_wait(conn, WAIT_MS, "select count(*) = 1 from rowbell.jobs_waiting where state = 'poisoned'");
    receiver_answer(receiver, 410, NULL, 0);
    queue(conn, subscription, 5);
    sql_wait(conn, WAIT_MS, "select count(*) = 1 from rowbell.subscriptions where name = 'w' and state = 'disabled'");
    sql_wait(conn, WAIT_MS, NO_JOBS);
    ck_assert_int_ge(sql_int(conn, "select count(*) from rowbell.jobs_waiting where state = 'held'"), 1);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs_waiting"), 6);
}
END_TEST

START_TEST(a_paused_subscription_is_held_and_returns) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    int subscription = webhook(conn, "w", receiver, "");
    sql_run(conn, "select rowbell.set_subscription_state('w', 'paused')");
    queue(conn, subscription, 7); // a relay that read the subscription before it was paused
    start(plain);
    sql_wait(conn, WAIT_MS, "select count(*) = 7 from rowbell.jobs_waiting where state = 'held'");
    ck_assert_int_eq(receiver_count(receiver), 0);
    sql_run(conn, "select rowbell.set_subscription_state('w', 'active')");
    receiver_wait(receiver, 7, WAIT_MS);
    sql_wait(conn, WAIT_MS, NO_JOBS);
    ck_assert_int_eq(receiver_count(receiver), 7);
}
END_TEST

START_TEST(kill_9_in_flight_is_delivered_again) { // G4, G9
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    receiver_hold(receiver, "");
    queue(conn, webhook(conn, "w", receiver, ""), 5);
    sql_run(conn, "create table began as select clock_timestamp() as at");
    struct daemon *daemon = start(plain);
    receiver_wait(receiver, 5, WAIT_MS);
    daemon_signal(daemon, SIGKILL);
    ck_assert_int_eq(daemon_wait_exit(daemon, WAIT_MS), 128 + SIGKILL);
    ck_assert_int_eq(sql_int(conn,
                             "select count(*) from rowbell.jobs, began where lease_until between at + interval '25 s' "
                             "and clock_timestamp() + interval '30 s' and lease_token > 0 and attempts = 1"),
                     5);
    receiver_release(receiver);
    struct daemon *next = start(plain);
    sql_wait(conn, WAIT_MS,
             "select count(*) = 64 from pg_locks where locktype = 'advisory' and classid = 1919907683 "
             "and objid < 64 and database = (select oid from pg_database where datname = "
             "current_database())");
    queue(conn, (int)sql_int(conn, "select id from rowbell.subscriptions where name = 'w'"), 1);
    sql_wait(conn, WAIT_MS, "select count(*) = 1 from rowbell.attempts where class = 'delivered'");
    sql_run(conn, "update rowbell.jobs set lease_until = now() - interval '1 ms' where lease_until is not null");
    // Each was sent again once, by the claim that booked it as lost.
    receiver_wait(receiver, 11, WAIT_MS);
    sql_wait(conn, WAIT_MS, NO_JOBS);
    ck_assert_int_eq(receiver_count(receiver), 11);
    ck_assert_int_eq(distinct_ids(receiver), 6);
    ck_assert_int_eq(attempts(conn, "lost"), 5);
    ck_assert_int_eq(attempts(conn, "delivered"), 6);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.attempts where class = 'lost' and attempt = 1"), 5);
    stop(next);
}
END_TEST

START_TEST(a_lost_attempt_uses_up_no_retry) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    receiver_answer(receiver, 500, NULL, 0);
    queue(conn, webhook(conn, "w", receiver, ", \"retry\": [20]"), 1);
    sql_run(conn, "update rowbell.jobs set attempts = 1, lease_token = 5, lease_until = now() - interval '1 s'");
    start(plain);
    sql_wait(conn, WAIT_MS, "select count(*) = 1 from rowbell.jobs_waiting where state = 'poisoned'");
    ck_assert_str_eq(sql_text(conn, "select string_agg(class || attempt, ' ' order by attempt) from rowbell.attempts"),
                     "lost1 http_5xx2 http_5xx3");
}
END_TEST

START_TEST(sigterm_makes_no_duplicate) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    receiver_answer(receiver, 200, NULL, 300);
    int subscription = webhook(conn, "w", receiver, "");
    queue(conn, subscription, 80);
    for (int round = 1; round <= 3; round++) {
        struct daemon *daemon = start(plain);
        receiver_wait(receiver, round * 16, WAIT_MS);
        stop(daemon);
        ck_assert_int_eq(
            sql_int(conn, "select count(*) from rowbell.jobs where lease_until is not null or attempts <> 0"), 0);
        ck_assert_int_eq(sql_int(conn, "select 80 - count(*) from rowbell.jobs"), receiver_count(receiver));
    }
    receiver_answer(receiver, 200, NULL, 0);
    struct daemon *daemon = start(plain);
    sql_wait(conn, WAIT_MS, NO_JOBS);
    ck_assert_int_eq(receiver_count(receiver), 80);
    ck_assert_int_eq(distinct_ids(receiver), 80);
    ck_assert_int_eq(attempts(conn, "delivered"), 80);
    stop(daemon);
}
END_TEST

START_TEST(losing_the_session_loses_no_ack) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    receiver_hold(receiver, "");
    queue(conn, webhook(conn, "w", receiver, ""), 16);
    struct daemon *daemon = start(plain);
    receiver_wait(receiver, 16, WAIT_MS);
    sql_run(conn, "select pg_terminate_backend(pid) from pg_stat_activity where application_name like "
                  "'rowbell-dispatcher%' and datname = current_database()");
    daemon_wait_log(daemon, "database_lost", WAIT_MS);
    receiver_release(receiver);
    sql_wait(conn, WAIT_MS, NO_JOBS);
    ck_assert_int_eq(receiver_count(receiver), 16);
    ck_assert_int_eq(attempts(conn, "delivered"), 16);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.attempts"), 16);
    stop(daemon);
}
END_TEST

START_TEST(shards_are_spread_and_taken_over) { // G9
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    int subscriptions[8];
    for (int i = 0; i < 8; i++) {
        char name[10];
        snprintf(name, sizeof name, "w%d", i);
        subscriptions[i] = webhook(conn, name, receiver, "");
    }
    struct daemon *first = start(webhook_only);
    wait_shards(conn, "64", WAIT_MS);
    struct daemon *second = start(webhook_only);
    wait_shards(conn, "32 32", WAIT_MS);
    struct daemon *third = start(webhook_only);
    wait_shards(conn, "20 22 22", WAIT_MS);
    for (int i = 0; i < 8; i++)
        queue(conn, subscriptions[i], 20);
    sql_wait(conn, WAIT_MS, NO_JOBS);
    ck_assert_int_eq(receiver_count(receiver), 160);
    daemon_signal(second, SIGKILL);
    wait_shards(conn, "32 32", HANG_MS);
    for (int i = 0; i < 8; i++)
        queue(conn, subscriptions[i], 5);
    sql_wait(conn, WAIT_MS, NO_JOBS);
    ck_assert_int_eq(receiver_count(receiver), 200);
    ck_assert_int_eq(distinct_ids(receiver), 200);
    stop(third);
    wait_shards(conn, "64", HANG_MS);
    stop(first);
}
END_TEST

// Any login of the database may take the lock by which dispatchers count each other.
START_TEST(a_stranger_cannot_pose_as_a_dispatcher) {
    PGconn *conn = fresh();
    PGconn *stranger = PQconnectdb(fixture_login("pg_signal_backend"));
    sql_run(stranger, "select pg_advisory_lock_shared(1919907683, 64)");
    start(webhook_only);
    wait_shards(conn, "64", WAIT_MS);
    start(webhook_only);
    wait_shards(conn, "32 32", WAIT_MS);
    PQfinish(stranger);
}
END_TEST

START_TEST(a_stopped_owner_is_replaced_and_claims_no_more) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    int subscription = webhook(conn, "w", receiver, "");
    struct daemon *first = start(webhook_only);
    wait_shards(conn, "64", WAIT_MS);
    daemon_signal(first, SIGSTOP);
    struct daemon *second = start(webhook_only);
    queue(conn, subscription, 10);
    receiver_wait(receiver, 10, HANG_MS); // idle_session_timeout is 10 s
    wait_shards(conn, "64", WAIT_MS);
    daemon_signal(first, SIGCONT);
    queue(conn, subscription, 10);
    daemon_wait_log(first, "database_lost", WAIT_MS);
    wait_shards(conn, "32 32", WAIT_MS);
    sql_wait(conn, WAIT_MS, NO_JOBS);
    ck_assert_int_eq(receiver_count(receiver), 20);
    ck_assert_int_eq(distinct_ids(receiver), 20);
    stop(first);
    stop(second);
}
END_TEST

START_TEST(a_dead_endpoint_delays_nobody) { // G7
    PGconn *conn = fresh();
    struct receiver *slow = receiver_start(), *quick = receiver_start();
    receiver_hold(slow, "");
    int dead = webhook(conn, "dead", slow, ""), alive = webhook(conn, "alive", quick, "");
    queue(conn, dead, 20000);
    start(webhook_only);
    receiver_wait(slow, 16, WAIT_MS);
    queue(conn, alive, 100);
    receiver_wait(quick, 100, WAIT_MS);
    ck_assert_int_eq(receiver_count(slow), 16); // not one of them has ended
}
END_TEST

START_TEST(a_bad_subscription_poisons_only_its_own) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    int bad = webhook(conn, "bad", receiver, ""), good = webhook(conn, "good", receiver, "");
    sql_run(conn, "update rowbell.subscriptions set settings = '{\"retry\": \"soon\"}' where name = 'bad'");
    queue(conn, bad, 2);
    queue(conn, good, 2);
    start(webhook_only);
    receiver_wait(receiver, 2, WAIT_MS);
    sql_wait(conn, WAIT_MS,
             "select count(*) = 2 from rowbell.jobs_waiting where state = 'poisoned' and last_class = "
             "'rejected'");
    ck_assert_str_eq(sql_text(conn, "select last_error like '%retry%' from rowbell.subscription_state h join "
                                    "rowbell.subscriptions s on s.id = h.subscription_id where s.name = 'bad'"),
                     "t");
}
END_TEST

START_TEST(once_drains_and_exits) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    queue(conn, webhook(conn, "w", receiver, ""), 40);
    queue(conn, (int)sql_int(conn, "select id from rowbell.subscriptions where name = 'stream'"), 600);
    sql_run(conn,
            "insert into rowbell.jobs_waiting select subscription_id, event_seq, 'waiting', now() + interval '1 h', 1 "
            "from rowbell.jobs where subscription_id = (select id from rowbell.subscriptions where name = 'w') "
            "limit 1; delete from rowbell.jobs j using rowbell.jobs_waiting w where j.event_seq = w.event_seq and "
            "j.subscription_id = w.subscription_id; update rowbell.jobs_waiting set run_at = now()");
    const char *out, *err;
    const char *const arguments[] = {"--once", "--allow-egress", "127.0.0.1", NULL};
    ck_assert_int_eq(program_run("rowbell-dispatcher", arguments, &out, &err), 0);
    ck_assert_int_eq(sql_int(conn, "select (select count(*) from rowbell.jobs) + count(*) from rowbell.jobs_waiting"),
                     0);
    ck_assert_int_eq(receiver_count(receiver), 40);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.stream_log where event_seq > 0"), 600);
}
END_TEST

START_TEST(discard_takes_the_whole_path) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    queue(conn, webhook(conn, "w", receiver, ""), 5000);
    const char *out, *err;
    const char *const arguments[] = {"--once", "--sink", "discard", "--allow-discard", NULL};
    ck_assert_int_eq(program_run("rowbell-dispatcher", arguments, &out, &err), 0);
    ck_assert_int_eq(attempts(conn, "delivered"), 5000);
    ck_assert_int_eq(receiver_count(receiver), 0);
}
END_TEST

static bool is_ready(void *url) {
    const char *body;
    return http_get(url, &body) == 200;
}

START_TEST(least_privilege_is_enough) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    receiver_answer(receiver, 410, NULL, 0);
    queue(conn, webhook(conn, "w", receiver, ""), 3);
    queue(conn, (int)sql_int(conn, "select id from rowbell.subscriptions where name = 'stream'"), 3);
    sql_run(conn, "update rowbell.streams set timeline = '00000000'");
    const char *url = fixture_login("rowbell_dispatcher");
    struct daemon *daemon = start((const char *const[]){"--allow-egress", "127.0.0.1", "--database-url", url,
                                                        "--admin-listen", "127.0.0.1:0", NULL});
    sql_wait(conn, WAIT_MS, "select count(*) = 3 from rowbell.stream_log where event_seq > 0");
    sql_wait(conn, WAIT_MS, "select count(*) = 1 from rowbell.subscriptions where state = 'disabled'");
    sql_wait(conn, WAIT_MS, "select count(*) = 3 from rowbell.attempts");
    char target[64];
    const char *body;
    int port = daemon_log_port(daemon, "admin");
    snprintf(target, sizeof target, "http://127.0.0.1:%d/readyz", port);
    wait_for(is_ready, target, WAIT_MS, "/readyz answers 200");
    snprintf(target, sizeof target, "http://127.0.0.1:%d/metrics", port);
    ck_assert_int_eq(http_get(target, &body), 200);
    ck_assert_ptr_nonnull(strstr(body, "rowbell_shards_owned{lane=\"webhook\"} 64"));
    ck_assert_ptr_nonnull(strstr(body, "rowbell_attempts_total{lane=\"webhook\",class=\"http_4xx\"} 3"));
    daemon_wait_log(daemon, "event=housekeeping ", WAIT_MS);
    stop(daemon);
    ck_assert_ptr_null(strstr(daemon->log, "housekeeping_failed"));
    ck_assert_ptr_null(strstr(daemon->log, "round_failed"));
}
END_TEST

START_TEST(bad_starts_say_why) {
    fresh();
    static const struct {
        const char *arguments[5];
        int status;
        const char *text;
    } cases[] = {
        {{"--lease", "24s"}, 2, "--lease"},
        {{"--sink", "discard"}, 2, "--allow-discard"},
        {{"--concurrency", "webhook=0"}, 2, "webhook=0"},
        {{"--lanes", "fax"}, 2, "fax"},
        {{"--allow-egress", "10.0.0.0/40"}, 2, "10.0.0.0/40"},
        {{"--redis-url", "http://127.0.0.1"}, 2, "--redis-url"},
        {{"--database-url", "postgres://postgres@127.0.0.1:1/x"}, 3, "127.0.0.1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *out, *err;
        ck_assert_int_eq(program_run("rowbell-dispatcher", cases[i].arguments, &out, &err), cases[i].status);
        ck_assert_msg(strstr(err, cases[i].text), "%s is not in: %s", cases[i].text, err);
    }
    fixture_empty_database();
    const char *out, *err;
    ck_assert_int_eq(program_run("rowbell-dispatcher", NULL, &out, &err), 4);
    ck_assert_ptr_nonnull(strstr(err, "rowbell migrate"));
}
END_TEST

// ---- The stream

static int stream_subscription(PGconn *conn) {
    return (int)sql_int(conn, "select id from rowbell.subscriptions where name = 'stream'");
}

#define BROKEN_LINKS                                                                                                   \
    "select count(*) from (select prev, lag(position) over (order by position) as before from rowbell.stream_log) l "  \
    "where before is not null and prev <> before"

START_TEST(the_chain_has_no_gap_with_two_appenders) { // G5, G6
    PGconn *conn = fresh();
    struct daemon *first = start(sse_only), *second = start(sse_only);
    int stream = stream_subscription(conn);
    PGconn *other = fixture_connect();
    for (int i = 0; i < 60; i++) {
        queue(conn, stream, 20);
        queue(other, stream, 1);
    }
    queue(conn, stream, 3000);
    sql_wait(conn, WAIT_MS, NO_JOBS);
    ck_assert_int_eq(sql_int(conn, "select count(distinct event_seq) from rowbell.stream_log where event_seq > 0"),
                     4260);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.stream_log where event_seq > 0"), 4260);
    ck_assert_int_eq(sql_int(conn, BROKEN_LINKS), 0);
    ck_assert_int_eq(sql_int(conn,
                             "select count(*) from rowbell.stream_log where event_seq > 0 and (name <> 'posts' or op "
                             "<> 'create' or key is null)"),
                     0);
    stop(first);
    stop(second);
}
END_TEST

START_TEST(a_new_timeline_moves_the_positions_on) { // G6
    PGconn *conn = fresh();
    sql_run(conn,
            "update rowbell.streams set timeline = '00000000'; create table began as select clock_timestamp() as at");
    queue(conn, stream_subscription(conn), 2);
    start(sse_only);
    sql_wait(conn, WAIT_MS, NO_JOBS);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.stream_log, began where event_seq > 0 and position > "
                                   "(extract(epoch from at) + 60) * 1000000"),
                     2);
    ck_assert_str_ne(sql_text(conn, "select timeline from rowbell.streams"), "00000000");
    ck_assert_int_eq(sql_int(conn, BROKEN_LINKS), 0);
    queue(conn, stream_subscription(conn), 2);
    sql_wait(conn, WAIT_MS, NO_JOBS);
    ck_assert_int_eq(sql_int(conn, BROKEN_LINKS), 0);
    ck_assert_int_eq(sql_int(conn, "select max(position) - min(position) from rowbell.stream_log where event_seq > 0"),
                     3);
}
END_TEST

START_TEST(a_bad_entry_does_not_block_the_others) {
    PGconn *conn = fresh();
    sql_run(conn, "alter table rowbell.stream_log add constraint odd check (key is distinct from '5')");
    int stream = stream_subscription(conn);
    queue(conn, stream, 10);
    struct daemon *daemon = start(sse_only);
    sql_wait(conn, WAIT_MS, "select count(*) = 9 from rowbell.stream_log where event_seq > 0");
    sql_wait(conn, WAIT_MS, "select count(*) = 1 from rowbell.jobs where attempts = 1");
    queue(conn, stream, 10);
    sql_wait(conn, WAIT_MS, "select count(*) = 19 from rowbell.stream_log where event_seq > 0");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs"), 1); // it still waits for its turns
    sql_run(conn, "update rowbell.jobs set attempts = 4"); // the fifth failure comes with the next try
    daemon_wait_log(daemon, "job_poisoned", WAIT_MS);
    sql_wait(conn, WAIT_MS, "select count(*) = 1 from rowbell.jobs_waiting where state = 'poisoned' and attempts = 5");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs"), 0);
    ck_assert_int_eq(sql_int(conn, BROKEN_LINKS), 0);
    stop(daemon);
}
END_TEST

struct listener {
    PGconn *conn;
    PGnotify *notify;
};
static bool was_notified(void *arg) {
    struct listener *listener = arg;
    ck_assert_int_eq(PQconsumeInput(listener->conn), 1);
    listener->notify = PQnotifies(listener->conn);
    return listener->notify != NULL;
}

START_TEST(without_redis_gateways_are_notified) {
    PGconn *conn = fresh();
    sql_run(conn, "listen rowbell_stream");
    start(sse_only);
    queue(conn, stream_subscription(conn), 3);
    sql_wait(conn, WAIT_MS, NO_JOBS);
    struct listener listener = {.conn = conn}; // it is told after others may see what was committed
    wait_for(was_notified, &listener, HANG_MS, "a notification");
    ck_assert_int_eq(atoll(listener.notify->extra), sql_int(conn, "select max(position) from rowbell.stream_log"));
    PQfreemem(listener.notify);
}
END_TEST

static void count_entry(void *arg, const struct stream_entry *entry) {
    int64_t *seen = arg; // how many, the newest position
    ck_assert(seen[1] == 0 || entry->prev == seen[1]);
    ck_assert_str_eq(entry->name, "posts");
    ck_assert_str_eq(entry->op, "create");
    seen[0]++;
    seen[1] = entry->position;
}

START_TEST(entries_are_published_on_redis) {
    PGconn *conn = fresh();
    const char *url = fixture_redis();
    char host[64];
    int port;
    ck_assert_int_eq(sscanf(url, "redis://%63[^:/]:%d", host, &port), 2);
    redisContext *redis = redisConnectWithTimeout(host, port, (struct timeval){.tv_sec = HANG_MS / 1000});
    ck_assert(redis && !redis->err);
    redisSetTimeout(redis, (struct timeval){.tv_sec = HANG_MS / 1000});
    char channel[128];
    stream_channel(channel, sizeof channel, sql_text(conn, "select id from rowbell.installation"), 1);
    freeReplyObject(redisCommand(redis, "SUBSCRIBE %s", channel));
    struct daemon *daemon = start((const char *const[]){"--lanes", "sse", "--redis-url", url, NULL});
    daemon_wait_log(daemon, "redis_connected", WAIT_MS);
    queue(conn, stream_subscription(conn), 450);
    int64_t seen[2] = {0, 0};
    int messages = 0;
    struct stream_keys keys = stream_keys_read(conn);
    while (seen[0] < 450) {
        redisReply *reply;
        ck_assert_int_eq(redisGetReply(redis, (void **)&reply), REDIS_OK);
        ck_assert_int_eq((int)reply->elements, 3);
        ck_assert_int_eq(stream_message_read(reply->element[2]->str, (size_t)reply->element[2]->len, &keys, channel,
                                             count_entry, seen),
                         STREAM_MESSAGE_GOOD);
        freeReplyObject(reply);
        messages++;
    }
    ck_assert_int_eq(messages, 3); // 200 entries each at the most
    ck_assert_int_eq(seen[1], sql_int(conn, "select max(position) from rowbell.stream_log"));
    redisFree(redis);
    stop(daemon);
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *delivery = suite_case(suite, "delivery", 60);
    tcase_add_test(delivery, jobs_are_delivered_and_recorded);
    tcase_add_test(delivery, a_failure_is_tried_again_with_the_same_id);
    tcase_add_test(delivery, the_last_failure_poisons);
    tcase_add_test(delivery, a_refusal_poisons_at_once_and_410_disables);
    tcase_add_test(delivery, a_paused_subscription_is_held_and_returns);
    tcase_add_test(delivery, a_bad_subscription_poisons_only_its_own);
    tcase_add_test(delivery, a_dead_endpoint_delays_nobody);
    TCase *crash = suite_case(suite, "crash", 90);
    tcase_add_test(crash, kill_9_in_flight_is_delivered_again);
    tcase_add_test(crash, a_lost_attempt_uses_up_no_retry);
    tcase_add_test(crash, sigterm_makes_no_duplicate);
    tcase_add_test(crash, losing_the_session_loses_no_ack);
    tcase_add_test(crash, shards_are_spread_and_taken_over);
    tcase_add_test(crash, a_stranger_cannot_pose_as_a_dispatcher);
    tcase_add_test(crash, a_stopped_owner_is_replaced_and_claims_no_more);
    TCase *program = suite_case(suite, "program", 60);
    tcase_add_test(program, once_drains_and_exits);
    tcase_add_test(program, discard_takes_the_whole_path);
    tcase_add_test(program, least_privilege_is_enough);
    tcase_add_test(program, bad_starts_say_why);
    TCase *stream = suite_case(suite, "stream", 60);
    tcase_add_test(stream, the_chain_has_no_gap_with_two_appenders);
    tcase_add_test(stream, a_new_timeline_moves_the_positions_on);
    tcase_add_test(stream, a_bad_entry_does_not_block_the_others);
    tcase_add_test(stream, entries_are_published_on_redis);
    tcase_add_test(stream, without_redis_gateways_are_notified);
}

int main(void) {
    return suite_main("dispatcher", add_tests);
}
