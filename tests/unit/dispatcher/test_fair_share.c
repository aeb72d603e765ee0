// Slots are shared by the time for which they are held (G7): slow endpoints, however many, leave room for the others.
#include "dispatcher/fair_share.h"
#include "tests/unit/dispatcher/dispatcher_tests.h"
#include <stdlib.h>

enum { TOTAL = 256, ROUND = 128, MOST = 400 };

// An endpoint of a small simulation: it answers after hold_ms, and always has work for `window` slots.
struct neighbour {
    struct slot_use use;
    uint64_t hold_ms;
    int window, unstarted; // unstarted: jobs that wait, -1 without end
    uint64_t started_ms[64];
    int served;
};

// Ends what is due at now, then shares and starts.
static void step(struct neighbour *all, size_t count, uint64_t now_ms) {
    static struct slot_want wants[MOST];
    static struct neighbour *wanting[MOST];
    struct slot_pool pool = {.total = TOTAL, .bytes_most = 1};
    size_t wanted = 0;
    int held = 0;
    for (size_t i = 0; i < count; i++) {
        struct neighbour *one = &all[i];
        for (int k = 0; k < one->use.running;) {
            if (one->started_ms[k] + one->hold_ms > now_ms) {
                k++;
                continue;
            }
            slot_use_end(&one->use, one->started_ms[k], now_ms);
            one->started_ms[k] = one->started_ms[one->use.running];
            one->served++;
        }
    }
    for (size_t i = 0; i < count; i++) {
        struct neighbour *one = &all[i];
        double held_ms;
        enum slot_class class = slot_use_note(&one->use, now_ms, &held_ms);
        pool.held[class] += one->use.running;
        held += one->use.running;
        int slots = one->window - one->use.running;
        if (one->unstarted >= 0 && slots > one->unstarted)
            slots = one->unstarted;
        if (slots <= 0)
            continue;
        wanting[wanted] = one;
        wants[wanted++] =
            (struct slot_want){.class = class, .held_ms = held_ms, .holds = one->use.running, .wants = slots};
    }
    fair_share(&pool, ROUND, wants, wanted);
    int granted = 0;
    for (size_t i = 0; i < wanted; i++) {
        if (wants[i].granted > wants[i].wants || wants[i].granted < 0)
            ck_abort_msg("%d of %d granted", wants[i].granted, wants[i].wants);
        granted += wants[i].granted;
        for (int k = 0; k < wants[i].granted; k++) {
            wanting[i]->started_ms[wanting[i]->use.running] = now_ms;
            slot_use_begin(&wanting[i]->use, now_ms);
        }
        if (wanting[i]->unstarted > 0)
            wanting[i]->unstarted -= wants[i].granted;
    }
    if (granted > ROUND || held + granted > TOTAL)
        ck_abort_msg("%d granted beside %d", granted, held);
}

static int held_by(const struct neighbour *all, size_t first, size_t count) {
    int held = 0;
    for (size_t i = first; i < first + count; i++)
        held += all[i].use.running;
    return held;
}

static void make(struct neighbour *all, size_t first, size_t count, uint64_t hold_ms, int window, int jobs) {
    for (size_t i = first; i < first + count; i++)
        all[i] = (struct neighbour){.hold_ms = hold_ms, .window = window, .unstarted = jobs};
}

static const struct { size_t slow; } crowds[] = {{20}, {200}};

// Slow endpoints that never fail, with work without end; healthy ones arrive while every slot that they may have is
// held. All that the healthy ones want is sent while not one of the slow has answered since.
START_TEST(a_healthy_arrival_starts_at_once_beside_slow_endpoints) {
    static struct neighbour all[MOST];
    size_t slow = crowds[_i].slow, healthy = 40;
    uint64_t now = 1000;
    make(all, 0, slow, 15000, 16, -1);
    make(all, slow, healthy, 5, 16, 0);
    for (uint64_t end = now + 60000; now < end; now += 50) // long enough to be known
        step(all, slow, now);
    for (size_t i = 0; i < slow; i++)
        ck_assert_int_eq(slot_use_class(&all[i].use, now), SLOT_SLOW);
    ck_assert_int_le(held_by(all, 0, slow), TOTAL / 2);
    for (size_t i = 0; i < slow; i++)
        all[i].hold_ms = UINT64_MAX / 2; // nothing of theirs ends from now on
    for (size_t i = slow; i < slow + healthy; i++)
        all[i].unstarted = 20;
    step(all, slow + healthy, now);
    for (size_t i = slow; i < slow + healthy; i++)
        ck_assert_int_gt(all[i].use.running, 0); // each, in the first round
    for (int turn = 0; turn < 20; turn++)
        step(all, slow + healthy, now += 5);
    for (size_t i = slow; i < slow + healthy; i++)
        ck_assert_int_eq(all[i].served, 20);
}
END_TEST

// They are not known yet: nobody has answered.
START_TEST(endpoints_that_never_answered_leave_room_for_the_known_and_for_newcomers) {
    static struct neighbour all[MOST];
    uint64_t now = 1000;
    make(all, 0, 300, UINT64_MAX / 2, 16, -1); // more than there are slots
    for (int turn = 0; turn < 100; turn++)
        step(all, 300, now += 50);
    ck_assert_int_eq(held_by(all, 0, 300), TOTAL - TOTAL / 8);
    make(all, 0, 60, UINT64_MAX / 2, 16, -1);
    for (int turn = 0; turn < 100; turn++)
        step(all, 60, now += 50);
    ck_assert_int_eq(held_by(all, 0, 60), TOTAL - TOTAL / 4);
    make(all, 60, 20, 5, 16, 1);
    step(all, 80, now);
    for (size_t i = 60; i < 80; i++)
        ck_assert_int_eq(all[i].use.running, 1);
}
END_TEST

START_TEST(no_endpoint_holds_more_than_its_share_while_others_want_slots) {
    struct slot_want wants[] = {
        {.class = SLOT_QUICK, .holds = 60, .wants = 100},
        {.class = SLOT_QUICK, .holds = 0, .wants = 30},
        {.class = SLOT_QUICK, .holds = 10, .wants = 30},
        {.class = SLOT_QUICK, .holds = 0, .wants = 2},
        {.class = SLOT_SLOW, .held_ms = 15000, .holds = 0, .wants = 16},
    };
    struct slot_pool pool = {.total = 120, .held = {[SLOT_QUICK] = 70}, .bytes_most = 1};
    fair_share(&pool, 120, wants, 5);
    ck_assert_int_eq(wants[0].granted, 0);
    ck_assert_int_eq(wants[3].granted, 2);
    ck_assert_int_ge(wants[4].granted, 1); // the slow one has its share too, by its seconds
    ck_assert_int_le(wants[4].granted, 2);
    int level = wants[1].granted;
    ck_assert_int_le(abs(level - (10 + wants[2].granted)), 1);
    ck_assert_int_eq(wants[1].granted + wants[2].granted + wants[3].granted + wants[4].granted, 50 - 15);
    // Alone, one may have all but the eighth that is for who has none.
    pool.held[SLOT_QUICK] = 60;
    fair_share(&pool, 120, wants, 1);
    ck_assert_int_eq(wants[0].granted, 45);
    // Fewer slots than endpoints: those with nothing in flight, in their order.
    pool.held[SLOT_QUICK] = 118;
    fair_share(&pool, 120, wants, 4);
    ck_assert_int_eq(wants[1].granted, 1);
    ck_assert_int_eq(wants[3].granted, 1);
    ck_assert_int_eq(wants[0].granted + wants[2].granted, 0);
}
END_TEST

static void hold(struct slot_use *use, uint64_t *now_ms, uint64_t hold_ms) {
    slot_use_begin(use, *now_ms);
    *now_ms += hold_ms;
    slot_use_end(use, *now_ms - hold_ms, *now_ms);
}

START_TEST(slowness_is_measured_by_slot_time_not_by_count) {
    struct slot_use use = {0};
    uint64_t now = 100000;
    ck_assert_int_eq(slot_use_class(&use, now), SLOT_UNKNOWN);
    hold(&use, &now, 0); // an answer in no time is an answer
    ck_assert_int_eq(slot_use_class(&use, now), SLOT_QUICK);
    // What is still running counts, by its age.
    hold(&use, &now, 10);
    slot_use_begin(&use, now);
    ck_assert_int_eq(slot_use_class(&use, now + FAIR_SHARE_SLOW_MS), SLOT_QUICK);
    ck_assert_int_eq(slot_use_class(&use, now + FAIR_SHARE_SLOW_MS + 1), SLOT_SLOW);
    // New requests beside it do not hide it.
    double held_ms;
    slot_use_note(&use, now + FAIR_SHARE_SLOW_MS + 1, &held_ms);
    for (int i = 0; i < 20; i++)
        slot_use_begin(&use, now + FAIR_SHARE_SLOW_MS + 1);
    ck_assert_int_eq(slot_use_class(&use, now + FAIR_SHARE_SLOW_MS + 2), SLOT_SLOW);
    for (int i = 0; i < 20; i++)
        slot_use_end(&use, now + FAIR_SHARE_SLOW_MS + 1, now + FAIR_SHARE_SLOW_MS + 1);
    slot_use_end(&use, now, now + 15000);
    now += 15000;
    // A hundred quick answers do not hide the hold.
    for (int i = 0; i < 100; i++)
        hold(&use, &now, 10);
    ck_assert_int_eq(slot_use_class(&use, now), SLOT_SLOW);
    // Who mended it is believed after some minutes.
    for (int i = 0; i < 60000; i++)
        hold(&use, &now, 10);
    ck_assert_int_eq(slot_use_class(&use, now), SLOT_QUICK);
    // One slow answer among a thousand of 100 ms is no slow endpoint.
    struct slot_use other = {0};
    for (int i = 0; i < 1000; i++)
        hold(&other, &now, i == 900 ? 2000 : 100);
    ck_assert_int_eq(slot_use_class(&other, now), SLOT_QUICK);
}
END_TEST

START_TEST(a_class_that_fills_its_memory_stops_only_itself) {
    struct slot_want wants[] = {{.class = SLOT_SLOW, .held_ms = 2000, .wants = 4},
                                {.class = SLOT_UNKNOWN, .wants = 4},
                                {.class = SLOT_QUICK, .wants = 4}};
    struct slot_pool pool = {.total = 100, .bytes_most = 1000, .bytes = {[SLOT_SLOW] = 1000, [SLOT_QUICK] = 999}};
    fair_share(&pool, 50, wants, 3);
    ck_assert_int_eq(wants[0].granted, 0);
    ck_assert_int_eq(wants[1].granted, 4);
    ck_assert_int_eq(wants[2].granted, 4);
}
END_TEST

// Endpoints that were quick all their life, and then hold what they have, all at once.
START_TEST(quick_endpoints_that_turn_slow_together_leave_room_for_others) {
    struct slot_want wants[24 + 1];
    for (size_t i = 0; i < 24; i++)
        wants[i] = (struct slot_want){.class = SLOT_QUICK, .held_ms = 1, .wants = 64};
    struct slot_pool pool = {.total = 256, .bytes_most = 1};
    fair_share(&pool, 256, wants, 24);
    for (size_t i = 0; i < 24; i++) {
        wants[i].holds = wants[i].granted;
        wants[i].wants = 64 - wants[i].holds;
        pool.held[SLOT_QUICK] += wants[i].holds;
    }
    wants[24] = (struct slot_want){.class = SLOT_QUICK, .held_ms = 1, .wants = 1};
    fair_share(&pool, 256 - pool.held[SLOT_QUICK], wants, 25);
    ck_assert_int_eq(wants[24].granted, 1);
    ck_assert_int_eq(wants[0].granted, 0);
}
END_TEST

// Whatever is held and wanted: the room is never passed, and is used up, but for an eighth, when quick endpoints want
// it.
START_TEST(the_room_is_never_passed) {
    unsigned seed = (unsigned)_i + 1;
    struct slot_want wants[40];
    struct slot_pool pool = {.total = 1 + rand_r(&seed) % 100, .bytes_most = 1};
    size_t count = (size_t)(rand_r(&seed) % 40);
    int free_slots = pool.total, quick = 0;
    for (size_t i = 0; i < count; i++) {
        enum slot_class class = (enum slot_class)(rand_r(&seed) % SLOT_CLASSES);
        int holds = rand_r(&seed) % 8;
        if (holds > free_slots)
            holds = free_slots;
        free_slots -= holds;
        pool.held[class] += holds;
        wants[i] = (struct slot_want){.class = class,
                                      .held_ms = class == SLOT_SLOW ? 1001 + rand_r(&seed) % 30000 : 10,
                                      .holds = holds,
                                      .wants = 1 + rand_r(&seed) % 20};
        quick += class == SLOT_QUICK ? wants[i].wants : 0;
    }
    int room = rand_r(&seed) % (pool.total + 1), granted = 0;
    fair_share(&pool, room, wants, count);
    for (size_t i = 0; i < count; i++) {
        ck_assert_int_ge(wants[i].granted, 0);
        ck_assert_int_le(wants[i].granted, wants[i].wants);
        granted += wants[i].granted;
    }
    int most = room < free_slots ? room : free_slots;
    ck_assert_int_le(granted, most);
    int used = free_slots - pool.total / 8 < room ? free_slots - pool.total / 8 : room;
    ck_assert_int_ge(granted, quick < used ? quick : used);
}
END_TEST

void add_fair_share_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "fair_share", 20);
    tcase_add_loop_test(tcase, a_healthy_arrival_starts_at_once_beside_slow_endpoints, 0,
                        (int)(sizeof crowds / sizeof *crowds));
    tcase_add_test(tcase, endpoints_that_never_answered_leave_room_for_the_known_and_for_newcomers);
    tcase_add_test(tcase, no_endpoint_holds_more_than_its_share_while_others_want_slots);
    tcase_add_test(tcase, slowness_is_measured_by_slot_time_not_by_count);
    tcase_add_test(tcase, a_class_that_fills_its_memory_stops_only_itself);
    tcase_add_test(tcase, quick_endpoints_that_turn_slow_together_leave_room_for_others);
    tcase_add_loop_test(tcase, the_room_is_never_passed, 0, 300);
}
