// The relay's guarantees with the real program on real PostgreSQL: G2 nothing skipped, G3 fan-out exactly once.
#include "tests/support/fixture.h"
#include "tests/support/pgbouncer.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const fast[] = {"--poll-ms", "20ms", NULL};
#define ALL_FANNED "select count(*) = 0 from rowbell.events where fanned_out_at is null"

static PGconn *fresh(void) {
    fixture_database();
    PGconn *conn = fixture_connect();
    sql_run(conn, "alter sequence rowbell.events_seq_seq restart 4294967296;"
                  "create table posts (id int primary key, title text, tenant text);"
                  "select rowbell.publish('posts', scope => 'tenant');"
                  "select rowbell.declare_type('thing.happened', webhook => true)");
    return conn;
}

static struct daemon *relay(void) {
    struct daemon *daemon = daemon_start("rowbell-relay", fast);
    daemon_wait_log(daemon, "relay_started", 10000);
    return daemon;
}

static int64_t webhook(PGconn *conn, const char *name, const char *types, const char *scope) {
    char sql[300];
    snprintf(sql, sizeof sql, "select subscription_id from rowbell.add_webhook('%s', 'https://example.com/', '%s', %s)",
             name, types, scope);
    return sql_int(conn, sql);
}

START_TEST(types_and_scopes_are_matched) { // G7
    PGconn *conn = fresh();
    int64_t all = webhook(conn, "all", "{*}", "null");
    int64_t deletes = webhook(conn, "deletes", "{*.delete}", "null");
    int64_t posts_a = webhook(conn, "posts-a", "{posts.*}", "'a'");
    int64_t exact = webhook(conn, "exact", "{thing.happened,posts.update}", "null");
    int64_t none = webhook(conn, "none", "{other.*}", "null");
    sql_run(conn, "insert into posts values (1, 'x', 'a'); insert into posts values (2, 'x', 'b');"
                  "insert into posts values (3, 'x', null); update posts set title = 'y' where id = 2;"
                  "delete from posts where id = 1; truncate posts; select rowbell.record('thing.happened', 's')");
    relay();
    sql_wait(conn, 10000, ALL_FANNED);
    char expected[400];
    snprintf(expected, sizeof expected,
             "{1,%1$d,%3$d} {1,%1$d} {1,%1$d} {1,%1$d,%4$d} {1,%1$d,%2$d,%3$d} {1,%1$d,%2$d,%3$d} {%1$d,%4$d}",
             (int)all, (int)deletes, (int)posts_a, (int)exact);
    ck_assert_str_eq(sql_text(conn, "select string_agg(fanout::text, ' ' order by seq) from rowbell.events"), expected);
    ck_assert_int_eq(sql_int(conn, "select count(*) from (select subscription_id, event_seq from rowbell.jobs except "
                                   "select unnest(fanout), seq from rowbell.events) as d"),
                     0);
    ck_assert_int_eq(
        sql_int(conn, "select count(*) - (select sum(cardinality(fanout)) from rowbell.events) from rowbell.jobs"), 0);
    (void)none;
}
END_TEST

START_TEST(a_type_declared_after_the_subscription_is_matched) {
    PGconn *conn = fresh();
    webhook(conn, "later", "{later.*}", "null");
    sql_run(conn,
            "create table later (id int primary key); select rowbell.publish('later'); insert into later values (1)");
    relay();
    sql_wait(conn, 10000, ALL_FANNED);
    ck_assert_int_eq(sql_int(conn, "select cardinality(fanout) from rowbell.events"), 2);
}
END_TEST

START_TEST(what_may_not_leave_by_webhook_does_not) {
    PGconn *conn = fresh();
    sql_run(conn, "select rowbell.declare_type('secret.thing'); create table inner_only (id int primary key);"
                  "select rowbell.publish('inner_only', webhook => false)");
    webhook(conn, "all", "{*}", "null");
    ck_assert_str_eq(sql_error(conn, "select rowbell.add_webhook('w', 'https://x.example/', '{secret.thing}')"),
                     "42501");
    sql_run(conn, "select rowbell.record('secret.thing', 's'); insert into inner_only values (1)");
    relay();
    sql_wait(conn, 10000, ALL_FANNED);
    ck_assert_str_eq(sql_text(conn, "select string_agg(fanout::text, ' ' order by seq) from rowbell.events"), "{} {1}");
}
END_TEST

START_TEST(interleaved_commits_lose_nothing) { // G2: the lower seq commits last
    PGconn *conn = fresh();
    PGconn *late = fixture_connect();
    relay();
    sql_run(late, "begin; insert into posts values (1, 'late', null)");
    sql_run(conn, "insert into posts values (2, 'early', null)");
    sql_wait(conn, 10000, "select count(*) = 1 from rowbell.events where fanned_out_at is not null");
    sql_run(late, "commit");
    sql_wait(conn, 10000, "select count(*) = 2 from rowbell.events where fanned_out_at is not null");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs"), 2);
}
END_TEST

START_TEST(sixteen_writers_with_rollbacks_and_a_long_one_lose_nothing) { // G2
    PGconn *conn = fresh();
    webhook(conn, "w", "{*}", "null");
    PGconn *longest = fixture_connect();
    sql_run(longest, "begin; insert into posts values (-1, 'long', null)");
    relay();
    relay();
    enum { WRITERS = 16, ROUNDS = 30 };
    PGconn *writers[WRITERS];
    for (int i = 0; i < WRITERS; i++)
        writers[i] = fixture_connect();
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < WRITERS; i++) {
            char sql[200];
            int id = round * WRITERS + i;
            snprintf(sql, sizeof sql,
                     "begin; insert into posts values (%d, 'x', null); select pg_sleep(random() * 0.01); %s", id,
                     id % 3 == 0 ? "rollback" : "commit");
            ck_assert_int_eq(PQsendQuery(writers[i], sql), 1);
        }
        for (int i = 0; i < WRITERS; i++) {
            PGresult *result;
            while ((result = PQgetResult(writers[i]))) {
                ck_assert_int_ne(PQresultStatus(result), PGRES_FATAL_ERROR);
                PQclear(result);
            }
        }
    }
    sql_wait(conn, 20000, ALL_FANNED);
    sql_run(longest, "commit");
    sql_wait(conn, 20000, "select count(*) = 1 from rowbell.events where key = '-1' and fanned_out_at is not null");
    // What was committed is taken from the table, not from the outbox.
    ck_assert_int_eq(
        sql_int(conn, "select count(*) from posts p where not exists (select from rowbell.jobs j join rowbell.events e "
                      "on e.seq = j.event_seq where e.key = p.id::text and j.subscription_id = 2)"),
        0);
    ck_assert_int_eq(sql_int(conn, "select count(*) - 2 * (select count(*) from posts) from rowbell.jobs"), 0);
}
END_TEST

START_TEST(a_batch_never_exceeds_200) {
    PGconn *conn = fresh();
    sql_run(conn, "insert into posts select i, 'x', null from generate_series(1, 2000) i");
    relay();
    sql_wait(conn, 10000, ALL_FANNED);
    ck_assert_int_ge(sql_int(conn, "select count(distinct xmin::text) from rowbell.jobs"), 10);
    ck_assert_int_le(
        sql_int(conn, "select max(n) from (select count(*) as n from rowbell.jobs group by xmin::text) as t"), 200);
}
END_TEST

// A row that the database refuses, as a constraint of a curious operator would.
static void refuse_jobs_of(PGconn *conn, const char *condition) {
    char sql[400];
    snprintf(sql, sizeof sql,
             "create function refuse() returns trigger language plpgsql as $$ begin if %s then raise exception "
             "'refused' using "
             "errcode = 'check_violation'; end if; return new; end $$;"
             "create trigger refuse before insert on rowbell.jobs for each row execute function refuse()",
             condition);
    sql_run(conn, sql);
}

START_TEST(one_bad_row_leaves_199_delivered_in_the_same_pass) {
    PGconn *conn = fresh();
    refuse_jobs_of(conn, "(select key = '77' from rowbell.events where seq = new.event_seq)");
    sql_run(conn, "insert into posts select i, 'x', null from generate_series(1, 200) i");
    struct daemon *daemon = relay();
    sql_wait(conn, 10000, "select count(*) = 199 from rowbell.events where fanned_out_at is not null");
    daemon_wait_log(daemon, "event_set_aside", 5000);
    ck_assert_str_eq(sql_text(conn,
                              "select key || ' ' || fanout_attempts || ' ' || (retry_at > now()) || ' ' || last_error "
                              "from rowbell.events where fanned_out_at is null"),
                     "77 1 true refused");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs"), 199);
    // Mended, it goes out by itself when its retry is due.
    sql_run(conn, "drop trigger refuse on rowbell.jobs");
    sql_wait(conn, 10000, ALL_FANNED);
}
END_TEST

START_TEST(poisoned_after_5_failures_not_4_and_requeued) {
    PGconn *conn = fresh();
    refuse_jobs_of(conn, "true");
    sql_run(conn, "insert into posts values (1, 'x', null)");
    struct daemon *daemon = relay();
    for (int failures = 1; failures <= 4; failures++) {
        char sql[200];
        snprintf(sql, sizeof sql,
                 "select count(*) from rowbell.events where fanout_attempts = %d and poisoned_at is null", failures);
        sql_wait(conn, 10000, sql);
        ck_assert_int_eq(
            sql_int(conn, "select count(*) from rowbell.events where retry_at - now() between "
                          "(2 ^ fanout_attempts) * interval '0.7 s' and (2 ^ fanout_attempts) * interval '1.2 s'"),
            1);
        sql_run(conn, "update rowbell.events_set_aside set retry_at = now()"); // the wait itself is not what is tested
    }
    sql_wait(conn, 10000, "select count(*) from rowbell.events where fanout_attempts = 5 and poisoned_at is not null");
    daemon_wait_log(daemon, "event_poisoned", 5000);
    ck_assert_int_eq(sql_int(conn, "select rowbell.requeue_events(dry_run => true)"), 1);
    sql_run(conn, "drop trigger refuse on rowbell.jobs");
    ck_assert_int_eq(sql_int(conn, "select rowbell.requeue_events()"), 1);
    sql_wait(conn, 10000, ALL_FANNED);
    ck_assert_int_eq(sql_int(conn, "select rowbell.requeue_events()"), 0);
}
END_TEST

START_TEST(four_relays_fan_out_once_and_count_a_failing_round_once) { // G3
    PGconn *conn = fresh();
    webhook(conn, "w", "{*}", "null");
    refuse_jobs_of(conn, "(select key = '-7' from rowbell.events where seq = new.event_seq)");
    for (int i = 0; i < 4; i++)
        relay();
    sql_run(conn, "insert into posts select i, 'x', null from generate_series(1, 5000) i; insert into posts values "
                  "(-7, 'bad', null);"
                  "insert into posts select i, 'x', null from generate_series(5001, 10000) i");
    sql_wait(conn, 30000, "select count(*) = 10000 from rowbell.events where fanned_out_at is not null");
    sql_wait(conn, 10000, "select count(*) from rowbell.events where fanout_attempts > 0");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs"), 20000);
    ck_assert_int_eq(sql_int(conn, "select fanout_attempts from rowbell.events where key = '-7'"), 1);
}
END_TEST

START_TEST(killed_at_random_claims_again_and_never_twice) { // G3: claim, jobs and mark are one
    PGconn *conn = fresh();
    sql_run(conn, "insert into posts select i, 'x', null from generate_series(1, 30000) i");
    for (int i = 0; i < 15; i++) {
        struct daemon *daemon = daemon_start("rowbell-relay", fast);
        daemon_wait_log(daemon, "relay_started", 10000);
        int64_t before = sql_int(conn, "select count(*) from rowbell.events where fanned_out_at is not null");
        char sql[200];
        snprintf(sql, sizeof sql,
                 "select count(*) > %lld or count(*) = 30000 from rowbell.events where fanned_out_at is not null",
                 (long long)before);
        sql_wait(conn, 10000, sql);
        daemon_signal(daemon, SIGKILL);
        daemon_wait_exit(daemon, 5000);
    }
    relay();
    sql_wait(conn, 20000, ALL_FANNED);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs"), 30000);
}
END_TEST

// A subscription with a condition, so that passes have to look at events; the one that finds this out has been made.
static void look_at_events(PGconn *conn) {
    sql_run(conn, "select rowbell.add_webhook('picky', 'https://example.com/', '{posts.*}', null, "
                  "'{\"condition\": \"$.key != \\\"0\\\"\"}'); insert into posts values (0, 'x', null)");
    sql_wait(conn, 10000, ALL_FANNED);
}

START_TEST(a_row_changed_between_snapshot_and_lock_is_fanned_out_once) { // G3: mark first, in both kinds of pass
    PGconn *conn = fresh();
    PGconn *other = fixture_connect();
    bool conditions = _i == 1;
    // A policy that waits when the claim reads row 2: after its snapshot, before its lock. It applies to who is no
    // owner, so the relay runs with the least rights that grants.sql gives it. It is there already: it would not start.
    const char *url = fixture_login("rowbell_relay");
    struct daemon *daemon =
        daemon_start("rowbell-relay", (const char *const[]){"--poll-ms", "20ms", "--database-url", url, NULL});
    daemon_wait_log(daemon, "relay_started", 10000);
    if (conditions)
        look_at_events(conn);
    sql_run(other, "select pg_advisory_lock(4242)");
    sql_run(
        conn,
        "create function gate(k text) returns boolean language plpgsql as $$ begin if k = '2' then "
        "perform pg_advisory_lock_shared(4242); perform pg_advisory_unlock_shared(4242); end if; return true; end $$;"
        "alter table rowbell.events enable row level security, force row level security;"
        "create policy gate on rowbell.events using (gate(key)) with check (true)");
    sql_run(conn, "insert into posts select i, 'x', null from generate_series(1, 3) i");
    sql_wait(fixture_admin(), 10000,
             "select count(*) from pg_stat_activity where application_name = 'rowbell-relay' and wait_event_type = "
             "'Lock' and datname = current_database()");
    sql_run(other,
            "update rowbell.events set last_error = 'touched' where key = '2'"); // committed before the claim goes on
    sql_run(other, "select pg_advisory_unlock(4242)");
    sql_wait(conn, 10000, ALL_FANNED);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs"), conditions ? 1 + 3 * 2 : 3);
    // Two passes: the second one took the row that the first had to leave.
    ck_assert_int_eq(sql_int(conn, "select count(distinct fanned_out_at) from rowbell.events where key <> '0'"), 2);
    ck_assert_int_eq(sql_int(conn, "select sum(fanout_attempts) from rowbell.events"), 0);
}
END_TEST

// Somebody looks at one event for long; the others go out, whatever kind of pass takes them.
START_TEST(a_locked_event_holds_back_no_other) {
    enum { PLAIN, CONDITIONS, ONE_BY_ONE };
    PGconn *conn = fresh();
    PGconn *other = fixture_connect();
    if (_i == CONDITIONS)
        sql_run(conn, "select rowbell.add_webhook('picky', 'https://example.com/', '{posts.*}', null, "
                      "'{\"condition\": \"$.key != \\\"0\\\"\"}')");
    sql_run(conn, "insert into posts select i, 'x', null from generate_series(1, 3) i");
    if (_i == ONE_BY_ONE) {
        refuse_jobs_of(conn, "true");
        relay();
        sql_wait(conn, 10000, "select count(*) = 3 from rowbell.events where fanout_attempts = 1");
    }
    sql_run(other, "begin; select from rowbell.events where key = '2' for update");
    if (_i == ONE_BY_ONE)
        sql_run(conn, "drop trigger refuse on rowbell.jobs; update rowbell.events_set_aside set retry_at = now() - "
                      "interval '1 min' + event_seq % 1000 * interval '1 ms'");
    else
        relay();
    sql_wait(conn, 60000, "select count(*) = 2 from rowbell.events where fanned_out_at is not null");
    sql_run(other, "commit");
    sql_wait(conn, 60000, ALL_FANNED);
}
END_TEST

START_TEST(a_paused_subscriptions_jobs_are_held) {
    PGconn *conn = fresh();
    webhook(conn, "w", "{*}", "null");
    sql_run(conn, "select rowbell.set_subscription_state('w', 'paused'); insert into posts values (1, 'x', null)");
    relay();
    sql_wait(conn, 10000, ALL_FANNED);
    ck_assert_str_eq(sql_text(conn, "select state from rowbell.job_states where subscription_id = 2"), "held");
    // What becomes active again is let go by the dispatcher that owns it; what comes now goes the ordinary way.
    sql_run(conn, "select rowbell.set_subscription_state('w', 'active'); insert into posts values (2, 'x', null)");
    sql_wait(conn, 10000, ALL_FANNED);
    ck_assert_str_eq(sql_text(conn, "select string_agg(state, ' ' order by event_seq) from rowbell.job_states where "
                                    "subscription_id = 2"),
                     "held ready");
}
END_TEST

START_TEST(comes_back_by_itself_after_its_connection_is_cut) {
    PGconn *conn = fresh();
    struct daemon *daemon = relay();
    sql_run(
        conn,
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'rowbell-relay' and datname = "
        "current_database()");
    daemon_wait_log(daemon, "database_lost", 5000);
    sql_run(conn, "insert into posts values (1, 'x', null)");
    sql_wait(conn, 10000, ALL_FANNED);
}
END_TEST

START_TEST(sigterm_ends_at_once_and_once_drains) {
    PGconn *conn = fresh();
    struct daemon *daemon = relay();
    daemon_signal(daemon, SIGTERM);
    ck_assert_int_eq(daemon_wait_exit(daemon, 5000), 0);
    sql_run(conn, "insert into posts select i, 'x', null from generate_series(1, 450) i");
    const char *out, *err;
    ck_assert_int_eq(program_run("rowbell-relay", (const char *const[]){"--once", NULL}, &out, &err), 0);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs"), 450);
}
END_TEST

START_TEST(bad_starts_are_one_line_with_a_remedy) {
    fresh();
    static const struct {
        const char *arguments[5];
        int status;
        const char *says;
    } starts[] = {
        {{"--database-url", "postgres://nobody@127.0.0.1:1/x", NULL}, 3, "--database-url"},
        {{"--database-url", "nonsense", NULL}, 2, "postgres://"},
        {{"--batch-size", "201", NULL}, 2, "--batch-size"},
        {{"--poll-ms", "5", NULL}, 2, "200ms"},
        {{"--frobnicate", NULL}, 2, "--frobnicate"},
        {{"--admin-listen", "127.0.0.1:99999", NULL}, 2, "--admin-listen"},
    };
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        const char *out, *err;
        int status = program_run("rowbell-relay", starts[i].arguments, &out, &err);
        ck_assert_msg(status == starts[i].status && strstr(err, starts[i].says), "%s: %d, %s", starts[i].arguments[0],
                      status, err);
        ck_assert_msg(strchr(err, '\n') == err + strlen(err) - 1, "not one line: %s", err);
    }
    const char *out, *err;
    fixture_empty_database();
    ck_assert_int_eq(program_run("rowbell-relay", (const char *const[]){NULL}, &out, &err), 4);
    ck_assert_ptr_nonnull(strstr(err, "rowbell migrate"));
}
END_TEST

// The counters follow the commit, which others see first.
static bool has_counted_250(void *url) {
    const char *body;
    ck_assert_int_eq(http_get(url, &body), 200);
    return strstr(body, "\nrowbell_fanout_events_total 250\n") != NULL &&
           strstr(body, "\nrowbell_fanout_jobs_total 250\n") != NULL;
}

START_TEST(metrics_and_readiness_tell) {
    PGconn *conn = fresh();
    sql_run(conn, "insert into posts select i, 'x', null from generate_series(1, 250) i");
    struct daemon *daemon = relay();
    sql_wait(conn, 10000, ALL_FANNED);
    char url[100];
    const char *body;
    snprintf(url, sizeof url, "http://127.0.0.1:%d/metrics", daemon_log_port(daemon, "admin"));
    wait_for(has_counted_250, url, 10000, "250 events and 250 jobs in /metrics");
    snprintf(url, sizeof url, "http://127.0.0.1:%d/readyz", daemon_log_port(daemon, "admin"));
    ck_assert_int_eq(http_get(url, &body), 200);
}
END_TEST

START_TEST(a_failure_at_each_step_of_the_pass_leaves_all_or_nothing) { // G3
    // The steps of a pass in the order in which it writes, and the commit itself.
    static const char *const steps[] = {
        "before update on rowbell.events",
        "before insert on rowbell.jobs",
        "after insert on rowbell.jobs",
        "before insert on rowbell.jobs_waiting",
        "deferred",
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        PGconn *conn = fresh();
        webhook(conn, "held", "{*}", "null");
        sql_run(
            conn,
            "select rowbell.set_subscription_state('held', 'paused');"
            "create function full_disk() returns trigger language plpgsql as $$ begin raise exception 'no room' using "
            "errcode = 'disk_full'; end $$");
        char sql[300];
        if (strcmp(steps[i], "deferred") == 0)
            snprintf(
                sql, sizeof sql,
                "create constraint trigger t after insert on rowbell.jobs deferrable initially deferred for each row "
                "execute function full_disk()");
        else
            snprintf(sql, sizeof sql, "create trigger t %s for each row execute function full_disk()", steps[i]);
        sql_run(conn, "insert into posts select i, 'x', null from generate_series(1, 10) i");
        sql_run(conn, sql);
        struct daemon *daemon = relay();
        daemon_wait_log(daemon, "pass_failed", 10000);
        ck_assert_int_eq(
            sql_int(conn, "select (select count(*) from rowbell.jobs) + (select count(*) from rowbell.jobs_waiting) + "
                          "(select count(*) from rowbell.events where fanned_out_at is not null or "
                          "fanout_attempts > 0)"),
            0);
        sql_run(conn, strstr(steps[i], "events")    ? "drop trigger t on rowbell.events"
                      : strstr(steps[i], "waiting") ? "drop trigger t on rowbell.jobs_waiting"
                                                    : "drop trigger t on rowbell.jobs");
        sql_wait(conn, 10000, ALL_FANNED);
        ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs"), 10);
        ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs_waiting where state = 'held'"), 10);
    }
}
END_TEST

START_TEST(every_event_of_a_subject_reaches_who_does_not_coalesce) {
    PGconn *conn = fresh();
    int64_t all = webhook(conn, "all", "{posts.*}", "null");
    int64_t latest =
        sql_int(conn, "insert into rowbell.subscriptions (name, kind, types, \"coalesce\") values ('latest', 'index', "
                      "'{posts.*}', true) returning id");
    sql_run(conn, "insert into posts values (1, 'a', null), (2, 'a', null); update posts set title = 'b' where id = 1;"
                  "update posts set title = 'c' where id = 1; delete from posts where id = 2");
    relay();
    sql_wait(conn, 10000, ALL_FANNED);
    char sql[200];
    snprintf(sql, sizeof sql, "select count(*) from rowbell.jobs where subscription_id = %d", (int)all);
    ck_assert_int_eq(sql_int(conn, sql), 5);
    snprintf(sql, sizeof sql,
             "select string_agg(e.subject || ' ' || e.op, ', ' order by e.seq) from rowbell.jobs j join "
             "rowbell.events e on e.seq = j.event_seq where subscription_id = %d",
             (int)latest);
    ck_assert_str_eq(sql_text(conn, sql), "posts/1 update, posts/2 delete");
    // The covered events name the one that stands for them, and only it lists the subscription.
    ck_assert_int_eq(
        sql_int(conn, "select count(*) from rowbell.events e join rowbell.events v on v.seq = e.fanout_via[1] where "
                      "cardinality(e.fanout_via) = 1 and v.subject = e.subject and v.seq > e.seq and "
                      "cardinality(v.fanout) = cardinality(e.fanout) + 1"),
        3);
    // A change that arrives while its job runs gets a job of its own.
    sql_run(conn, "update rowbell.jobs set lease_until = now() + interval '1 min', lease_token = 1;"
                  "update posts set title = 'd' where id = 1");
    sql_wait(conn, 10000, ALL_FANNED);
    ck_assert_str_eq(sql_text(conn, sql), "posts/1 update, posts/2 delete, posts/1 update");
}
END_TEST

START_TEST(a_condition_decides_and_one_that_is_not_boolean_poisons_its_job_alone) {
    PGconn *conn = fresh();
    int64_t plain = webhook(conn, "plain", "{*}", "null");
    sql_run(conn, "select rowbell.add_webhook('pro', 'https://example.com/', '{thing.happened}', null, "
                  "'{\"condition\": \"$.plan == \\\"pro\\\"\"}');"
                  "select rowbell.add_webhook('value', 'https://example.com/', '{thing.happened}', null, "
                  "'{\"condition\": \"$.flag\"}');"
                  "select rowbell.add_webhook('table', 'https://example.com/', '{posts.*}', null, "
                  "'{\"condition\": \"$.table == \\\"posts\\\" && $.key == \\\"7\\\" && $.op == \\\"create\\\"\"}')");
    sql_run(
        conn,
        "select rowbell.record('thing.happened', 'a', '{\"plan\": \"pro\", \"flag\": true}');"
        "select rowbell.record('thing.happened', 'b', '{\"plan\": \"free\", \"flag\": null}');"
        "select rowbell.record('thing.happened', 'c', '{\"flag\": 5}'); select rowbell.record('thing.happened', 'd');"
        "insert into posts values (7, 'x', null), (8, 'x', null)");
    struct daemon *daemon = relay();
    sql_wait(conn, 10000, ALL_FANNED);
    const char *jobs =
        sql_text(conn, "select string_agg(s.name || ' ' || e.subject || ' ' || j.state, ', ' order by s.name, e.seq) "
                       "from rowbell.job_states j join rowbell.subscriptions s on s.id = j.subscription_id join "
                       "rowbell.events e on e.seq = j.event_seq where s.name not in ('plain', 'stream')");
    // $.plan == "pro" of {} is jsonpath's false; $.flag of {} is nothing at all, which is no answer.
    ck_assert_str_eq(jobs, "pro a ready, table posts/7 ready, value a ready, value c poisoned, value d poisoned");
    char sql[200];
    snprintf(sql, sizeof sql, "select count(*) from rowbell.jobs where subscription_id = %d", (int)plain);
    ck_assert_int_eq(sql_int(conn, sql), 6);
    daemon_wait_log(daemon, "job_poisoned", 5000);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs_waiting where last_class = 'condition'"), 2);
    ck_assert_int_eq(sql_int(conn, "select rowbell.requeue_jobs(subscription => 'value')"), 2);
    static const char *const refused[] = {"$.a ==", "$.a == $x", "$[*] ? (@.b > $\\\"y\\\")"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char add[300];
        snprintf(add, sizeof add,
                 "select rowbell.add_webhook('x', 'https://example.com/', '{*}', null, '{\"condition\": \"%s\"}')",
                 refused[i]);
        ck_assert_str_eq(sql_error(conn, add), "22023");
    }
    sql_run(conn, "select rowbell.add_webhook('dollar', 'https://example.com/', '{*}', null, '{\"condition\": "
                  "\"$.price == \\\"5 $\\\"\"}')");
}
END_TEST

START_TEST(plain_events_and_those_with_a_condition_share_batches) { // G3
    PGconn *conn = fresh();
    webhook(conn, "a", "{posts.*}", "'a'");
    sql_run(conn, "select rowbell.add_webhook('one', 'https://example.com/', '{posts.*}', 'b', "
                  "'{\"condition\": \"$.key starts with \\\"1\\\"\"}');"
                  // 50 tenants more, of which b's events have a condition to meet.
                  "insert into posts select i, 'x', case i % 3 when 0 then 'a' when 1 then 'b' else 'tenant-' || i end "
                  "from generate_series(1, 150) i");
    const char *out, *err;
    ck_assert_int_eq(program_run("rowbell-relay", (const char *const[]){"--once", NULL}, &out, &err), 0);
    ck_assert_str_eq(sql_text(conn, "select string_agg(s.name || ' ' || n, ' ' order by s.name) from (select "
                                    "subscription_id, count(*) as n from rowbell.jobs group by 1) j join "
                                    "rowbell.subscriptions s on s.id = subscription_id"),
                     "a 50 one 22 stream 150");
    ck_assert_int_eq(sql_int(conn, "select count(*) from (select subscription_id, event_seq from rowbell.jobs except "
                                   "select unnest(fanout), seq from rowbell.events where fanned_out_at is not null) d"),
                     0);
    ck_assert_int_eq(sql_int(conn, "select sum(cardinality(fanout)) from rowbell.events"), 222);
    // What is plain went out first.
    ck_assert_str_eq(sql_text(conn, "select count(*) || ' ' || count(*) filter (where scope = 'b') from rowbell.events "
                                    "where fanned_out_at = (select min(fanned_out_at) from rowbell.events)"),
                     "100 0");
}
END_TEST

START_TEST(a_condition_that_raises_an_error_leaves_the_others_jobs_and_poisons_nobody) {
    PGconn *conn = fresh();
    webhook(conn, "plain", "{*}", "null");
    // Past add_webhook's check: an unknown variable is 42704, which is not the data's fault and not the system's
    // either.
    sql_run(conn, "alter table rowbell.subscriptions disable trigger condition_of_subscription;"
                  "insert into rowbell.subscriptions (name, kind, types, condition) values ('raises', 'webhook', "
                  "'{*}', '$.a == $x')");
    sql_run(conn, "insert into posts values (1, 'x', null), (2, 'x', null)");
    relay();
    sql_wait(conn, 15000, ALL_FANNED);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs"), 4);
    ck_assert_str_eq(sql_text(conn, "select string_agg(distinct state, ' ') from rowbell.jobs_waiting"), "held");
    ck_assert_int_eq(
        sql_int(conn, "select count(*) from rowbell.events where fanout_attempts > 0 or poisoned_at is not null"), 0);
}
END_TEST

START_TEST(a_sleeping_relay_is_woken_by_a_writer_and_by_nobody_else) {
    PGconn *conn = fresh();
    sql_run(conn, "select rowbell.set_wake('notify'); listen rowbell_events");
    // No fallback poll, and a sweep an hour away: only NOTIFY can wake it.
    struct daemon *daemon =
        daemon_start("rowbell-relay", (const char *const[]){"--poll-ms", "0s", "--sweep", "1h", NULL});
    daemon_wait_log(daemon, "listen_working", 10000);
    // No lock is not enough: it is taken on another connection than the passes, so perhaps later.
#define SLEEPS                                                                                                         \
    "select not exists (select from pg_locks where locktype = 'advisory' and classid = x'726f7766'::int and database " \
    "= (select oid from pg_database where datname = current_database())) and not exists (select from "                 \
    "pg_stat_activity where datname = current_database() and application_name = 'rowbell-relay' and (state <> 'idle' " \
    "or state_change > clock_timestamp() - interval '300 ms'))"
    for (int i = 1; i <= 3; i++) {
        sql_wait(conn, 10000, SLEEPS);
        char sql[100];
        snprintf(sql, sizeof sql, "insert into posts values (%d, 'x', null)", i);
        sql_run(conn, sql);
        sql_wait(conn, 10000, ALL_FANNED);
    }
    sql_wait(conn, 10000, SLEEPS);
    sql_run(conn, "select rowbell.record('thing.happened', 's')");
    sql_wait(conn, 10000, ALL_FANNED);
    // A write that rolls back, or changes nothing, announces nothing.
    sql_wait(conn, 10000, SLEEPS);
    for (PGnotify *earlier; PQconsumeInput(conn) && (earlier = PQnotifies(conn)) != NULL;)
        PQfreemem(earlier);
    sql_run(conn, "begin; insert into posts values (9, 'x', null); rollback; update posts set title = title");
    sql_run(conn, "select pg_notify('rowbell_events', 'last')");
    PGnotify *notify = NULL;
    while (!notify) {
        ck_assert_int_eq(PQconsumeInput(conn), 1);
        notify = PQnotifies(conn);
    }
    ck_assert_str_eq(notify->extra, "last");
    PQfreemem(notify);
}
END_TEST

START_TEST(writers_pay_no_notify_while_a_relay_is_awake) {
    PGconn *conn = fresh();
    PGconn *awake = fixture_connect();
    sql_run(conn, "select rowbell.set_wake('notify'); listen rowbell_events");
    sql_run(awake, "select pg_advisory_lock_shared(x'726f7766'::int, 0)");
    sql_run(conn, "insert into posts values (1, 'x', null); select rowbell.record('thing.happened', 's')");
    ck_assert_int_eq(PQconsumeInput(conn), 1);
    ck_assert_ptr_null(PQnotifies(conn));
    sql_run(awake, "select pg_advisory_unlock_shared(x'726f7766'::int, 0)");
    sql_run(conn, "insert into posts values (2, 'x', null)");
    ck_assert_int_eq(PQconsumeInput(conn), 1);
    PGnotify *notify = PQnotifies(conn);
    ck_assert_ptr_nonnull(notify);
    PQfreemem(notify);
    ck_assert_int_eq(
        sql_int(conn, "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"), 0);
}
END_TEST

START_TEST(a_lost_notify_is_healed_by_the_sweep) {
    PGconn *conn = fresh();
    struct daemon *daemon =
        daemon_start("rowbell-relay", (const char *const[]){"--poll-ms", "0s", "--sweep", "1s", NULL});
    daemon_wait_log(daemon, "listen_working", 10000);
    sql_wait(conn, 10000, SLEEPS);
    sql_run(conn, "select rowbell.set_wake('poll'); insert into posts values (1, 'x', null)"); // nobody says a word
    sql_wait(conn, 10000, ALL_FANNED);
}
END_TEST

START_TEST(two_phase_commit_works_under_wake_poll) {
    PGconn *conn = fresh();
    sql_run(conn, "select rowbell.set_wake('poll')");
    relay();
    sql_run(conn, "begin; insert into posts values (1, 'x', null); select rowbell.record('thing.happened', 's');"
                  "prepare transaction 'rowbell_test'");
    sql_run(conn, "insert into posts values (2, 'x', null)");
    sql_wait(conn, 10000, "select count(*) = 1 from rowbell.events where fanned_out_at is not null");
    sql_run(conn, "commit prepared 'rowbell_test'");
    sql_wait(conn, 10000, "select count(*) = 3 from rowbell.events where fanned_out_at is not null");
}
END_TEST

static double relay_metric(struct daemon *daemon, const char *name) {
    char url[100];
    const char *body;
    snprintf(url, sizeof url, "http://127.0.0.1:%d/metrics", daemon_log_port(daemon, "admin"));
    ck_assert_int_eq(http_get(url, &body), 200);
    char line[100];
    snprintf(line, sizeof line, "\n%s ", name);
    const char *found = strstr(body, line);
    ck_assert_ptr_nonnull(found);
    return strtod(found + strlen(line), NULL);
}

static bool mark_is_up(void *arg) {
    return relay_metric(arg, "rowbell_low_water_mark") > 0;
}

START_TEST(late_commits_below_the_mark_are_found) { // G2, under a held snapshot
    PGconn *conn = fresh();
    PGconn *snapshot = fixture_connect();
    PGconn *late = fixture_connect();
    PGconn *later = fixture_connect();
    // Dead rows that cannot be vacuumed: claims become dear, and the mark is used.
    sql_run(snapshot, "begin isolation level repeatable read; select count(*) from posts");
    struct daemon *daemon = relay();
    sql_run(conn, "insert into posts select i, 'x', null from generate_series(1, 40000) i");
    sql_wait(conn, 60000, ALL_FANNED);
    int id = 200000;
    for (int round = 0; round < 3; round++) {
        char sql[200];
        snprintf(sql, sizeof sql, "begin; insert into posts values (%d, 'late', null)", id++);
        sql_run(late, sql);
        snprintf(sql, sizeof sql, "begin; insert into posts values (%d, 'later', null)", id++);
        sql_run(later, sql);
        int64_t open_seq = sql_int(late, "select max(seq) from rowbell.events");
        // The mark follows what is committed meanwhile, and must stay below the two. (Were it not, a pass without it
        // would find them, too, but seconds later.)
        for (int i = 0; i < (round == 0 ? 20 : 100); i++) {
            snprintf(sql, sizeof sql, "insert into posts values (%d, 'x', null); select pg_sleep(0.01)", id++);
            sql_run(conn, sql);
            ck_assert(relay_metric(daemon, "rowbell_low_water_mark") < (double)open_seq);
        }
        sql_wait(conn, 10000, ALL_FANNED);
        sql_run(late, "commit");
        sql_wait(conn, 5000, ALL_FANNED);
        sql_run(later, "commit");
        sql_wait(conn, 5000, ALL_FANNED);
        if (round == 0) {
            // Traffic moves the sequence, so that samples are taken.
            for (int i = 0; i < 200 && !mark_is_up(daemon); i++) {
                snprintf(sql, sizeof sql, "insert into posts values (%d, 'x', null); select pg_sleep(0.02)", id++);
                sql_run(conn, sql);
            }
            wait_for(mark_is_up, daemon, 5000, "a low-water mark");
        }
    }
    ck_assert_int_eq(sql_int(conn, "select count(*) - (select count(*) from posts) from rowbell.jobs"), 0);
    sql_run(snapshot, "rollback");
}
END_TEST

START_TEST(behind_a_transaction_pooler_it_polls_says_so_and_leaves_no_lock) {
    PGconn *conn = fresh();
    const char *pooled = pgbouncer_start("transaction", 2);
    char direct[300];
    snprintf(direct, sizeof direct, "postgres://%s:%s@%s:%s/%s", PQuser(conn), PQpass(conn), PQhost(conn), PQport(conn),
             PQdb(conn));
    // Told of a direct connection, everything works, and passes go through the pooler.
    struct daemon *daemon = daemon_start(
        "rowbell-relay", (const char *const[]){"--database-url", pooled, "--direct-database-url", direct, NULL});
    daemon_wait_log(daemon, "listen_working", 15000);
    sql_run(conn, "insert into posts select i, 'x', null from generate_series(1, 500) i");
    sql_wait(conn, 10000, ALL_FANNED);
    daemon_signal(daemon, SIGTERM);
    ck_assert_int_eq(daemon_wait_exit(daemon, 5000), 0);
    // Not told, it finds out.
    daemon = daemon_start("rowbell-relay", (const char *const[]){"--database-url", pooled, "--poll-ms", "50ms", NULL});
    daemon_wait_log(daemon, "listen_not_working", 20000);
    ck_assert_int_eq((int)relay_metric(daemon, "rowbell_listen_working"), 0);
    sql_run(conn, "insert into posts values (1000, 'x', null)");
    sql_wait(conn, 10000, ALL_FANNED);
    ck_assert_int_eq(
        sql_int(conn, "select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from "
                      "pg_database where datname = current_database())"),
        0);
}
END_TEST

static void add_tests(Suite *suite) {
    const TTest *const tests[] = {
        types_and_scopes_are_matched,
        a_type_declared_after_the_subscription_is_matched,
        what_may_not_leave_by_webhook_does_not,
        interleaved_commits_lose_nothing,
        sixteen_writers_with_rollbacks_and_a_long_one_lose_nothing,
        a_batch_never_exceeds_200,
        one_bad_row_leaves_199_delivered_in_the_same_pass,
        poisoned_after_5_failures_not_4_and_requeued,
        four_relays_fan_out_once_and_count_a_failing_round_once,
        killed_at_random_claims_again_and_never_twice,
        a_paused_subscriptions_jobs_are_held,
        comes_back_by_itself_after_its_connection_is_cut,
        sigterm_ends_at_once_and_once_drains,
        bad_starts_are_one_line_with_a_remedy,
        metrics_and_readiness_tell,
        a_failure_at_each_step_of_the_pass_leaves_all_or_nothing,
        every_event_of_a_subject_reaches_who_does_not_coalesce,
        a_condition_decides_and_one_that_is_not_boolean_poisons_its_job_alone,
        plain_events_and_those_with_a_condition_share_batches,
        a_condition_that_raises_an_error_leaves_the_others_jobs_and_poisons_nobody,
        a_sleeping_relay_is_woken_by_a_writer_and_by_nobody_else,
        writers_pay_no_notify_while_a_relay_is_awake,
        a_lost_notify_is_healed_by_the_sweep,
        two_phase_commit_works_under_wake_poll,
        late_commits_below_the_mark_are_found,
        behind_a_transaction_pooler_it_polls_says_so_and_leaves_no_lock,
    };
    TCase *tcase = suite_case(suite, "relay", 90);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_test(tcase, tests[i]);
    tcase_add_loop_test(tcase, a_row_changed_between_snapshot_and_lock_is_fanned_out_once, 0, 2);
    tcase_add_loop_test(tcase, a_locked_event_holds_back_no_other, 0, 3);
}

int main(void) {
    return suite_main("relay", add_tests);
}
