// condition_watch: what this relay knows of slow conditions: how often each was slow, and which are not to be evaluated
// any more. Pure.
//
// A condition that was slow three times is aside. The database is told so too (rowbell.condition_put_aside), for all
// relays; but who holds a lock on the subscription's row can keep that from being written, and not what is here. A
// condition is named by a key of the database's, which changes with it.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CONDITION_KEY_BYTES = 32, // with its zero
    CONDITION_WATCH_SLOTS = 64,
    CONDITION_SLOW_MOST = 3,          // then it is aside
    CONDITION_FORGET_MS = 10 * 60000, // after it was slow last
};

struct condition_watch {
    struct condition_watched {
        char key[CONDITION_KEY_BYTES]; // "": free
        int slow;
        uint64_t slow_at_ms;
    } slots[CONDITION_WATCH_SLOTS]; // full: the one that was slow longest ago makes room
};

// It was slow. Returns whether it is aside from this time on.
bool condition_watch_slow(struct condition_watch *watch, const char *key, uint64_t now_ms);
// The keys of those that are aside, as views into it. Returns how many.
size_t condition_watch_aside(struct condition_watch *watch, uint64_t now_ms,
                             const char *ret_keys[static CONDITION_WATCH_SLOTS]);
// The database knows all that are aside. A person may bring one back there; slow once more, it is aside again.
void condition_watch_recorded(struct condition_watch *watch);
