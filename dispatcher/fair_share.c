#include "dispatcher/fair_share.h"
#include <assert.h>
#include <math.h>
#include <stdbool.h>

static const double half_life_ms = 60000;
enum { LEVEL_MOST = 16 * 1000 }; // the most slots of an endpoint, all at the greatest weight

void slot_use_begin(struct slot_use *use, uint64_t started_ms) {
    use->running++;
    use->started_sum += started_ms;
    use->started_sum2 += started_ms * started_ms;
}

void slot_use_end(struct slot_use *use, uint64_t started_ms, uint64_t now_ms) {
    assert(use->running > 0);
    use->running--;
    use->started_sum -= started_ms;
    use->started_sum2 -= started_ms * started_ms;
    double seconds = now_ms > started_ms ? (double)(now_ms - started_ms) / 1000 : 0;
    double kept = exp2(-(double)(now_ms - use->decayed_ms) / half_life_ms);
    use->decayed_ms = now_ms;
    use->aged = use->aged && use->running > 0 && seconds * 1000 > FAIR_SHARE_SLOW_MS;
    // At least a millisecond: an endpoint that has answered is known from then on.
    use->held_s = fmax(use->held_s * kept + seconds, 0.001);
    use->held_s2 = use->held_s2 * kept + seconds * seconds;
}

double slot_use_held_ms(const struct slot_use *use, uint64_t now_ms) {
    double ended_ms = use->held_s > 0 ? 1000 * use->held_s2 / use->held_s : 0;
    if (use->running == 0)
        return ended_ms;
    // The sums of the ages and of their squares are small, so they come out right although the parts wrap around. New
    // requests beside old ones do not make an endpoint look quick.
    uint64_t running = (uint64_t)use->running, ages = running * now_ms - use->started_sum;
    uint64_t ages2 = running * now_ms * now_ms - 2 * now_ms * use->started_sum + use->started_sum2;
    double age_ms = ages > 0 ? (double)ages2 / (double)ages : 0;
    return fmax(ended_ms, age_ms);
}

static enum slot_class class_of(const struct slot_use *use, double held_ms) {
    if (use->aged || held_ms > FAIR_SHARE_SLOW_MS)
        return SLOT_SLOW;
    return use->held_s > 0 ? SLOT_QUICK : SLOT_UNKNOWN;
}

enum slot_class slot_use_class(const struct slot_use *use, uint64_t now_ms) {
    return class_of(use, slot_use_held_ms(use, now_ms));
}

enum slot_class slot_use_note(struct slot_use *use, uint64_t now_ms, double *ret_held_ms) {
    *ret_held_ms = slot_use_held_ms(use, now_ms);
    use->aged = use->running > 0 && class_of(use, *ret_held_ms) == SLOT_SLOW;
    return class_of(use, *ret_held_ms);
}

static int least(int a, int b) {
    return a < b ? a : b;
}

// Its slots at a level: the first at once, the others by its weight.
static int share_at(const struct slot_want *want, int level) {
    if (want->class != SLOT_SLOW)
        return level;
    double weight = fmin(fmax(want->held_ms / FAIR_SHARE_SLOW_MS, 1), FAIR_SHARE_WEIGHT_MOST);
    int slots = (int)(level / weight);
    return level > 0 && slots < 1 ? 1 : slots;
}

static int grant_at(const struct slot_want *want, int level) {
    int more = share_at(want, level) - want->holds;
    return more > 0 ? least(more, want->wants) : 0;
}

// How many slots those of the classes would get.
static int sum_at(const struct slot_want *wants, size_t count, unsigned classes, const int levels[SLOT_CLASSES]) {
    int sum = 0;
    for (size_t i = 0; i < count; i++)
        if (classes & 1u << wants[i].class)
            sum += grant_at(&wants[i], levels[wants[i].class]);
    return sum;
}

// Gives the classes the highest level that their room lets them have; none comes above its own.
static void level_find(const struct slot_want *wants, size_t count, unsigned classes, int room,
                       int levels[SLOT_CLASSES]) {
    if (sum_at(wants, count, classes, levels) <= room)
        return;
    int lowest = 0, highest = 1; // what fits, what does not
    for (bool found = false; highest - lowest > 1 || !found;) {
        int middle = found ? (lowest + highest) / 2 : highest, tried[SLOT_CLASSES];
        for (int i = 0; i < SLOT_CLASSES; i++)
            tried[i] = least(middle, levels[i]);
        if (sum_at(wants, count, classes, tried) > room) {
            highest = middle;
            found = true;
        } else {
            lowest = middle;
            highest = found ? highest : highest * 2;
        }
    }
    for (int i = 0; i < SLOT_CLASSES; i++)
        if (classes & 1u << i)
            levels[i] = least(levels[i], lowest);
}

// Room for all whose class is slow, or unknown, or any, in this order. First slots have more room than others: it is
// how a healthy newcomer becomes known, and how one is served while some that were quick are slow all at once.
enum { ROOM_SLOW, ROOM_UNKNOWN, ROOM_UNKNOWN_FIRST, ROOM_ALL, ROOM_ALL_FIRST, ROOMS };

static void rooms_of(const struct slot_pool *pool, int room, int rooms[ROOMS]) {
    int slow = pool->held[SLOT_SLOW], unknown = slow + pool->held[SLOT_UNKNOWN];
    rooms[ROOM_SLOW] = pool->total - pool->total / 2 - slow;
    rooms[ROOM_UNKNOWN] = pool->total - pool->total / 4 - unknown;
    rooms[ROOM_UNKNOWN_FIRST] = pool->total - pool->total / 8 - unknown;
    rooms[ROOM_ALL_FIRST] = pool->total - unknown - pool->held[SLOT_QUICK];
    rooms[ROOM_ALL] = rooms[ROOM_ALL_FIRST] - pool->total / 8;
    for (int i = 0; i < ROOMS; i++) {
        rooms[i] = least(rooms[i], least(room, rooms[ROOM_ALL_FIRST]));
        rooms[i] = rooms[i] > 0 ? rooms[i] : 0;
    }
}

static void rooms_take(int rooms[ROOMS], enum slot_class class, int slots) {
    rooms[ROOM_ALL] -= slots;
    rooms[ROOM_ALL_FIRST] -= slots;
    if (class != SLOT_QUICK) {
        rooms[ROOM_UNKNOWN] -= slots;
        rooms[ROOM_UNKNOWN_FIRST] -= slots;
    }
    if (class == SLOT_SLOW)
        rooms[ROOM_SLOW] -= slots;
}

static int rooms_leave(const int rooms[ROOMS], const struct slot_want *want) {
    bool first = want->holds + want->granted == 0;
    int left = rooms[first ? ROOM_ALL_FIRST : ROOM_ALL];
    if (want->class == SLOT_SLOW)
        left = least(left, rooms[ROOM_SLOW]);
    if (want->class == SLOT_UNKNOWN)
        left = least(left, rooms[first ? ROOM_UNKNOWN_FIRST : ROOM_UNKNOWN]);
    return left;
}

void fair_share(const struct slot_pool *pool, int room, struct slot_want *wants, size_t count) {
    int rooms[ROOMS], levels[SLOT_CLASSES];
    rooms_of(pool, room, rooms);
    for (size_t i = 0; i < count; i++)
        wants[i].granted = 0;
    for (int i = 0; i < SLOT_CLASSES; i++)
        levels[i] = pool->bytes[i] < pool->bytes_most ? LEVEL_MOST : 0;
    level_find(wants, count, 1u << SLOT_SLOW, rooms[ROOM_SLOW], levels);
    level_find(wants, count, 1u << SLOT_UNKNOWN, rooms[ROOM_UNKNOWN], levels);
    level_find(wants, count, 1u << SLOT_SLOW | 1u << SLOT_UNKNOWN, rooms[ROOM_UNKNOWN], levels);
    level_find(wants, count, (1u << SLOT_CLASSES) - 1, rooms[ROOM_ALL], levels);
    for (size_t i = 0; i < count; i++) {
        wants[i].granted = grant_at(&wants[i], levels[wants[i].class]);
        rooms_take(rooms, wants[i].class, wants[i].granted);
    }
    // What is left over goes to those that the next level would give one more: first to who has nothing.
    for (int held = 0; held < 2; held++)
        for (size_t i = 0; i < count && rooms[ROOM_ALL_FIRST] > 0; i++) {
            struct slot_want *want = &wants[i];
            if ((want->holds + want->granted > 0) != held || pool->bytes[want->class] >= pool->bytes_most ||
                grant_at(want, levels[want->class] + 1) <= want->granted || rooms_leave(rooms, want) < 1)
                continue;
            want->granted++;
            rooms_take(rooms, want->class, 1);
        }
}
