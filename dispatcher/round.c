// Attempts and what becomes of them: ends are collected and written by the next round, whose claims bring the jobs that
// are sent next. See dispatcher.c for what may fail.
#include "common/clock.h"
#include "common/db_error.h"
#include "common/log.h"
#include "common/memory.h"
#include "common/metrics.h"
#include "dispatcher/dispatcher_state.h"
#include "dispatcher/metrics.h"
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

enum {
    LOST_MOST = 3,         // lost in a row: the next attempt is made alone; lost alone so often: poisoned
    QUARANTINE_REST = 2,   // after an attempt alone, others work for so many times as long as it took
    ANSWER_AGE_MS = 7000,  // a session that said nothing for longer may be gone already
    SEND_MARGIN_MS = 1000, // left of a lease after the longest request
    TOKEN_BITS = 24,       // of a token, the part that counts by twos (odd: alone); the rest names this process
};

static void send_ended(struct dispatcher *d, struct job *job, const struct attempt_outcome *outcome);

static void ref_add(struct ref_list *list, struct job_ref ref) {
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? list->capacity * 2 : 64;
        list->refs = memory_resize(list->refs, list->capacity, sizeof *list->refs);
    }
    list->refs[list->count++] = ref;
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
    endpoint_end(&d->endpoints, job->endpoint, job->version, job->bytes, job->end.started_ms, clock_ms());
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
        dispatcher_touch(d);
        return;
    }
    metric_add(METRIC_ATTEMPTS, d->options.lane, attempt_class_name(outcome->class), 1);
    metric_observe(METRIC_ATTEMPT_SECONDS, d->options.lane, (double)(now - job->end.started_ms) / 1000);
    if (outcome->class == CLASS_LOST) {
        // Nobody knows whether it arrived: the lease runs out and the next claim records it as lost.
        slot_free(d, job);
        job_free(job);
        dispatcher_touch(d);
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
    dispatcher_touch(d);
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

// Takes a claimed job in; it is sent by job_send.
static void claim_received(struct dispatcher *d, const struct claimed_job *claimed, uint64_t now_ms) {
    if (claim_adopted(d, claimed))
        return;
    struct endpoint *endpoint = endpoint_find(&d->endpoints, claimed->subscription_id);
    // What was known of its host may have ended since the claim was chosen; for many endpoints at once, where all
    // failed together.
    if (!endpoint || !may_send(d, endpoint, now_ms) || quarantined(d, endpoint, claimed, now_ms) ||
        endpoint_waits_for_name(&d->endpoints, endpoint, now_ms)) {
        ref_add(&d->returns, (struct job_ref){.subscription_id = claimed->subscription_id,
                                              .event_seq = claimed->event_seq,
                                              .token = d->round_token});
        return;
    }
    struct job *job = job_new(d, endpoint, claimed, d->round_token, now_ms);
    d->in_flight++;
    d->quarantine.running = d->quarantine.claimed;
    job->lease_end_ms = d->round_ms + endpoint->claim.lease_ms;
    job->renew_at_ms = job->lease_end_ms - endpoint->claim.lease_ms / 3;
    if (claimed->lost)
        log_warn("attempt_lost", LOG_INT("subscription_id", claimed->subscription_id),
                 LOG_INT("seq", claimed->event_seq), LOG_INT("attempt", claimed->attempt - 1),
                 LOG_INT("lost", claimed->lost), LOG_INT("alone", claimed->lost_alone));
    job->lost_alone = claimed->lost_alone;
    DL_APPEND(d->sending, job);
}

static void job_send(struct dispatcher *d, struct job *job) {
    if (!job->delivery.event_id)
        reject(d, job, VERDICT_REJECTED, "the event is not in rowbell.events any more");
    else if (job->too_large) {
        char text[100];
        snprintf(text, sizeof text, "the event's data has %lld bytes; at most %d can be delivered",
                 (long long)job->too_large, JOB_DATA_MOST_BYTES);
        reject(d, job, VERDICT_REJECTED, text);
    } else if (job->lost_alone >= LOST_MOST)
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
        if (now_ms >= job->renew_at_ms && !job->lease_lost)
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
    const struct job *last = d->sending ? d->sending->prev : NULL; // of those that are being sent already
    for (size_t i = 0; i < result->claimed_count; i++) {
        struct endpoint *endpoint = endpoint_find(&d->endpoints, result->claimed[i].subscription_id);
        if (result->claimed[i].attempt == 0) { // left for their bytes
            if (endpoint)
                endpoint_lower(endpoint, result->claimed[i].event_seq);
            continue;
        }
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
    // The database works on the next round while these are sent.
    round_start(d);
    struct job *job = last ? last->next : d->sending;
    for (struct job *next; job; job = next) {
        next = job->next;
        job_send(d, job);
    }
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
    dispatcher_touch(d);
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
        !(dispatcher_claimable(d) & shard_bit(shard_of(quarantine->ref.subscription_id))))
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
    // Half of them at the most, so that the database has one half to find while the other is being sent.
    int free_slots = d->options.concurrency - d->in_flight, half = (d->options.concurrency + 1) / 2;
    return endpoint_choose(&d->endpoints, dispatcher_claimable(d), d->options.concurrency,
                           free_slots < half ? free_slots : half, now_ms, d->claims, MOST_CLAIMS);
}

void round_start(struct dispatcher *d) {
    uint64_t now = clock_ms();
    if (d->in_round || !d->up || now < d->retry_at_ms)
        return;
    const struct job_end *ends[JOB_ROUND_ENDS];
    struct job_round round = {
        .ends = ends, .lease_ms = d->options.lease_ms, .throttle_grace_ms = d->options.throttle_grace_ms};
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
