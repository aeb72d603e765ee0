#include "relay/condition_watch.h"
#include <stdio.h>
#include <string.h>

static void forget_old(struct condition_watch *watch, uint64_t now_ms) {
    for (size_t i = 0; i < CONDITION_WATCH_SLOTS; i++) {
        struct condition_watched *slot = &watch->slots[i];
        if (slot->key[0] && now_ms - slot->slow_at_ms >= CONDITION_FORGET_MS)
            *slot = (struct condition_watched){0};
    }
}

static struct condition_watched *slot_of(struct condition_watch *watch, const char *key) {
    struct condition_watched *room = &watch->slots[0];
    for (size_t i = 0; i < CONDITION_WATCH_SLOTS; i++) {
        struct condition_watched *slot = &watch->slots[i];
        if (strcmp(slot->key, key) == 0)
            return slot;
        if (room->key[0] && (!slot->key[0] || slot->slow_at_ms < room->slow_at_ms))
            room = slot;
    }
    *room = (struct condition_watched){0};
    snprintf(room->key, sizeof room->key, "%s", key);
    return room;
}

bool condition_watch_slow(struct condition_watch *watch, const char *key, uint64_t now_ms) {
    forget_old(watch, now_ms);
    struct condition_watched *slot = slot_of(watch, key);
    slot->slow_at_ms = now_ms;
    return ++slot->slow == CONDITION_SLOW_MOST;
}

size_t condition_watch_aside(struct condition_watch *watch, uint64_t now_ms,
                             const char *ret_keys[static CONDITION_WATCH_SLOTS]) {
    forget_old(watch, now_ms);
    size_t count = 0;
    for (size_t i = 0; i < CONDITION_WATCH_SLOTS; i++) {
        if (watch->slots[i].slow >= CONDITION_SLOW_MOST)
            ret_keys[count++] = watch->slots[i].key;
    }
    return count;
}

void condition_watch_recorded(struct condition_watch *watch) {
    for (size_t i = 0; i < CONDITION_WATCH_SLOTS; i++) {
        if (watch->slots[i].slow >= CONDITION_SLOW_MOST)
            watch->slots[i].slow = CONDITION_SLOW_MOST - 1;
    }
}
