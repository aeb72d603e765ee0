// dispatcher_state: what the parts of the lane share: dispatcher.c (time and life), round.c (sends, ends, claims),
// ownership.c (shards and their subscriptions), waiting.c (held and waiting jobs). Nobody else includes it.
#pragma once
#include "common/backoff.h"
#include "dispatcher/dispatcher.h"
#include "dispatcher/endpoint.h"
#include "dispatcher/job.h"
#include "dispatcher/shard.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

enum {
    POLL_MS = 200,     // the floor that a lost NOTIFY falls back to
    SURVEY_MS = 1000,  // locks, subscriptions, held jobs
    ABSENT_MOST = 16,  // such processes at a time
    MOST_CLAIMS = 512, // subscriptions in one claim
};

enum phase { PHASE_DOWN, PHASE_UP, PHASE_STOPPING, PHASE_STOPPED };

struct ref_list {
    struct job_ref *refs;
    size_t count, capacity;
};

// A process whose leases run on and that has no session here.
struct absence {
    int64_t owner;
    uint64_t since_ms, seen_ms;
};

// A job that was lost too often is sent with nothing else in flight, so that a job which kills its dispatcher is found
// without blaming its neighbours: no claims until nothing is in flight, then this one alone.
struct quarantine {
    bool wanted;  // ref waits for its turn
    bool claimed; // its claim is in the round in flight
    bool running; // it is being sent
    struct job_ref ref;
    uint64_t began_ms, rest_until_ms;
};

struct dispatcher {
    struct dispatcher_options options;
    const struct job_store *store;
    const struct sink *sink;
    struct endpoint_table endpoints;
    struct shard_set shards;
    uint64_t settling;        // shards just taken, whose running leases are not counted yet
    uint64_t settled_by_load; // of the settling, those whose subscriptions were read anew
    uint64_t counted;         // those that the count in flight covers
    bool up;
    enum phase phase;

    struct job *sending, *ended, *confirming;
    int in_flight;            // of the lane, in this process
    struct ref_list returns;  // claims to give back
    struct ref_list renewals; // in the round that is in flight
    int *disables;
    size_t disable_count;

    bool in_round;
    size_t round_returns, round_disables; // the first so many of these lists are in flight
    struct job_claim claims[MOST_CLAIMS];
    size_t claim_count;
    int64_t claim_serial;
    int64_t round_token;
    uint64_t round_ms; // clock before the round was sent
    bool acks_alone;   // the last round failed: no claims until the ends are confirmed
    bool one_by_one;   // and it failed for data: one end a round
    struct backoff backoff;
    uint64_t retry_at_ms;

    // What is known since the session came up.
    bool surveying, surveyed, loading, load_again, loaded, promoting, promoted, holding, counting, releasing;
    uint64_t promote_at_ms, survey_at_ms, held_survey_at_ms, poll_at_ms, worked_ms;
    struct absence absences[ABSENT_MOST];
    struct quarantine quarantine;
    uint64_t progress_ms; // last round or survey that was answered

    uint64_t stop_ms, last_end_ms;
    void (*on_stopped)(void *arg);
    void *stopped_arg;
    void (*on_closed)(void *arg);
    void *closed_arg;

    uv_timer_t timer;
    uint64_t timer_at_ms;
    uv_prepare_t prepare; // at the end of a loop turn: what the turn brought goes out in one round
    uv_check_t check;
    bool dirty;
    int open_handles;
};

// Something changed: a round is looked for when the loop's turn ends.
static inline void dispatcher_touch(struct dispatcher *d) {
    d->dirty = true;
}
// Those that claims may be sent for now.
static inline uint64_t dispatcher_claimable(const struct dispatcher *d) {
    return d->up && d->phase == PHASE_UP ? d->shards.owned & ~d->shards.leaving & ~d->settling : 0;
}

// ---- round.c: all that has ended, is to be given back or renewed, and new claims, in one commit.
void round_start(struct dispatcher *d); // when the last one was answered and there is something to do

// ---- ownership.c
void ownership_survey(struct dispatcher *d); // shards, subscriptions, leases of former owners

// ---- waiting.c
void waiting_survey(struct dispatcher *d, uint64_t now_ms);  // holds what is inactive, looks for what is held
void waiting_release(struct dispatcher *d, uint64_t now_ms); // held jobs of subscriptions that are active again
void waiting_promote(struct dispatcher *d);                  // what is due becomes ready
