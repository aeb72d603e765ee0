// endpoint: the subscriptions of one lane as this process knows them: what may be claimed for each, and who is next.
//
// Because each shard has one owner, all of this is plain memory of one process and exact for the fleet:
// slots, the rate, the probe of an endpoint that fails, the slow start of one that came back. Invariants: in_flight
// counts the jobs that hold a slot; an endpoint that is gone is freed with its last job. A change of a subscription
// makes a new version; sends that began under the old one keep it.
//
// A claim walks over the dead front of the queue: rows that were delivered and are not vacuumed yet, or never while an
// old snapshot is held. So while claims find jobs they begin at a mark. It is an optimisation only: whatever comes back
// below it lowers it (NOTIFY carries the lowest seq), and it is ignored five times a second, or as often as that costs
// a twentieth of the time.
//
// How an endpoint is treated:
//   well: a window of jobs at once. It begins at max_in_flight (16), halves when the receiver is overloaded, grows back
//   by
//     one for each window that was delivered, and without max_in_flight up to 64 while answers stay as quick as they
//     were.
//   failing, after 5 faults in a row: one probe at a time, 500 ms apart, then doubling up to 30 s.
//   back, with the first success of a probe: a window of one that grows, and 10 jobs in the first second, 20 in the
//   next
//     and so on for 10 s, so that what piled up is spread.
//   quiet: Retry-After of a 429 or 503 holds for all its jobs.
#pragma once
#include "dispatcher/fair_share.h"
#include "dispatcher/job_store.h"
#include "dispatcher/pace.h"
#include "dispatcher/retry_schedule.h"
#include "dispatcher/sink.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uthash.h>

enum {
    ENDPOINT_MAX_IN_FLIGHT = 16,     // without settings.max_in_flight
    ENDPOINT_WINDOW_MOST = 64,       // what it may then grow to
    ENDPOINT_FAULTS = 5,             // in a row: it fails
    ENDPOINT_LEASE_MARGIN_MS = 5000, // a lease is so much longer than the request may take
    ENDPOINT_PROBE_FIRST_MS = 500,
    ENDPOINT_PROBE_MOST_MS = 30000,
    ENDPOINT_JOB_BYTES = 256 * 1024, // what the slots' jobs may hold on average, in event data
};

// One reading of a subscription's row.
struct endpoint_version {
    struct subscription subscription;
    struct retry_schedule schedule;
    bool active;
    int max_in_flight;    // the window begins here
    int window_most;      // and never grows past this
    unsigned deadline_ms; // of one request
    double rate;          // jobs a second; 0: no limit
    double resume_rate;   // held jobs a second that come back after a pause; 0: no limit
    bool prepared;
    struct error fault; // why not
    int uses;
};

struct endpoint {
    int id;
    char *row_version;
    struct endpoint_version *version; // the newest
    int in_flight;
    size_t bytes;            // of event data that its jobs in flight hold
    struct slot_use use;     // how long it holds its slots; outlives changes of the subscription
    int foreign_leases;      // of a former owner, still running: they hold slots too
    bool hungry;             // may have ready jobs; false once a claim found fewer than it asked for
    bool unlooked;           // what is below the mark was not looked at since a claim above it found too few
    int64_t mark;            // nothing ready is known below it
    int64_t lowered;         // since the claim in flight was made, jobs came from here on
    uint64_t look_at_ms;     // from here on claims look below the mark too
    bool gone;               // removed; freed when nothing is in flight
    bool lease_asked;        // its foreign leases are being counted
    bool held;               // may have held jobs that should come back
    uint64_t quiet_until_ms; // the receiver asked to be left alone
    double window;           // jobs at once
    double latency_ms;       // of a delivery, at its quickest; rises slowly
    uint64_t shrink_at_ms;   // one fault of a window halves it, the others of that window do not
    int faults;              // in a row
    bool failing;
    bool probing; // the probe is in flight
    uint64_t probe_at_ms, probe_wait_ms;
    struct pace pace;       // settings.rate
    struct pace_ramp ramp;  // after a failure
    struct job_claim claim; // in the round in flight
    int got;                // of it
    int64_t highest;        // of what it got
    uint64_t release_ms;    // when release_credit was right
    double release_credit;  // held jobs that may go
    int release_asked;      // of which so many are being moved
    UT_hash_handle hh;
};

struct endpoint_table {
    struct endpoint *by_id;
    const struct sink *sink; // borrows
    int last_served;         // id; the next claim begins after it
    uint64_t held_shards;    // outside of these no endpoint is held
    // Of endpoint_choose, kept for their memory.
    struct slot_want *wants;
    struct endpoint **wanting;
    size_t capacity;
};

void endpoint_table_init(struct endpoint_table *table, const struct sink *sink);
void endpoint_table_close(struct endpoint_table *table); // nothing may be in flight
void endpoint_table_apply(struct endpoint_table *table, const struct subscription_change *change, uint64_t now_ms);
struct endpoint *endpoint_find(const struct endpoint_table *table, int id); // NULL when unknown or gone
void endpoint_wake(struct endpoint_table *table, uint64_t shards);
// Jobs came, from this seq on.
void endpoint_wake_from(struct endpoint_table *table, uint64_t shards, int64_t lowest);
void endpoint_lower(struct endpoint *endpoint, int64_t lowest);
// Others may have sent for these shards meanwhile: their subscriptions are read anew.
void endpoint_forget_shards(struct endpoint_table *table, uint64_t shards);
// A person asked for it: endpoints that fail are probed now.
void endpoint_probe_now(struct endpoint_table *table, uint64_t now_ms);

// Shares `room` of the process's `total` slots among the hungry endpoints of `shards` that may be sent to now
// (fair_share.h). Writes at most `most` claims, takes hungry from those it chose; returns how many.
size_t endpoint_choose(struct endpoint_table *table, uint64_t shards, int total, int room, uint64_t now_ms,
                       struct job_claim *ret_claims, size_t most);
// True while its host is looked up: that holds no slot, and it is asked about again soon.
bool endpoint_waits_for_name(const struct endpoint_table *table, struct endpoint *endpoint, uint64_t now_ms);
// The claim of endpoint_choose, made at claimed_ms, is answered: each job it gave, then that it was all.
void endpoint_took(struct endpoint *endpoint, int64_t event_seq);
void endpoint_answered(struct endpoint *endpoint, uint64_t claimed_ms, uint64_t now_ms);
// It may have held jobs.
void endpoint_hold(struct endpoint_table *table, struct endpoint *endpoint);
// Any active one of these shards.
bool endpoint_any_held(struct endpoint_table *table, uint64_t shards);
// How many held jobs may go now; the caller says how many went.
int endpoint_may_release(struct endpoint *endpoint, uint64_t now_ms, int most);
void endpoint_released(struct endpoint *endpoint, int asked, int count);
// Is there an endpoint that has, or may have, jobs to send now or when its rate allows it?
bool endpoint_any_hungry(const struct endpoint_table *table, uint64_t shards, uint64_t now_ms);
// When the first of those that only wait for their time may be chosen; UINT64_MAX: none waits.
uint64_t endpoint_next_ms(const struct endpoint_table *table, uint64_t shards, uint64_t now_ms);
uint64_t endpoint_busy_shards(const struct endpoint_table *table);

// A job of so many bytes takes a slot, and gives it back. The version returned is valid in between.
struct endpoint_version *endpoint_begin(struct endpoint *endpoint, size_t bytes, uint64_t started_ms);
void endpoint_end(struct endpoint_table *table, struct endpoint *endpoint, struct endpoint_version *version,
                  size_t bytes, uint64_t started_ms, uint64_t now_ms);
// What an attempt says about the endpoint; before endpoint_end. unit is uniform in [0, 1). endpoint_pause takes from it
// only how long it wants to be left alone.
void endpoint_pause(struct endpoint *endpoint, const struct attempt_outcome *outcome, uint64_t now_ms);
void endpoint_learn(struct endpoint *endpoint, const struct attempt_outcome *outcome, uint64_t now_ms, double unit);
