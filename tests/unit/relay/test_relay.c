// The relay's machine against a strict fake of its store: every operation is answered by the test, so each order of
// events can be played without a clock or a database.
#include "common/metrics.h"
#include "relay/metrics.h"
#include "relay/relay.h"
#include "tests/support/fixture.h"
#include <string.h>

enum operation { NOTHING, PASS, LIST, PASS_ONE, FAIL, WAIT };

static struct {
    enum operation in_flight; // at most one: the contract of relay_store.h
    int64_t seq;
    enum relay_suspects which;
    uint64_t wait_ms;
    int fails;
    bool drained;
} fake;

static void begin(enum operation operation) {
    ck_assert_int_eq(fake.in_flight, NOTHING);
    fake.in_flight = operation;
}
static void fake_pass(void *arg, int64_t mark) {
    ck_assert_int_eq(mark, 0);
    begin(PASS);
}
static void fake_list(void *arg, enum relay_suspects which, int64_t mark) {
    begin(LIST);
    fake.which = which;
}
static void fake_pass_one(void *arg, int64_t seq) {
    begin(PASS_ONE);
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
static void on_drained(void *arg) {
    fake.drained = true;
}

static const struct relay_store store = {
    .pass = fake_pass, .list = fake_list, .pass_one = fake_pass_one, .fail = fake_fail, .wait = fake_wait};
static struct relay relay;
static const struct metric metrics[] = {
#define METRIC(kind, id, name, labels, help) [METRIC_##id] = {METRIC_##kind, name, labels, help},
#include "relay/metrics.def"
#undef METRIC
};

static void start(bool once) {
    memset(&fake, 0, sizeof fake);
    metrics_init(metrics, METRIC_COUNT);
    relay_init(&relay, &store, &(struct relay_options){.poll_ms = 200, .once = once, .on_drained = on_drained});
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
    struct relay_pass pass = {.events = events, .jobs = events, .exhausted = events < RELAY_BATCH_SIZE};
    relay_on_pass(&relay, sqlstate ? NULL : &pass, sqlstate ? &error : NULL);
}
static void list_ends(size_t count) {
    ends(LIST);
    struct relay_suspect suspects[RELAY_BATCH_SIZE];
    for (size_t i = 0; i < count; i++)
        suspects[i] = (struct relay_suspect){.seq = (int64_t)i + 1};
    relay_on_list(&relay, suspects, count, NULL);
}
static void pass_one_ends(const char *sqlstate) {
    ends(PASS_ONE);
    struct error error = sql_failure(sqlstate ? sqlstate : "00000");
    struct relay_pass pass = {.events = 1, .jobs = 1, .exhausted = true};
    relay_on_pass_one(&relay, sqlstate ? NULL : &pass, sqlstate ? &error : NULL);
}
static void fail_ends(bool counted, bool poisoned) {
    ends(FAIL);
    relay_on_fail(&relay, counted, poisoned, NULL);
}
static void timer_fires(void) {
    ends(WAIT);
    relay_on_timer(&relay);
}

START_TEST(passes_follow_each_other_while_batches_are_full) {
    start(false);
    pass_ends(200, NULL);
    pass_ends(200, NULL);
    pass_ends(7, NULL);
    ck_assert_int_eq(relay.state, RELAY_RESTING);
    ck_assert_int_eq(fake.wait_ms, 200);
    timer_fires();
    ck_assert_int_eq(fake.in_flight, PASS);
    ck_assert_int_eq((int)metric_value(METRIC_FANOUT_EVENTS, NULL, NULL), 407);
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

START_TEST(faults_of_the_system_never_count) {
    static const char *const faults[] = {"53100", "55P03", "57P01", "57014", "58030",
                                         "XX000", "42P01", "40001", "25006"};
    start(false);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        pass_ends(0, faults[i]);
        ck_assert_int_eq(relay.state, RELAY_BACKING_OFF);
        timer_fires();
    }
    // Alone too, but for a time-out, which is then the row's own.
    pass_ends(0, "22P02");
    list_ends(2);
    pass_one_ends("53100");
    ck_assert_int_eq(relay.state, RELAY_BACKING_OFF);
    ck_assert_int_eq(fake.fails, 0);
    timer_fires();
    pass_ends(0, "22P02");
    list_ends(1);
    pass_one_ends("57014");
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
    timer_fires();
    pass_ends(0, "53100");
    ck_assert_int_le((int)fake.wait_ms, 2400);
    // A deadlock is tried again soon.
    timer_fires();
    pass_ends(0, "40P01");
    ck_assert_int_le((int)fake.wait_ms, 50);
}
END_TEST

START_TEST(due_retries_are_looked_for_once_a_second) {
    start(false);
    pass_ends(0, NULL);
    int lists = 0;
    for (int i = 0; i < 25; i++) { // 5 s of rests
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

START_TEST(a_lost_connection_forgets_what_was_in_flight) {
    static const enum operation at[] = {PASS, LIST, PASS_ONE, FAIL, WAIT};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        start(false);
        if (at[i] == WAIT) {
            pass_ends(0, NULL);
        } else if (at[i] != PASS) {
            pass_ends(0, "22P02");
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
        relay_on_pass_one(&relay, NULL, &lost);
        relay_on_fail(&relay, false, false, &lost);
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

static void add_tests(Suite *suite) {
    const TTest *const tests[] = {
        passes_follow_each_other_while_batches_are_full,
        one_bad_row_leaves_the_others_in_the_same_pass,
        faults_of_the_system_never_count,
        backs_off_2_s_doubling_to_1_min_with_jitter,
        due_retries_are_looked_for_once_a_second,
        a_lost_connection_forgets_what_was_in_flight,
        once_ends_when_drained,
    };
    TCase *tcase = suite_case(suite, "machine", 10);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_test(tcase, tests[i]);
}

int main(void) {
    return suite_main("relay", add_tests);
}
