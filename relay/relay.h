// relay: the machine that turns outbox rows into jobs. Pure: no clock, no socket; time and the outbox are behind
// relay_store. Any number of relays work side by side without knowing of each other (G2, G3).
#pragma once
#include "common/backoff.h"
#include "common/hint.h"
#include "relay/relay_store.h"

//                 nothing left              several times              the lock is back
//   PASSING --------------------> LINGERING ----------> FALLING_ASLEEP ------------> PASSING (once more, for who
//   committed
//    ^ ^ ^ ^--- more --+          | 1 ms  |                                             | meanwhile)
//    | | |             |          +-------+                                             v nothing
//    | | |   NOTIFY, poll, sweep, retries due                                        ASLEEP
//    | | +------------------------------------------------------------------------------+
//    | |
//    | +-- ISOLATING (one by one) <-- LISTING <-- a pass failed for its data, or took too long, or retries are due
//    |        | ^ took too long
//    |        v |
//    |      EXAMINING its conditions
//    +---- BACKING_OFF <-- any: a fault of the system            DOWN <-- any: the connection is lost
enum relay_state {
    RELAY_DOWN,
    RELAY_PASSING,
    RELAY_LISTING,
    RELAY_EXAMINING,
    RELAY_ISOLATING,
    RELAY_LINGERING,
    RELAY_FALLING_ASLEEP,
    RELAY_ASLEEP,
    RELAY_BACKING_OFF,
};

struct relay_options {
    uint32_t poll_ms;  // asleep, look again after so long; 0: only when woken, and at the sweep
    uint32_t sweep_ms; // look without the low-water mark at least so often: heals a lost NOTIFY
    bool once;         // call on_drained when nothing is left
    void (*on_drained)(void *arg);
    void *arg;
};

struct relay {
    const struct relay_store *store; // keeps
    struct relay_options options;
    enum relay_state state;
    struct backoff backoff; // 2 s doubling to 1 min: faults of the system
    struct low_water water;
    bool awake;             // as writers were told
    bool busy;              // events come close together
    uint64_t found_ms;      // when the last ones were found
    struct hint_pace hints; // passes that were made because of a NOTIFY, and found nothing
    bool hinted;            // this pass was
    bool woken;             // something waits: a NOTIFY came meanwhile, or a pass left it
    int idle_passes;        // in a row
    unsigned asleep_ms;     // until the next look
    uint64_t swept_ms;
    uint64_t retries_looked_ms;
    struct relay_suspect suspects[RELAY_BATCH_SIZE];
    size_t suspect_count;
    size_t suspect_next;
    bool examines; // conditions of each suspect first: time may have been over because of them
    bool examined; // those of this one
    struct condition_watch conditions;
    size_t aside_count; // of those, that the operation in flight was told of
    // Of the event that is tried alone: conditions that were slow for it.
    char slow[CONDITION_WATCH_SLOTS][CONDITION_KEY_BYTES];
    size_t slow_count;
};

void relay_init(struct relay *relay, const struct relay_store *store, const struct relay_options *options);

// Inputs.
void relay_on_up(struct relay *relay);
void relay_on_down(struct relay *relay);
void relay_on_timer(struct relay *relay);
void relay_on_wake(struct relay *relay); // a NOTIFY
void relay_on_asleep(struct relay *relay);
// With an error, only pass->conditions means something.
void relay_on_pass(struct relay *relay, const struct relay_pass *pass, const struct error *error);
void relay_on_list(struct relay *relay, const struct relay_suspect *suspects, size_t count, const struct error *error);
void relay_on_examine(struct relay *relay, const struct relay_examined *examined, const struct error *error);
void relay_on_pass_one(struct relay *relay, const struct relay_pass *pass, const struct error *error);
// counted: this relay's report was the one that counted; poisoned: it was the last.
void relay_on_fail(struct relay *relay, bool counted, bool poisoned, const struct error *error);
