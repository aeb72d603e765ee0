// No endpoint, no event and no clock of somebody else stops deliveries (G7): endpoints that hold their requests, events
// of any size, receivers that ask for time, and machines whose clock is wrong.
#include "common/clock.h"
#include "tests/e2e/delivery.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { HOLD_MS = 3600000 };

static void webhooks(PGconn *conn, const char *prefix, int count, struct receiver *receiver) {
    char name[40];
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%s%d", prefix, i);
        webhook(conn, name, receiver, "");
    }
}

// The slots that endpoints of this name hold: leases that run.
#define LEASES(names)                                                                                                  \
    "(select count(*) from rowbell.jobs j join rowbell.subscriptions s on s.id = j.subscription_id where s.name like " \
    "'" names "' and j.lease_until > now())"
#define DELIVERED(names)                                                                                               \
    "(select count(*) from rowbell.attempts a join rowbell.subscriptions s on s.id = a.subscription_id where s.name "  \
    "like '" names "' and a.class = 'delivered')"

START_TEST(healthy_deliveries_complete_while_slow_endpoints_are_held) {
    PGconn *conn = fresh();
    struct receiver *slow = receiver_start(), *well = receiver_start();
    receiver_answer(slow, 200, NULL, HOLD_MS);
    webhooks(conn, "slow", 20, slow);
    webhooks(conn, "well", 20, well);
    queue_matching(conn, "slow%", 30);
    start(webhook_only);
    receiver_wait(slow, 192, HANG_MS); // all that endpoints may hold that nobody knows
    queue_matching(conn, "well%", 40);
    sql_wait(conn, HANG_MS, "select " DELIVERED("well%") " = 800");
    ck_assert_int_le(receiver_max_in_flight(slow), 192);
    ck_assert_int_eq(sql_int(conn, "select " DELIVERED("slow%")), 0);
}
END_TEST

START_TEST(more_slow_endpoints_than_slots_leave_room_for_newcomers) {
    static const char *const small[] = {"--allow-egress", "127.0.0.1",  "--lanes", "webhook",
                                        "--concurrency",  "webhook=64", NULL};
    PGconn *conn = fresh();
    struct receiver *slow = receiver_start(), *well = receiver_start();
    receiver_answer(slow, 200, NULL, 1500);
    webhooks(conn, "slow", 200, slow);
    queue_matching(conn, "slow%", 1);
    start(small);
    sql_wait(conn, HANG_MS, "select " DELIVERED("slow%") " = 200"); // each is known now
    receiver_answer(slow, 200, NULL, HOLD_MS);
    queue_matching(conn, "slow%", 5);
    receiver_wait(slow, 200 + 32, HANG_MS);
    webhooks(conn, "well", 20, well); // nobody knows them
    queue_matching(conn, "well%", 10);
    sql_wait(conn, HANG_MS, "select " DELIVERED("well%") " = 200");
    ck_assert_int_le(sql_int(conn, "select " LEASES("slow%")), 32);
    ck_assert_int_eq(sql_int(conn, "select " DELIVERED("slow%")), 200);
}
END_TEST

// An event from before events had a limit, put in where record() does not see it; `bytes` of text that no compression
// shortens.
static void large_events(PGconn *conn, int subscription, int count, int bytes) {
    char sql[900];
    snprintf(sql, sizeof sql,
             "with d as materialized (select jsonb_build_object('x', string_agg(md5(i::text), '')) as data from "
             "generate_series(1, %d) i), e as (insert into rowbell.events (type_id, subject, data, fanned_out_at, "
             "fanout) select t.id, 'large/' || n, d.data, now(), '{%d}' from d, rowbell.event_types t, "
             "generate_series(1, %d) n where t.type = 'thing.happened' returning seq) insert into rowbell.jobs "
             "(subscription_id, event_seq) select %d, seq from e",
             bytes / 32, subscription, count, subscription);
    sql_run(conn, sql);
}

START_TEST(events_of_any_size_stop_nobody) {
    enum { LARGE = 4 }; // and so in the wait below
    PGconn *conn = fresh();
    struct receiver *large = receiver_start(), *well = receiver_start();
    // A machine that needs over 20 s for some of these at once tries again soon.
    int subscription = webhook(conn, "large", large,
                               ", \"max_in_flight\": 2, \"retry\": [1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000]");
    large_events(conn, subscription, LARGE, 20 << 20);
    large_events(conn, subscription, 1, 40 << 20);
    large_events(conn, webhook(conn, "middle", large, ""), 30, 200 << 10);
    webhooks(conn, "well", 5, well);
    queue_matching(conn, "well%", 100);
    struct daemon *daemon = start(webhook_only);
    sql_wait(conn, HANG_MS, "select " DELIVERED("well%") " = 500");
    sql_wait(conn, HANG_MS, "select " DELIVERED("middle") " = 30");
    sql_wait(conn, 8 * HANG_MS, "select " DELIVERED("large") " = 4"); // 80 MB, also under the sanitizers
    sql_wait(conn, HANG_MS, "select count(*) = 1 from rowbell.jobs_waiting where state = 'poisoned'");
    sql_wait(conn, WAIT_MS, NO_JOBS);
    daemon_wait_log(daemon, "job_poisoned", WAIT_MS);
    daemon_wait_log(daemon, "at most 33554432 can be delivered", WAIT_MS);
    ck_assert_ptr_null(strstr(daemon->log, "round_failed"));
}
END_TEST

START_TEST(a_429_with_retry_after_uses_no_step_of_the_schedule) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    receiver_answer(receiver, 429, "Retry-After: 1\r\n", 0);
    int subscription = webhook(conn, "w", receiver, ", \"retry\": []"); // the first failure poisons
    queue(conn, subscription, 1);
    struct daemon *daemon = start(webhook_only);
    sql_wait(conn, HANG_MS, "select count(*) >= 2 from rowbell.attempts where status = 429");
    receiver_answer(receiver, 200, NULL, 0);
    sql_wait(conn, HANG_MS, "select count(*) = 1 from rowbell.attempts where class = 'delivered'");
    sql_wait(conn, WAIT_MS, NO_JOBS);
    // Without a word about when, it is a failure; and a day after the first one each counts.
    receiver_answer(receiver, 429, NULL, 0);
    queue(conn, subscription, 1);
    sql_wait(conn, HANG_MS, "select count(*) = 1 from rowbell.jobs_waiting where state = 'poisoned'");
    stop(daemon);
    receiver_answer(receiver, 429, "Retry-After: 1\r\n", 0);
    queue(conn, subscription, 1);
    sql_run(conn,
            "insert into rowbell.attempts (subscription_id, event_seq, attempt, started_at, class, status) select "
            "subscription_id, event_seq, 1, now() - interval '25 hours', 'http_4xx', 429 from rowbell.jobs;"
            "update rowbell.jobs set attempts = 1, uncounted = 1");
    start(webhook_only);
    sql_wait(conn, HANG_MS, "select count(*) = 2 from rowbell.jobs_waiting where state = 'poisoned'");
}
END_TEST

// ---- A machine whose clock is an hour ahead

static void fake_time(bool on) {
    if (!on) {
        unsetenv("LD_PRELOAD");
        return;
    }
    static const char *const libraries[] = {"/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
                                            "/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1"};
    setenv("FAKETIME", "+3600s", 1);
    setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1", 1);
    setenv("DONT_FAKE_MONOTONIC", "1", 1);
    const char *library = libraries[access(libraries[0], R_OK) != 0];
    ck_assert_msg(access(library, R_OK) == 0, "libfaketime is missing: apt-get install faketime");
    setenv("LD_PRELOAD", library, 1);
    setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1); // of a program that is built with it
}

START_TEST(a_dispatcher_whose_clock_is_wrong_does_no_harm) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    int subscription = webhook(conn, "w", receiver, ", \"max_in_flight\": 1");
    // An old secret that ends in half an hour.
    sql_run(conn, "update rowbell.subscriptions set secrets = secrets || ('until=' || extract(epoch from now() + "
                  "interval '30 minutes')::bigint || ';plain:whsec_' || encode(sha256('old'), 'base64')) where name = "
                  "'w'");
    // The receiver's clock is wrong too: what counts is the difference of its dates.
    receiver_answer(receiver, 429,
                    "Date: Thu, 01 Jan 2015 00:00:00 GMT\r\nRetry-After: Thu, 01 Jan 2015 00:00:02 GMT\r\n", 0);
    queue(conn, subscription, 1);
    fake_time(true);
    struct daemon *daemon = start(webhook_only);
    const char *output, *errors;
    int status = program_run("rowbell", (const char *const[]){"doctor", NULL}, &output, &errors);
    fake_time(false);
    receiver_wait(receiver, 1, HANG_MS);
    receiver_answer(receiver, 200, NULL, 0);
    sql_wait(conn, HANG_MS, "select count(*) = 1 from rowbell.attempts where class = 'delivered'");
    ck_assert_msg(status == 5, "%d %s", status, errors);
    ck_assert_msg(strstr(output, "clock is wrong: this machine"), "%s", output);
    for (int i = 0; i < 2; i++) {
        struct received got = receiver_get(receiver, i);
        int64_t stamp = strtoll(received_header(&got, "webhook-timestamp"), NULL, 10);
        ck_assert_msg(llabs(stamp - time(NULL)) < 600, "stamped %" PRId64, stamp);
        const char *signatures = received_header(&got, "webhook-signature");
        ck_assert_msg(strchr(signatures, ' '), "the old secret does not sign: %s", signatures);
    }
    daemon_wait_log(daemon, "event=clock_wrong", WAIT_MS);
    ck_assert_ptr_null(strstr(strstr(daemon->log, "event=clock_wrong") + 1, "event=clock_wrong"));
    sql_wait(conn, WAIT_MS,
             "select count(*) from rowbell.doctor() where problem = 'clock is wrong' and detail like "
             "'%+3600 s from%'");
    char url[80];
    const char *metrics;
    snprintf(url, sizeof url, "http://127.0.0.1:%d/metrics", daemon_log_port(daemon, "admin"));
    ck_assert_int_eq(http_get(url, &metrics), 200);
    ck_assert_msg(strstr(metrics, "\nrowbell_clock_offset_seconds 3600") ||
                      strstr(metrics, "\nrowbell_clock_offset_seconds 3599"),
                  "%s", strstr(metrics, "clock_offset"));
}
END_TEST

// ---- What memory holds stays there

START_TEST(a_process_with_secrets_leaves_no_core_file) {
    PGconn *conn = fresh();
    (void)conn;
    struct daemon *daemon = start(webhook_only);
    char path[40], line[200];
    snprintf(path, sizeof path, "/proc/%d/limits", (int)daemon->pid);
    FILE *limits = fopen(path, "r");
    ck_assert_ptr_nonnull(limits);
    bool found = false;
    while (fgets(line, sizeof line, limits))
        if (strncmp(line, "Max core file size", 18) == 0) {
            found = true;
            ck_assert_msg(strtol(line + 18, NULL, 10) == 0 && !strstr(line, "unlimited"), "%s", line);
        }
    fclose(limits);
    ck_assert(found);
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "fairness", 240);
    tcase_add_test(tcase, healthy_deliveries_complete_while_slow_endpoints_are_held);
    tcase_add_test(tcase, more_slow_endpoints_than_slots_leave_room_for_newcomers);
    tcase_add_test(tcase, events_of_any_size_stop_nobody);
    tcase_add_test(tcase, a_429_with_retry_after_uses_no_step_of_the_schedule);
    tcase_add_test(tcase, a_dispatcher_whose_clock_is_wrong_does_no_harm);
#ifndef __SANITIZE_ADDRESS__
    tcase_add_test(tcase, a_process_with_secrets_leaves_no_core_file);
#endif
}

int main(void) {
    return suite_main("fairness", add_tests);
}
