// A transaction that an application leaves open holds rows of its own subscriptions. Nobody else waits for it: not the
// deliveries of others, not the housekeeping.
#include "tests/e2e/delivery.h"
#include <stdio.h>
#include <stdlib.h>

static PGconn *admin, *attacker;
static char *attacker_name;

static void set_up(void) {
    admin = fresh();
    attacker = PQconnectdb(fixture_login("rowbell_app"));
    ck_assert_msg(PQstatus(attacker) == CONNECTION_OK, "%s", PQerrorMessage(attacker));
    attacker_name = PQuser(attacker);
    sql_run(admin, "set statement_timeout = '60s'; set lock_timeout = '30s'");
}

// The attacker's own, of a receiver that has the path /theirs.
static int theirs(struct receiver *receiver) {
    char sql[200];
    int id = webhook(admin, "theirs", receiver, ", \"retry\": [100, 100, 100, 100, 100, 100, 100, 100]");
    snprintf(sql, sizeof sql, "select rowbell.set_subscription_owner('theirs', '%s')", attacker_name);
    sql_run(admin, sql);
    return id;
}

START_TEST(an_open_transaction_stops_no_deliveries_of_others) {
    set_up();
    struct receiver *failing = receiver_start(), *healthy = receiver_start();
    receiver_answer(failing, 500, NULL, 0);
    int their_id = theirs(failing), good_id = webhook(admin, "good", healthy, "");
    sql_run(attacker, "begin; select rowbell.set_subscription_state('theirs', 'active');"
                      "select rowbell.rotate_secret('theirs')");
    queue(admin, their_id, 20);
    queue(admin, good_id, 200);
    struct daemon *daemon = start(webhook_only);
    receiver_wait(failing, 20, HANG_MS);
    // Ends of both are in one batch: none of them waits.
    receiver_wait(healthy, 200, HANG_MS);
    char sql[100];
    snprintf(sql, sizeof sql, "select count(*) = 0 from rowbell.jobs where subscription_id = %d", good_id);
    sql_wait(admin, HANG_MS, sql);
    ck_assert_int_eq(distinct_ids(healthy), receiver_count(healthy));
    stop(daemon);
    PQfinish(attacker);
}
END_TEST

START_TEST(a_receiver_that_wants_no_more_stops_nobody_while_its_row_is_held) {
    set_up();
    struct receiver *gone = receiver_start(), *healthy = receiver_start();
    receiver_answer(gone, 410, NULL, 0);
    int their_id = theirs(gone), good_id = webhook(admin, "good", healthy, "");
    sql_run(attacker, "begin; select rowbell.rotate_secret('theirs')");
    queue(admin, their_id, 1);
    struct daemon *daemon = start(webhook_only);
    receiver_wait(gone, 1, HANG_MS);
    queue(admin, good_id, 200);
    receiver_wait(healthy, 200, HANG_MS);
    char sql[100];
    snprintf(sql, sizeof sql, "select count(*) = 0 from rowbell.jobs where subscription_id = %d", good_id);
    sql_wait(admin, HANG_MS, sql);
    stop(daemon);
    PQfinish(attacker);
}
END_TEST

START_TEST(what_is_being_sent_is_not_held) {
    set_up();
    int id = theirs(receiver_start());
    queue(admin, id, 2);
    sql_run(admin, "update rowbell.jobs set lease_until = now() + interval '1 h', lease_token = 1 where event_seq = "
                   "(select min(event_seq) from rowbell.jobs)");
    sql_run(attacker, "begin; savepoint s");
    char sql[200];
    snprintf(sql, sizeof sql, "select rowbell.cancel_job('theirs', %lld)",
             (long long)sql_int(admin, "select min(event_seq) from rowbell.jobs"));
    ck_assert_str_eq(sql_error(attacker, sql), "55006");
    sql_run(attacker, "rollback to s; select rowbell.remove_subscription('theirs')");
    ck_assert_int_eq(
        sql_int(admin, "select count(*) from (select from rowbell.jobs where lease_token = 1 for update nowait) j"), 1);
    sql_run(attacker, "commit");
    sql_run(admin, "update rowbell.jobs set lease_until = null");
    ck_assert_int_eq(sql_int(admin, "select rowbell.prune_orphans()"), 1);
    ck_assert_int_eq(sql_int(admin, "select count(*) from rowbell.jobs"), 0);
    PQfinish(attacker);
}
END_TEST

START_TEST(housekeeping_passes_by_what_is_held) {
    set_up();
    struct receiver *receiver = receiver_start();
    int id = theirs(receiver);
    webhook(admin, "good", receiver, "");
    queue(admin, id, 3);
    sql_run(admin, "delete from rowbell.jobs; update rowbell.events set fanned_out_at = now() - interval '1 day';"
                   "update rowbell.subscription_state set failing_since = now() - interval '9 days'");
    char sql[200];
    snprintf(sql, sizeof sql, "begin; select rowbell.retry_job('theirs', %lld); select rowbell.rotate_secret('theirs')",
             (long long)sql_int(admin, "select min(seq) + 1 from rowbell.events"));
    sql_run(attacker, sql);
    ck_assert_int_eq(sql_int(admin, "select pruned from rowbell.prune_events(1000)"), 2);
    ck_assert_int_eq(sql_int(admin, "select rowbell.disable_failing(1000)"), 1);
    sql_run(attacker, "rollback");
    ck_assert_int_eq(sql_int(admin, "select pruned from rowbell.prune_events(1000)"), 1);
    ck_assert_int_eq(sql_int(admin, "select rowbell.disable_failing(1000)"), 1);
    PQfinish(attacker);
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "hostile_locks", 150);
    tcase_add_test(tcase, an_open_transaction_stops_no_deliveries_of_others);
    tcase_add_test(tcase, a_receiver_that_wants_no_more_stops_nobody_while_its_row_is_held);
    tcase_add_test(tcase, what_is_being_sent_is_not_held);
    tcase_add_test(tcase, housekeeping_passes_by_what_is_held);
}

int main(void) {
    return suite_main("hostile_locks", add_tests);
}
