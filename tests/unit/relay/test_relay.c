// The relay's machine against a strict fake of its store: every operation is answered by the test, so each order of
// events can be played without a clock or a database.
#include "common/metrics.h"
#include "relay/metrics.h"
#include "relay/relay.h"
#include "tests/support/fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum operation { NOTHING, PASS, LIST, EXAMINE, PASS_ONE, FAIL, WAIT, FALL_ASLEEP };

static struct {
    enum operation in_flight; // at most one: the contract of relay_store.h
    int64_t seq;
    enum relay_suspects which;
    uint64_t wait_ms;
    int fails;
    bool drained;
    bool awake; // as the writers see it
    int64_t mark;
    bool hardly;
    uint64_t now_ms;
    int after_subscription;
    char skip[200], aside[200]; // keys, each with a space behind it
    bool patient;
    int put_aside;
    bool plain; // passes evaluate no conditions
} fake;

static void begin(enum operation operation) {
    ck_assert_int_eq(fake.in_flight, NOTHING);
    fake.in_flight = operation;
}
static void keep_keys(char *ret_text, const char *const *keys, size_t count) {
    *ret_text = '\0';
    for (size_t i = 0; i < count; i++) {
        strcat(ret_text, keys[i]);
        strcat(ret_text, " ");
    }
}
static void keep_conditions(const struct relay_conditions *conditions) {
    keep_keys(fake.skip, conditions->skip, conditions->skip_count);
    keep_keys(fake.aside, conditions->aside, conditions->aside_count);
}
static void fake_pass(void *arg, int64_t mark, bool sample, bool hardly, const struct relay_conditions *conditions) {
    keep_conditions(conditions);
    fake.mark = mark;
    fake.hardly = hardly;
    begin(PASS);
}
static void fake_list(void *arg, enum relay_suspects which) {
    begin(LIST);
    fake.which = which;
}
static void fake_examine(void *arg, int64_t seq, int after_subscription, const struct relay_conditions *conditions) {
    begin(EXAMINE);
    keep_conditions(conditions);
    fake.seq = seq;
    fake.after_subscription = after_subscription;
}
static void fake_pass_one(void *arg, int64_t seq, bool patient, const struct relay_conditions *conditions) {
    begin(PASS_ONE);
    fake.patient = patient;
    keep_conditions(conditions);
    fake.seq = seq;
}
static void fake_fail(void *arg, const struct relay_suspect *suspect, const char *reason) {
    begin(FAIL);
    fake.seq = suspect->seq;
    fake.fails++;
}
static void fake_wait(void *arg, uint64_t ms) {
    begin(WAIT);
    fake.wait_ms = ms;
}
static void fake_set_awake(void *arg, bool awake) {
    ck_assert(fake.awake != awake);
    fake.awake = awake;
    if (!awake)
        begin(FALL_ASLEEP);
}
static uint64_t fake_now_ms(void *arg) {
    return fake.now_ms;
}
static void on_drained(void *arg) {
    fake.drained = true;
}

static const struct relay_store store = {
    .pass = fake_pass,
    .list = fake_list,
    .examine = fake_examine,
    .pass_one = fake_pass_one,
    .fail = fake_fail,
    .set_awake = fake_set_awake,
    .wait = fake_wait,
    .now_ms = fake_now_ms,
};
static struct relay relay;
static const struct metric metrics[] = {
#define METRIC(kind, id, name, labels, help) [METRIC_##id] = {METRIC_##kind, name, labels, help},
#include "relay/metrics.def"
#undef METRIC
};

static void start(bool once) {
    memset(&fake, 0, sizeof fake);
    fake.now_ms = 1000000;
    metrics_init(metrics, METRIC_COUNT);
    relay_init(&relay, &store,
               &(struct relay_options){.poll_ms = 200, .sweep_ms = 60000, .once = once, .on_drained = on_drained});
    relay_on_up(&relay);
}

static struct error sql_failure(const char *sqlstate) {
    struct error error = {.code = ERROR_SQL, .text = "failed"};
    memcpy(error.sqlstate, sqlstate, 6);
    return error;
}
static void ends(enum operation operation) {
    ck_assert_int_eq(fake.in_flight, operation);
    fake.in_flight = NOTHING;
}
static void pass_ends(int64_t events, const char *sqlstate) {
    ends(PASS);
    struct error error = sql_failure(sqlstate ? sqlstate : "00000");
    struct relay_pass pass = {
        .events = events,
        .jobs = events,
        .claim = {.mark = fake.mark, .claimed = events, .marked = events, .full = events == RELAY_BATCH_SIZE},
        .conditions = !fake.plain,
        .put_aside = fake.put_aside,
    };
    relay_on_pass(&relay, &pass, sqlstate ? &error : NULL);
}
static void list_ends(size_t count) {
    ends(LIST);
    struct relay_suspect suspects[RELAY_BATCH_SIZE];
    for (size_t i = 0; i < count; i++)
        suspects[i] = (struct relay_suspect){.seq = (int64_t)i + 1};
    relay_on_list(&relay, suspects, count, NULL);
}
static void examine_ends(int subscription, const char *key, bool slow) {
    ends(EXAMINE);
    struct relay_examined examined = {.subscription = subscription, .slow = slow};
    strcpy(examined.key, key);
    relay_on_examine(&relay, &examined, NULL);
}
static void pass_one_ends(const char *sqlstate) {
    if (fake.in_flight == EXAMINE)
        examine_ends(0, "", false);
    ends(PASS_ONE);
    struct error error = sql_failure(sqlstate ? sqlstate : "00000");
    struct relay_pass pass = {.events = 1, .jobs = 1, .claim = {.claimed = 1, .marked = 1}};
    relay_on_pass_one(&relay, sqlstate ? NULL : &pass, sqlstate ? &error : NULL);
}
static void fail_ends(bool counted, bool poisoned) {
    ends(FAIL);
    relay_on_fail(&relay, counted, poisoned, NULL);
}
static void timer_fires(void) {
    ends(WAIT);
    fake.now_ms += fake.wait_ms;
    relay_on_timer(&relay);
}

static void pass_leaves(int64_t events, int64_t left) {
    ends(PASS);
    struct relay_pass pass = {
        .events = events,
        .jobs = events,
        .claim = {.mark = fake.mark, .claimed = events + left, .marked = events, .left = left},
    };
    relay_on_pass(&relay, &pass, NULL);
}

static void lingers(void) {
    for (int i = 0; i < 9; i++) {
        pass_ends(0, NULL);
        ck_assert_int_eq(relay.state, RELAY_LINGERING);
        ck_assert_int_eq(fake.wait_ms, 1);
        timer_fires();
        if (fake.in_flight == LIST)
            list_ends(0);
    }
}

// From a pass in flight to sleep: the lock is given back, one more look.
static void falls_asleep(void) {
    pass_ends(0, NULL);
    ck_assert(!fake.awake);
    ends(FALL_ASLEEP);
    relay_on_asleep(&relay);
    ck_assert(fake.hardly);
    pass_ends(0, NULL); // what was committed while the lock was given back
    ck_assert_int_eq(relay.state, RELAY_ASLEEP);
    ck_assert_int_eq(fake.wait_ms, 5);
}

START_TEST(passes_follow_each_other_while_batches_are_full) {
    start(false);
    ck_assert(fake.awake);
    pass_ends(200, NULL);
    pass_ends(200, NULL);
    pass_ends(7, NULL);
    ck_assert_int_eq(relay.state, RELAY_LINGERING);
    timer_fires();
    lingers();
    falls_asleep();
    timer_fires();
    ck_assert_int_eq(fake.in_flight, PASS);
    ck_assert(!fake.awake); // a fallback poll is no waking
    pass_ends(1, NULL);
    ck_assert_int_eq((int)metric_value(METRIC_FANOUT_EVENTS, NULL, NULL), 408);
}
END_TEST

START_TEST(lingers_and_keeps_writers_silent_only_while_events_come_close_together) {
    start(false);
    lingers();
    falls_asleep();
    for (int i = 0; i < 3; i++) { // 11 ms apart: each says NOTIFY, and nothing is waited for
        ends(WAIT);
        fake.now_ms += 11;
        relay_on_wake(&relay);
        ck_assert(!fake.hardly);
        pass_ends(1, NULL);
        ck_assert_int_eq(relay.state, RELAY_ASLEEP);
        ck_assert(!fake.awake);
        ck_assert_int_eq(fake.wait_ms, 5); // and who says nothing does not wait for long
    }
    ends(WAIT);
    fake.now_ms += 10;
    relay_on_wake(&relay);
    pass_ends(1, NULL);
    ck_assert_int_eq(relay.state, RELAY_LINGERING);
    ck_assert(fake.awake);
    timer_fires();
    lingers();
    falls_asleep();
}
END_TEST

START_TEST(what_a_pass_leaves_is_for_the_pass_that_follows_at_once) {
    start(true);
    pass_leaves(0, 3);
    ck_assert(!fake.drained && !fake.hardly);
    ck_assert_int_eq(fake.in_flight, PASS);
    pass_leaves(5, 1);
    ck_assert(!fake.drained && !fake.hardly);
    pass_ends(1, NULL);
    ck_assert(fake.drained);
}
END_TEST

START_TEST(a_notify_wakes_at_once_and_is_not_forgotten_while_busy) {
    start(false);
    lingers();
    falls_asleep();
    fake.in_flight = NOTHING; // the wait goes on, and finds the machine elsewhere when it fires
    relay_on_wake(&relay);
    ck_assert_int_eq(relay.state, RELAY_PASSING);
    ck_assert(!fake.hardly);
    relay_on_wake(&relay); // during the pass, whose snapshot may be older
    pass_ends(0, NULL);
    ck_assert_int_eq(fake.in_flight, PASS);
    ck_assert(!fake.hardly);
    pass_ends(0, NULL);
    ck_assert_int_eq(relay.state, RELAY_ASLEEP);
    timer_fires();
    ck_assert(fake.hardly); // nobody said anything, and nothing was there before
}
END_TEST

// Any login may NOTIFY rowbell_events.
START_TEST(a_storm_of_notifies_costs_a_pass_now_and_then) {
    start(false);
    lingers();
    falls_asleep();
    ends(WAIT);
    int passes = 0;
    uint64_t due_ms = UINT64_MAX;
    for (int i = 0; i < 10000; i++) { // 10 s
        fake.now_ms++;
        if (fake.in_flight == WAIT)
            fake.in_flight = NOTHING; // a wait is replaced
        if (fake.now_ms >= due_ms)
            relay_on_timer(&relay);
        else
            relay_on_wake(&relay);
        if (fake.in_flight == LIST)
            list_ends(0);
        if (fake.in_flight == PASS) {
            pass_ends(0, NULL);
            passes++;
        }
        due_ms = fake.in_flight == WAIT ? fake.now_ms + fake.wait_ms : due_ms;
    }
    ck_assert_int_gt(passes, 20);
    ck_assert_int_le(passes, 20 + 10000 / 50 + 1);
}
END_TEST

START_TEST(one_bad_row_leaves_the_others_in_the_same_pass) {
    start(false);
    pass_ends(0, "23514");
    ck_assert_int_eq(fake.which, RELAY_SUSPECTS_BATCH);
    list_ends(3);
    pass_one_ends(NULL);
    pass_one_ends("23514");
    ck_assert_int_eq(fake.seq, 2);
    fail_ends(true, false);
    pass_one_ends(NULL);
    ck_assert_int_eq(fake.fails, 1);
    ck_assert_int_eq(fake.in_flight, PASS);
}
END_TEST

// A pass that evaluates conditions and takes too long is done again event by event, each after its conditions were
// examined.
START_TEST(a_slow_condition_counts_against_its_own_subscription) {
    start(false);
    pass_ends(0, "57014");
    ck_assert_int_eq(fake.which, RELAY_SUSPECTS_BATCH);
    list_ends(3);
    ck_assert_int_eq(fake.seq, 1);
    ck_assert_int_eq(fake.after_subscription, 0);
    examine_ends(7, "7:1", true);
    ck_assert_int_eq(fake.after_subscription, 7); // it goes on behind it, on the same event
    ck_assert_str_eq(fake.skip, "7:1 ");
    examine_ends(9, "9:1", false); // time was over: the next one begins with it
    ck_assert_int_eq(fake.after_subscription, 8);
    examine_ends(9, "9:1", true);
    examine_ends(0, "", false);
    ck_assert_int_eq(fake.in_flight, PASS_ONE);
    ck_assert_str_eq(fake.skip, "7:1 9:1 ");
    ck_assert_str_eq(fake.aside, "");
    pass_one_ends(NULL);
    ck_assert_int_eq(fake.seq, 2); // another event: only what is aside is known of it
    ck_assert_str_eq(fake.skip, "");
    examine_ends(7, "7:1", true);
    pass_one_ends(NULL);
    examine_ends(7, "7:1", true); // the third time
    examine_ends(0, "", false);
    ck_assert_str_eq(fake.aside, "7:1 ");
    pass_one_ends(NULL);
    ck_assert_int_eq(fake.fails, 0);
    ck_assert_int_eq(fake.in_flight, PASS); // no condition is tried that was slow three times
    ck_assert_str_eq(fake.skip, "7:1 ");
    ck_assert_str_eq(fake.aside, "7:1 ");
    ck_assert_int_eq((int)metric_value(METRIC_CONDITIONS_SLOW, NULL, NULL), 4);
    // Once the database knows it, the database decides; but slow once more, it is aside again.
    fake.put_aside = 1;
    pass_ends(RELAY_BATCH_SIZE, NULL);
    ck_assert_str_eq(fake.skip, "");
    fake.put_aside = 0;
    pass_ends(0, "57014");
    list_ends(1);
    examine_ends(7, "7:1", true);
    pass_one_ends(NULL);
    ck_assert_str_eq(fake.aside, "7:1 ");
    fake.now_ms += CONDITION_FORGET_MS;
    pass_ends(1, NULL);
    if (fake.in_flight == LIST)
        list_ends(0);
    else
        timer_fires();
    if (fake.in_flight == LIST)
        list_ends(0);
    ck_assert_int_eq(fake.in_flight, PASS);
    ck_assert_str_eq(fake.skip, "");
}
END_TEST

START_TEST(a_fault_of_the_system_while_conditions_are_examined_counts_against_nobody) {
    static const char *const faults[] = {"57014", "53100", "40P01"};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        start(false);
        pass_ends(0, "57014");
        list_ends(1);
        ends(EXAMINE);
        struct error error = sql_failure(faults[i]);
        relay_on_examine(&relay, NULL, &error);
        ck_assert_int_eq(relay.state, RELAY_BACKING_OFF);
        ck_assert_int_eq(fake.fails, 0);
    }
}
END_TEST

START_TEST(more_slow_conditions_than_there_is_room_for_are_forgotten_oldest_first) {
    static struct condition_watch watch;
    watch = (struct condition_watch){0};
    char key[CONDITION_KEY_BYTES];
    const char *aside[CONDITION_WATCH_SLOTS];
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof key, "%d:2147483647", i);
        for (int n = 1; n <= CONDITION_SLOW_MOST; n++)
            ck_assert(condition_watch_slow(&watch, key, (uint64_t)i) == (n == CONDITION_SLOW_MOST));
    }
    ck_assert_int_eq(condition_watch_aside(&watch, 1000, aside), CONDITION_WATCH_SLOTS);
    for (size_t i = 0; i < CONDITION_WATCH_SLOTS; i++)
        ck_assert_int_ge(atoi(aside[i]), 1000 - CONDITION_WATCH_SLOTS);
    ck_assert_int_eq(condition_watch_aside(&watch, 1000 + CONDITION_FORGET_MS, aside), 0);
}
END_TEST

START_TEST(faults_of_the_system_never_count) {
    static const char *const faults[] = {"53100", "55P03", "57P01", "57014", "58030", "XX000", "40001", "25006"};
    start(false);
    fake.plain = true; // else a time-out may be a condition's
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        pass_ends(0, faults[i]);
        ck_assert_int_eq(relay.state, RELAY_BACKING_OFF);
        timer_fires();
    }
    // Class 42 is first tried row by row: it may be a condition's.
    pass_ends(0, "42P01");
    list_ends(2);
    pass_one_ends("42P01");
    ck_assert_int_eq(relay.state, RELAY_BACKING_OFF);
    timer_fires();
    // Alone too, but for a time-out, which is then the row's own.
    pass_ends(0, "22P02");
    list_ends(2);
    pass_one_ends("53100");
    ck_assert_int_eq(relay.state, RELAY_BACKING_OFF);
    ck_assert_int_eq(fake.fails, 0);
    timer_fires();
    pass_ends(0, "22P02");
    list_ends(1);
    ck_assert(!fake.patient);
    pass_one_ends("57014");
    ck_assert_int_eq(fake.in_flight, EXAMINE);
    pass_one_ends("57014");
    ck_assert(fake.patient);
    ck_assert_int_eq(fake.in_flight, FAIL);
}
END_TEST

START_TEST(backs_off_2_s_doubling_to_1_min_with_jitter) {
    start(false);
    uint64_t expected = 2000;
    for (int i = 0; i < 10; i++) {
        pass_ends(0, "53100");
        ck_assert_msg(fake.wait_ms >= expected * 8 / 10 && fake.wait_ms <= expected * 12 / 10, "failure %d: %d ms", i,
                      (int)fake.wait_ms);
        expected = expected * 2 > 60000 ? 60000 : expected * 2;
        timer_fires();
    }
    pass_ends(3, NULL);
    list_ends(0);
    pass_ends(0, "53100");
    ck_assert_int_le((int)fake.wait_ms, 2400);
    // A deadlock is tried again soon.
    timer_fires();
    pass_ends(0, "40P01");
    ck_assert_int_le((int)fake.wait_ms, 50);
}
END_TEST

// A writer that saw the relay awake commits after the relay's last look: nobody is told.
START_TEST(a_fresh_sleep_is_light) {
    static const unsigned waits[] = {5, 10, 20, 40, 80, 160, 200, 200};
    start(false);
    lingers();
    falls_asleep();
    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        ck_assert_int_eq(fake.wait_ms, waits[i]);
        timer_fires();
        pass_ends(0, NULL);
    }
}
END_TEST

START_TEST(due_retries_are_looked_for_once_a_second) {
    start(false);
    lingers();
    falls_asleep();
    int lists = 0;
    uint64_t end_ms = fake.now_ms + 5000;
    while (fake.now_ms < end_ms) {
        timer_fires();
        if (fake.in_flight == LIST) {
            ck_assert_int_eq(fake.which, RELAY_SUSPECTS_DUE);
            list_ends(0);
            lists++;
        }
        pass_ends(0, NULL);
    }
    ck_assert_int_eq(lists, 5);
}
END_TEST

START_TEST(a_busy_database_does_not_keep_retries_waiting) {
    start(false);
    int lists = 0;
    for (int i = 0; i < 50; i++) { // of full batches, 100 ms each
        fake.now_ms += 100;
        pass_ends(RELAY_BATCH_SIZE, NULL);
        if (fake.in_flight == LIST) {
            ck_assert_int_eq(fake.which, RELAY_SUSPECTS_DUE);
            list_ends(0);
            lists++;
        }
    }
    ck_assert_int_eq(lists, 5);
    lingers();
    falls_asleep();
    ends(WAIT);
    for (int i = 0; i < 50; i++) { // and of a writer's NOTIFY in every lull
        fake.now_ms += 100;
        relay_on_wake(&relay);
        pass_ends(1, NULL);
        if (fake.in_flight == LIST) {
            list_ends(0);
            pass_ends(0, NULL);
            lists++;
        }
        ends(WAIT);
    }
    ck_assert_int_eq(lists, 10);
}
END_TEST

START_TEST(a_lost_connection_forgets_what_was_in_flight) {
    static const enum operation at[] = {PASS, LIST, EXAMINE, PASS_ONE, FAIL, WAIT, FALL_ASLEEP};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        start(false);
        if (at[i] == WAIT) {
            pass_ends(0, NULL);
        } else if (at[i] == FALL_ASLEEP) {
            lingers();
            pass_ends(0, NULL);
        } else if (at[i] != PASS) {
            pass_ends(0, at[i] == EXAMINE ? "57014" : "22P02");
            if (at[i] != LIST) {
                list_ends(2);
                if (at[i] == FAIL)
                    pass_one_ends("22P02");
            }
        }
        ck_assert_int_eq(fake.in_flight, at[i]);
        relay_on_down(&relay);
        // Its late answer changes nothing.
        struct error lost = {.code = ERROR_CONNECT, .text = "gone"};
        relay_on_pass(&relay, NULL, &lost);
        relay_on_list(&relay, NULL, 0, &lost);
        relay_on_examine(&relay, NULL, &lost);
        relay_on_pass_one(&relay, NULL, &lost);
        relay_on_fail(&relay, false, false, &lost);
        relay_on_asleep(&relay);
        fake.awake = false; // the lock went with the connection
        fake.in_flight = NOTHING;
        relay_on_timer(&relay);
        ck_assert_int_eq(relay.state, RELAY_DOWN);
        relay_on_up(&relay);
        ck_assert_int_eq(fake.in_flight, PASS);
    }
}
END_TEST

START_TEST(once_ends_when_drained) {
    start(true);
    pass_ends(200, NULL);
    ck_assert(!fake.drained);
    pass_ends(0, NULL);
    ck_assert(fake.drained);
    ck_assert_int_eq(fake.in_flight, NOTHING);
}
END_TEST

// The low-water mark's rule, as a bare pass and then passes with it would see it.
static struct low_water water;

static void water_pass(int64_t claimed, int64_t marked, int64_t highest, double claim_ms, uint64_t xmin,
                       uint64_t now_ms) {
    low_water_on_pass(&water,
                      &(struct low_water_pass){.mark = low_water_next(&water, now_ms),
                                               .claimed = claimed,
                                               .marked = marked,
                                               .highest = highest,
                                               .full = claimed == RELAY_BATCH_SIZE,
                                               .claim_ms = claim_ms,
                                               .xmin = xmin},
                      now_ms);
}
static void water_needed(void) {
    low_water_init(&water);
    water_pass(0, 0, 0, 9, 100, 10000);
    ck_assert(water.needed);
}

START_TEST(no_mark_while_claims_are_cheap) {
    low_water_init(&water);
    ck_assert(!low_water_wants_sample(&water, 1000000));
    water_pass(10, 10, 50, 1.9, 100, 10000);
    ck_assert_int_eq(low_water_next(&water, 10001), 0);
    ck_assert(!low_water_wants_sample(&water, 1000000));
}
END_TEST

START_TEST(the_mark_never_passes_a_seq_whose_writer_may_still_run) {
    water_needed();
    low_water_on_sample(&water, &(struct low_water_sample){.seq = 500, .xid = 120}, 10001);
    water_pass(0, 0, 0, 9, 119, 10002); // a transaction older than the sample's still runs
    ck_assert_int_eq(low_water_next(&water, 10003), 0);
    water_pass(0, 0, 0, 9, 120, 10004);
    ck_assert_int_eq(low_water_next(&water, 10005), 500);
    low_water_on_sample(&water, &(struct low_water_sample){.seq = 900, .xid = 130}, 10300);
    water_pass(0, 0, 0, 0.1, 125, 10301);
    ck_assert_int_eq(low_water_next(&water, 10302), 500);
}
END_TEST

START_TEST(the_mark_never_passes_a_row_that_was_not_looked_at) {
    water_needed();
    low_water_on_sample(&water, &(struct low_water_sample){.seq = 5000, .xid = 120}, 10001);
    water_pass(200, 200, 777, 9, 200, 10002); // a full batch: the backlog goes on behind 777
    ck_assert_int_eq(low_water_next(&water, 10003), 777);
    water_pass(3, 3, 4000, 0.1, 200, 10004);
    ck_assert_int_eq(low_water_next(&water, 10005), 5000);
    low_water_on_sample(&water, &(struct low_water_sample){.seq = 6000, .xid = 130}, 10201);
    struct low_water_pass left = {.mark = 5000, .claimed = 3, .marked = 1, .left = 2, .highest = 5900, .xmin = 200};
    low_water_on_pass(&water, &left, 10202); // two are for the next pass
    ck_assert_int_eq(low_water_next(&water, 10203), 5000);
    water_pass(3, 2, 6000, 0.1, 200, 10204); // claimed and not marked: it is still there
    ck_assert_int_eq(low_water_next(&water, 10205), 0);
}
END_TEST

START_TEST(looks_below_the_mark_every_few_seconds_but_not_more_than_a_twentieth_of_the_time) {
    water_needed(); // a bare pass of 9 ms at 10000
    low_water_on_sample(&water, &(struct low_water_sample){.seq = 500, .xid = 1}, 10001);
    water_pass(0, 0, 0, 9, 200, 10002);
    ck_assert_int_eq(low_water_next(&water, 13001), 500);
    ck_assert_int_eq(low_water_next(&water, 13002), 0);
    water_pass(0, 0, 0, 400, 200, 13002); // now so dear that it may come only every 8 s
    ck_assert_int_eq(low_water_next(&water, 21001), 500);
    ck_assert_int_eq(low_water_next(&water, 21002), 0);
    water_pass(0, 0, 0, 0.5, 200, 21002); // vacuumed: cheap again
    ck_assert(!water.needed);
}
END_TEST

START_TEST(samples_are_few_and_bounded) {
    water_needed();
    ck_assert(low_water_wants_sample(&water, 10200));
    low_water_on_sample(&water, &(struct low_water_sample){.seq = 1, .xid = 1000}, 10200);
    ck_assert(!low_water_wants_sample(&water, 10399));
    // A writer that runs for hours: 100,000 samples, none of them usable, and the oldest kept.
    for (int i = 1; i < 100000; i++)
        low_water_on_sample(&water, &(struct low_water_sample){.seq = i + 1, .xid = 1000 + (uint64_t)i},
                            10200 + 200 * (uint64_t)i);
    ck_assert_int_le(water.sample_count, LOW_WATER_SAMPLES);
    water_pass(0, 0, 0, 9, 1000, 10201);
    ck_assert_int_eq(water.mark, 1);
    water_pass(0, 0, 0, 9, 1 << 30, 10202);
    ck_assert_int_eq(water.mark, water.samples[0].seq);
    ck_assert_int_gt(water.mark, 1);
}
END_TEST

static void add_tests(Suite *suite) {
    const TTest *const tests[] = {
        passes_follow_each_other_while_batches_are_full,
        lingers_and_keeps_writers_silent_only_while_events_come_close_together,
        what_a_pass_leaves_is_for_the_pass_that_follows_at_once,
        a_storm_of_notifies_costs_a_pass_now_and_then,
        one_bad_row_leaves_the_others_in_the_same_pass,
        a_slow_condition_counts_against_its_own_subscription,
        a_fault_of_the_system_while_conditions_are_examined_counts_against_nobody,
        more_slow_conditions_than_there_is_room_for_are_forgotten_oldest_first,
        faults_of_the_system_never_count,
        backs_off_2_s_doubling_to_1_min_with_jitter,
        a_fresh_sleep_is_light,
        due_retries_are_looked_for_once_a_second,
        a_busy_database_does_not_keep_retries_waiting,
        a_lost_connection_forgets_what_was_in_flight,
        once_ends_when_drained,
        a_notify_wakes_at_once_and_is_not_forgotten_while_busy,
        no_mark_while_claims_are_cheap,
        the_mark_never_passes_a_seq_whose_writer_may_still_run,
        the_mark_never_passes_a_row_that_was_not_looked_at,
        looks_below_the_mark_every_few_seconds_but_not_more_than_a_twentieth_of_the_time,
        samples_are_few_and_bounded,
    };
    TCase *tcase = suite_case(suite, "machine", 10);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_test(tcase, tests[i]);
}

int main(void) {
    return suite_main("relay", add_tests);
}
