// Events and jobs: looked at, sent again, given up, pruned.
#include "tests/e2e/cli/world.h"
#include <stdio.h>
#include <string.h>

START_TEST(test_event_list_and_show) {
    make_events();
    expect_status(RUN("event", "list"), 0);
    expect_text(out, "posts.create  posts/p3  t1");
    expect_status(RUN("event", "list", "--json"), 0);
    expect_json("jsonb_array_length(j) = 3 and j -> 0 ->> 'state' = 'pending' and j -> 1 ->> 'state' = 'poisoned' and "
                "j -> 2 ->> 'state' = 'fanned-out' and j -> 2 -> 'subscriptions' = '2'");
    expect_status(RUN("event", "list", "--state", "poisoned", "--type", "posts.create", "--limit", "1", "--json"), 0);
    expect_json("jsonb_array_length(j) = 1 and j -> 0 -> 'seq' = '2'");
    expect_status(RUN("event", "list", "--type", "posts.delete", "--json"), 0);
    expect_json("j = '[]'");

    expect_status(RUN("event", "show", "1"), 0);
    expect_text(out, "state            fanned-out\n");
    expect_text(out, "fanned out to\nsubscription  kind     state      attempts");
    expect_text(out, "a             webhook  delivered");
    expect_text(out, "b             webhook  poisoned          3");
    expect_text(out, "192.0.2.1:443");
    const char *id = sql_text(conn, "select rowbell.event_id(occurred_at, seq) from rowbell.events where seq = 1");
    expect_status(RUN("event", "show", id, "--json"), 0);
    expect_json(
        "j -> 'seq' = '1' and j ->> 'subject' = 'posts/p1' and jsonb_array_length(j -> 'fanout') = 2 and "
        "j -> 'fanout' -> 1 ->> 'state' = 'poisoned' and j -> 'attempts' -> 1 -> 'status' = '503' and "
        "j -> 'attempts' -> 0 -> 'total_ms' = '12.3' and j -> 'attempts' -> 0 ->> 'response_head' = 'no \"luck\"' and "
        "j ->> 'occurred_at' like '20__-__-__T%Z'");

    // Nothing stored can drive the terminal.
    expect_status(RUN("event", "show", "2"), 0);
    expect_text(out, "bad \\x1b[31m row");

    expect_status(RUN("event", "show", "99"), 1);
    expect_text(err, "there is no event 99");
    expect_status(RUN("event", "show", "01a2291f-a973-730a-8000-000000000001"), 1); // its seq, another time
    expect_status(RUN("event", "show", "nonsense"), 2);
    expect_text(err, "give its number or UUID");
    expect_status(RUN("event", "list", "--state", "bad"), 2);
    expect_text(err, "expected one of pending, retrying, poisoned, cancelled, fanned-out");
}
END_TEST

START_TEST(test_domain_event_keeps_its_data) {
    set_up();
    sql_run(conn, "select rowbell.declare_type('supplier.connected', 'x', true)");
    sql_run(
        conn,
        "select rowbell.record('supplier.connected', 's/1', '{\"n\": 123456789012345678901234567890, \"a\": 1.10}')");
    expect_status(RUN("event", "show", "1", "--json"), 0);
    expect_text(out, "\"data\":{\"a\": 1.10, \"n\": 123456789012345678901234567890}");
    expect_json("j ->> 'type' = 'supplier.connected' and j -> 'key' = 'null'");
}
END_TEST

START_TEST(test_job_list) {
    make_events();
    sql_run(conn,
            "insert into rowbell.jobs select id, 3, now() + interval '1 minute', 7, 1 from rowbell.subscriptions where "
            "name = 'a'");
    expect_status(RUN("job", "list"), 0);
    expect_text(out, "subscription  seq  state     type          subject");
    expect_text(out, "a               3  running   posts.create  posts/p3");
    expect_status(RUN("job", "list", "--state", "poisoned", "--json"), 0);
    expect_json(
        "jsonb_array_length(j) = 1 and j -> 0 ->> 'subscription' = 'b' and j -> 0 ->> 'last_class' = 'http_5xx'");
    expect_status(RUN("job", "list", "--subscription", "a", "--json"), 0);
    expect_json("jsonb_array_length(j) = 1 and j -> 0 ->> 'state' = 'running'");
    expect_status(RUN("job", "list", "--limit", "1", "--json"), 0);
    expect_json("jsonb_array_length(j) = 1");
    expect_status(RUN("job", "list", "--limit", "0"), 2);
}
END_TEST

START_TEST(test_attempt_list) {
    make_events();
    // Of older events, at any time: what counts is when the request was made.
    sql_run(conn,
            "update rowbell.attempts set started_at = now() - interval '5 hours' where class = 'delivered';"
            "insert into rowbell.attempts (subscription_id, event_seq, attempt, started_at, class) select id, 3, i, "
            "now() - i * interval '1 day', 'dns' from rowbell.subscriptions, generate_series(1, 20) i where name = "
            "'a'; insert into rowbell.attempts (subscription_id, event_seq, attempt, started_at, class) values "
            "(99, 3, 1, now(), 'tls')");
    expect_status(RUN("attempt", "list", "--json"), 0);
    expect_json(
        "jsonb_array_length(j) = 23 and j -> 0 ->> 'subscription' = '#99' and j -> 1 ->> 'class' = 'http_5xx' and "
        "j -> 2 ->> 'class' = 'delivered' and j -> 3 -> 'attempt' = '1' and j -> 22 -> 'attempt' = '20'");
    expect_status(RUN("attempt", "list", "--limit", "2", "--json"), 0);
    expect_json("jsonb_array_length(j) = 2");
    expect_status(RUN("attempt", "list", "--subscription", "a", "--class", "delivered"), 0);
    expect_text(out, "a               1        1  no");
    expect_text(out, "204      12.3  192.0.2.1:443");
    // Every class that there is.
    for (int i = 0; i < 12; i++) {
        char sql[200];
        snprintf(sql, sizeof(sql),
                 "select m[1] from pg_constraint, regexp_matches(pg_get_constraintdef(oid), $$'(\\w+)'$$, 'g') m "
                 "where conname = 'attempts_class_check' offset %d",
                 i);
        const char *class = sql_text(conn, sql);
        ck_assert_msg(*class != 0, "there are not 12 classes");
        expect_status(RUN("attempt", "list", "--class", class), 0);
    }
    expect_status(RUN("attempt", "list", "--class", "good"), 2);
    expect_text(err, "--class good: expected one of delivered, dns");
    expect_status(RUN("attempt", "list", "--subscription", "nope"), 1);
    expect_text(err, "there is no subscription named 'nope'");
}
END_TEST

START_TEST(test_event_list_by_state) {
    make_events();
    sql_run(conn, "insert into posts values ('p4', 't1', 'x'), ('p5', 't1', 'x'); update rowbell.events set retry_at = "
                  "now(), fanout_attempts = 1 where seq = 4; insert into rowbell.events_set_aside select seq, subject, "
                  "retry_at from rowbell.events where seq = 4; update rowbell.events set fanned_out_at = now(), "
                  "poisoned_at = now() where seq = 5");
    static const char *const states[] = {"fanned-out", "poisoned", "pending", "retrying", "cancelled"};
    for (int i = 0; i < 5; i++) {
        char condition[120];
        snprintf(condition, sizeof(condition),
                 "jsonb_array_length(j) = 1 and j -> 0 -> 'seq' = '%d' and j -> 0 ->> 'state' = '%s'", i + 1,
                 states[i]);
        for (int typed = 0; typed < 2; typed++) {
            expect_status(typed ? RUN("event", "list", "--state", states[i], "--type", "posts.create", "--json")
                                : RUN("event", "list", "--state", states[i], "--json"),
                          0);
            expect_json(condition);
        }
        expect_status(RUN("event", "list", "--state", states[i], "--type", "posts.delete", "--json"), 0);
        expect_json("j = '[]'");
    }
}
END_TEST

START_TEST(test_job_retry_and_cancel) {
    make_events();
    sql_run(conn, "insert into rowbell.jobs select id, 3 from rowbell.subscriptions where name = 'a'");
    expect_status(RUN("job", "retry", "b", "1"), 0);
    expect_text(out, "event 1 to b is sent now\n");
    // The next number is a manual one, and uses up nothing.
    ck_assert_str_eq(sql_text(conn, "select concat_ws(' ', state, attempts, uncounted) from rowbell.jobs_waiting"),
                     "waiting 3 4");
    const char *id = sql_text(conn, "select rowbell.event_id(occurred_at, seq) from rowbell.events where seq = 1");
    expect_status(RUN("job", "retry", "a", id, "--json"), 0); // it was delivered
    expect_json("j ->> 'was' = 'delivered'");
    ck_assert_str_eq(sql_text(conn,
                              "select concat_ws(' ', w.state, attempts, uncounted) from rowbell.jobs_waiting w join "
                              "rowbell.subscriptions s on s.id = w.subscription_id where s.name = 'a'"),
                     "waiting 1 2");
    expect_status(RUN("job", "retry", "a", "3"), 0);
    expect_text(out, "is in line already");
    expect_status(RUN("job", "retry", "b", "3"), 1);
    expect_text(err, "event 3 never went to b");
    expect_status(RUN("job", "retry", "nope", "3"), 1);
    expect_status(RUN("job", "retry", "a", "x"), 2);

    expect_status(RUN("job", "cancel", "a", "3"), 0);
    expect_text(out, "event 3 to a is cancelled\n");
    expect_status(RUN("job", "cancel", "b", "1", "--json"), 0);
    expect_json("j ->> 'state' = 'cancelled'");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs_waiting where state = 'cancelled'"), 2);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs"), 0);
    expect_status(RUN("job", "cancel", "b", "1"), 1);
    expect_text(err, "there is no job of event 1 to b");
    sql_run(conn,
            "insert into rowbell.jobs select id, 1, now() + interval '1 minute', 7, 1 from rowbell.subscriptions where "
            "name = 'b'; delete from rowbell.jobs_waiting");
    expect_status(RUN("job", "cancel", "b", "1"), 1);
    expect_text(err, "it is being sent at this moment");
}
END_TEST

START_TEST(test_event_cancel) {
    make_events();
    expect_status(RUN("event", "cancel", "3"), 1);
    expect_text(err, "event 3 is not poisoned");
    expect_status(RUN("event", "cancel", "x"), 2);
    const char *id = sql_text(conn, "select rowbell.event_id(occurred_at, seq) from rowbell.events where seq = 2");
    expect_status(RUN("event", "cancel", id), 0);
    expect_text(out, " is cancelled\n");
    expect_status(RUN("event", "cancel", "2", "--json"), 1);
    // Of its three subscriptions only the stream gets it.
    ck_assert_str_eq(sql_text(conn, "select s.kind from rowbell.jobs j join rowbell.subscriptions s on s.id = "
                                    "j.subscription_id where j.event_seq = 2"),
                     "sse");
    expect_status(RUN("event", "list", "--state", "cancelled", "--json"), 0);
    expect_json("jsonb_array_length(j) = 1 and j -> 0 -> 'seq' = '2' and j -> 0 ->> 'state' = 'cancelled'");
    expect_status(RUN("event", "list", "--state", "fanned-out", "--json"), 0);
    expect_json("jsonb_array_length(j) = 1");
    expect_status(RUN("event", "show", "2"), 0);
    expect_text(out, "state            cancelled\n");
    expect_text(out, "bad "); // why it was poisoned
    expect_status(RUN("status", "--json"), 0);
    expect_json("j -> 'events_poisoned' = '0'");
    expect_status(RUN("requeue", "events", "--all"), 0);
    ck_assert_str_eq(out, "0 events requeued\n");
    // After all: one subscription at a time.
    expect_status(RUN("replay", "b", "--since", "1h"), 0);
    ck_assert_str_eq(sql_text(conn, "select string_agg(s.name, ' ' order by s.name) from rowbell.jobs j join "
                                    "rowbell.subscriptions s on s.id = j.subscription_id where j.event_seq = 2"),
                     "b stream");
    // It is pruned like any other.
    sql_run(conn,
            "delete from rowbell.jobs; update rowbell.events set fanned_out_at = now() - interval '8 d' where seq = 2");
    ck_assert_int_eq(sql_int(conn, "select pruned from rowbell.prune_events(7 * 86400000)"), 1);
}
END_TEST

START_TEST(test_requeue_events) {
    make_events();
    expect_status(RUN("requeue", "events"), 2);
    expect_text(err, "say which: --id, --since, --until, or --all");
    expect_status(RUN("requeue", "events", "--all", "--dry-run"), 0);
    ck_assert_str_eq(out, "1 events would be requeued\n");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events where poisoned_at is not null"), 1);
    expect_status(RUN("requeue", "events", "--id", "1,3", "--json"), 0);
    expect_json("j = '{\"requeued\": 0, \"dry_run\": false}'");
    expect_status(RUN("requeue", "events", "--until", "1h", "--json"), 0);
    expect_json("j -> 'requeued' = '0'");
    expect_status(RUN("requeue", "events", "--since", "2001-01-01T00:00Z", "--until", "2101-01-01", "--dry-run"), 0);
    ck_assert_str_eq(out, "1 events would be requeued\n");
    const char *id = sql_text(conn, "select rowbell.event_id(occurred_at, seq) from rowbell.events where seq = 2");
    expect_status(RUN("requeue", "events", "--since", "1h", "--id", id), 0);
    ck_assert_str_eq(out, "1 events requeued\n");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events where seq = 2 and poisoned_at is null and "
                                   "fanout_attempts = 0 and retry_at is not null"),
                     1);
    expect_status(RUN("requeue", "events", "--since", "the day before"), 2);
    expect_text(err, "--since the day before: expected a time");
    expect_status(RUN("requeue", "events", "--id", "1,x"), 2);
    expect_text(err, "--id x: expected an event's number or UUID");
    static const char *const one_event[][5] = {
        {"event", "show", "x"}, {"event", "cancel", "x"}, {"job", "retry", "a", "x"}, {"job", "cancel", "a", "x"}};
    for (size_t i = 0; i < sizeof(one_event) / sizeof(*one_event); i++) {
        expect_status(run(one_event[i]), 2);
        expect_text(err, "x is not an event: give its number or UUID");
    }
}
END_TEST

START_TEST(test_requeue_jobs) {
    make_events();
    expect_status(RUN("requeue", "jobs"), 2);
    expect_text(err, "--subscription");
    expect_status(RUN("requeue", "jobs", "--subscription", "a"), 0);
    ck_assert_str_eq(out, "0 jobs requeued\n");
    expect_status(RUN("requeue", "jobs", "--subscription", "b", "--id", "1", "--dry-run"), 0);
    ck_assert_str_eq(out, "1 jobs would be requeued\n");
    ck_assert_str_eq(sql_text(conn, "select state from rowbell.jobs_waiting"), "poisoned");
    expect_status(RUN("requeue", "jobs", "--all", "--json"), 0);
    expect_json("j = '{\"requeued\": 1, \"dry_run\": false}'");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs_waiting where state = 'poisoned'"), 0);
    expect_status(RUN("requeue", "jobs", "--subscription", "nope"), 1);
    expect_text(err, "there is no subscription named 'nope'");
}
END_TEST

// Steps of 1,000: the last one is not whole, and none is missed or taken twice.
START_TEST(test_requeue_goes_in_steps) {
    make_events();
    sql_run(
        conn,
        "insert into rowbell.jobs_waiting (subscription_id, event_seq, state, attempts) select s.id, 1000 + i, "
        "'poisoned', 2 from rowbell.subscriptions s, generate_series(1, 2500) i where s.name = 'a'; insert into "
        "rowbell.jobs_waiting (subscription_id, event_seq, state, run_at) select s.id, 9000 + i, 'waiting', now() + "
        "interval '1 hour' from rowbell.subscriptions s, generate_series(1, 3) i where s.name = 'a'");
    expect_status(RUN("requeue", "jobs", "--subscription", "a", "--dry-run", "--json"), 0);
    expect_json("j = '{\"requeued\": 2500, \"dry_run\": true}'");
    // Somebody holds one of them: it is left, and the rest goes on.
    PGconn *other = fixture_connect();
    sql_run(other, "begin; select from rowbell.jobs_waiting where event_seq = 2000 for update");
    expect_status(RUN("requeue", "jobs", "--subscription", "a", "--json"), 0);
    expect_json("j -> 'requeued' = '2499'");
    sql_run(other, "rollback");
    ck_assert_int_eq(sql_int(conn,
                             "select count(distinct xmin::text) from rowbell.jobs_waiting where state = 'waiting' and "
                             "event_seq between 1001 and 3500"),
                     3);
    expect_status(RUN("requeue", "jobs", "--subscription", "a", "--json"), 0);
    expect_json("j -> 'requeued' = '1'");
    expect_status(RUN("requeue", "jobs", "--subscription", "a", "--state", "waiting", "--json"), 0);
    expect_json("j -> 'requeued' = '3'"); // those whose time had not come
    expect_status(RUN("requeue", "jobs", "--all", "--state", "running"), 2);
    expect_text(err, "--state running: expected poisoned");
}
END_TEST

START_TEST(test_replay) {
    set_up();
    expect_status(RUN("publish", "posts", "--scope", "tenant"), 0);
    sql_run(
        conn,
        "select rowbell.declare_type('plan.chosen', webhook => true); select rowbell.declare_type('secret.thing'); "
        "insert into posts select 'p' || i, case when i % 2 = 0 then 't1' else 't2' end from generate_series(1, 2400) "
        "i; "
        "select rowbell.record('secret.thing', 's'); select rowbell.record('plan.chosen', 's', '{\"plan\": \"pro\"}'); "
        "select rowbell.record('plan.chosen', 's', '{\"plan\": \"free\"}'); "
        "update rowbell.events set fanned_out_at = now(), fanout = '{1}'; "
        "insert into posts values ('last', 't1')"); // not fanned out: the relay's
    expect_status(
        RUN("subscription", "add", "webhook", "w", "https://a.example/", "--type", "posts.*", "--scope", "t1"), 0);
    expect_status(RUN("replay", "w"), 2);
    expect_status(RUN("replay", "w", "--since", "1h", "--dry-run"), 0);
    ck_assert_str_eq(out, "1200 events would be queued\n");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs"), 0);
    expect_status(RUN("replay", "w", "--since", "1h", "--until", "30m", "--json"), 0);
    expect_json("j -> 'queued' = '0'");
    expect_status(RUN("replay", "w", "--since", "1h", "--json"), 0);
    expect_json("j = '{\"queued\": 1200, \"dry_run\": false}'");
    ck_assert_int_eq(sql_int(conn,
                             "select count(*) from rowbell.jobs j join rowbell.events e on e.seq = j.event_seq where "
                             "e.scope = 't1' and e.fanout[2] = j.subscription_id and e.fanned_out_at is not null"),
                     1200);
    expect_status(RUN("replay", "w", "--since", "1h", "--json"), 0); // again: it got them
    expect_json("j -> 'queued' = '0'");
    // A condition, and a subscription that is paused.
    expect_status(RUN("subscription", "add", "webhook", "pro", "https://a.example/", "--type", "*", "--condition",
                      "$.plan == \"pro\""),
                  0);
    expect_status(RUN("subscription", "pause", "pro"), 0);
    expect_status(RUN("replay", "pro", "--since", "2020-01-01", "--json"), 0);
    expect_json("j -> 'queued' = '1'");
    ck_assert_str_eq(sql_text(conn, "select state from rowbell.jobs_waiting"), "held");
    expect_status(RUN("replay", "nope", "--since", "1h"), 1);
    expect_text(err, "there is no subscription named 'nope'");
    expect_status(RUN("replay", "stream", "--since", "1h"), 1);
}
END_TEST

START_TEST(test_prune) {
    make_events();
    sql_run(conn, "insert into rowbell.events (type_id, subject, occurred_at, fanned_out_at, fanout) select min(id), "
                  "'old', now() - "
                  "interval '8 d', now() - interval '8 d', '{}' from rowbell.event_types;"
                  "insert into rowbell.attempts (subscription_id, event_seq, attempt, started_at, class) values (1, 1, "
                  "1, now() - "
                  "interval '2 d', 'delivered'), (1, 1, 2, now(), 'delivered')");
    expect_status(RUN("prune"), 0);
    expect_text(out, "1 events pruned\n");
    expect_text(out, "0 attempts pruned\n");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events where subject = 'old'"), 0);
    expect_status(RUN("prune", "--attempts", "1d", "--json"), 0);
    expect_json("j -> 'attempts' = '1' and j -> 'events' = '0'");
    expect_status(RUN("prune", "--events", "soon"), 2);
    expect_text(err, "--events");
}
END_TEST

void events_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "events", 60);
    tcase_add_test(tcase, test_event_list_and_show);
    tcase_add_test(tcase, test_domain_event_keeps_its_data);
    tcase_add_test(tcase, test_job_list);
    tcase_add_test(tcase, test_attempt_list);
    tcase_add_test(tcase, test_event_list_by_state);
    tcase_add_test(tcase, test_job_retry_and_cancel);
    tcase_add_test(tcase, test_event_cancel);
    tcase_add_test(tcase, test_requeue_events);
    tcase_add_test(tcase, test_requeue_jobs);
    tcase_add_test(tcase, test_requeue_goes_in_steps);
    tcase_add_test(tcase, test_replay);
    tcase_add_test(tcase, test_prune);
}
