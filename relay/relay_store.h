// relay_store: the port between the relay's machine and the outbox. relay_store_pg.c is PostgreSQL; tests bring a fake.
//
// One operation is in flight at a time (set_awake(true) is none). Each calls the matching relay_on_* function exactly
// once, later, never from inside.
#pragma once
#include "common/error.h"
#include "relay/condition_watch.h"
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
    int64_t put_aside;   // of the conditions that were to be: the database knows it
    double oldest_age_s; // of the oldest event of the batch, since it was captured
    struct low_water_pass claim;
    bool sampled;
    struct low_water_sample sample; // when sampled
    bool conditions;                // it evaluated some; said of a pass that failed, too
};

// A condition that was found slow, or none: key "".
struct relay_examined {
    int subscription;
    char key[CONDITION_KEY_BYTES];
    bool slow; // false: time was over before this one could be judged; the next examination begins with it
};

// Keys of conditions (views, for the call): those that are not to be evaluated, and of these, those to be put aside.
struct relay_conditions {
    const char *skip[2 * CONDITION_WATCH_SLOTS];
    size_t skip_count;
    const char *aside[CONDITION_WATCH_SLOTS];
    size_t aside_count;
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
    // It may leave some of what it claimed (claim.left) to the next pass; two in a row do not leave everything.
    // hardly: it will hardly find an event, so look first whether there is one.
    void (*pass)(void *arg, int64_t mark, bool sample, bool hardly, const struct relay_conditions *conditions);
    void (*list)(void *arg, enum relay_suspects which);
    // Looks for a slow condition among those that the event meets, of the subscriptions above an id.
    void (*examine)(void *arg, int64_t seq, int after_subscription, const struct relay_conditions *conditions);
    // patient: without the limit in time that conditions have.
    void (*pass_one)(void *arg, int64_t seq, bool patient, const struct relay_conditions *conditions);
    void (*fail)(void *arg, const struct relay_suspect *suspect, const char *reason);
    // Says to writers whether a relay is awake. Calls relay_on_asleep after false; true is not answered.
    void (*set_awake)(void *arg, bool awake);
    void (*wait)(void *arg, uint64_t ms); // one timer: replaces an earlier wait; calls relay_on_timer
    uint64_t (*now_ms)(void *arg);        // monotonic
};
