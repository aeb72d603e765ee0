// relay_store: the port between the relay's machine and the outbox. relay_store_pg.c is PostgreSQL; tests bring a fake.
//
// One operation is in flight at a time. Each calls the matching relay_on_* function exactly once, later, never from
// inside.
#pragma once
#include "common/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RELAY_BATCH_SIZE = 200 };

// What a pass did. All zero: there was nothing to claim.
struct relay_pass {
    int64_t events;
    int64_t jobs;
    double oldest_age_s; // of the oldest event of the batch, since it was captured
    bool exhausted;      // fewer than a whole batch were waiting
};

// An event that is tried alone.
struct relay_suspect {
    int64_t seq;
    int attempts; // failures so far
};

enum relay_suspects {
    RELAY_SUSPECTS_BATCH, // what a failed pass had claimed
    RELAY_SUSPECTS_DUE,   // set aside earlier, their retry is due
};

struct relay_store {
    void *arg;
    void (*pass)(void *arg, int64_t mark);
    void (*list)(void *arg, enum relay_suspects which, int64_t mark);
    void (*pass_one)(void *arg, int64_t seq);
    void (*fail)(void *arg, const struct relay_suspect *suspect, const char *reason);
    void (*wait)(void *arg, uint64_t ms); // one timer: replaces an earlier wait; calls relay_on_timer
};
