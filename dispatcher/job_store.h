// job_store: the port between the dispatcher and PostgreSQL. job_store_pg.c is the real side; tests use it alone.
//
// A round is everything that commits together: ends of attempts, claims given back, leases renewed and, last, new
// claims (acks and the next claim are one commit). One round is in flight at a time; the dispatcher keeps what
// it sent until the answer, and sends it again when there is none (every part is idempotent by its lease token). All
// callbacks are called exactly once for each call, never from inside it. Pointers given are copied; results are views,
// valid during the callback.
#pragma once
#include "common/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A job under a lease.
struct job_ref {
    int subscription_id;
    int64_t event_seq;
    int64_t token;
};

// How an attempt ended, in full.
struct job_end {
    struct job_ref ref;
    int attempt;
    const char
        *fate; // "delivered", "waiting", "held", "poisoned", "cancelled": the state in jobs_waiting, or delivered
    uint64_t delay_ms;                                          // with "waiting"
    const char *class;                                          // attempt_class_name
    uint64_t started_ms;                                        // clock_ms
    double dns_ms, connect_ms, tls_ms, first_byte_ms, total_ms; // -1: not reached
    int status;                                                 // 0: no answer
    const char *peer, *response_head, *error;                   // NULL: none
    uint64_t pause_ms;   // the endpoint asked to be left alone for so long; 0: it did not
    const char *subject; // of an ordered subscription, else NULL: with its end the next job of the subject may go
    bool uncounts;       // it uses up no retry
};

struct job_claim {
    int subscription_id;
    int slots;
    unsigned lease_ms;
    bool ordered;
    int64_t lowest, highest; // seqs
};

struct job_round {
    const struct job_end *const *ends; // at most JOB_ROUND_ENDS
    size_t end_count;
    const struct job_ref *returns;
    size_t return_count;
    const struct job_ref *renewals;
    size_t renewal_count;
    const int *disables; // subscriptions whose receiver wants no more
    size_t disable_count;
    const struct job_claim *claims;
    size_t claim_count;
    int64_t token;     // of the claims; odd when nothing else is in flight in this process
    unsigned lease_ms; // of the renewals
    uint64_t throttle_grace_ms;
};
enum {
    JOB_ROUND_ENDS = 512,
    JOB_ROUND_BYTES = 1 << 20,      // of events, as stored, in the claims of a round: one larger event goes alone
    JOB_DATA_MOST_BYTES = 32 << 20, // of an event; the literal in job_claim_found.sql
};

struct claimed_job {
    int subscription_id;
    int64_t event_seq;
    int attempt;    // 0: no job; those from event_seq on were left for their bytes
    int uncounted;  // of the attempts, those that use up no retry: lost and manual ones
    int lost;       // just before this one, in a row: attempts whose process died
    int lost_alone; // of these, with nothing else in flight
    const char *event_id, *type, *occurred_at, *subject, *data; // event_id NULL: the event is gone
    int64_t too_large;                                          // bytes of data that cannot be delivered; 0: it can
    bool throttled_long;                                        // 429 with Retry-After counts like any failure
};

struct job_round_result {
    const struct job_ref *ended; // those of the ends that still had their lease; token is 0
    size_t ended_count;
    const struct job_ref *renewed;
    size_t renewed_count;
    const struct claimed_job *claimed;
    size_t claimed_count;
};
typedef void job_round_done(void *arg, const struct job_round_result *result, const struct error *error);

// One subscription that is new or changed; name NULL: it is gone.
struct subscription_change {
    int id;
    const char *name, *kind, *state;
    bool ordered;
    const char *settings; // JSON
    const char *secrets;  // JSON array
    const char *seal_id;
    const char *version;
    uint64_t pause_ms;
    int64_t failing_ms; // since when without a success; -1: it does not fail
    int64_t idle_ms;    // since its last attempt ended; -1: there was none
};

struct subscription_known {
    int id;
    const char *version;
};

typedef void changes_done(void *arg, const struct subscription_change *changes, size_t count,
                          const struct error *error);
typedef void promoted_done(void *arg, const int *subscription_ids, size_t count, bool more, int64_t next_due_ms,
                           const struct error *error); // next_due_ms -1: nothing waits
typedef void survey_done(void *arg, int dispatchers, uint64_t held, const struct error *error);
typedef void shards_done(void *arg, uint64_t shards, const struct error *error); // those taken, those released
struct lease_count {
    int subscription_id;
    int leases;
    int64_t owner; // the process part of their tokens
    bool present;  // that process has a session here
};
typedef void leases_done(void *arg, const struct lease_count *counts, size_t count, const struct error *error);
typedef void held_done(void *arg, bool more, const struct error *error);
typedef void held_found_done(void *arg, const int *subscription_ids, size_t count, const struct error *error);
struct job_release {
    int subscription_id;
    int count;
};
typedef void released_done(void *arg, const struct job_release *released, size_t count, const struct error *error);

struct job_store {
    void *arg;
    int64_t owner; // 39 random bits that name this process: the upper part of its tokens
    bool (*is_up)(void *arg);
    uint64_t (*answered_ms)(void *arg); // clock_ms of the last answer
    void (*round)(void *arg, const struct job_round *round, job_round_done *done, void *done_arg);
    void (*changes)(void *arg, const struct subscription_known *known, size_t count, changes_done *done,
                    void *done_arg);
    void (*promote)(void *arg, promoted_done *done, void *done_arg);
    void (*hold)(void *arg, const int *subscription_ids, size_t count, held_done *done, void *done_arg);
    void (*survey)(void *arg, survey_done *done, void *done_arg);
    void (*take)(void *arg, uint64_t shards, shards_done *done, void *done_arg);
    void (*release)(void *arg, uint64_t shards, shards_done *done, void *done_arg);
    // Leases of other processes on these subscriptions' jobs.
    void (*leases)(void *arg, const int *subscription_ids, size_t count, leases_done *done, void *done_arg);
    // Ends the leases of processes that are gone. Nobody is told.
    void (*cut)(void *arg, const struct lease_count *leases, size_t count);
    // Active subscriptions that have held jobs.
    void (*held)(void *arg, held_found_done *done, void *done_arg);
    // Lets up to so many held jobs of each go; answered with how many went, where any did.
    void (*release_held)(void *arg, const struct job_release *releases, size_t count, released_done *done,
                         void *done_arg);
};
