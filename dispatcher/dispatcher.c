// The happy path: the session comes up; once a second the lock table is read, shards are taken and subscriptions
// loaded; whenever an endpoint is hungry and has slots, or attempts have ended, a round goes to the store (ends first,
// claims last, one commit); its answer brings jobs, which go to the sink at once; each is ended by the next round.
// While work is found no timer is waited for.
//
// The failure modes: a round that fails puts its ends back, and they are sent again alone, without claims, until they
// are confirmed; an end that the database refuses for its data is sent by itself, then without the texts from the wire.
// A session that is lost takes the shards; sends in flight go on and are ended by (job, token) on the next session. A
// claim that is answered too late to be sent under its lease is given back uncounted.
#include "dispatcher/dispatcher.h"
#include "common/backoff.h"
#include "common/clock.h"
#include "common/db_error.h"
#include "common/log.h"
#include "common/memory.h"
#include "common/metrics.h"
#include "dispatcher/endpoint.h"
#include "dispatcher/job.h"
#include "dispatcher/metrics.h"
#include "dispatcher/shard.h"
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

enum {
    POLL_MS = 200,       // the floor that a lost NOTIFY falls back to
    IDLE_POLL_MS = 1000, // and after IDLE_MS without a job
    IDLE_MS = 10000,
    HELD_SURVEY_MS = 5000,
    RELEASE_MOST = 500,    // held jobs of a subscription that go in one step
    ABSENT_MS = 5000,      // a process without a session for so long is gone: a living one is back sooner
    ABSENT_MOST = 16,      // such processes at a time
    LOST_MOST = 3,         // lost in a row: the next attempt is made alone; lost alone so often: poisoned
    QUARANTINE_REST = 2,   // after an attempt alone, others work for so many times as long as it took
    SURVEY_MS = 1000,      // locks, subscriptions, held jobs
    ANSWER_AGE_MS = 7000,  // a session that said nothing for longer may be gone already
    SEND_MARGIN_MS = 1000, // left of a lease after the longest request
    UNREADY_MS = 15000,
    DRAIN_MARGIN_MS = 5000,
    MOST_CLAIMS = 512, // subscriptions in one claim
    TOKEN_BITS = 24,   // of a token, the part that counts by twos (odd: alone); the rest names this process
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

static void round_start(struct dispatcher *d);
static void load_changes(struct dispatcher *d);
static void send_ended(struct dispatcher *d, struct job *job, const struct attempt_outcome *outcome);

// ---- Small parts

static void ref_add(struct ref_list *list, struct job_ref ref) {
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? list->capacity * 2 : 64;
        list->refs = memory_resize(list->refs, list->capacity, sizeof *list->refs);
    }
    list->refs[list->count++] = ref;
}

static void touch(struct dispatcher *d) {
    d->dirty = true;
}

static uint64_t claimable_shards(const struct dispatcher *d) {
    return d->up && d->phase == PHASE_UP ? d->shards.owned & ~d->shards.leaving & ~d->settling : 0;
}

static bool due(uint64_t at_ms, uint64_t now_ms) {
    return now_ms >= at_ms;
}

// ---- Sending

static void disable_later(struct dispatcher *d, int subscription_id) {
    for (size_t i = d->round_disables; i < d->disable_count; i++)
        if (d->disables[i] == subscription_id)
            return;
    d->disables = memory_resize(d->disables, d->disable_count + 1, sizeof *d->disables);
    d->disables[d->disable_count++] = subscription_id;
}

static void slot_free(struct dispatcher *d, struct job *job) {
    if (--d->in_flight == 0 && d->quarantine.running) {
        uint64_t now = clock_ms();
        d->quarantine.running = false;
        d->quarantine.rest_until_ms = now + QUARANTINE_REST * (now - d->quarantine.began_ms);
    }
    endpoint_end(&d->endpoints, job->endpoint, job->version);
    job->endpoint = NULL;
    job->version = NULL;
    job->delivery.subscription = NULL;
}

static void sink_is_done(void *arg, const struct attempt_outcome *outcome) {
    struct job *job = arg;
    send_ended(job->dispatcher, job, outcome);
}

static void send_ended(struct dispatcher *d, struct job *job, const struct attempt_outcome *outcome) {
    uint64_t now = clock_ms();
    d->last_end_ms = now;
    DL_DELETE(d->sending, job);
    if (outcome->unsent) {
        ref_add(&d->returns, job->end.ref);
        slot_free(d, job);
        job_free(job);
        touch(d);
        return;
    }
    metric_add(METRIC_ATTEMPTS, d->options.lane, attempt_class_name(outcome->class), 1);
    metric_observe(METRIC_ATTEMPT_SECONDS, d->options.lane, (double)(now - job->end.started_ms) / 1000);
    if (outcome->class == CLASS_LOST) {
        // Nobody knows whether it arrived: the lease runs out and the next claim records it as lost.
        slot_free(d, job);
        job_free(job);
        touch(d);
        return;
    }
    job_decide(job, outcome, random_unit());
    if (d->sink->paces_itself)
        endpoint_pause(job->endpoint, outcome, now);
    else
        endpoint_learn(job->endpoint, outcome, now, random_unit());
    if (job->end.subject) // its end lets the next one of the subject go
        job->endpoint->hungry = true;
    if (outcome->disable_subscription)
        disable_later(d, job->end.ref.subscription_id);
    slot_free(d, job);
    DL_APPEND(d->ended, job);
    touch(d);
}

static void reject(struct dispatcher *d, struct job *job, enum verdict verdict, const char *why) {
    struct attempt_outcome outcome = {.verdict = verdict,
                                      .class = CLASS_REJECTED,
                                      .dns_ms = -1,
                                      .connect_ms = -1,
                                      .tls_ms = -1,
                                      .first_byte_ms = -1,
                                      .total_ms = -1,
                                      .error = why};
    send_ended(d, job, &outcome);
}

static bool may_send(const struct dispatcher *d, const struct endpoint *endpoint, uint64_t now_ms) {
    uint64_t needed_ms = (uint64_t)endpoint->version->deadline_ms + SEND_MARGIN_MS;
    return d->phase == PHASE_UP && now_ms + needed_ms <= d->round_ms + endpoint->claim.lease_ms &&
           now_ms <= d->store->answered_ms(d->store->arg) + ANSWER_AGE_MS;
}

// True when the job must not be sent now.
static bool quarantined(struct dispatcher *d, struct endpoint *endpoint, const struct claimed_job *claimed,
                        uint64_t now_ms) {
    struct quarantine *quarantine = &d->quarantine;
    if (claimed->lost < LOST_MOST || quarantine->claimed)
        return false;
    // Its subscription waits for it; the others go on until it is its turn.
    uint64_t turn_ms = quarantine->rest_until_ms > now_ms ? quarantine->rest_until_ms : now_ms + POLL_MS;
    if (endpoint->quiet_until_ms < turn_ms)
        endpoint->quiet_until_ms = turn_ms;
    if (!quarantine->wanted && now_ms >= quarantine->rest_until_ms) {
        log_warn("job_quarantined", LOG_INT("subscription_id", claimed->subscription_id),
                 LOG_INT("seq", claimed->event_seq), LOG_INT("lost", claimed->lost));
        *quarantine =
            (struct quarantine){.wanted = true,
                                .ref = {.subscription_id = claimed->subscription_id, .event_seq = claimed->event_seq},
                                .began_ms = now_ms};
    }
    return true;
}

static struct job *job_find(struct job *list, const struct claimed_job *claimed) {
    struct job *job;
    DL_FOREACH(list, job) {
        if (job->end.ref.event_seq == claimed->event_seq && job->end.ref.subscription_id == claimed->subscription_id)
            return job;
    }
    return NULL;
}

// A job of ours that was claimed by us again: while we had no session its lease ran out, or another process, which saw
// us gone, cut it. Its request is on its way, or has ended, and is not made again: its end is written under the new
// lease.
static bool claim_adopted(struct dispatcher *d, const struct claimed_job *claimed) {
    if (claimed->lost == 0) // its lease was free: no run of it is open
        return false;
    struct job *sending = job_find(d->sending, claimed), *job = sending ? sending : job_find(d->ended, claimed);
    if (!job)
        return false;
    struct endpoint *endpoint = endpoint_find(&d->endpoints, claimed->subscription_id);
    job->end.ref.token = d->round_token;
    job->end.attempt = claimed->attempt;
    job->uncounted = claimed->uncounted;
    job->lease_lost = false;
    if (endpoint) {
        job->lease_end_ms = d->round_ms + endpoint->claim.lease_ms;
        job->renew_at_ms = job->lease_end_ms - endpoint->claim.lease_ms / 3;
    }
    log_info("job_adopted", LOG_TEXT("lane", d->options.lane), LOG_INT("subscription_id", claimed->subscription_id),
             LOG_INT("seq", claimed->event_seq), LOG_INT("attempt", claimed->attempt),
             LOG_BOOL("sending", sending != NULL));
    return true;
}

static void claim_received(struct dispatcher *d, const struct claimed_job *claimed, uint64_t now_ms) {
    if (claim_adopted(d, claimed))
        return;
    struct endpoint *endpoint = endpoint_find(&d->endpoints, claimed->subscription_id);
    if (!endpoint || !may_send(d, endpoint, now_ms) || quarantined(d, endpoint, claimed, now_ms)) {
        ref_add(&d->returns, (struct job_ref){.subscription_id = claimed->subscription_id,
                                              .event_seq = claimed->event_seq,
                                              .token = d->round_token});
        return;
    }
    struct job *job = job_new(d, endpoint, claimed, d->round_token);
    d->in_flight++;
    d->quarantine.running = d->quarantine.claimed;
    job->lease_end_ms = d->round_ms + endpoint->claim.lease_ms;
    job->renew_at_ms = job->lease_end_ms - endpoint->claim.lease_ms / 3;
    job->end.started_ms = now_ms;
    if (claimed->lost)
        log_warn("attempt_lost", LOG_INT("subscription_id", claimed->subscription_id),
                 LOG_INT("seq", claimed->event_seq), LOG_INT("attempt", claimed->attempt - 1),
                 LOG_INT("lost", claimed->lost), LOG_INT("alone", claimed->lost_alone));
    DL_APPEND(d->sending, job);
    if (!claimed->event_id)
        reject(d, job, VERDICT_REJECTED, "the event is not in rowbell.events any more");
    else if (claimed->lost_alone >= LOST_MOST)
        reject(d, job, VERDICT_REJECTED, "the dispatcher that sent it, and nothing else, died three times");
    else if (!job->version->prepared)
        // A dispatcher without the right key is the operator's to mend, and no reason to give jobs up.
        reject(d, job, job->version->fault.code == ERROR_KEY ? VERDICT_RETRY : VERDICT_REJECTED,
               job->version->fault.text);
    else
        d->sink->send(d->sink->arg, &job->delivery, sink_is_done, job);
}

// ---- Rounds

static int compare_ends(const void *a, const void *b) {
    const struct job_ref *x = &(*(const struct job_end *const *)a)->ref, *y = &(*(const struct job_end *const *)b)->ref;
    if (x->subscription_id != y->subscription_id)
        return x->subscription_id < y->subscription_id ? -1 : 1;
    return (x->event_seq > y->event_seq) - (x->event_seq < y->event_seq);
}

static size_t take_ends(struct dispatcher *d, const struct job_end **ends) {
    size_t most = d->one_by_one ? 1 : JOB_ROUND_ENDS, count = 0;
    while (d->ended && count < most) {
        struct job *job = d->ended;
        DL_DELETE(d->ended, job);
        DL_APPEND(d->confirming, job);
        ends[count++] = &job->end;
    }
    // Rows are locked in key order by everybody, so that two statements cannot wait for each other.
    qsort(ends, count, sizeof *ends, compare_ends);
    return count;
}

static void take_renewals(struct dispatcher *d, uint64_t now_ms) {
    d->renewals.count = 0;
    struct job *job;
    DL_FOREACH(d->sending, job) {
        if (due(job->renew_at_ms, now_ms) && !job->lease_lost)
            ref_add(&d->renewals, job->end.ref);
    }
}

static bool ref_is_in(const struct job_ref *refs, size_t count, struct job_ref ref, bool with_token) {
    for (size_t i = 0; i < count; i++)
        if (refs[i].event_seq == ref.event_seq && refs[i].subscription_id == ref.subscription_id &&
            (!with_token || refs[i].token == ref.token))
            return true;
    return false;
}

static void lease_was_lost(const struct dispatcher *d, const struct job_ref *ref) {
    metric_add(METRIC_LEASES_LOST, NULL, NULL, 1);
    log_warn("lease_lost", LOG_TEXT("lane", d->options.lane), LOG_INT("subscription_id", ref->subscription_id),
             LOG_INT("seq", ref->event_seq));
}

static void ends_confirmed(struct dispatcher *d, const struct job_round_result *result) {
    struct job *job, *next;
    DL_FOREACH_SAFE(d->confirming, job, next) {
        struct job_end *end = &job->end;
        if (!ref_is_in(result->ended, result->ended_count, end->ref, false)) {
            if (!job->lease_lost)
                lease_was_lost(d, &end->ref);
        } else if (strcmp(end->fate, "poisoned") == 0) {
            metric_add(METRIC_JOBS_POISONED, d->options.lane, end->class, 1);
            log_error("job_poisoned", LOG_TEXT("lane", d->options.lane),
                      LOG_INT("subscription_id", end->ref.subscription_id), LOG_INT("seq", end->ref.event_seq),
                      LOG_INT("attempt", end->attempt), LOG_TEXT("class", end->class), LOG_TEXT("error", end->error));
        } else if (strcmp(end->fate, "cancelled") == 0) {
            log_info("job_aborted", LOG_TEXT("lane", d->options.lane),
                     LOG_INT("subscription_id", end->ref.subscription_id), LOG_INT("seq", end->ref.event_seq),
                     LOG_INT("attempt", end->attempt), LOG_INT("status", end->status));
        } else if (strcmp(end->fate, "waiting") == 0) {
            uint64_t at = clock_ms() + end->delay_ms;
            if (at < d->promote_at_ms)
                d->promote_at_ms = at;
            d->promoted = false;
        }
        DL_DELETE(d->confirming, job);
        job_free(job);
    }
}

static void leases_renewed(struct dispatcher *d, const struct job_round_result *result) {
    struct job *job;
    DL_FOREACH(d->sending, job) {
        if (!ref_is_in(d->renewals.refs, d->renewals.count, job->end.ref, true))
            continue;
        if (ref_is_in(result->renewed, result->renewed_count, job->end.ref, true)) {
            job->lease_end_ms = d->round_ms + d->options.lease_ms;
            job->renew_at_ms = job->lease_end_ms - d->options.lease_ms / 3;
        } else {
            job->lease_lost = true; // another run may have begun; ours goes on and its ack will be refused
            lease_was_lost(d, &job->end.ref);
        }
    }
}

static void claims_answered(struct dispatcher *d, const struct job_round_result *result, uint64_t now_ms) {
    for (size_t i = 0; i < result->claimed_count; i++) {
        struct endpoint *endpoint = endpoint_find(&d->endpoints, result->claimed[i].subscription_id);
        if (endpoint)
            endpoint_took(endpoint, result->claimed[i].event_seq);
        claim_received(d, &result->claimed[i], now_ms);
    }
    for (size_t i = 0; i < d->claim_count; i++) {
        struct endpoint *endpoint = endpoint_find(&d->endpoints, d->claims[i].subscription_id);
        if (endpoint)
            endpoint_answered(endpoint, d->round_ms, now_ms);
    }
    if (result->claimed_count)
        d->worked_ms = now_ms;
    d->claim_count = 0;
    d->quarantine.claimed = false;
}

static void round_failed(struct dispatcher *d, const struct error *error) {
    bool data_fault = !db_error_is_system(error) && !db_error_is_transient_conflict(error);
    if (d->confirming) {
        if (data_fault && d->one_by_one) {
            log_error("ack_refused", LOG_INT("seq", d->confirming->end.ref.event_seq), LOG_TEXT("error", error->text));
            job_strip(d->confirming);
            // To the end of the line, so that it cannot hold up the others.
            struct job *job = d->confirming;
            DL_DELETE(d->confirming, job);
            DL_APPEND(d->ended, job);
        }
        d->one_by_one = d->one_by_one || (data_fault && d->acks_alone);
        d->acks_alone = true;
        DL_CONCAT(d->confirming, d->ended);
        d->ended = d->confirming;
        d->confirming = NULL;
    }
    endpoint_wake(&d->endpoints, UINT64_MAX);
    if (db_error_is_transient_conflict(error)) {
        log_debug("round_conflict", LOG_TEXT("lane", d->options.lane), LOG_TEXT("error", error->text));
        return; // the same again at once
    }
    uint64_t wait_ms = backoff_next_ms(&d->backoff);
    d->retry_at_ms = clock_ms() + wait_ms;
    if (d->up && error->code != ERROR_CANCELLED)
        log_warn("round_failed", LOG_TEXT("lane", d->options.lane), LOG_TEXT("error", error->text),
                 LOG_INT("retry_ms", wait_ms));
}

static void drop_first(void *items, size_t item_size, size_t *count, size_t dropped) {
    if (dropped == 0)
        return;
    *count -= dropped;
    memmove(items, (char *)items + dropped * item_size, *count * item_size);
}

static void round_done(void *arg, const struct job_round_result *result, const struct error *error) {
    struct dispatcher *d = arg;
    d->in_round = false;
    touch(d);
    if (error) {
        round_failed(d, error);
        d->claim_count = 0;
        d->quarantine.wanted = d->quarantine.wanted || d->quarantine.claimed;
        d->quarantine.claimed = false;
        return;
    }
    backoff_reset(&d->backoff);
    d->retry_at_ms = 0;
    uint64_t now = clock_ms();
    d->progress_ms = now;
    ends_confirmed(d, result);
    if (!d->ended) {
        d->acks_alone = false;
        d->one_by_one = false;
    }
    for (size_t i = 0; i < d->round_returns; i++) {
        struct endpoint *endpoint = endpoint_find(&d->endpoints, d->returns.refs[i].subscription_id);
        if (endpoint)
            endpoint_lower(endpoint, d->returns.refs[i].event_seq);
    }
    drop_first(d->returns.refs, sizeof *d->returns.refs, &d->returns.count, d->round_returns);
    drop_first(d->disables, sizeof *d->disables, &d->disable_count, d->round_disables);
    d->round_returns = d->round_disables = 0;
    leases_renewed(d, result);
    claims_answered(d, result, now);
}

// The job in quarantine, when nothing else is in flight.
static size_t claim_alone(struct dispatcher *d) {
    struct quarantine *quarantine = &d->quarantine;
    if (d->in_flight > 0)
        return 0;
    struct endpoint *endpoint = endpoint_find(&d->endpoints, quarantine->ref.subscription_id);
    quarantine->wanted = false;
    if (!endpoint || !endpoint->version->active ||
        !(claimable_shards(d) & shard_bit(shard_of(quarantine->ref.subscription_id))))
        return 0;
    endpoint->claim = (struct job_claim){.subscription_id = endpoint->id,
                                         .slots = 1,
                                         .lease_ms = endpoint->version->deadline_ms + ENDPOINT_LEASE_MARGIN_MS,
                                         .ordered = endpoint->version->subscription.ordered,
                                         .lowest = quarantine->ref.event_seq,
                                         .highest = quarantine->ref.event_seq};
    endpoint->got = 0;
    endpoint->highest = 0;
    endpoint->lowered = INT64_MAX;
    d->claims[0] = endpoint->claim;
    quarantine->claimed = true;
    return 1;
}

static size_t choose_claims(struct dispatcher *d, uint64_t now_ms) {
    if (d->acks_alone || d->quarantine.running)
        return 0;
    if (d->quarantine.wanted)
        return claim_alone(d);
    return endpoint_choose(&d->endpoints, claimable_shards(d), d->options.concurrency - d->in_flight, now_ms, d->claims,
                           MOST_CLAIMS);
}

static void round_start(struct dispatcher *d) {
    uint64_t now = clock_ms();
    if (d->in_round || !d->up || now < d->retry_at_ms)
        return;
    const struct job_end *ends[JOB_ROUND_ENDS];
    struct job_round round = {.ends = ends, .lease_ms = d->options.lease_ms};
    take_renewals(d, now);
    d->claim_count = choose_claims(d, now);
    round.end_count = take_ends(d, ends);
    round.returns = d->returns.refs;
    round.return_count = d->round_returns = d->returns.count;
    round.renewals = d->renewals.refs;
    round.renewal_count = d->renewals.count;
    round.disables = d->disables;
    round.disable_count = d->round_disables = d->disable_count;
    round.claims = d->claims;
    round.claim_count = d->claim_count;
    if (!round.end_count && !round.return_count && !round.renewal_count && !round.disable_count && !round.claim_count)
        return;
    d->claim_serial = (d->claim_serial + 2) & ((1 << TOKEN_BITS) - 1);
    round.token = d->round_token = d->store->owner << TOKEN_BITS | d->claim_serial | d->quarantine.claimed;
    d->round_ms = now;
    d->in_round = true;
    d->store->round(d->store->arg, &round, round_done, d);
}

// ---- Ownership of shards

static uint64_t busy_shards(const struct dispatcher *d) {
    uint64_t busy = endpoint_busy_shards(&d->endpoints) | d->settling;
    for (size_t i = 0; i < d->claim_count; i++) // claimed, and not answered yet
        busy |= shard_bit(shard_of(d->claims[i].subscription_id));
    return busy;
}

// Since when a process has been without a session, by our own look at it.
static bool is_gone(struct dispatcher *d, int64_t owner, uint64_t now_ms) {
    struct absence *unused = NULL;
    for (int i = 0; i < ABSENT_MOST; i++) {
        struct absence *absence = &d->absences[i];
        bool current = absence->seen_ms + 3 * SURVEY_MS > now_ms;
        if (current && absence->owner == owner) {
            absence->seen_ms = now_ms;
            return now_ms - absence->since_ms >= ABSENT_MS;
        }
        if (!current)
            unused = absence;
    }
    if (unused)
        *unused = (struct absence){.owner = owner, .since_ms = now_ms, .seen_ms = now_ms};
    return false;
}

static void absence_ended(struct dispatcher *d, int64_t owner) {
    for (int i = 0; i < ABSENT_MOST; i++)
        if (d->absences[i].owner == owner)
            d->absences[i].seen_ms = 0;
}

static void leases_counted(void *arg, const struct lease_count *counts, size_t count, const struct error *error) {
    struct dispatcher *d = arg;
    d->counting = false;
    if (error)
        return;
    uint64_t now = clock_ms();
    for (struct endpoint *endpoint = d->endpoints.by_id; endpoint; endpoint = endpoint->hh.next) {
        if (endpoint->lease_asked) {
            endpoint->hungry = endpoint->hungry || endpoint->foreign_leases > 0;
            endpoint->foreign_leases = 0;
        }
        endpoint->lease_asked = false;
    }
    struct lease_count *cuts = memory_alloc(sizeof *cuts * (count + 1));
    size_t cut_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (counts[i].present)
            absence_ended(d, counts[i].owner);
        else if (is_gone(d, counts[i].owner, now))
            cuts[cut_count++] = counts[i];
        struct endpoint *endpoint = endpoint_find(&d->endpoints, counts[i].subscription_id);
        if (!endpoint)
            continue;
        endpoint->foreign_leases += counts[i].leases;
        if (d->counted & shard_bit(shard_of(endpoint->id))) // sent at an unknown time, at the latest now
            pace_continue(&endpoint->pace, now, 0);
    }
    if (cut_count && d->up) {
        log_info("leases_cut", LOG_TEXT("lane", d->options.lane), LOG_INT("leases", cut_count));
        d->store->cut(d->store->arg, cuts, cut_count);
        d->survey_at_ms = now; // counted again behind it
        touch(d);
    }
    free(cuts);
    d->settling &= ~d->counted;
    touch(d);
}

// Counts the running leases of former owners, for shards that are settling and endpoints that still had some.
static void count_leases(struct dispatcher *d) {
    if (d->counting)
        return;
    int *ids = memory_alloc(sizeof *ids * (HASH_COUNT(d->endpoints.by_id) + 1));
    size_t count = 0;
    for (struct endpoint *endpoint = d->endpoints.by_id; endpoint; endpoint = endpoint->hh.next) {
        endpoint->lease_asked =
            endpoint->foreign_leases > 0 || (d->settling & d->settled_by_load & shard_bit(shard_of(endpoint->id)));
        if (endpoint->lease_asked)
            ids[count++] = endpoint->id;
    }
    if (count) {
        d->counting = true;
        d->counted = d->settling & d->settled_by_load;
        d->store->leases(d->store->arg, ids, count, leases_counted, d);
    } else {
        d->settling &= ~d->settled_by_load;
        touch(d);
    }
    free(ids);
}

static void shards_changed(struct dispatcher *d) {
    metric_set(METRIC_SHARDS_OWNED, d->options.lane, NULL, shard_count(d->shards.owned));
    log_info("shards_owned", LOG_TEXT("lane", d->options.lane), LOG_INT("owned", shard_count(d->shards.owned)));
}

static void shards_taken(void *arg, uint64_t shards, const struct error *error) {
    struct dispatcher *d = arg;
    d->surveying = false;
    if (error)
        return;
    d->surveyed = true;
    touch(d);
    if (!shards)
        return;
    d->shards.owned |= shards;
    d->settling |= shards;
    endpoint_wake(&d->endpoints, shards);
    shards_changed(d);
    // Others may have sent for them since they were read: read anew, then their leases are counted, then they are
    // claimed for.
    endpoint_forget_shards(&d->endpoints, shards);
    d->settled_by_load &= ~shards;
    if (d->loading)
        d->load_again = true;
    else
        load_changes(d);
}

static void shards_released(void *arg, uint64_t shards, const struct error *error) {
    struct dispatcher *d = arg;
    d->surveying = false;
    if (!error) {
        d->surveyed = true;
        shards_changed(d);
    }
    touch(d);
}

static void survey_answered(void *arg, int dispatchers, uint64_t held, const struct error *error) {
    struct dispatcher *d = arg;
    d->surveying = false;
    if (error || !d->up)
        return;
    d->progress_ms = clock_ms();
    struct shard_plan plan = shard_plan(&d->shards, dispatchers, held, busy_shards(d), (int)(getpid() % SHARD_COUNT));
    if (d->phase != PHASE_UP)
        return;
    d->surveying = plan.release || plan.take;
    if (plan.release) {
        // From here on nothing is claimed for them; the release follows what was sent before it.
        d->shards.owned &= ~plan.release;
        d->shards.leaving &= ~plan.release;
        d->store->release(d->store->arg, plan.release, shards_released, d);
    } else if (plan.take) {
        d->store->take(d->store->arg, plan.take, shards_taken, d);
    } else {
        d->surveyed = true;
        touch(d);
    }
}

// ---- Subscriptions and waiting jobs

static void changes_answered(void *arg, const struct subscription_change *changes, size_t count,
                             const struct error *error) {
    struct dispatcher *d = arg;
    d->loading = false;
    if (error)
        return;
    uint64_t now = clock_ms();
    for (size_t i = 0; i < count; i++)
        endpoint_table_apply(&d->endpoints, &changes[i], now);
    d->loaded = true;
    if (d->load_again) {
        load_changes(d);
        return;
    }
    d->settled_by_load |= d->settling;
    if (d->settling)
        count_leases(d);
    touch(d);
}

static void load_changes(struct dispatcher *d) {
    size_t count = 0;
    struct subscription_known *known = memory_alloc(sizeof *known * (HASH_COUNT(d->endpoints.by_id) + 1));
    for (const struct endpoint *endpoint = d->endpoints.by_id; endpoint; endpoint = endpoint->hh.next)
        if (!endpoint->gone)
            known[count++] = (struct subscription_known){.id = endpoint->id, .version = endpoint->row_version};
    d->loading = true;
    d->load_again = false;
    d->store->changes(d->store->arg, known, count, changes_answered, d);
    free(known);
}

static void held_answered(void *arg, bool more, const struct error *error) {
    struct dispatcher *d = arg;
    d->holding = false;
    if (more)
        d->survey_at_ms = 0;
}

static void hold_inactive(struct dispatcher *d) {
    size_t count = 0;
    int *ids = memory_alloc(sizeof *ids * (HASH_COUNT(d->endpoints.by_id) + 1));
    for (const struct endpoint *endpoint = d->endpoints.by_id; endpoint; endpoint = endpoint->hh.next)
        if (!endpoint->version->active && !endpoint->gone && shard_may_claim(&d->shards, shard_of(endpoint->id)))
            ids[count++] = endpoint->id;
    if (count) {
        d->holding = true;
        d->store->hold(d->store->arg, ids, count, held_answered, d);
    }
    free(ids);
}

static void held_were_found(void *arg, const int *subscription_ids, size_t count, const struct error *error) {
    struct dispatcher *d = arg;
    for (size_t i = 0; i < count; i++) {
        struct endpoint *endpoint = endpoint_find(&d->endpoints, subscription_ids[i]);
        if (endpoint)
            endpoint->held = true;
    }
}

static void held_were_released(void *arg, const struct job_release *released, size_t count, const struct error *error) {
    struct dispatcher *d = arg;
    d->releasing = false;
    if (error)
        return;
    for (struct endpoint *endpoint = d->endpoints.by_id; endpoint; endpoint = endpoint->hh.next) {
        if (!endpoint->release_asked)
            continue;
        int went = 0;
        for (size_t i = 0; i < count; i++)
            if (released[i].subscription_id == endpoint->id)
                went = released[i].count;
        endpoint_released(endpoint, endpoint->release_asked, went);
        endpoint->release_asked = 0;
    }
    touch(d);
}

// Held jobs of subscriptions that are active again, each at its own rate.
static void release_held(struct dispatcher *d, uint64_t now_ms) {
    if (d->releasing)
        return;
    struct job_release *releases = memory_alloc(sizeof *releases * (HASH_COUNT(d->endpoints.by_id) + 1));
    size_t count = 0;
    for (struct endpoint *endpoint = d->endpoints.by_id; endpoint; endpoint = endpoint->hh.next) {
        endpoint->release_asked = 0;
        if (!endpoint->held || endpoint->gone || !endpoint->version->active ||
            !(claimable_shards(d) & shard_bit(shard_of(endpoint->id))))
            continue;
        endpoint->release_asked = endpoint_may_release(endpoint, now_ms, RELEASE_MOST);
        if (endpoint->release_asked)
            releases[count++] = (struct job_release){.subscription_id = endpoint->id, .count = endpoint->release_asked};
    }
    if (count) {
        d->releasing = true;
        d->store->release_held(d->store->arg, releases, count, held_were_released, d);
    }
    free(releases);
}

static bool any_held(const struct dispatcher *d) {
    for (const struct endpoint *endpoint = d->endpoints.by_id; endpoint; endpoint = endpoint->hh.next)
        if (endpoint->held && !endpoint->gone && endpoint->version->active &&
            (claimable_shards(d) & shard_bit(shard_of(endpoint->id))))
            return true;
    return false;
}

static void promote_answered(void *arg, const int *subscription_ids, size_t count, bool more, int64_t next_due_ms,
                             const struct error *error) {
    struct dispatcher *d = arg;
    d->promoting = false;
    uint64_t now = clock_ms();
    d->promote_at_ms = now + SURVEY_MS;
    if (error)
        return;
    for (size_t i = 0; i < count; i++) {
        struct endpoint *endpoint = endpoint_find(&d->endpoints, subscription_ids[i]);
        if (endpoint)
            endpoint->hungry = true; // from which seq on a notification says
    }
    if (more)
        d->promote_at_ms = now;
    else if (next_due_ms >= 0 && next_due_ms < SURVEY_MS)
        d->promote_at_ms = now + (uint64_t)next_due_ms;
    d->promoted = count == 0 && !more;
    if (count)
        d->promote_at_ms = d->promote_at_ms < now + POLL_MS ? d->promote_at_ms : now + POLL_MS;
    touch(d);
}

// ---- Time

static bool is_drained(const struct dispatcher *d) {
    return d->up && d->surveyed && d->loaded && d->promoted && !d->settling && !d->in_round && !d->sending &&
           !d->ended && !d->confirming && !d->returns.count && !d->acks_alone && !d->quarantine.wanted &&
           !any_held(d) && !endpoint_any_hungry(&d->endpoints, claimable_shards(d), clock_ms());
}

static void stop_check(struct dispatcher *d) {
    if (d->phase != PHASE_STOPPING)
        return;
    uint64_t now = clock_ms();
    bool unwritten = d->ended || d->confirming || d->returns.count || d->in_round;
    if (d->sending || unwritten) {
        uint64_t begun = d->stop_ms > d->last_end_ms ? d->stop_ms : d->last_end_ms;
        uint64_t wait_ms = d->sending ? (uint64_t)d->sink->deadline_ms + DRAIN_MARGIN_MS : DRAIN_MARGIN_MS;
        if (now < (d->sending ? d->stop_ms : begun) + wait_ms)
            return;
        log_warn("drain_incomplete", LOG_TEXT("lane", d->options.lane), LOG_INT("in_flight", d->in_flight),
                 LOG_BOOL("unwritten", unwritten));
    }
    d->phase = PHASE_STOPPED;
    d->on_stopped(d->stopped_arg);
}

static void on_timer(uv_timer_t *timer);
static void timer_arm(struct dispatcher *d);

static void turn_end(struct dispatcher *d) {
    if (!d->dirty)
        return;
    d->dirty = false;
    round_start(d);
    if (d->phase == PHASE_UP && d->options.on_drained && is_drained(d))
        d->options.on_drained(d->options.arg);
    stop_check(d);
    if (d->phase != PHASE_STOPPED)
        timer_arm(d);
}

static void on_prepare(uv_prepare_t *prepare) {
    turn_end(prepare->data);
}
static void on_check(uv_check_t *check) {
    turn_end(check->data);
}

static uint64_t sooner(uint64_t a_ms, uint64_t b_ms) {
    return a_ms < b_ms ? a_ms : b_ms;
}

// The next thing that only time brings.
static void timer_arm(struct dispatcher *d) {
    uint64_t now = clock_ms(), at_ms = d->poll_at_ms;
    if (d->up && d->phase == PHASE_UP) {
        at_ms = sooner(at_ms, d->survey_at_ms);
        if (!d->promoting)
            at_ms = sooner(at_ms, d->promote_at_ms);
        if (!d->releasing && any_held(d))
            at_ms = sooner(at_ms, now + POLL_MS);
        if (!d->in_round)
            at_ms = sooner(at_ms, endpoint_next_ms(&d->endpoints, claimable_shards(d), now));
    }
    if (d->retry_at_ms > now)
        at_ms = sooner(at_ms, d->retry_at_ms);
    if (at_ms != d->timer_at_ms || !uv_is_active((const uv_handle_t *)&d->timer)) {
        d->timer_at_ms = at_ms;
        uv_update_time(d->options.loop);
        uv_timer_start(&d->timer, on_timer, at_ms > now ? at_ms - now : 1, 0);
    }
}

static void survey(struct dispatcher *d, uint64_t now_ms) {
    d->survey_at_ms = now_ms + SURVEY_MS;
    if (!d->loading)
        load_changes(d);
    if (!d->surveying) {
        d->surveying = true;
        d->store->survey(d->store->arg, survey_answered, d);
    }
    if (d->loaded)
        count_leases(d);
    if (!d->holding)
        hold_inactive(d);
    if (due(d->held_survey_at_ms, now_ms)) {
        d->held_survey_at_ms = now_ms + HELD_SURVEY_MS;
        d->store->held(d->store->arg, held_were_found, d);
    }
}

static void on_timer(uv_timer_t *timer) {
    struct dispatcher *d = timer->data;
    uint64_t now = clock_ms();
    if (due(d->poll_at_ms, now)) {
        endpoint_wake(&d->endpoints, d->shards.owned);
        d->poll_at_ms = now + (now > d->worked_ms + IDLE_MS ? IDLE_POLL_MS : POLL_MS);
    }
    if (d->up && d->phase == PHASE_UP) {
        if (due(d->survey_at_ms, now))
            survey(d, now);
        if (!d->promoting && due(d->promote_at_ms, now)) {
            d->promoting = true;
            d->store->promote(d->store->arg, promote_answered, d);
        }
        release_held(d, now);
    }
    touch(d);
}

// ---- Life

struct dispatcher *dispatcher_new(const struct dispatcher_options *options) {
    assert(options->lease_ms >= options->sink->deadline_ms + DISPATCHER_LEASE_MARGIN_MS);
    struct dispatcher *d = memory_alloc(sizeof *d);
    d->options = *options;
    d->store = options->store;
    d->sink = options->sink;
    d->phase = PHASE_UP;
    d->backoff = (struct backoff){.first_ms = 200, .most_ms = 5000};
    d->progress_ms = clock_ms();
    endpoint_table_init(&d->endpoints, options->sink);
    uv_timer_init(options->loop, &d->timer);
    uv_prepare_init(options->loop, &d->prepare);
    uv_check_init(options->loop, &d->check);
    d->timer.data = d->prepare.data = d->check.data = d;
    d->worked_ms = clock_ms();
    d->dirty = true;
    uv_prepare_start(&d->prepare, on_prepare);
    uv_check_start(&d->check, on_check);
    return d;
}

void dispatcher_up(struct dispatcher *d) {
    d->up = true;
    d->shards = (struct shard_set){0};
    d->settling = 0;
    d->surveyed = d->promoted = d->releasing = false;
    d->settled_by_load = 0;
    d->survey_at_ms = d->promote_at_ms = d->retry_at_ms = d->held_survey_at_ms = d->poll_at_ms = 0;
    memset(d->absences, 0, sizeof d->absences);
    touch(d);
}

void dispatcher_down(struct dispatcher *d) {
    d->up = false;
    d->shards = (struct shard_set){0};
    d->settling = 0;
    metric_set(METRIC_SHARDS_OWNED, d->options.lane, NULL, 0);
}

void dispatcher_wake(struct dispatcher *d, uint64_t shards, int64_t lowest) {
    endpoint_wake_from(&d->endpoints, shards, lowest);
    if (shards == UINT64_MAX && d->up) { // not one shard: a requeue, and what it moved waits in jobs_waiting
        d->promote_at_ms = 0;
        endpoint_probe_now(&d->endpoints, clock_ms());
    }
    touch(d);
}

const char *dispatcher_unready(const struct dispatcher *d) {
    if (!d->up)
        return "database: not connected";
    if (clock_ms() > d->progress_ms + UNREADY_MS)
        return "database: no answer";
    return d->surveyed && d->loaded ? NULL : "starting";
}

int dispatcher_in_flight(const struct dispatcher *d) {
    return d->in_flight;
}

void dispatcher_stop(struct dispatcher *d, void (*on_stopped)(void *arg), void *arg) {
    assert(d->phase == PHASE_UP);
    d->phase = PHASE_STOPPING;
    d->on_stopped = on_stopped;
    d->stopped_arg = arg;
    d->stop_ms = clock_ms();
    if (d->sink->drain)
        d->sink->drain(d->sink->arg);
    touch(d);
}

static void handle_closed(uv_handle_t *handle) {
    struct dispatcher *d = handle->data;
    if (--d->open_handles > 0)
        return;
    struct job *job, *next;
    DL_FOREACH_SAFE(d->ended, job, next) {
        job_free(job);
    }
    assert(!d->sending && !d->confirming);
    endpoint_table_close(&d->endpoints);
    free(d->returns.refs);
    free(d->renewals.refs);
    free(d->disables);
    void (*on_closed)(void *) = d->on_closed;
    void *arg = d->closed_arg;
    free(d);
    if (on_closed)
        on_closed(arg);
}

void dispatcher_close(struct dispatcher *d, void (*on_closed)(void *arg), void *arg) {
    if (!d) {
        if (on_closed)
            on_closed(arg);
        return;
    }
    d->on_closed = on_closed;
    d->closed_arg = arg;
    d->open_handles = 3;
    uv_close((uv_handle_t *)&d->timer, handle_closed);
    uv_close((uv_handle_t *)&d->prepare, handle_closed);
    uv_close((uv_handle_t *)&d->check, handle_closed);
}
