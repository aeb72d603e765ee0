// relay: the machine that turns outbox rows into jobs. Pure: no clock, no socket; time and the outbox are behind
// relay_store. Any number of relays work side by side without knowing of each other (G2, G3).
#pragma once
#include "common/backoff.h"
#include "relay/relay_store.h"

//              up              pass: more                     pass: exhausted
//   DOWN ------------> PASSING <--------+          PASSING ------------------> RESTING
//    ^                  ^  |  +---------+             ^          timer            |
//    | down (from any)  |  | pass failed for its data +---------------------------+
//    |                  |  v                                                      | timer, and retries may be due
//    |                  | LISTING <-----------------------------------------------+
//    |                  |  | the list                 PASSING, LISTING, ISOLATING
//    |                  |  v                             | fault of the system
//    |                  +- ISOLATING (one by one)        v          timer
//    |                                               BACKING_OFF ---------> PASSING
enum relay_state { RELAY_DOWN, RELAY_PASSING, RELAY_LISTING, RELAY_ISOLATING, RELAY_RESTING, RELAY_BACKING_OFF };

struct relay_options {
    uint32_t poll_ms; // how long to rest when nothing waits
    bool once;        // call on_drained at the first rest
    void (*on_drained)(void *arg);
    void *arg;
};

struct relay {
    const struct relay_store *store; // keeps
    struct relay_options options;
    enum relay_state state;
    struct backoff backoff; // 2 s doubling to 1 min: faults of the system
    struct relay_suspect suspects[RELAY_BATCH_SIZE];
    size_t suspect_count;
    size_t suspect_next;
    enum relay_suspects listing;
    uint64_t rested_ms; // since retries were last looked for
    bool connected;
};

void relay_init(struct relay *relay, const struct relay_store *store, const struct relay_options *options);

// Inputs.
void relay_on_up(struct relay *relay);
void relay_on_down(struct relay *relay);
void relay_on_timer(struct relay *relay);
void relay_on_pass(struct relay *relay, const struct relay_pass *pass, const struct error *error);
void relay_on_list(struct relay *relay, const struct relay_suspect *suspects, size_t count, const struct error *error);
void relay_on_pass_one(struct relay *relay, const struct relay_pass *pass, const struct error *error);
// counted: this relay's report was the one that counted; poisoned: it was the last.
void relay_on_fail(struct relay *relay, bool counted, bool poisoned, const struct error *error);
