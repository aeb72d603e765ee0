// With a time of its own: what is fresh, stale and faulty, and which look-up is the next.
#include "common/name_cache.h"
#include "tests/unit/common/tests.h"
#include <stdio.h>
#include <string.h>

enum { START_MS = 1000000 };

static struct name_cache cache;
static const struct resolver_answer one = {.count = 1, .addresses = {{.v4 = {.sin_family = AF_INET}}}};

static struct name *started(const char *host, uint64_t now_ms) {
    struct name *name = name_cache_add(&cache, host);
    name_queue(&cache, name, now_ms);
    ck_assert_ptr_eq(name_cache_next(&cache, now_ms), name);
    return name;
}

static struct name *known(const char *host, uint64_t ttl_ms) {
    struct name *name = started(host, START_MS);
    name_answered(&cache, name, &one, ttl_ms, START_MS);
    return name;
}

static void close_cache(void) {
    name_cache_close(&cache);
}

START_TEST(an_answer_is_fresh_for_its_time) {
    static const struct { uint64_t ttl_ms, fresh_ms; } rows[] = {{0, 5000}, {60000, 60000}, {86400000, 300000}};
    struct name *name = known("a", rows[_i].ttl_ms);
    uint64_t end_ms = START_MS + rows[_i].fresh_ms;
    ck_assert_int_eq(name_judge(name, end_ms - 1), NAME_KNOWN);
    ck_assert_int_eq(name_judge(name, end_ms), NAME_WAIT);
    ck_assert(!name_is_due(name, START_MS + rows[_i].fresh_ms * 4 / 5 - 1));
    ck_assert(name_is_due(name, START_MS + rows[_i].fresh_ms * 4 / 5)); // who uses it now has it looked up beforehand
}
END_TEST

START_TEST(a_stale_answer_serves_while_the_look_up_is_slow_or_fails) {
    struct name *name = known("a", 60000);
    uint64_t now_ms = START_MS + 70000;
    name_queue(&cache, name, now_ms);
    ck_assert_int_eq(name_judge(name, now_ms + NAME_STALE_WAIT_MS - 1), NAME_WAIT);
    ck_assert_int_eq(name_judge(name, now_ms + NAME_STALE_WAIT_MS), NAME_KNOWN);
    name_cache_next(&cache, now_ms);
    name_failed(&cache, name, NAME_TIMEOUT, now_ms + 100);
    ck_assert_int_eq(name_judge(name, now_ms + 100), NAME_KNOWN);
    ck_assert(!name_is_due(name, now_ms + 100));
    ck_assert(name_is_due(name, now_ms + 100 + NAME_FAULT_FIRST_MS));

    // An hour at the most, but for names of our own servers.
    now_ms = START_MS + 60000 + NAME_STALE_MS;
    started("a", now_ms);
    name_failed(&cache, name, NAME_SERVFAIL, now_ms);
    ck_assert_int_eq(name_judge(name, now_ms), NAME_FAULTY);
    name->ours = true;
    ck_assert_int_eq(name_judge(name, now_ms), NAME_KNOWN);
}
END_TEST

START_TEST(that_a_name_does_not_exist_ends_its_stale_answer) {
    static const enum name_fault faults[] = {NAME_NXDOMAIN, NAME_NODATA};
    struct name *name = known("a", 5000);
    started("a", START_MS + 6000);
    name_failed(&cache, name, faults[_i], START_MS + 6000);
    ck_assert_int_eq(name_judge(name, START_MS + 6000), NAME_FAULTY);
    ck_assert_int_eq(name->fault, faults[_i]);
}
END_TEST

START_TEST(a_fault_holds_longer_each_time) {
    static const uint64_t lasts_ms[] = {2000, 4000, 8000, 16000, 30000, 30000};
    uint64_t now_ms = START_MS;
    struct name *name = NULL;
    for (int i = 0; i < 6; i++) {
        name = started("a", now_ms);
        name_failed(&cache, name, NAME_TIMEOUT, now_ms);
        ck_assert_int_eq(name_judge(name, now_ms + lasts_ms[i] - 1), NAME_FAULTY);
        now_ms += lasts_ms[i];
        ck_assert_int_eq(name_judge(name, now_ms), NAME_WAIT);
        ck_assert(name_is_due(name, now_ms));
    }
    name_answered(&cache, started("a", now_ms), &one, 5000, now_ms);
    started("a", now_ms);
    name_failed(&cache, name, NAME_NXDOMAIN, now_ms);
    ck_assert_int_eq(name_judge(name, now_ms + 2000), NAME_WAIT); // the first again
}
END_TEST

static void add_all(const char *prefix, int count, uint64_t now_ms) {
    char host[32];
    for (int i = 0; i < count; i++) {
        snprintf(host, sizeof host, "%s%d", prefix, i);
        struct name *name = name_cache_add(&cache, host);
        ck_assert_ptr_nonnull(name);
        name_queue(&cache, name, now_ms);
    }
}

static int start_all(uint64_t now_ms) {
    int count = 0;
    while (name_cache_next(&cache, now_ms))
        count++;
    return count;
}

// 10,000 silent name servers: who waits behind them waits for as long as it takes to see that they are slow.
START_TEST(silent_names_take_no_turn_of_others) {
    uint64_t now_ms = START_MS;
    add_all("silent", 10000, now_ms);
    ck_assert_int_eq(start_all(now_ms), NAME_QUICK_MOST);
    struct name *mine = name_cache_add(&cache, "known");
    mine->answer = one;
    name_queue(&cache, mine, now_ms);
    ck_assert_int_eq(start_all(now_ms), 0);
    name_cache_tick(&cache, now_ms + NAME_QUICK_MS - 1);
    ck_assert_int_eq(start_all(now_ms), 0);
    now_ms += NAME_QUICK_MS;
    name_cache_tick(&cache, now_ms);
    ck_assert_ptr_eq(name_cache_next(&cache, now_ms), mine); // before the thousands
    ck_assert_int_eq(start_all(now_ms), NAME_QUICK_MOST - 1);
    struct name *ours = name_cache_add(&cache, "db");
    ours->ours = true;
    name_queue(&cache, ours, now_ms);
    ck_assert_ptr_eq(name_cache_next(&cache, now_ms), ours); // past every cap
}
END_TEST

START_TEST(no_more_than_the_most_are_in_flight) {
    uint64_t now_ms = START_MS;
    add_all("silent", 10000, now_ms);
    for (int i = 0; i < 100; i++) {
        start_all(now_ms);
        now_ms += NAME_QUICK_MS;
        name_cache_tick(&cache, now_ms);
    }
    ck_assert_uint_eq(cache.looking_count, NAME_LOOKUPS_MOST);
}
END_TEST

START_TEST(names_that_failed_wait_for_each_other_only) {
    uint64_t now_ms = START_MS;
    add_all("silent", 1000, now_ms);
    for (struct name *name; (name = name_cache_next(&cache, now_ms));)
        name_failed(&cache, name, NAME_TIMEOUT, now_ms);
    now_ms += NAME_FAULT_FIRST_MS;
    add_all("silent", 1000, now_ms);
    ck_assert_int_eq(start_all(now_ms), NAME_SUSPECT_MOST);
    started("healthy", now_ms);
    // That a name does not exist is an answer, not silence.
    struct name *gone = started("gone", now_ms);
    name_failed(&cache, gone, NAME_NXDOMAIN, now_ms);
    started("gone", now_ms + NAME_FAULT_FIRST_MS);
}
END_TEST

START_TEST(an_answer_that_comes_late_is_taken_and_counts_for_no_look_up) {
    struct name *slow = started("slow", START_MS);
    name_failed(&cache, slow, NAME_TIMEOUT, START_MS);
    struct name *other = started("other", START_MS); // in flight meanwhile
    name_answered(&cache, slow, &one, 60000, START_MS + 1);
    ck_assert_int_eq(name_judge(slow, START_MS + 1), NAME_KNOWN);
    ck_assert_uint_eq(cache.looking_count, 1);
    ck_assert_uint_eq(cache.suspect_count, 0);
    ck_assert_ptr_eq(cache.looking, other);
    name_answered(&cache, other, &one, 60000, START_MS + 2);
    ck_assert_uint_eq(cache.looking_count, 0);
    ck_assert_uint_eq(cache.quick_count, 0);
}
END_TEST

START_TEST(the_cache_is_bounded_and_forgets_what_nobody_used) {
    known("used", 5000)->used = true;
    known("db", 5000)->ours = true;
    known("unused", 5000);
    struct name *looking = started("looking", START_MS);
    char host[32];
    for (int i = 0; HASH_COUNT(cache.names) < NAMES_MOST; i++) {
        snprintf(host, sizeof host, "n%d", i);
        name_cache_add(&cache, host);
    }
    ck_assert_ptr_nonnull(name_cache_add(&cache, "one-more"));
    ck_assert_uint_eq(HASH_COUNT(cache.names), NAMES_MOST);
    ck_assert_ptr_nonnull(name_cache_find(&cache, "used"));
    ck_assert_ptr_nonnull(name_cache_find(&cache, "db"));
    ck_assert_ptr_eq(name_cache_find(&cache, "looking"), looking);
    ck_assert_ptr_null(name_cache_find(&cache, "unused"));
    // Full of names that are being looked up, it takes no more.
    for (struct name *name = cache.names; name; name = name->hh.next)
        if (name->state == NAME_IDLE)
            name_queue(&cache, name, START_MS);
    ck_assert_ptr_null(name_cache_add(&cache, "too-many"));
    ck_assert_ptr_nonnull(name_cache_add(&cache, "used"));
}
END_TEST

START_TEST(each_fault_has_a_code) {
    for (enum name_fault fault = NAME_FOUND; fault <= NAME_FAILED; fault++) {
        ck_assert_ptr_nonnull(name_fault_code(fault));
        ck_assert_ptr_nonnull(name_fault_text(fault));
        for (enum name_fault other = NAME_FOUND; other < fault; other++)
            ck_assert_str_ne(name_fault_code(fault), name_fault_code(other));
    }
}
END_TEST

void name_cache_tests(Suite *suite) {
    TCase *tcase = tcase_create("name_cache");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, NULL, close_cache);
    tcase_add_loop_test(tcase, an_answer_is_fresh_for_its_time, 0, 3);
    tcase_add_test(tcase, a_stale_answer_serves_while_the_look_up_is_slow_or_fails);
    tcase_add_loop_test(tcase, that_a_name_does_not_exist_ends_its_stale_answer, 0, 2);
    tcase_add_test(tcase, a_fault_holds_longer_each_time);
    tcase_add_test(tcase, silent_names_take_no_turn_of_others);
    tcase_add_test(tcase, no_more_than_the_most_are_in_flight);
    tcase_add_test(tcase, names_that_failed_wait_for_each_other_only);
    tcase_add_test(tcase, an_answer_that_comes_late_is_taken_and_counts_for_no_look_up);
    tcase_add_test(tcase, the_cache_is_bounded_and_forgets_what_nobody_used);
    tcase_add_test(tcase, each_fault_has_a_code);
}
