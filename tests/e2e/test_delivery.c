// How endpoints are treated, with the real program: each way in which deliveries broke elsewhere is a test of its own,
// named for what must not happen again.
#include "tests/e2e/delivery.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// How a rate is spread, to the millisecond, is in test_pace.c. Here: whoever takes over goes on from the last request.
START_TEST(a_rate_is_kept_while_owners_change) { // 12
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start(), *other = receiver_start();
    int subscription = webhook(conn, "w", receiver, ", \"rate\": 0.001"), unlimited = webhook(conn, "other", other, "");
    queue(conn, subscription, 30);
    for (int owners = 1; owners <= 3; owners++) {
        struct daemon *owner = start(webhook_only);
        receiver_wait(receiver, 1, WAIT_MS);
        queue(conn, unlimited, 20);
        receiver_wait(other, 20 * owners, WAIT_MS);
        sql_wait(conn, WAIT_MS, "select count(*) = 29 from rowbell.jobs");
        if (owners == 1)
            stop(owner);
        else if (owners == 2)
            daemon_signal(owner, SIGKILL);
    }
    ck_assert_int_eq(receiver_count(receiver), 1);
    sql_run(conn, "select rowbell.set_webhook('w', '{\"rate\": 100000}')");
    receiver_wait(receiver, 30, WAIT_MS);
    sql_wait(conn, WAIT_MS, NO_JOBS);
}
END_TEST

START_TEST(retry_after_pauses_the_endpoint_through_a_takeover) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start(), *other = receiver_start();
    receiver_answer(receiver, 429, "Retry-After: 600\r\n", 0);
    int subscription = webhook(conn, "w", receiver, ", \"max_in_flight\": 1");
    queue(conn, subscription, 10);
    struct daemon *first = start(webhook_only);
    receiver_wait(receiver, 1, WAIT_MS);
    receiver_answer(receiver, 200, NULL, 0);
    sql_wait(conn, WAIT_MS, "select not_before is not null from rowbell.subscription_state");
    ck_assert_str_eq(sql_text(conn, "select not_before - started_at >= interval '599 s' and not_before <= "
                                    "clock_timestamp() + interval '600 s' from rowbell.subscription_state, "
                                    "rowbell.attempts"),
                     "t");
    stop(first);
    struct daemon *second = start(webhook_only);
    queue(conn, webhook(conn, "other", other, ""), 5);
    receiver_wait(other, 5, WAIT_MS); // nobody else waits
    ck_assert_int_eq(receiver_count(receiver), 1);
    stop(second);
    sql_run(conn, "update rowbell.subscription_state set not_before = clock_timestamp();"
                  "update rowbell.jobs_waiting set run_at = clock_timestamp()");
    start(webhook_only);
    receiver_wait(receiver, 11, WAIT_MS);
    sql_wait(conn, WAIT_MS, NO_JOBS);
}
END_TEST

START_TEST(a_failing_endpoint_gets_one_probe_at_a_time_and_comes_back) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start(), *other = receiver_start();
    receiver_answer(receiver, 503, NULL, 20);
    int subscription = webhook(conn, "w", receiver, ", \"retry\": [3600000, 3600000]");
    queue(conn, subscription, 200);
    start(webhook_only);
    sql_wait(conn, WAIT_MS, "select count(*) >= 19 from rowbell.attempts");
    // 16 at once, then probes after 0.5, 1, 2 s: however long this takes, the backlog is not burnt.
    ck_assert_int_le(sql_int(conn, "select count(*) from (select started_at - lag(started_at + total_ms * interval "
                                   "'1 ms') over (order by started_at) as rest from rowbell.attempts) a where rest is "
                                   "null or rest < interval '0.3 s'"),
                     18);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs_waiting where state = 'poisoned'"), 0);
    receiver_answer(receiver, 200, NULL, 0);
    receiver_hold(receiver, "");
    int before = receiver_count(receiver);
    receiver_wait(receiver, before + 2, WAIT_MS); // the probe before it may have been on its way
    queue(conn, webhook(conn, "other", other, ""), 20);
    receiver_wait(other, 20, WAIT_MS);
    ck_assert_int_eq(receiver_count(receiver), before + 2); // it is alone
    receiver_release(receiver);
    sql_wait(conn, WAIT_MS,
             "select failing_since is null from rowbell.subscription_state where last_failure_at is not null");
    sql_run(conn, "update rowbell.jobs_waiting set run_at = clock_timestamp()");
    sql_wait(conn, WAIT_MS, "select count(*) = 220 from rowbell.attempts where class = 'delivered'");
}
END_TEST

START_TEST(sends_are_not_sequential) { // 6
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    receiver_hold(receiver, "");
    int subscription = webhook(conn, "w", receiver, "");
    sql_run(conn,
            "update rowbell.subscriptions set settings = settings || '{\"max_in_flight\": 100}' where name = 'w'");
    start(webhook_only);
    queue(conn, subscription, 100);
    receiver_wait(receiver, 100, WAIT_MS);
    ck_assert_int_eq(receiver_max_in_flight(receiver), 100);
    receiver_release(receiver);
    sql_wait(conn, WAIT_MS, "select count(*) = 100 from rowbell.attempts where class = 'delivered'");
}
END_TEST

START_TEST(a_resend_never_reuses_a_number_nor_uses_up_a_retry) { // 9
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    receiver_answer(receiver, 500, NULL, 0);
    queue(conn, webhook(conn, "w", receiver, ", \"retry\": [20, 20]"), 1);
    start(webhook_only);
    sql_wait(conn, WAIT_MS, "select count(*) = 1 from rowbell.jobs_waiting where state = 'poisoned' and attempts = 3");
    sql_run(conn, "select rowbell.requeue_jobs()");
    // The manual one, then the whole schedule again.
    sql_wait(conn, WAIT_MS, "select count(*) = 1 from rowbell.jobs_waiting where state = 'poisoned' and attempts = 7");
    ck_assert_str_eq(sql_text(conn, "select string_agg(attempt || case when manual then 'm' else '' end, ' ' order by "
                                    "attempt) from rowbell.attempts"),
                     "1 2 3 4m 5 6 7");
    ck_assert_int_eq(distinct_ids(receiver), 1);
}
END_TEST

START_TEST(a_paused_backlog_returns_at_the_rate_that_was_asked_for) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    int subscription = webhook(conn, "w", receiver, "");
    sql_run(conn, "select rowbell.set_subscription_state('w', 'paused')");
    queue(conn, subscription, 40);
    start(webhook_only);
    sql_wait(conn, WAIT_MS, "select count(*) = 40 from rowbell.jobs_waiting where state = 'held'");
    sql_run(conn, "select rowbell.set_webhook('w', '{\"resume_rate\": 1}'); select "
                  "rowbell.set_subscription_state('w', 'active')");
    receiver_wait(receiver, 2, WAIT_MS);
    ck_assert_int_ge(sql_int(conn, "select count(*) from rowbell.jobs_waiting where state = 'held'"), 20);
    sql_run(conn, "select rowbell.set_webhook('w', '{\"resume_rate\": 100000}')");
    receiver_wait(receiver, 40, WAIT_MS);
    sql_wait(conn, WAIT_MS, NO_JOBS);
}
END_TEST

// The subject of the n-th request.
static const char *subject_of(struct receiver *receiver, int n) {
    static char subject[64];
    struct received got = receiver_get(receiver, n);
    const char *at = strstr(got.body, "\"subject\":\"");
    ck_assert_ptr_nonnull(at);
    sscanf(at + 11, "%63[^\"]", subject);
    return subject;
}

static void record(PGconn *conn, int subscription, const char *subjects[], int count) {
    char sql[600];
    for (int i = 0; i < count; i++) {
        snprintf(sql, sizeof sql, "select rowbell.record('thing.happened', '%s', '{\"n\": %d}')", subjects[i % 2], i);
        sql_run(conn, sql);
    }
    snprintf(sql, sizeof sql,
             "with e as (update rowbell.events set fanned_out_at = now(), fanout = '{%d}' where op is null and "
             "fanned_out_at is "
             "null returning seq, subject) insert into rowbell.jobs (subscription_id, event_seq) select %d, seq from e "
             "where "
             "subject not like 'subscription/%%'",
             subscription, subscription);
    sql_run(conn, sql);
}

// Of one subject, the first request for n never comes before the last for n - 1.
static void in_order(struct receiver *receiver, const char *subject) {
    int count = receiver_count(receiver), last = -1;
    for (int i = 0; i < count; i++) {
        if (strcmp(subject_of(receiver, i), subject) != 0)
            continue;
        int n = atoi(strstr(receiver_get(receiver, i).body, "\"n\": ") + 5);
        ck_assert_msg(n >= last, "%s: %d after %d", subject, n, last);
        last = n;
    }
}

START_TEST(ordered_keeps_the_order_of_each_subject) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    receiver_answer(receiver, 500, NULL, 5);
    int subscription =
        webhook(conn, "w", receiver, ", \"ordered\": true, \"retry\": [100, 100, 100, 100, 100, 100, 100, 100]");
    static const char *subjects[] = {"a/1", "a/2"};
    record(conn, subscription, subjects, 60);
    struct daemon *first = start(webhook_only);
    receiver_wait(receiver, 4, WAIT_MS);
    ck_assert_int_le(receiver_max_in_flight(receiver), 2);
    // The others are held behind the first of their subject, visibly.
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs_waiting where blocked and state = 'held'"), 58);
    receiver_answer(receiver, 200, NULL, 5);
    receiver_wait(receiver, 20, WAIT_MS);
    daemon_signal(first, SIGKILL);
    start(webhook_only);
    sql_wait(conn, HANG_MS, "select count(*) = 60 from rowbell.attempts where class = 'delivered'");
    in_order(receiver, "a/1");
    in_order(receiver, "a/2");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs_waiting"), 0);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs"), 0);
}
END_TEST

START_TEST(a_poisoned_job_parks_its_subject_alone) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    receiver_answer(receiver, 400, NULL, 0);
    int subscription = webhook(conn, "w", receiver, ", \"ordered\": true");
    static const char *bad[] = {"bad", "bad"}, *both[] = {"bad", "good"};
    record(conn, subscription, bad, 1);
    start(webhook_only);
    sql_wait(conn, WAIT_MS,
             "select count(*) = 1 from rowbell.jobs_waiting where state = 'poisoned' and subject = 'bad'");
    receiver_answer(receiver, 200, NULL, 0);
    record(conn, subscription, both, 10);
    receiver_wait(receiver, 6, WAIT_MS);
    sql_wait(conn, WAIT_MS, "select count(*) = 5 from rowbell.jobs_waiting where blocked and subject = 'bad'");
    ck_assert_int_eq(receiver_count(receiver), 6);
    // Given up by a person, the rest goes on.
    sql_run(conn, "select rowbell.cancel_job('w', min(event_seq)) from rowbell.jobs_waiting where state = 'poisoned'");
    receiver_wait(receiver, 11, WAIT_MS);
    in_order(receiver, "bad");
    sql_wait(conn, WAIT_MS, NO_JOBS);
}
END_TEST

START_TEST(ordered_waits_for_what_is_not_fanned_out_yet) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    int subscription = webhook(conn, "w", receiver, ", \"ordered\": true");
    static const char *subjects[] = {"a/1", "a/1"};
    // Set aside by a relay, it blocks its own subject only.
    sql_run(conn, "insert into posts values (1); update rowbell.events set retry_at = now() + interval '1 h';"
                  "insert into rowbell.events_set_aside select seq, subject, retry_at from rowbell.events");
    start(webhook_only);
    record(conn, subscription, subjects, 1);
    receiver_wait(receiver, 1, WAIT_MS);
    // Still to be claimed, it blocks whatever is above it: nobody knows yet what becomes of it.
    sql_run(conn,
            "update rowbell.events set retry_at = null where op = 'create'; delete from rowbell.events_set_aside");
    record(conn, subscription, subjects, 1);
    sql_run(conn, "update rowbell.events set fanned_out_at = null where op = 'create'");
    sql_wait(conn, WAIT_MS, "select count(*) = 1 from rowbell.jobs");
    record(conn, subscription, subjects, 1);
    sql_wait(conn, WAIT_MS,
             "select clock_timestamp() > occurred_at + interval '1 s' from rowbell.events order by seq desc limit 1");
    ck_assert_int_eq(receiver_count(receiver), 1);
    sql_run(conn, "update rowbell.events set fanned_out_at = now() where op = 'create'");
    receiver_wait(receiver, 3, WAIT_MS);
    sql_wait(conn, WAIT_MS, NO_JOBS);
}
END_TEST

START_TEST(a_poisoned_event_parks_its_subject_until_it_is_skipped) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    int subscription = webhook(conn, "w", receiver, ", \"ordered\": true");
    sql_run(conn,
            "select rowbell.record('thing.happened', 'bad', '{\"n\": 0}'); update rowbell.events set poisoned_at = "
            "now(), retry_at = now() where subject = 'bad'");
    static const char *both[] = {"bad", "good"};
    sql_run(conn,
            "update rowbell.events set fanned_out_at = now() where subject = 'bad'"); // record() takes what is not
    record(conn, subscription, both, 4);
    sql_run(
        conn,
        "update rowbell.events set fanned_out_at = null where poisoned_at is not null;"
        "insert into rowbell.events_set_aside select seq, subject from rowbell.events where poisoned_at is not null");
    start(webhook_only);
    receiver_wait(receiver, 2, WAIT_MS);
    sql_wait(conn, WAIT_MS, "select count(*) = 2 from rowbell.jobs_waiting where blocked and subject = 'bad'");
    ck_assert_int_eq(receiver_count(receiver), 2);
    ck_assert_int_eq(sql_int(conn, "select rowbell.unblock_subjects()"), 0);
    ck_assert_str_eq(
        sql_text(conn, "select rowbell.cancel_event(seq) from rowbell.events where poisoned_at is not null"), "t");
    receiver_wait(receiver, 4, WAIT_MS);
    in_order(receiver, "bad");
    sql_wait(conn, WAIT_MS, NO_JOBS);
    ck_assert_int_eq(receiver_count(receiver), 4);
}
END_TEST

START_TEST(an_event_that_was_deleted_by_hand_blocks_nobody) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    int subscription = webhook(conn, "w", receiver, ", \"ordered\": true");
    static const char *subjects[] = {"posts/1", "posts/1"};
    sql_run(conn, "insert into posts values (1); update rowbell.events set retry_at = now() + interval '1 h';"
                  "insert into rowbell.events_set_aside select seq, subject, retry_at from rowbell.events");
    record(conn, subscription, subjects, 2);
    struct daemon *daemon = start(webhook_only);
    sql_wait(conn, WAIT_MS, "select count(*) = 2 from rowbell.jobs_waiting where blocked");
    stop(daemon);
    sql_run(conn, "delete from rowbell.events where op = 'create'");
    start(webhook_only); // housekeeping begins with all of its chores
    receiver_wait(receiver, 2, WAIT_MS);
    in_order(receiver, "posts/1");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events_set_aside"), 0);
}
END_TEST

// A receiver that gives an event up: cancelled, nobody's fault, and what it blocked goes on.
START_TEST(abort_message_cancels_and_is_no_poison) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start(), *alarm = receiver_start();
    char sql[300];
    snprintf(sql, sizeof sql,
             "select rowbell.add_webhook('alarm', '%s/', '{rowbell.job.poisoned}', null, '{\"allow_http\": true}')",
             receiver_url(alarm));
    sql_run(conn, sql);
    // As a retry, and as a refusal: the header is above the status.
    receiver_answer(receiver, _i == 0 ? 503 : 422, "webhook-delivery: abort-message\r\nRetry-After: 60\r\n", 0);
    int subscription = webhook(conn, "w", receiver, ", \"ordered\": true");
    static const char *subjects[] = {"a/1", "a/1"};
    record(conn, subscription, subjects, 1);
    struct daemon *daemon = start(webhook_only);
    sql_wait(conn, WAIT_MS, "select count(*) = 1 from rowbell.jobs_waiting where state = 'cancelled'");
    ck_assert_str_eq(
        sql_text(conn, "select concat_ws(' ', state, attempts, last_class, run_at) from rowbell.jobs_waiting"),
        "cancelled 1 aborted");
    ck_assert_str_eq(sql_text(conn, "select concat_ws(' ', class, status, attempt) from rowbell.attempts"),
                     _i == 0 ? "aborted 503 1" : "aborted 422 1");
    receiver_answer(receiver, 200, NULL, 0);
    record(conn, subscription, subjects, 1); // neither its subject nor its endpoint waits
    receiver_wait(receiver, 2, WAIT_MS);
    sql_wait(conn, WAIT_MS, NO_JOBS);
    ck_assert_int_eq(receiver_count(receiver), 2);
    char url[64];
    const char *metrics, *out, *err;
    snprintf(url, sizeof url, "http://127.0.0.1:%d/metrics", daemon_log_port(daemon, "admin"));
    ck_assert_int_eq(http_get(url, &metrics), 200);
    ck_assert_ptr_nonnull(strstr(metrics, "rowbell_attempts_total{lane=\"webhook\",class=\"aborted\"} 1\n"));
    ck_assert_ptr_null(strstr(metrics, "rowbell_jobs_poisoned_total{"));
    ck_assert_ptr_null(strstr(daemon->log, "job_poisoned"));
    ck_assert_int_eq(sql_int(conn,
                             "select count(*) from rowbell.events e join rowbell.event_types t on t.id = e.type_id "
                             "where t.type = 'rowbell.job.poisoned'"),
                     0);
    ck_assert_int_eq(
        program_run("rowbell", (const char *const[]){"job", "list", "--state", "cancelled", NULL}, &out, &err), 0);
    ck_assert_ptr_nonnull(strstr(out, "aborted"));
    ck_assert_int_eq(
        program_run("rowbell", (const char *const[]){"job", "list", "--state", "poisoned", NULL}, &out, &err), 0);
    ck_assert_ptr_null(strstr(out, "aborted"));
    ck_assert_int_eq(receiver_count(alarm), 0);
}
END_TEST

START_TEST(a_job_that_kills_its_dispatcher_is_found_alone) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    int subscription = webhook(conn, "w", receiver, ""), other = webhook(conn, "other", receiver, "");
    queue(conn, subscription, 1);
    queue(conn, other, 1);
    // Three lost in a row: sent alone, and with success all is well.
    sql_run(conn,
            "update rowbell.jobs set attempts = 3, uncounted = 2, lost = 2, lease_token = 4, lease_until = now() - "
            "interval '1 s'");
    struct daemon *daemon = start(webhook_only);
    sql_wait(conn, WAIT_MS, "select count(*) = 2 from rowbell.attempts where class = 'delivered'");
    daemon_wait_log(daemon, "job_quarantined", WAIT_MS);
    ck_assert_int_eq(receiver_max_in_flight(receiver), 1);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.attempts where class = 'lost' and alone"), 0);
    // Lost three times while alone (an odd token): it is the job.
    queue(conn, subscription, 1);
    sql_run(
        conn,
        "update rowbell.jobs set attempts = 6, uncounted = 5, lost = 5, lost_alone = 2, lease_token = 5, lease_until "
        "= now() - interval '1 s'");
    sql_wait(conn, WAIT_MS, "select count(*) = 1 from rowbell.jobs_waiting where state = 'poisoned'");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.attempts where class = 'lost' and alone"), 1);
    ck_assert_int_eq(receiver_count(receiver), 2);
    stop(daemon);
}
END_TEST

START_TEST(a_killed_owner_holds_a_busy_endpoint_for_seconds_only) { // 1
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    receiver_hold(receiver, "");
    int subscription = webhook(conn, "w", receiver, ", \"max_in_flight\": 4");
    queue(conn, subscription, 8);
    struct daemon *first = start(webhook_only);
    receiver_wait(receiver, 4, WAIT_MS);
    daemon_signal(first, SIGKILL);
    daemon_wait_exit(first, WAIT_MS);
    sql_run(conn, "update rowbell.jobs set lease_until = lease_until + interval '1 h' where lease_until is not null");
    receiver_release(receiver);
    start(webhook_only); // it does not wait for the end of the leases
    receiver_wait(receiver, 12, WAIT_MS);
    sql_wait(conn, WAIT_MS, NO_JOBS);
    ck_assert_int_eq(attempts(conn, "lost"), 4);
    ck_assert_int_eq(distinct_ids(receiver), 8);
}
END_TEST

START_TEST(alerts_are_events_that_never_alert_about_themselves) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start(), *alarm = receiver_start();
    receiver_answer(receiver, 400, NULL, 0);
    receiver_answer(alarm, 400, NULL, 0); // who is alerted refuses as well
    char sql[500];
    snprintf(
        sql, sizeof sql,
        "select rowbell.add_webhook('alarm', '%s/alarm', '{rowbell.job.poisoned,rowbell.subscription.disabled}', null, "
        "'{\"allow_http\": true}')",
        receiver_url(alarm));
    sql_run(conn, sql);
    int subscription = webhook(conn, "w", receiver, "");
    queue(conn, subscription, 3);
    start(webhook_only);
    daemon_start("rowbell-relay", (const char *const[]){NULL});
    sql_wait(conn, WAIT_MS,
             "select count(*) = 3 from rowbell.jobs_waiting w join rowbell.subscriptions s on s.id = "
             "w.subscription_id where s.name = 'w' and w.state = 'poisoned'");
    receiver_wait(alarm, 1, WAIT_MS);
    struct received got = receiver_get(alarm, 0);
    ck_assert_ptr_nonnull(strstr(got.body, "\"type\":\"rowbell.job.poisoned\""));
    ck_assert_ptr_nonnull(strstr(got.body, "\"subscription\": \"w\""));
    receiver_answer(receiver, 410, NULL, 0);
    queue(conn, subscription, 1);
    sql_wait(conn, WAIT_MS,
             "select count(*) > 0 from rowbell.events e join rowbell.event_types t on t.id = e.type_id where "
             "t.type = 'rowbell.subscription.disabled'");
    // The alarm's own jobs are poisoned, and nothing was said about it.
    sql_wait(conn, WAIT_MS,
             "select count(*) >= 2 from rowbell.jobs_waiting w join rowbell.subscriptions s on s.id = "
             "w.subscription_id where s.name = 'alarm' and w.state = 'poisoned'");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events where data ->> 'subscription' = 'alarm'"), 0);
}
END_TEST

// ---- Housekeeping

START_TEST(retention_takes_what_is_done_and_nothing_else) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    int subscription = webhook(conn, "w", receiver, "");
    sql_run(conn, "select rowbell.set_subscription_state('w', 'paused')");
    char sql[900];
    // Of ten old events: 1 young, 2 not fanned out, 3 poisoned, 4 named by a held job, 5 by a ready one (of a paused
    // subscription, so it becomes held); 6 by a cancelled one, which goes along.
    snprintf(sql, sizeof sql,
             "insert into posts select generate_series(1, 10); update rowbell.events set fanned_out_at = now() - "
             "interval '8 d', "
             "occurred_at = now() - interval '8 d', fanout = '{%d}'; update rowbell.events set occurred_at = now(), "
             "fanned_out_at = "
             "now() where key = '1'; update rowbell.events set fanned_out_at = null, retry_at = now() + interval '1 h' "
             "where key = "
             "'2'; update rowbell.events set fanned_out_at = null, retry_at = now(), poisoned_at = now() where key = "
             "'3'; insert into rowbell.jobs_waiting "
             "(subscription_id, "
             "event_seq, state) select %d, seq, case key when '4' then 'held' else 'cancelled' end from rowbell.events "
             "where key in "
             "('4', '6'); insert into rowbell.jobs (subscription_id, event_seq) select %d, seq from rowbell.events "
             "where key = '5'",
             subscription, subscription, subscription);
    sql_run(conn, sql);
    sql_run(conn, "insert into rowbell.attempts (subscription_id, event_seq, attempt, started_at, class) select 1, i, "
                  "1, now() - i * "
                  "interval '1 d', 'delivered' from generate_series(1, 40) i;"
                  "insert into rowbell.stream_log (stream_id, position, prev, event_seq, name, op, appended_at) select "
                  "1, i, i - 1, i, 'p', "
                  "'create', now() - interval '2 d' from generate_series(1, 50) i;"
                  "update rowbell.stream_log set appended_at = now() - interval '2 d'");
    daemon_start("rowbell-dispatcher", plain);
    sql_wait(conn, WAIT_MS, "select not exists (select from rowbell.events where key = '7')");
    sql_wait(conn, WAIT_MS, "select count(*) = 1 from rowbell.stream_log"); // the newest stays, however old
    sql_wait(conn, WAIT_MS, "select count(*) <= 30 from rowbell.attempts");
    ck_assert_int_ge(sql_int(conn, "select count(*) from rowbell.attempts"), 29);
    ck_assert_int_eq(sql_int(conn, "select max(position) from rowbell.stream_log") > 1000, 1);
    ck_assert_str_eq(
        sql_text(conn, "select string_agg(key, ' ' order by key::int) from rowbell.events where key <> '6'"),
        "1 2 3 4 5");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs_waiting where state = 'cancelled'"), 0);
}
END_TEST

START_TEST(what_nobody_would_notice_is_noticed) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    int gone = webhook(conn, "gone", receiver, ""), dead = webhook(conn, "dead", receiver, "");
    sql_run(conn, "select rowbell.remove_subscription('gone')");
    queue(conn, gone, 3); // a relay that had read it before
    char sql[400];
    snprintf(
        sql, sizeof sql,
        "update rowbell.subscription_state set failing_since = now() - interval '6 d', last_failure_at = now() where "
        "subscription_id = %d; insert into rowbell.events (type_id, subject, data, occurred_at) select id, 'x', '{}', "
        "now() - "
        "interval '10 min' from rowbell.event_types where type = 'thing.happened'",
        dead);
    sql_run(conn, sql);
    struct daemon *daemon = start(webhook_only);
    sql_wait(conn, WAIT_MS, "select count(*) = 0 from rowbell.jobs");
    sql_wait(conn, WAIT_MS, "select state = 'disabled' from rowbell.subscriptions where name = 'dead'");
    sql_wait(conn, WAIT_MS,
             "select count(*) = 2 from rowbell.events e join rowbell.event_types t on t.id = e.type_id where "
             "t.type in ('rowbell.subscription.disabled', 'rowbell.backlog')");
    // Enabled by a person, its days begin anew.
    sql_run(conn, "select rowbell.set_subscription_state('dead', 'active')");
    queue(conn, dead, 1);
    receiver_wait(receiver, 1, WAIT_MS);
    stop(daemon);
}
END_TEST

// A relay of before version 6 that stayed connected writes nothing into events_set_aside.
START_TEST(what_an_older_relay_set_aside_is_retried_and_can_be_requeued) {
    PGconn *conn = fresh();
    sql_run(conn,
            "insert into posts select generate_series(1, 4);"
            "update rowbell.events set retry_at = now() - interval '1 h', fanout_attempts = 1 where key <> '4';"
            "update rowbell.events set poisoned_at = now(), fanout_attempts = 5 where key in ('2', '3');"
            "insert into rowbell.events_set_aside select seq, subject, retry_at from rowbell.events where key = '3'");
    ck_assert_int_eq(sql_int(conn, "select rowbell.requeue_events(dry_run => true)"), 0);
    struct daemon *daemon = start(webhook_only);
    sql_wait(conn, WAIT_MS, "select count(*) = 3 from rowbell.events_set_aside");
    ck_assert_str_eq(sql_text(conn,
                              "select string_agg(concat_ws(' ', a.subject, (a.retry_at is null)::text), ', ' order "
                              "by a.subject) from rowbell.events_set_aside a"),
                     "posts/1 false, posts/2 true, posts/3 true");
    daemon_wait_log(daemon, "event=set_aside_listed process=rowbell-dispatcher count=3", WAIT_MS);
    daemon_start("rowbell-relay", (const char *const[]){NULL});
    sql_wait(conn, WAIT_MS, "select count(*) = 2 from rowbell.events where fanned_out_at is not null");
    ck_assert_int_eq(sql_int(conn, "select rowbell.requeue_events()"), 2);
    sql_wait(conn, WAIT_MS, "select count(*) = 4 from rowbell.events where fanned_out_at is not null");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events_set_aside"), 0);
}
END_TEST

// Two events a step; seqs count from 4294967296.
static const char *list_after(PGconn *conn, int seq) {
    char sql[200];
    snprintf(
        sql, sizeof sql,
        "select concat_ws(' ', l.listed, l.last_seq - 4294967296) from rowbell.list_set_aside(4294967296 + %d, 2) l",
        seq);
    return sql_text(conn, sql);
}

START_TEST(the_look_for_events_of_older_relays_is_bounded) {
    PGconn *conn = fresh();
    sql_run(conn, "insert into posts select generate_series(0, 5);"
                  "update rowbell.events set fanned_out_at = now() where key in ('0', '1', '2');"
                  "update rowbell.events set retry_at = now() where key in ('3', '5')");
    ck_assert_str_eq(list_after(conn, 0), "0 2");
    ck_assert_str_eq(list_after(conn, 2), "1"); // 4 waits for its first pass: what is to become of it is not known yet
    sql_run(conn, "update rowbell.events set fanned_out_at = now() where key = '4'");
    ck_assert_str_eq(list_after(conn, 2), "0 4");
    // A month after the migration nobody looks any more.
    sql_run(conn, "update rowbell.migrations set applied_at = applied_at - interval '31 days'");
    ck_assert_str_eq(list_after(conn, 4), "0");
    sql_run(conn, "update rowbell.migrations set applied_at = applied_at + interval '31 days'");
    ck_assert_str_eq(list_after(conn, 4), "1");
}
END_TEST

struct chore {
    struct daemon *daemon;
    const char *name;
    int64_t since; // 0: it does not fail
};

static bool is_failing_since(void *arg) {
    const struct chore *chore = arg;
    char url[64], line[128];
    const char *metrics;
    snprintf(url, sizeof url, "http://127.0.0.1:%d/metrics", daemon_log_port(chore->daemon, "admin"));
    ck_assert_int_eq(http_get(url, &metrics), 200);
    snprintf(line, sizeof line, "rowbell_housekeeping_failing_since{chore=\"%s\"} ", chore->name);
    const char *at = strstr(metrics, line);
    return at && llabs((long long)strtod(at + strlen(line), NULL) - chore->since) <= 1;
}

static void wait_failing_since(struct daemon *daemon, const char *name, int64_t since) {
    wait_for(is_failing_since, &(struct chore){daemon, name, since}, WAIT_MS, "the metric says since when it fails");
}

// A publication of all tables has our tables, too; who takes the replica identity from one stops its deletions.
START_TEST(a_chore_that_fails_is_in_doctor_and_metrics_until_it_succeeds) {
    PGconn *conn = fresh();
    sql_run(conn, "alter table rowbell.attempts replica identity nothing; create publication everything for all tables;"
                  "insert into rowbell.attempts (subscription_id, event_seq, attempt, started_at, class)"
                  " values (1, 1, 1, now() - interval '90 days', 'delivered')");
    struct daemon *first = start(webhook_only);
    sql_wait(conn, WAIT_MS, "select count(*) from rowbell.housekeeping");
    int64_t since = sql_int(conn, "select extract(epoch from failing_since)::bigint from rowbell.housekeeping");
    ck_assert_str_eq(
        sql_text(conn, "select concat_ws(' ', chore, failures, failed_at = failing_since) from rowbell.housekeeping"),
        "attempts_pruned 1 t");
    const char *found = sql_text(
        conn, "select concat_ws('|', subject, detail) from rowbell.doctor() where problem = 'housekeeping fails'");
    ck_assert_msg(strstr(found, "attempts_pruned|since ") && strstr(found, "replica identity"), "%s", found);
    wait_failing_since(first, "attempts_pruned", since);
    wait_failing_since(first, "stream_log_pruned", 0);
    // Another housekeeper goes on from there: first it fails too, then all is well.
    stop(first);
    struct daemon *second = start(webhook_only);
    wait_failing_since(second, "attempts_pruned", since);
    sql_wait(conn, WAIT_MS, "select failures = 2 and failed_at > failing_since from rowbell.housekeeping");
    stop(second);
    sql_run(conn, "drop publication everything");
    struct daemon *third = start(webhook_only);
    sql_wait(conn, WAIT_MS, "select count(*) = 0 from rowbell.housekeeping");
    wait_failing_since(third, "attempts_pruned", 0);
    ck_assert_str_eq(sql_text(conn, "select problem from rowbell.doctor() where problem = 'housekeeping fails'"), "");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.attempts"), 0);
    stop(third);
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *endpoint = suite_case(suite, "endpoint", 90);
    tcase_add_test(endpoint, a_rate_is_kept_while_owners_change);
    tcase_add_test(endpoint, retry_after_pauses_the_endpoint_through_a_takeover);
    tcase_add_test(endpoint, a_failing_endpoint_gets_one_probe_at_a_time_and_comes_back);
    tcase_add_test(endpoint, sends_are_not_sequential);
    tcase_add_test(endpoint, a_resend_never_reuses_a_number_nor_uses_up_a_retry);
    tcase_add_test(endpoint, a_paused_backlog_returns_at_the_rate_that_was_asked_for);
    tcase_add_test(endpoint, alerts_are_events_that_never_alert_about_themselves);
    TCase *ordered = suite_case(suite, "ordered", 60);
    tcase_add_test(ordered, ordered_keeps_the_order_of_each_subject);
    tcase_add_test(ordered, a_poisoned_job_parks_its_subject_alone);
    tcase_add_test(ordered, ordered_waits_for_what_is_not_fanned_out_yet);
    tcase_add_test(ordered, a_poisoned_event_parks_its_subject_until_it_is_skipped);
    tcase_add_test(ordered, an_event_that_was_deleted_by_hand_blocks_nobody);
    tcase_add_loop_test(ordered, abort_message_cancels_and_is_no_poison, 0, 2);
    TCase *housekeeping = suite_case(suite, "housekeeping", 60);
    tcase_add_test(housekeeping, retention_takes_what_is_done_and_nothing_else);
    tcase_add_test(housekeeping, what_nobody_would_notice_is_noticed);
    tcase_add_test(housekeeping, a_chore_that_fails_is_in_doctor_and_metrics_until_it_succeeds);
    tcase_add_test(housekeeping, what_an_older_relay_set_aside_is_retried_and_can_be_requeued);
    tcase_add_test(housekeeping, the_look_for_events_of_older_relays_is_bounded);
    TCase *crash = suite_case(suite, "crash", 60);
    tcase_add_test(crash, a_job_that_kills_its_dispatcher_is_found_alone);
    tcase_add_test(crash, a_killed_owner_holds_a_busy_endpoint_for_seconds_only);
}

int main(void) {
    return suite_main("webhook", add_tests);
}
