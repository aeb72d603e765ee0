// The fifteen ways in which webhook systems broke elsewhere, each as a test with the real programs; the number is that
// of the list that they come from. Here: 1 to 5, 7, 8, 13 to 15. In test_delivery.c: 6 sends_are_not_sequential, 9
// a_resend_never_reuses_a_number_nor_uses_up_a_retry, 12 a_rate_is_kept_while_owners_change. In
// test_webhook_secrets.c: 10 and 11. Sizes are smaller than there where a test would take minutes; each says which.
#include "common/clock.h"
#include "common/db_conn.h"
#include "dispatcher/sql.h"
#include "tests/e2e/delivery.h"
#include "tests/support/cluster.h"
#include "tests/support/tcp_proxy.h"
#include <json-c/json.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WITH(...) ((const char *const[]){__VA_ARGS__, NULL})

// Webhooks prefix1 to prefixN for everything, to the URL; more_options begins with a comma.
static void webhooks(PGconn *conn, const char *prefix, int count, const char *url, const char *more_options) {
    char sql[500];
    snprintf(sql, sizeof sql,
             "select count(*) from (select rowbell.add_webhook('%s' || i, '%s/%s' || i, '{*}', null, "
             "'{\"allow_http\": true%s}') from generate_series(1, %d) i) added",
             prefix, url, prefix, more_options, count);
    sql_run(conn, sql);
}

static int compare_texts(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// How many of the first so many requests were for different (endpoint, event).
static int distinct_of(struct receiver *receiver, int count) {
    int distinct = 0;
    char **seen = calloc((size_t)count + 1, sizeof *seen);
    for (int i = 0; i < count; i++) {
        struct received got = receiver_get(receiver, i);
        ck_assert_int_gt(asprintf(&seen[i], "%s %s", got.path, received_header(&got, "webhook-id")), 0);
    }
    qsort(seen, (size_t)count, sizeof *seen, compare_texts);
    for (int i = 0; i < count; i++)
        distinct += i == 0 || strcmp(seen[i - 1], seen[i]) != 0;
    for (int i = 0; i < count; i++)
        free(seen[i]);
    free(seen);
    return distinct;
}

static int distinct_deliveries(struct receiver *receiver) {
    return distinct_of(receiver, receiver_count(receiver));
}

static int in_flight_at_most(struct receiver *receiver, int most) {
    int seen = receiver_max_in_flight(receiver);
    ck_assert_msg(seen <= most, "%d at once", seen);
    return seen;
}

// ---- 1: rows stuck as locked after a crash, never sent

// A dozen kills; `dev/reconcile --faults` goes on for as long as one likes. A request of at most 1 s has a lease of 6
// s.
START_TEST(field_1_killed_again_and_again_nothing_is_locked_for_longer_than_its_lease) {
    enum { KILLS = 12, ENDPOINTS = 20 };
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    webhooks(conn, "w", ENDPOINTS, receiver_url(receiver), ", \"deadline_ms\": 1000");
    sql_run(conn, "create table locked (subscription_id int, event_seq bigint, attempt int, until interval)");
    unsigned seed = 7;
    for (int kills = 0; kills < KILLS; kills++) {
        struct daemon *daemon = start(webhook_only);
        char some_written[120], held[16];
        snprintf(some_written, sizeof some_written,
                 "select count(*) >= %lld from rowbell.attempts where class = 'delivered'",
                 (long long)attempts(conn, "delivered") + ENDPOINTS - 2 - rand_r(&seed) % 4);
        // Those of one endpoint are in flight when it is killed, or of two ("/w2" is in "/w20").
        snprintf(held, sizeof held, "/w%d", 2 + kills % 8);
        receiver_hold(receiver, held);
        queue_matching(conn, "w%", 1);
        sql_wait(conn, WAIT_MS, some_written);
        daemon_signal(daemon, SIGKILL);
        ck_assert_int_eq(daemon_wait_exit(daemon, WAIT_MS), 128 + SIGKILL);
        // PostgreSQL may be at work on its last statement still.
        sql_wait(conn, WAIT_MS,
                 "select count(*) = 0 from pg_stat_activity where datname = current_database() and application_name "
                 "like 'rowbell-dispatcher%'");
        sql_run(conn, "insert into locked select subscription_id, event_seq, attempts, lease_until - "
                      "clock_timestamp() from rowbell.jobs where lease_until is not null");
    }
    ck_assert_int_ge(sql_int(conn, "select count(*) from locked"), KILLS);
    ck_assert_str_eq(sql_text(conn, "select max(until) <= interval '6 s' from locked"), "t");
    receiver_release(receiver);
    start(webhook_only);
    sql_wait(conn, WAIT_MS, NO_JOBS);
    ck_assert_int_eq(distinct_deliveries(receiver), KILLS * ENDPOINTS);
    ck_assert_int_eq(attempts(conn, "delivered"), KILLS * ENDPOINTS);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs_waiting"), 0);
    // What a death left behind was booked as lost, and made again with the next number.
    ck_assert_int_eq(
        sql_int(conn, "select count(*) from locked l where not exists (select from rowbell.attempts a where "
                      "a.subscription_id = l.subscription_id and a.event_seq = l.event_seq and a.attempt = l.attempt "
                      "and a.class = 'lost') or not exists (select from rowbell.attempts a where a.subscription_id = "
                      "l.subscription_id and a.event_seq = l.event_seq and a.attempt = l.attempt + 1)"),
        0);
}
END_TEST

// ---- 2: the lease was shorter than the request, so that sends overlapped

START_TEST(field_2_a_lease_shorter_than_the_request_is_refused) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    const char *out, *err;
    ck_assert_int_eq(program_run("rowbell-dispatcher", WITH("--lease", "24999ms"), &out, &err), 2);
    ck_assert_ptr_nonnull(strstr(err, "--lease: at least 25000ms"));
    // No subscription can ask for longer requests than the lease is made for, and each claim's lease covers its own.
    int subscription = webhook(conn, "w", receiver, ", \"deadline_ms\": 3000");
    ck_assert_str_eq(sql_error(conn, "select rowbell.set_webhook('w', '{\"deadline_ms\": 20001}')"), "22023");
    receiver_hold(receiver, "");
    queue(conn, subscription, 1);
    sql_run(conn,
            "create table leases (lasts interval); create function note() returns trigger language plpgsql as $$ "
            "begin insert into public.leases values (new.lease_until - now()); return null; end $$;"
            "create trigger note after update of lease_until on rowbell.jobs for each row execute function note()");
    start(webhook_only);
    sql_wait(conn, WAIT_MS, "select count(*) = 1 from rowbell.attempts where class = 'timeout'");
    ck_assert_str_eq(sql_text(conn, "select string_agg(distinct lasts::text, ' ') from leases"), "00:00:08");
    ck_assert_int_eq(receiver_count(receiver), 1);
}
END_TEST

// ---- 3: the concurrency limit overshoots

START_TEST(field_3_max_in_flight_holds_while_three_dispatchers_come_and_go) {
    enum { LIMIT = 4, JOBS = 250 };
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    receiver_answer(receiver, 200, NULL, 40);
    int subscription = webhook(conn, "w", receiver, ", \"max_in_flight\": 4, \"deadline_ms\": 1000");
    queue(conn, subscription, JOBS);
    struct daemon *daemons[3];
    for (int i = 0; i < 3; i++) {
        daemons[i] = start(webhook_only);
        receiver_wait(receiver, 20 * (i + 1), WAIT_MS);
    }
    for (int i = 0; i < 3; i++) { // whoever owns its shard is among them
        daemon_signal(daemons[i], SIGTERM);
        ck_assert_int_eq(daemon_wait_exit(daemons[i], HANG_MS), 0);
        daemons[i] = start(webhook_only);
        receiver_wait(receiver, 60 + 20 * (i + 1), WAIT_MS);
    }
    for (int i = 0; i < 3; i++) {
        daemon_signal(daemons[i], SIGKILL);
        daemons[i] = start(webhook_only);
        receiver_wait(receiver, 120 + 20 * (i + 1), WAIT_MS);
    }
    sql_wait(conn, WAIT_MS, NO_JOBS);
    ck_assert_int_eq(in_flight_at_most(receiver, LIMIT), LIMIT);
    ck_assert_int_eq(distinct_deliveries(receiver), JOBS);
}
END_TEST

// Its owner dies with all its slots in use. Whoever takes over sends nothing until those requests are surely over: the
// claim that sends again is the one that books the four as lost.
START_TEST(field_3_max_in_flight_holds_across_a_takeover) {
    enum { LIMIT = 4, JOBS = 24 };
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    receiver_answer(receiver, 200, NULL, 60000);
    queue(conn, webhook(conn, "w", receiver, ", \"max_in_flight\": 4"), JOBS);
    struct daemon *owner = start(webhook_only);
    receiver_wait(receiver, LIMIT, WAIT_MS);
    daemon_signal(owner, SIGKILL);
    ck_assert_int_eq(daemon_wait_exit(owner, WAIT_MS), 128 + SIGKILL);
    receiver_answer(receiver, 200, NULL, 0);
    start(webhook_only);
    receiver_wait(receiver, LIMIT + 1, 60000);
    ck_assert_int_eq(attempts(conn, "lost"), LIMIT);
    sql_wait(conn, 60000, NO_JOBS);
    ck_assert_int_eq(distinct_deliveries(receiver), JOBS);
    ck_assert_int_eq(receiver_count(receiver), JOBS + LIMIT);
}
END_TEST

START_TEST(field_3_concurrency_holds_for_the_process) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    receiver_answer(receiver, 200, NULL, 30);
    webhooks(conn, "w", 5, receiver_url(receiver), ", \"max_in_flight\": 4");
    queue_matching(conn, "w%", 20);
    start(WITH("--allow-egress", "127.0.0.1", "--lanes", "webhook", "--concurrency", "webhook=6"));
    receiver_wait(receiver, 100, WAIT_MS);
    ck_assert_int_eq(in_flight_at_most(receiver, 6), 6);
}
END_TEST

// ---- 4: the outcome was not written after the call had succeeded

// Everything that is written when an attempt has ended, and the commit of it.
static const struct {
    const char *trigger;
    bool killed;
} faults[] = {
    {"create trigger fault before delete on rowbell.jobs for each row execute function fault()", false},
    {"create trigger fault before insert on rowbell.jobs_waiting for each row execute function fault()", false},
    {"create trigger fault before insert on rowbell.attempts for each row execute function fault()", false},
    {"create trigger fault before insert or update on rowbell.subscription_state for each row execute function fault()",
     false},
    {"create constraint trigger fault after insert on rowbell.attempts deferrable initially deferred for each row "
     "execute "
     "function fault()",
     false},
    {"create trigger fault before delete on rowbell.jobs for each row execute function fault()", true},
    {"create constraint trigger fault after insert on rowbell.attempts deferrable initially deferred for each row "
     "execute "
     "function fault()",
     true},
};

START_TEST(field_4_outcome_and_next_attempt_commit_together_or_the_same_id_is_sent_again) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    receiver_answer(receiver, 500, NULL, 0);
    int subscription = webhook(conn, "w", receiver, ", \"retry\": [100, 100]");
    sql_run(conn,
            "create sequence faults; create function fault() returns trigger language plpgsql as $$ begin perform "
            "nextval('public.faults'); raise 'disk full' using errcode = '53100'; end $$");
    sql_run(conn, faults[_i].trigger);
    queue(conn, subscription, 1);
    struct daemon *daemon = start(webhook_only);
    sql_wait(conn, WAIT_MS, "select is_called and last_value >= 3 from faults");
    // Nothing of it is there, however often it was tried; the job is still this process's, and it was sent once.
    ck_assert_str_eq(sql_text(conn,
                              "select concat_ws(' ', (select count(*) from rowbell.attempts), (select count(*) from "
                              "rowbell.jobs_waiting), (select count(*) from rowbell.jobs where lease_until > now()))"),
                     "0 0 1");
    ck_assert_int_eq(receiver_count(receiver), 1);
    if (faults[_i].killed) {
        daemon_signal(daemon, SIGKILL);
        daemon_wait_exit(daemon, WAIT_MS);
    }
    sql_run(conn, "drop function fault() cascade");
    if (faults[_i].killed)
        start(webhook_only);
    receiver_wait(receiver, 2, WAIT_MS);
    receiver_answer(receiver, 200, NULL, 0);
    sql_wait(conn, WAIT_MS, "select count(*) = 1 from rowbell.attempts where class = 'delivered'");
    ck_assert_int_eq(distinct_ids(receiver), 1);
    // Each request is an attempt with a number of its own, and the other way round.
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.attempts"), receiver_count(receiver));
    ck_assert_str_eq(
        sql_text(conn, "select string_agg(attempt::text, ' ' order by attempt) = string_agg(row::text, ' ' order "
                       "by row) from (select attempt, row_number() over (order by attempt) as row from "
                       "rowbell.attempts) a"),
        "t");
    ck_assert_str_eq(sql_text(conn, "select class from rowbell.attempts where attempt = 1"),
                     faults[_i].killed ? "lost" : "http_5xx");
    sql_wait(conn, WAIT_MS,
             "select (select count(*) from rowbell.jobs) + (select count(*) from rowbell.jobs_waiting) = 0");
}
END_TEST

// ---- 5: one slow or dead endpoint delays all

// How quick they are is measured by `dev/bench webhook`. Here: who waited for a bad endpoint would wait for the end of
// a request that does not end.
START_TEST(field_5_a_slow_and_a_refusing_endpoint_hold_up_none_of_200_healthy_ones) {
    PGconn *conn = fresh();
    struct receiver *good = receiver_start(), *slow = receiver_start();
    receiver_hold(slow, "");
    webhooks(conn, "good", 200, receiver_url(good), "");
    webhooks(conn, "slow", 1, receiver_url(slow), "");
    webhooks(conn, "refusing", 1, "http://127.0.0.1:1", "");
    queue_matching(conn, "slow%", 5000);
    queue_matching(conn, "refusing%", 5000);
    start(webhook_only);
    receiver_wait(slow, 16, WAIT_MS);
    sql_wait(conn, WAIT_MS, "select count(*) >= 5 from rowbell.attempts where class = 'connect'");
    queue_matching(conn, "good%", 2);
    sql_wait(conn, WAIT_MS, "select count(*) = 400 from rowbell.attempts where class = 'delivered'");
    ck_assert_int_eq(receiver_max_in_flight(slow), 16);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs j join rowbell.subscriptions s on s.id = "
                                   "j.subscription_id where s.name like 'slow%'"),
                     5000);
}
END_TEST

// ---- 7: ports ran out, since kept connections were not used

START_TEST(field_7_of_20000_requests_to_one_host_under_one_in_twenty_opens_a_connection) {
    enum { ENDPOINTS = 40, EACH = 500, REQUESTS = ENDPOINTS * EACH };
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    webhooks(conn, "w", ENDPOINTS, receiver_url(receiver), "");
    queue_matching(conn, "w%", EACH);
    start(webhook_only);
    sql_wait(conn, 4 * HANG_MS, NO_JOBS); // also under the sanitizers
    ck_assert_int_eq(receiver_count(receiver), REQUESTS);
    int opened = receiver_connections(receiver);
    ck_assert_msg(opened < REQUESTS / 20, "%d connections", opened);
    ck_assert_int_ge(opened, receiver_max_in_flight(receiver)); // HTTP/1.1: one request at a time on each
}
END_TEST

// ---- 8: a whole batch waits for its slowest member

START_TEST(field_8_the_slowest_of_a_batch_delays_nobody_else) {
    enum { JOBS = 200 };
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    receiver_hold(receiver, "\"key\":\"5\"");
    int subscription = webhook(conn, "w", receiver, ", \"max_in_flight\": 16");
    queue(conn, subscription, JOBS);
    start(webhook_only);
    // All others are delivered, and written, while it is still on its way.
    sql_wait(conn, WAIT_MS, "select count(*) = 199 from rowbell.attempts where class = 'delivered'");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs where lease_until > now()"), 1);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.attempts where class <> 'delivered'"), 0);
    // It was one of the first batch.
    ck_assert_int_le(
        sql_int(conn, "select event_seq - (select min(event_seq) from rowbell.attempts) from rowbell.jobs"), 15);
    receiver_release(receiver);
    sql_wait(conn, WAIT_MS, "select count(*) = 200 from rowbell.attempts where class = 'delivered'");
    // Nobody else's time has its length: it is longer than each of the others'.
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.attempts a, rowbell.attempts held, rowbell.events e "
                                   "where e.seq = held.event_seq and e.key = '5' and a.total_ms > held.total_ms"),
                     0);
}
END_TEST

// ---- 13: the whole system is dead after the database restarted

enum outage { STOPPED, KILLED, BACKEND_KILLED, REFUSED, OUTAGES };

// An application that goes on all the time, over a connection of its own.
struct writer {
    pthread_t thread;
    char url[200];
    atomic_bool stop;
    atomic_int written;
};

static void *writer_run(void *arg) {
    struct writer *writer = arg;
    PGconn *conn = NULL;
    for (int id = 1; !atomic_load(&writer->stop); id++) {
        char sql[60];
        snprintf(sql, sizeof sql, "insert into posts values (%d)", id);
        if (!conn || PQstatus(conn) != CONNECTION_OK) {
            PQfinish(conn);
            conn = PQconnectdb(writer->url);
        }
        PGresult *result = PQexec(conn, sql);
        if (PQresultStatus(result) == PGRES_COMMAND_OK)
            atomic_fetch_add(&writer->written, 1);
        PQclear(result);
        nanosleep(&(struct timespec){.tv_nsec = 4 * 1000 * 1000}, NULL); // its pace
    }
    PQfinish(conn);
    return NULL;
}

struct fleet {
    char ready_urls[3][64]; // relay, dispatcher, gateway
    struct daemon *daemons[3];
};

static bool ready_is(const struct fleet *fleet, int status) {
    for (int i = 0; i < 3; i++) {
        const char *body;
        if (http_get(fleet->ready_urls[i], &body) != status)
            return false;
        if (status == 503 && !strstr(body, "database") && !strstr(body, "log"))
            ck_abort_msg("%s says: %s", fleet->ready_urls[i], body);
    }
    return true;
}
static bool all_ready(void *fleet) {
    return ready_is(fleet, 200);
}
static bool none_ready(void *fleet) {
    return ready_is(fleet, 503);
}
static bool has_passed(void *at_ms) {
    return clock_ms() >= *(const uint64_t *)at_ms;
}

static void outage_begin(enum outage outage, struct cluster *cluster, struct tcp_proxy *proxy, PGconn *conn) {
    switch (outage) {
    case STOPPED:
        cluster_shut_down(cluster);
        break;
    case KILLED:
        cluster_kill(cluster);
        break;
    case BACKEND_KILLED:
        kill((pid_t)sql_int(conn, "select pg_backend_pid()"), SIGKILL);
        break;
    case REFUSED:
        tcp_proxy_refuse(proxy);
        break;
    case OUTAGES:
        break;
    }
}

// 6 s, not 60, and not silent: `dev/reconcile --outage 60` does that. Longer than any first wait, so that each process
// tries in vain, and short enough for a test.
START_TEST(field_13_the_fleet_survives_a_database_that_was_away_and_readiness_says_so) {
    enum { AWAY_MS = 6000 };
    struct cluster *cluster = cluster_new();
    cluster_start_primary(cluster);
    const char *direct = clusters_url(&cluster, 1, "any"), *out, *err;
    ck_assert_msg(program_run("rowbell", WITH("migrate", "--database-url", direct), &out, &err) == 0, "%s", err);
    PGconn *conn = cluster_connect(cluster);
    prepare(conn);
    struct receiver *receiver = receiver_start();
    receiver_answer(receiver, 200, NULL, 20); // so that some are always in flight
    webhook(conn, "w", receiver, "");
    struct tcp_proxy *proxy = tcp_proxy_start("127.0.0.1", cluster_port(cluster));
    char url[200];
    snprintf(url, sizeof url, "postgresql://postgres@127.0.0.1:%d/postgres", tcp_proxy_port(proxy));
    struct fleet fleet = {
        .daemons = {
            daemon_start("rowbell-relay", WITH("--database-url", url)),
            daemon_start("rowbell-dispatcher", WITH("--database-url", url, "--allow-egress", "127.0.0.1")),
            daemon_start("rowbell-gateway", WITH("--database-url", url, "--listen", "127.0.0.1:0", "--auth", "none"))}};
    for (int i = 0; i < 3; i++)
        snprintf(fleet.ready_urls[i], sizeof fleet.ready_urls[i], "http://127.0.0.1:%d/readyz",
                 daemon_log_port(fleet.daemons[i], "admin"));
    wait_for(all_ready, &fleet, WAIT_MS, "all are ready");
    struct writer writer = {0};
    snprintf(writer.url, sizeof writer.url, "%s", direct);
    ck_assert_int_eq(pthread_create(&writer.thread, NULL, writer_run, &writer), 0);
    receiver_wait(receiver, 100, WAIT_MS);

    int accepted = tcp_proxy_accepted(proxy);
    uint64_t began_ms = clock_ms(), until_ms = began_ms + AWAY_MS;
    outage_begin((enum outage)_i, cluster, proxy, conn);
    if (_i == BACKEND_KILLED) { // PostgreSQL restarts by itself, at once
        daemon_wait_log(fleet.daemons[0], "database_lost", HANG_MS);
    } else {
        wait_for(none_ready, &fleet, HANG_MS, "none is ready");
        wait_for(has_passed, &until_ms, HANG_MS, "it is away for long enough");
    }
    if (_i == STOPPED || _i == KILLED)
        cluster_start_again(cluster);
    tcp_proxy_pass(proxy);
    wait_for(all_ready, &fleet, HANG_MS, "all are ready again");
    conn = _i == REFUSED ? conn : cluster_connect(cluster);
    // It goes on by itself: what is written from now on arrives, and so does everything from before.
    int written = atomic_load(&writer.written);
    receiver_wait(receiver, receiver_count(receiver) + 100, HANG_MS);
    atomic_store(&writer.stop, true);
    pthread_join(writer.thread, NULL);
    ck_assert_int_gt(atomic_load(&writer.written), written);
    sql_wait(conn, HANG_MS, "select not exists (select from rowbell.events where fanned_out_at is null)");
    sql_wait(conn, HANG_MS, NO_JOBS);
    sql_wait(conn, HANG_MS, "select count(*) = 0 from rowbell.jobs_waiting");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events where poisoned_at is not null"), 0);
    // Its own `subscription/w` events aside, every row's event arrived at the receiver and is in the stream.
    ck_assert_int_eq(distinct_ids(receiver), sql_int(conn, "select count(*) from rowbell.events where op is not null"));
    ck_assert_int_ge(sql_int(conn, "select count(*) from rowbell.events where op is not null"),
                     atomic_load(&writer.written));
    ck_assert_int_eq(sql_int(conn,
                             "select count(*) from rowbell.events e where op is not null and not exists (select from "
                             "rowbell.stream_log l where l.event_seq = e.seq)"),
                     0);
    // No hot loop, neither of connections nor of log lines: only so many a second, however long all of this took.
    int seconds = (int)((clock_ms() - began_ms) / 1000);
    ck_assert_int_lt(tcp_proxy_accepted(proxy) - accepted, 60 + 15 * seconds);
    for (int i = 0; i < 3; i++) {
        int lines = 0;
        daemon_wait_log(fleet.daemons[i], "\n", HANG_MS);
        for (const char *at = fleet.daemons[i]->log; (at = strchr(at, '\n')) != NULL; at++)
            lines++;
        ck_assert_msg(lines < 30 + 5 * seconds, "%d lines:\n%s", lines, fleet.daemons[i]->log);
    }
    tcp_proxy_stop(proxy);
}
END_TEST

// ---- 14: a duplicate when scaling from 1 to 2, or rolling

START_TEST(field_14_scaling_and_rolling_make_no_duplicate_and_a_kill_only_of_what_is_in_flight) {
    enum { JOBS = 600, AT_ONCE = 16 };
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    receiver_answer(receiver, 200, NULL, 20);
    int subscription = webhook(conn, "w", receiver, ", \"max_in_flight\": 16");
    webhooks(conn, "v", 15, receiver_url(receiver), ", \"max_in_flight\": 1"); // on other shards
    queue(conn, subscription, JOBS);
    queue_matching(conn, "v%", 40);
    int all = JOBS + 15 * 40;
    struct daemon *first = start(webhook_only);
    receiver_wait(receiver, all / 8, WAIT_MS);
    struct daemon *second = start(webhook_only); // takes half of the shards meanwhile
    receiver_wait(receiver, all / 4, WAIT_MS);
    struct daemon *third = start(webhook_only); // rolling: a new one, then an old one goes
    daemon_signal(first, SIGTERM);
    ck_assert_int_eq(daemon_wait_exit(first, HANG_MS), 0);
    receiver_wait(receiver, all / 2, WAIT_MS);
    int so_far = receiver_count(receiver); // more arrive while we look
    ck_assert_int_eq(distinct_of(receiver, so_far), so_far);
    ck_assert_int_eq(attempts(conn, "lost"), 0);
    daemon_signal(second, SIGKILL);
    daemon_signal(third, SIGKILL);
    daemon_wait_exit(second, WAIT_MS);
    daemon_wait_exit(third, WAIT_MS);
    int64_t in_flight = sql_int(conn, "select count(*) from rowbell.jobs where lease_until > now()");
    start(webhook_only);
    sql_wait(conn, HANG_MS, NO_JOBS);
    ck_assert_int_eq(distinct_deliveries(receiver), all);
    ck_assert_int_le(receiver_count(receiver) - all, in_flight);
    ck_assert_int_le(in_flight, AT_ONCE + 15);
}
END_TEST

// ---- 15: historical rows slow the claim

// Of a node and what is below it, where it reads by an index or a whole table. What an update touches hangs on the room
// that PostgreSQL finds in a page, and a TID scan is one block for each job.
static int64_t blocks_read(struct json_object *node) {
    struct json_object *type = NULL, *hit = NULL, *read = NULL, *below = NULL;
    ck_assert(json_object_object_get_ex(node, "Node Type", &type));
    ck_assert(json_object_object_get_ex(node, "Shared Hit Blocks", &hit));
    ck_assert(json_object_object_get_ex(node, "Shared Read Blocks", &read));
    const char *name = json_object_get_string(type);
    if ((strstr(name, "Index") || strstr(name, "Seq") || strstr(name, "Bitmap")) && strstr(name, "Scan"))
        return json_object_get_int64(hit) + json_object_get_int64(read);
    int64_t blocks = 0;
    size_t count = json_object_object_get_ex(node, "Plans", &below) ? json_object_array_length(below) : 0;
    for (size_t i = 0; i < count; i++)
        blocks += blocks_read(json_object_array_get_idx(below, i));
    return blocks;
}

static int64_t plan_blocks(const char *plan) {
    struct json_object *root = json_tokener_parse(plan), *top = NULL;
    ck_assert(json_object_object_get_ex(json_object_array_get_idx(root, 0), "Plan", &top));
    int64_t blocks = blocks_read(top);
    json_object_put(root);
    return blocks;
}

static const struct db_statement *const claims[] = {&sql_job_claim, &sql_job_claim_ordered};

// Blocks that the dispatcher's own statement reads when it claims 16 of the jobs that are ready; nothing is kept of it.
static int64_t claim_blocks(PGconn *conn, int which, int subscription, const char *plan_mode) {
    char sql[20000];
    snprintf(sql, sizeof sql, "prepare claim as %s", claims[which]->sql);
    sql_run(conn, sql);
    // The plan is the dispatcher's: with its settings no statistics, and so no autovacuum, choose another one.
    sql_run(conn, "begin");
    sql_run(conn, sql_job_mode.sql);
    snprintf(sql, sizeof sql, "set local plan_cache_mode = %s", plan_mode);
    sql_run(conn, sql);
    snprintf(sql, sizeof sql,
             "explain (analyze, buffers, format json) execute claim('{%d}', '{16}', '{25000}', '{0}', "
             "'{9223372036854775807}', 42, 1048576, 86400000)",
             subscription);
    const char *plan = sql_text(conn, sql);
    sql_run(conn, "rollback; deallocate claim");
    sql_run(conn, "vacuum (freeze, index_cleanup on) rowbell.jobs"); // the versions that it made
    return plan_blocks(plan);
}

// Jobs that are ready, and no dead version of their rows: the first claim would step over those. A vacuum that freezes
// waits for a page that the background writer holds; another leaves its dead rows there.
static void queue_vacuumed(PGconn *conn, int subscription, int count) {
    queue(conn, subscription, count);
    sql_run(conn, "vacuum (freeze, index_cleanup on) rowbell.events");
    sql_run(conn, "vacuum (freeze, index_cleanup on) rowbell.jobs");
}

// 10 million take minutes to make; a claim that read history would show with 300,000 already: its cost is counted in
// blocks touched, which neither the machine nor its load changes.
START_TEST(field_15_delivered_rows_cost_the_claim_no_block) {
    enum { READY = 100, MODES = 2, STATISTICS = 3 };
    static const char *const modes[MODES] = {"force_custom_plan", "force_generic_plan"};
    // Of the small tables; of large ones whose queue is empty, as autovacuum may take them; of the large ones.
    static const char *const statistics[STATISTICS] = {"select 1", "analyze rowbell.events", "analyze"};
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    int subscription = webhook(conn, "w", receiver, _i == 1 ? ", \"ordered\": true" : "");
    queue_vacuumed(conn, subscription, READY);
    sql_run(conn, "analyze");
    int64_t before[MODES];
    for (int mode = 0; mode < MODES; mode++)
        before[mode] = claim_blocks(conn, _i, subscription, modes[mode]);
    // Delivered long ago: events and attempts are there, the jobs went as they do, by being deleted; others wait behind
    // them.
    char sql[1200];
    snprintf(sql, sizeof sql,
             "delete from rowbell.jobs;"
             "insert into rowbell.events (type_id, subject, op, key, fanned_out_at, fanout) select (select id from "
             "rowbell.event_types where type = 'posts.create'), 'posts/' || i, 'create', i, now(), '{%d}' from "
             "generate_series(1, 300000) i;"
             "insert into rowbell.attempts (subscription_id, event_seq, attempt, started_at, status, class) select %d, "
             "seq, 1, "
             "now(), 200, 'delivered' from rowbell.events;"
             "insert into rowbell.jobs (subscription_id, event_seq) select %d, seq from rowbell.events;"
             "delete from rowbell.jobs",
             subscription, subscription, subscription);
    sql_run(conn, sql);
    queue_vacuumed(conn, subscription, READY);
    for (int taken = 0; taken < STATISTICS; taken++) {
        sql_run(conn, statistics[taken]);
        for (int mode = 0; mode < MODES; mode++) {
            int64_t after = claim_blocks(conn, _i, subscription, modes[mode]);
            // The indexes are two levels deeper: that of jobs once, that of events for each job that is claimed, and
            // where their order counts for each that is ready. History is thousands of blocks.
            ck_assert_msg(after <= before[mode] + 2 * (1 + (_i == 1 ? READY : 0) + 16),
                          "%s, %s, %s: %ld blocks, before that %ld", _i == 1 ? "ordered" : "unordered", modes[mode],
                          statistics[taken], (long)after, (long)before[mode]);
        }
    }
    ck_assert_int_gt(sql_int(conn, "select pg_relation_size('rowbell.events') / 8192"),
                     10 * (before[0] + 5 * READY) / 4);
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *crash = suite_case(suite, "field_crash", 300);
    tcase_add_test(crash, field_1_killed_again_and_again_nothing_is_locked_for_longer_than_its_lease);
    tcase_add_test(crash, field_2_a_lease_shorter_than_the_request_is_refused);
    tcase_add_test(crash, field_3_max_in_flight_holds_while_three_dispatchers_come_and_go);
    tcase_add_test(crash, field_3_max_in_flight_holds_across_a_takeover);
    tcase_add_test(crash, field_3_concurrency_holds_for_the_process);
    tcase_add_loop_test(crash, field_4_outcome_and_next_attempt_commit_together_or_the_same_id_is_sent_again, 0,
                        (int)(sizeof faults / sizeof *faults));
    tcase_add_test(crash, field_14_scaling_and_rolling_make_no_duplicate_and_a_kill_only_of_what_is_in_flight);
    TCase *load = suite_case(suite, "field_load", 120);
    tcase_add_test(load, field_5_a_slow_and_a_refusing_endpoint_hold_up_none_of_200_healthy_ones);
    tcase_add_test(load, field_7_of_20000_requests_to_one_host_under_one_in_twenty_opens_a_connection);
    tcase_add_test(load, field_8_the_slowest_of_a_batch_delays_nobody_else);
    tcase_add_loop_test(load, field_15_delivered_rows_cost_the_claim_no_block, 0, 2);
    TCase *database = suite_case(suite, "field_database", 150);
    tcase_add_loop_test(database, field_13_the_fleet_survives_a_database_that_was_away_and_readiness_says_so, 0,
                        OUTAGES);
}

int main(void) {
    return suite_main("webhook", add_tests);
}
