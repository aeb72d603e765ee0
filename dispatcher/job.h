// job: one claimed job from its claim to the confirmation of its end.
//
//   claimed --> SENDING --sink is done--> ENDED --round--> CONFIRMING --answer--> freed
//                                           ^------ round failed -----/
// A job owns copies of all its texts; delivery and end hold views of them.
#pragma once
#include "dispatcher/endpoint.h"
#include "dispatcher/job_store.h"
#include "dispatcher/sink.h"
#include <stdbool.h>
#include <stdint.h>

struct dispatcher;

struct job {
    struct job *prev, *next; // utlist: sending, ended or confirming
    struct dispatcher *dispatcher;
    struct endpoint *endpoint;
    struct endpoint_version *version;
    int uncounted;         // attempts that use up no retry
    int lost_alone;        // attempts that were lost with nothing else in flight
    uint64_t lease_end_ms; // by our clock, from before the claim was sent: never later than the database's
    uint64_t renew_at_ms;
    bool lease_lost;
    size_t bytes;        // of its texts
    int64_t too_large;   // bytes of its data, when they are too many
    bool throttled_long; // 429 with Retry-After counts
    struct delivery delivery;
    struct job_end end;
    char *texts;     // owned: what delivery views
    char *end_texts; // owned: what end views
};

// Copies the claim; takes a slot of the endpoint from now on.
struct job *job_new(struct dispatcher *dispatcher, struct endpoint *endpoint, const struct claimed_job *claimed,
                    int64_t token, uint64_t now_ms);
void job_free(struct job *job); // the slot was given back before; NULL is allowed

// Fills job->end from what the sink says. Pure but for its arguments: unit is uniform in [0, 1).
void job_decide(struct job *job, const struct attempt_outcome *outcome, double unit);
// Drops the texts of the end that came from the wire: the database refused them.
void job_strip(struct job *job);
