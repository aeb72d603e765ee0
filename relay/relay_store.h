// relay_store: the port between the relay's machine and the outbox. relay_store_pg.c is PostgreSQL; tests bring a fake.
//
// One operation is in flight at a time (set_awake(true) is none). Each calls the matching relay_on_* function exactly
// once, later, never from inside.
#pragma once
#include "common/error.h"
#include "relay/low_water.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RELAY_BATCH_SIZE = 200 };

// What a pass did. All zero: there was nothing to claim.
struct relay_pass {
    int64_t events;      // fanned out
    int64_t jobs;        // queued, ready
    int64_t poisoned;    // jobs whose condition failed: poisoned at once
    double oldest_age_s; // of the oldest event of the batch, since it was captured
    struct low_water_pass claim;
    bool sampled;
    struct low_water_sample sample; // when sampled
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
    // It may leave some of what it claimed (claim.left) to the next pass, but not twice.
    // hardly: it will hardly find an event, so look first whether there is one.
    void (*pass)(void *arg, int64_t mark, bool sample, bool hardly);
    void (*list)(void *arg, enum relay_suspects which);
    void (*pass_one)(void *arg, int64_t seq);
    void (*fail)(void *arg, const struct relay_suspect *suspect, const char *reason);
    // Says to writers whether a relay is awake. Calls relay_on_asleep after false; true is not answered.
    void (*set_awake)(void *arg, bool awake);
    void (*wait)(void *arg, uint64_t ms); // one timer: replaces an earlier wait; calls relay_on_timer
    uint64_t (*now_ms)(void *arg);        // monotonic
};
