// Ownership as a plan: simulated fleets of dispatchers that look at one lock table.
#include "dispatcher/shard.h"
#include "tests/unit/dispatcher/dispatcher_tests.h"
#include <stdlib.h>

enum { FLEET = 7 };

struct fleet {
    struct shard_set sets[FLEET];
    bool present[FLEET];
    uint64_t busy[FLEET];
};

static uint64_t held(const struct fleet *fleet) {
    uint64_t mask = 0;
    for (int i = 0; i < FLEET; i++)
        mask |= fleet->sets[i].owned;
    return mask;
}

// One look of one dispatcher; taking succeeds for what is free at that moment.
static void look(struct fleet *fleet, int i) {
    int present = 0;
    for (int k = 0; k < FLEET; k++)
        present += fleet->present[k];
    struct shard_plan plan = shard_plan(&fleet->sets[i], present, held(fleet), fleet->busy[i], i * 11);
    ck_assert_uint_eq(plan.release & fleet->busy[i], 0); // never with jobs in flight
    ck_assert_uint_eq(plan.release & ~fleet->sets[i].owned, 0);
    ck_assert(!plan.release || !plan.take);
    fleet->sets[i].owned &= ~plan.release;
    fleet->sets[i].leaving &= ~plan.release;
    fleet->sets[i].owned |= plan.take & ~held(fleet);
    for (int k = 0; k < FLEET; k++)
        ck_assert(k == i || (fleet->sets[k].owned & fleet->sets[i].owned) == 0);
}

static void settle(struct fleet *fleet) {
    for (int round = 0; round < 4; round++)
        for (int i = 0; i < FLEET; i++)
            if (fleet->present[i])
                look(fleet, i);
}

START_TEST(a_fleet_that_changes_covers_all_shards_evenly) {
    srand(4711); // one fixed sequence
    struct fleet fleet = {0};
    fleet.present[0] = true;
    for (int change = 0; change < 300; change++) {
        int i = rand() % FLEET;
        fleet.present[i] = !fleet.present[i];
        if (!fleet.present[i])
            fleet.sets[i] = (struct shard_set){0}; // its session is gone
        int present = 0;
        for (int k = 0; k < FLEET; k++)
            present += fleet.present[k];
        if (present == 0)
            continue;
        settle(&fleet);
        ck_assert_uint_eq(held(&fleet), UINT64_MAX);
        int target = (SHARD_COUNT + present - 1) / present;
        for (int k = 0; k < FLEET; k++)
            ck_assert_int_le(shard_count(fleet.sets[k].owned), target);
    }
}
END_TEST

START_TEST(a_busy_shard_leaves_when_it_is_done) {
    struct shard_set set = {.owned = UINT64_MAX};
    struct shard_plan plan = shard_plan(&set, 2, UINT64_MAX, UINT64_MAX, 0);
    ck_assert_uint_eq(plan.release, 0);
    ck_assert_int_eq(shard_count(set.leaving), 32);
    for (int shard = 0; shard < SHARD_COUNT; shard++)
        ck_assert(shard_may_claim(&set, shard) == !(set.leaving & shard_bit(shard)));
    uint64_t leaving = set.leaving;
    plan = shard_plan(&set, 2, UINT64_MAX, UINT64_MAX & ~leaving, 0);
    ck_assert_uint_eq(plan.release, leaving); // the same ones: they ran dry
}
END_TEST

START_TEST(idle_shards_leave_first) {
    struct shard_set set = {.owned = UINT64_MAX};
    uint64_t busy = 0xffffffff;
    struct shard_plan plan = shard_plan(&set, 2, UINT64_MAX, busy, 0);
    ck_assert_uint_eq(plan.release, ~busy);
}
END_TEST

START_TEST(what_was_leaving_stays_when_the_other_is_gone) {
    struct shard_set set = {.owned = UINT64_MAX};
    shard_plan(&set, 2, UINT64_MAX, UINT64_MAX, 0);
    struct shard_plan plan = shard_plan(&set, 1, UINT64_MAX, UINT64_MAX, 0);
    ck_assert_uint_eq(plan.release | plan.take | set.leaving, 0);
}
END_TEST

START_TEST(ids_map_to_shards_as_in_sql) {
    ck_assert_int_eq(shard_of(64), 0);
    ck_assert_int_eq(shard_of(2147483647), 63);
}
END_TEST

void add_shard_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "shard", 10);
    tcase_add_test(tcase, a_fleet_that_changes_covers_all_shards_evenly);
    tcase_add_test(tcase, a_busy_shard_leaves_when_it_is_done);
    tcase_add_test(tcase, idle_shards_leave_first);
    tcase_add_test(tcase, what_was_leaving_stays_when_the_other_is_gone);
    tcase_add_test(tcase, ids_map_to_shards_as_in_sql);
}
