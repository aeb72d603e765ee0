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
        size_t count = endpoint_choose(&table, UINT64_MAX, 4, 1000, claims, 20);
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
    size_t count = endpoint_choose(&table, UINT64_MAX, 1000, 1000, claims, 20);
    ck_assert_uint_eq(count, 10);
    for (size_t i = 0; i < count; i++)
        ck_assert_int_eq(claims[i].slots, ENDPOINT_MAX_IN_FLIGHT);
    // Chosen once, not hungry until told.
    ck_assert_uint_eq(endpoint_choose(&table, UINT64_MAX, 1000, 1000, claims, 20), 0);
    ck_assert(!endpoint_any_hungry(&table, UINT64_MAX, 1000));
    endpoint_wake(&table, shard_bit(3));
    ck_assert_uint_eq(endpoint_choose(&table, UINT64_MAX, 1000, 1000, claims, 20), 1);
    ck_assert_int_eq(claims[0].subscription_id, 3);
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
    ck_assert_uint_eq(endpoint_choose(&table, ~shard_bit(5), 100, 1000, claims, 9), 0);
    ck_assert_uint_eq(endpoint_choose(&table, UINT64_MAX, 0, 1000, claims, 9), 0);
    ck_assert_uint_eq(endpoint_choose(&table, UINT64_MAX, 100, 1000, claims, 9), 1);
    ck_assert_int_eq(claims[0].subscription_id, 5);
    ck_assert_int_eq(claims[0].slots, 2);
    ck_assert_uint_eq(endpoint_choose(&table, UINT64_MAX, 100, 1501, claims, 9), 1);
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
    struct endpoint_version *old = endpoint_begin(endpoint);
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
    endpoint_end(&table, endpoint, old);
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

void add_endpoint_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "endpoint", 10);
    tcase_add_test(tcase, slots_are_shared_and_turns_are_taken);
    tcase_add_test(tcase, who_may_not_be_sent_to_gets_no_slot);
    tcase_add_test(tcase, a_change_keeps_the_old_version_for_its_sends);
    tcase_add_test(tcase, bad_settings_are_a_fault_of_that_subscription);
}
