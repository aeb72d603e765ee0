// Slots and turns (G7): no subscription gets more than it may, each gets some.
#include "dispatcher/endpoint.h"
#include "dispatcher/shard.h"
#include "tests/unit/dispatcher/dispatcher_tests.h"
#include <stdio.h>
#include <string.h>

static int prepared, forgotten;

static bool prepare(void *arg, struct subscription *subscription, struct error *ret_error) {
    prepared++;
    return true;
}
static void forget(void *arg, struct subscription *subscription) {
    forgotten++;
}
static const struct sink sink = {.kind = "webhook", .prepare = prepare, .forget = forget};

static struct subscription_change change(int id, const char *state, const char *settings) {
    return (struct subscription_change){.id = id,
                                        .name = "w",
                                        .kind = "webhook",
                                        .state = state,
                                        .settings = settings,
                                        .secrets = "[\"plain:a\", \"plain:b\"]",
                                        .version = "1",
                                        .failing_ms = -1,
                                        .idle_ms = -1};
}

static void add(struct endpoint_table *table, int id, const char *state, const char *settings) {
    struct subscription_change one = change(id, state, settings);
    endpoint_table_apply(table, &one, 1000);
    endpoint_find(table, id)->use.held_s = 0.001; // it has answered before
}

START_TEST(slots_are_shared_and_turns_are_taken) {
    struct endpoint_table table;
    endpoint_table_init(&table, &sink);
    for (int id = 1; id <= 10; id++)
        add(&table, id, "active", "{}");
    struct job_claim claims[20];
    int turns[11] = {0};
    // Four slots for ten hungry ones: in five rounds each has had two.
    for (int round = 0; round < 5; round++) {
        size_t count = endpoint_choose(&table, UINT64_MAX, 1000, 4, 1000, claims, 20);
        ck_assert_uint_eq(count, 4);
        for (size_t i = 0; i < count; i++) {
            ck_assert_int_eq(claims[i].slots, 1);
            turns[claims[i].subscription_id]++;
        }
        endpoint_wake(&table, UINT64_MAX);
    }
    for (int id = 1; id <= 10; id++)
        ck_assert_int_eq(turns[id], 2);
    // Plenty: nobody above max_in_flight.
    size_t count = endpoint_choose(&table, UINT64_MAX, 1000, 1000, 1000, claims, 20);
    ck_assert_uint_eq(count, 10);
    for (size_t i = 0; i < count; i++)
        ck_assert_int_eq(claims[i].slots, ENDPOINT_MAX_IN_FLIGHT);
    // Chosen once, not hungry until told.
    ck_assert_uint_eq(endpoint_choose(&table, UINT64_MAX, 1000, 1000, 1000, claims, 20), 0);
    ck_assert(!endpoint_any_hungry(&table, UINT64_MAX, 1000));
    endpoint_wake(&table, shard_bit(3));
    ck_assert_uint_eq(endpoint_choose(&table, UINT64_MAX, 1000, 1000, 1000, claims, 20), 1);
    ck_assert_int_eq(claims[0].subscription_id, 3);
    endpoint_table_close(&table);
}
END_TEST

// One that never answered may have its whole window; many of them together leave room.
START_TEST(endpoints_that_never_answered_leave_a_quarter_free) {
    struct endpoint_table table;
    endpoint_table_init(&table, &sink);
    add(&table, 1, "active", "{}");
    endpoint_find(&table, 1)->use = (struct slot_use){0};
    struct job_claim claims[20];
    ck_assert_uint_eq(endpoint_choose(&table, UINT64_MAX, 100, 100, 1000, claims, 2), 1);
    ck_assert_int_eq(claims[0].slots, ENDPOINT_MAX_IN_FLIGHT);
    endpoint_find(&table, 1)->hungry = true;
    for (int id = 2; id <= 10; id++) {
        add(&table, id, "active", "{}");
        endpoint_find(&table, id)->use = (struct slot_use){0};
    }
    size_t count = endpoint_choose(&table, UINT64_MAX, 100, 100, 1000, claims, 20);
    ck_assert_uint_eq(count, 10);
    int slots = 0;
    for (size_t i = 0; i < count; i++) {
        ck_assert_int_le(claims[i].slots, 8);
        slots += claims[i].slots;
    }
    ck_assert_int_eq(slots, 75);
    endpoint_table_close(&table);
}
END_TEST

START_TEST(who_may_not_be_sent_to_gets_no_slot) {
    struct endpoint_table table;
    endpoint_table_init(&table, &sink);
    add(&table, 1, "paused", "{}");
    add(&table, 2, "disabled", "{}");
    struct subscription_change quiet = change(3, "active", "{}");
    quiet.pause_ms = 500;
    endpoint_table_apply(&table, &quiet, 1000);
    add(&table, 4, "active", "{}");
    endpoint_find(&table, 4)->foreign_leases = ENDPOINT_MAX_IN_FLIGHT;
    add(&table, 5, "active", "{\"max_in_flight\": 2}");
    struct job_claim claims[9];
    ck_assert_uint_eq(endpoint_choose(&table, ~shard_bit(5), 100, 100, 1000, claims, 9), 0);
    ck_assert_uint_eq(endpoint_choose(&table, UINT64_MAX, 100, 0, 1000, claims, 9), 0);
    ck_assert_uint_eq(endpoint_choose(&table, UINT64_MAX, 100, 100, 1000, claims, 9), 1);
    ck_assert_int_eq(claims[0].subscription_id, 5);
    ck_assert_int_eq(claims[0].slots, 2);
    ck_assert_uint_eq(endpoint_choose(&table, UINT64_MAX, 100, 100, 1501, claims, 9), 1);
    ck_assert_int_eq(claims[0].subscription_id, 3);
    endpoint_table_close(&table);
}
END_TEST

START_TEST(a_change_keeps_the_old_version_for_its_sends) {
    struct endpoint_table table;
    endpoint_table_init(&table, &sink);
    prepared = forgotten = 0;
    add(&table, 1, "active", "{}");
    struct endpoint *endpoint = endpoint_find(&table, 1);
    struct endpoint_version *old = endpoint_begin(endpoint, 5, 1000);
    add(&table, 1, "active", "{\"max_in_flight\": 3}");
    ck_assert_int_eq(forgotten, 0);
    ck_assert_str_eq(old->subscription.settings, "{}");
    ck_assert_int_eq(old->subscription.secret_count, 2);
    ck_assert_str_eq(old->subscription.secrets[1], "plain:b");
    ck_assert_int_eq(endpoint->version->max_in_flight, 3);
    ck_assert_uint_eq(endpoint_busy_shards(&table), shard_bit(1));
    // Removed while a send is in flight: gone for everybody, freed with its last job.
    endpoint_table_apply(&table, &(struct subscription_change){.id = 1}, 1000);
    ck_assert_ptr_null(endpoint_find(&table, 1));
    ck_assert_ptr_nonnull(table.by_id);
    endpoint_end(&table, endpoint, old, 5, 1000, 1000);
    ck_assert_ptr_null(table.by_id);
    ck_assert_int_eq(prepared, 2);
    ck_assert_int_eq(forgotten, 2);
    endpoint_table_close(&table);
}
END_TEST

START_TEST(bad_settings_are_a_fault_of_that_subscription) {
    static const char *const bad[] = {"{\"max_in_flight\": 0}", "{\"max_in_flight\": \"9\"}",
                                      "{\"max_in_flight\": 1001}", "{\"retry\": 5}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct endpoint_table table;
        endpoint_table_init(&table, &sink);
        prepared = forgotten = 0;
        add(&table, 1, "active", bad[i]);
        ck_assert(!endpoint_find(&table, 1)->version->prepared);
        ck_assert_int_eq(endpoint_find(&table, 1)->version->fault.code, ERROR_USAGE);
        endpoint_table_close(&table);
        ck_assert_int_eq(prepared, 0);
        ck_assert_int_eq(forgotten, 0);
    }
}
END_TEST

// ---- What attempts say

static const struct attempt_outcome
    delivered = {.verdict = VERDICT_DELIVERED, .class = CLASS_DELIVERED, .status = 200, .total_ms = 10},
    refused = {.verdict = VERDICT_RETRY, .class = CLASS_CONNECT, .total_ms = 1},
    overloaded = {.verdict = VERDICT_RETRY, .class = CLASS_HTTP_5XX, .status = 503, .total_ms = 50},
    broken = {.verdict = VERDICT_RETRY, .class = CLASS_HTTP_5XX, .status = 500};

static int slots(struct endpoint_table *table, uint64_t now_ms) {
    struct job_claim claims[4];
    endpoint_wake(table, UINT64_MAX);
    size_t count = endpoint_choose(table, UINT64_MAX, 1000, 1000, now_ms, claims, 4);
    return count ? claims[0].slots : 0;
}

// So many attempts that begin together and end like this, all at now.
static void ends(struct endpoint_table *table, int count, const struct attempt_outcome *outcome, uint64_t now_ms) {
    struct endpoint *endpoint = endpoint_find(table, 1);
    struct endpoint_version *version[128];
    for (int i = 0; i < count; i++)
        version[i] = endpoint_begin(endpoint, 5, now_ms);
    for (int i = 0; i < count; i++) {
        endpoint_learn(endpoint, outcome, now_ms, 0.5);
        endpoint_end(table, endpoint, version[i], 5, now_ms, now_ms);
    }
}

START_TEST(a_failing_endpoint_is_probed_and_returns_slowly) {
    struct endpoint_table table;
    endpoint_table_init(&table, &sink);
    add(&table, 1, "active", "{}");
    uint64_t now = 1000;
    ends(&table, ENDPOINT_FAULTS - 1, &broken, now);
    ck_assert_int_eq(slots(&table, now), ENDPOINT_MAX_IN_FLIGHT); // a 500 may be about the job
    ends(&table, 12, &broken, now); // those that were in flight with the fifth are no probes
    // One probe at a time: 500 ms, 1 s, 2 s ... 30 s apart.
    uint64_t wait_ms = ENDPOINT_PROBE_FIRST_MS;
    for (int i = 0; i < 10; i++) {
        ck_assert_int_eq(slots(&table, now + wait_ms - 1), 0);
        ck_assert_uint_eq(endpoint_next_ms(&table, UINT64_MAX, now), now + wait_ms);
        now += wait_ms;
        ck_assert_int_eq(slots(&table, now), 1);
        struct endpoint_version *probe = endpoint_begin(endpoint_find(&table, 1), 5, now);
        endpoint_took(endpoint_find(&table, 1), 1);
        endpoint_answered(endpoint_find(&table, 1), now, now);
        ck_assert_int_eq(slots(&table, now), 0); // while it runs there is no other
        endpoint_learn(endpoint_find(&table, 1), &refused, now, 0.5);
        endpoint_end(&table, endpoint_find(&table, 1), probe, 5, now, now);
        wait_ms = wait_ms * 2 < ENDPOINT_PROBE_MOST_MS ? wait_ms * 2 : ENDPOINT_PROBE_MOST_MS;
    }
    // A person's requeue probes at once.
    endpoint_probe_now(&table, now);
    ck_assert_int_eq(slots(&table, now), 1);
    ends(&table, 1, &delivered, now);
    ck_assert_int_eq(slots(&table, now), 1);
    // What piled up is spread: about ten in the first second, twice as many in the next.
    int sent[3] = {0};
    for (uint64_t ms = 0; ms < 3000; ms += 5) {
        int count = slots(&table, now + ms);
        struct endpoint *endpoint = endpoint_find(&table, 1);
        endpoint->got = count;
        endpoint_answered(endpoint, now + ms, now + ms);
        ends(&table, count, &delivered, now + ms);
        sent[ms / 1000] += count;
    }
    ck_assert_int_le(sent[0], 12);
    ck_assert_int_ge(sent[0], 8);
    ck_assert_int_ge(sent[1], 18);
    ck_assert_int_le(sent[1], 22);
    ck_assert_int_ge(sent[2], 38);
    // A process that takes it over while it fails begins with a probe.
    struct subscription_change failing = change(1, "active", "{}");
    failing.failing_ms = 60000;
    endpoint_table_apply(&table, &failing, now);
    ck_assert_int_eq(slots(&table, now), 1);
    endpoint_table_close(&table);
}
END_TEST

START_TEST(the_window_follows_the_receiver) {
    struct endpoint_table table;
    endpoint_table_init(&table, &sink);
    add(&table, 1, "active", "{}");
    uint64_t now = 1000;
    // Overload halves it, once for all that were in flight together.
    ends(&table, 3, &overloaded, now);
    ck_assert_int_eq(slots(&table, now), 8);
    ends(&table, 1, &delivered, now += 100);
    ends(&table, 1, &overloaded, now);
    ck_assert_int_eq(slots(&table, now), 4);
    // It grows by one for each window, up to 64 while answers are quick, and no further.
    for (int i = 0; i < 40; i++) {
        now += 100;
        ends(&table, slots(&table, now), &delivered, now);
    }
    int grown = slots(&table, now);
    ck_assert_int_gt(grown, 16);
    for (int i = 0; i < 400; i++) {
        now += 100;
        ends(&table, slots(&table, now), &delivered, now);
    }
    ck_assert_int_eq(slots(&table, now), ENDPOINT_WINDOW_MOST);
    // Answers that became slow take back what was above 16.
    struct attempt_outcome slow = delivered;
    slow.total_ms = 100;
    for (int i = 0; i < 200; i++) {
        now += 100;
        ends(&table, slots(&table, now), &slow, now);
    }
    ck_assert_int_le(slots(&table, now), ENDPOINT_MAX_IN_FLIGHT + 1);
    // max_in_flight is where it begins and what it never passes.
    add(&table, 1, "active", "{\"max_in_flight\": 100}");
    ck_assert_int_eq(slots(&table, now), 100);
    for (int i = 0; i < 20; i++) {
        now += 100;
        ends(&table, slots(&table, now), &delivered, now);
    }
    ck_assert_int_eq(slots(&table, now), 100);
    endpoint_table_close(&table);
}
END_TEST

START_TEST(retry_after_silences_the_whole_endpoint) {
    struct endpoint_table table;
    endpoint_table_init(&table, &sink);
    add(&table, 1, "active", "{}");
    struct attempt_outcome later = overloaded;
    later.pause_endpoint = true;
    later.after_ms = 7000;
    ends(&table, 1, &later, 1000);
    ck_assert_int_eq(slots(&table, 7999), 0);
    ck_assert_uint_eq(endpoint_next_ms(&table, UINT64_MAX, 1000), 8000);
    ck_assert(!endpoint_any_hungry(&table, UINT64_MAX, 1000));
    // A shorter one does not end it, and an owner that takes over keeps it.
    later.after_ms = 10;
    ends(&table, 1, &later, 1100);
    ck_assert_int_eq(slots(&table, 7999), 0);
    ck_assert_int_gt(slots(&table, 8000), 0);
    struct subscription_change taken = change(1, "active", "{}");
    taken.pause_ms = 500;
    endpoint_table_apply(&table, &taken, 8000);
    ck_assert_int_eq(slots(&table, 8499), 0);
    endpoint_table_close(&table);
}
END_TEST

START_TEST(held_jobs_return_at_their_rate) {
    struct endpoint_table table;
    endpoint_table_init(&table, &sink);
    add(&table, 1, "active", "{\"resume_rate\": 5}");
    struct endpoint *endpoint = endpoint_find(&table, 1);
    ck_assert(endpoint->held);
    int went = 0;
    for (uint64_t now = 1000; now < 11000; now += 200) {
        int may = endpoint_may_release(endpoint, now, 500);
        went += may;
        endpoint_released(endpoint, may, may);
    }
    ck_assert_int_ge(went, 47);
    ck_assert_int_le(went, 50);
    // A long wait is not made up for.
    ck_assert_int_le(endpoint_may_release(endpoint, 100000, 500), 5);
    endpoint_released(endpoint, 5, 4);
    ck_assert(!endpoint->held);
    endpoint_table_close(&table);
}
END_TEST

START_TEST(held_are_found_by_shard) {
    struct endpoint_table table;
    endpoint_table_init(&table, &sink);
    add(&table, 1, "active", "{}");
    add(&table, 2, "paused", "{}");
    uint64_t first = shard_bit(shard_of(1)), second = shard_bit(shard_of(2));
    ck_assert(endpoint_any_held(&table, first | second));
    ck_assert(!endpoint_any_held(&table, second)); // while it is paused
    endpoint_released(endpoint_find(&table, 1), 5, 4);
    ck_assert(!endpoint_any_held(&table, first | second));
    endpoint_hold(&table, endpoint_find(&table, 1));
    ck_assert(!endpoint_any_held(&table, second));
    ck_assert(endpoint_any_held(&table, first)); // the other shard's question forgot nothing
    add(&table, 2, "active", "{}");
    ck_assert(endpoint_any_held(&table, second));
    endpoint_table_close(&table);
}
END_TEST

static unsigned wait_ms;

static unsigned wait_for_name(void *arg, const struct subscription *subscription) {
    return subscription->id == 1 ? wait_ms : 0;
}

// A silent name server: the look-up holds no slot, and others get theirs.
START_TEST(who_waits_for_a_name_holds_no_slot) {
    const struct sink waiting = {.kind = "webhook", .prepare = prepare, .forget = forget, .wait_ms = wait_for_name};
    struct endpoint_table table;
    endpoint_table_init(&table, &waiting);
    add(&table, 1, "active", "{}");
    add(&table, 2, "active", "{}");
    struct job_claim claims[20];
    wait_ms = 50;
    ck_assert_uint_eq(endpoint_choose(&table, UINT64_MAX, 8, 8, 1000, claims, 20), 1);
    ck_assert_int_eq(claims[0].subscription_id, 2);
    ck_assert_uint_eq(endpoint_next_ms(&table, UINT64_MAX, 1000), 1050);
    ck_assert_uint_eq(endpoint_choose(&table, UINT64_MAX, 8, 8, 1049, claims, 20), 0);
    wait_ms = 0; // known by now
    ck_assert_uint_eq(endpoint_choose(&table, UINT64_MAX, 8, 8, 1050, claims, 20), 1);
    ck_assert_int_eq(claims[0].subscription_id, 1);
    endpoint_table_close(&table);
}
END_TEST

void add_endpoint_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "endpoint", 10);
    tcase_add_test(tcase, slots_are_shared_and_turns_are_taken);
    tcase_add_test(tcase, who_waits_for_a_name_holds_no_slot);
    tcase_add_test(tcase, endpoints_that_never_answered_leave_a_quarter_free);
    tcase_add_test(tcase, who_may_not_be_sent_to_gets_no_slot);
    tcase_add_test(tcase, a_change_keeps_the_old_version_for_its_sends);
    tcase_add_test(tcase, bad_settings_are_a_fault_of_that_subscription);
    tcase_add_test(tcase, a_failing_endpoint_is_probed_and_returns_slowly);
    tcase_add_test(tcase, the_window_follows_the_receiver);
    tcase_add_test(tcase, retry_after_silences_the_whole_endpoint);
    tcase_add_test(tcase, held_jobs_return_at_their_rate);
    tcase_add_test(tcase, held_are_found_by_shard);
}
