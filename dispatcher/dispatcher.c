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
    POLL_MS = 200,         // the floor that a lost NOTIFY falls back to
    SURVEY_MS = 1000,      // locks, subscriptions, held jobs
    ANSWER_AGE_MS = 7000,  // a session that said nothing for longer may be gone already
    SEND_MARGIN_MS = 1000, // left of a lease after the longest request
    UNREADY_MS = 15000,
    DRAIN_MARGIN_MS = 5000,
    MOST_CLAIMS = 512, // subscriptions in one claim
    TOKEN_BITS = 24,   // of a token, the part that counts; the rest names this process
};

enum phase { PHASE_DOWN, PHASE_UP, PHASE_STOPPING, PHASE_STOPPED };

struct ref_list {
    struct job_ref *refs;
    size_t count, capacity;
};

struct dispatcher {
    struct dispatcher_options options;
    const struct job_store *store;
    const struct sink *sink;
    struct endpoint_table endpoints;
    struct shard_set shards;
    uint64_t settling; // shards just taken, whose running leases are not counted yet
    uint64_t counted;  // those that the count in flight covers
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
    int64_t owner; // the process part of the tokens
    int64_t claim_serial;
    int64_t round_token;
    uint64_t round_ms; // clock before the round was sent
    bool acks_alone;   // the last round failed: no claims until the ends are confirmed
    bool one_by_one;   // and it failed for data: one end a round
    struct backoff backoff;
    uint64_t retry_at_ms;

    // What is known since the session came up.
    bool surveying, surveyed, loading, loaded, promoting, promoted, holding, counting;
    uint64_t promote_at_ms;
    uint64_t survey_at_ms;
    uint64_t progress_ms; // last round or survey that was answered

    uint64_t stop_ms, last_end_ms;
    void (*on_stopped)(void *arg);
    void *stopped_arg;
    void (*on_closed)(void *arg);
    void *closed_arg;

    uv_timer_t timer;
    uv_prepare_t prepare; // at the end of a loop turn: what the turn brought goes out in one round
    uv_check_t check;
    bool dirty;
    int open_handles;
};

static void round_start(struct dispatcher *d);
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
    d->in_flight--;
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
    if (outcome->pause_endpoint)
        job->endpoint->quiet_until_ms = now + outcome->after_ms;
    if (outcome->disable_subscription)
        disable_later(d, job->end.ref.subscription_id);
    slot_free(d, job);
    DL_APPEND(d->ended, job);
    touch(d);
}

static void reject(struct dispatcher *d, struct job *job, const char *why) {
    struct attempt_outcome outcome = {.verdict = VERDICT_REJECTED,
                                      .class = CLASS_REJECTED,
                                      .dns_ms = -1,
                                      .connect_ms = -1,
                                      .tls_ms = -1,
                                      .first_byte_ms = -1,
                                      .total_ms = -1,
                                      .error = why};
    send_ended(d, job, &outcome);
}

static bool may_send(const struct dispatcher *d, uint64_t now_ms) {
    uint64_t needed_ms = (uint64_t)d->sink->deadline_ms + SEND_MARGIN_MS;
    return d->phase == PHASE_UP && now_ms + needed_ms <= d->round_ms + d->options.lease_ms &&
           now_ms <= d->store->answered_ms(d->store->arg) + ANSWER_AGE_MS;
}

static void claim_received(struct dispatcher *d, const struct claimed_job *claimed, uint64_t now_ms) {
    struct endpoint *endpoint = endpoint_find(&d->endpoints, claimed->subscription_id);
    if (!endpoint || !may_send(d, now_ms)) {
        ref_add(&d->returns, (struct job_ref){.subscription_id = claimed->subscription_id,
                                              .event_seq = claimed->event_seq,
                                              .token = d->round_token});
        return;
    }
    struct job *job = job_new(d, endpoint, claimed, d->round_token);
    d->in_flight++;
    job->lease_end_ms = d->round_ms + d->options.lease_ms;
    job->renew_at_ms = d->round_ms + d->options.lease_ms / 3;
    job->end.started_ms = now_ms;
    if (claimed->lost)
        log_warn("attempt_lost", LOG_INT("subscription_id", claimed->subscription_id),
                 LOG_INT("seq", claimed->event_seq), LOG_INT("attempt", claimed->attempt - 1));
    DL_APPEND(d->sending, job);
    if (!claimed->event_id)
        reject(d, job, "the event is not in rowbell.events any more");
    else if (!job->version->prepared)
        reject(d, job, job->version->fault.text);
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
            metric_add(METRIC_JOBS_POISONED, d->options.lane, NULL, 1);
            log_error("job_poisoned", LOG_TEXT("lane", d->options.lane),
                      LOG_INT("subscription_id", end->ref.subscription_id), LOG_INT("seq", end->ref.event_seq),
                      LOG_INT("attempt", end->attempt), LOG_TEXT("class", end->class), LOG_TEXT("error", end->error));
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
            job->renew_at_ms = d->round_ms + d->options.lease_ms / 3;
        } else {
            job->lease_lost = true; // another run may have begun; ours goes on and its ack will be refused
            lease_was_lost(d, &job->end.ref);
        }
    }
}

// A subscription that got all it asked for may have more.
static void mark_hungry(struct dispatcher *d, const struct job_round_result *result) {
    for (size_t i = 0; i < d->claim_count; i++) {
        int got = 0;
        for (size_t k = 0; k < result->claimed_count; k++)
            got += result->claimed[k].subscription_id == d->claims[i].subscription_id;
        struct endpoint *endpoint = endpoint_find(&d->endpoints, d->claims[i].subscription_id);
        if (endpoint && got >= d->claims[i].slots)
            endpoint->hungry = true;
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
    touch(d);
    if (error) {
        round_failed(d, error);
        d->claim_count = 0;
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
    drop_first(d->returns.refs, sizeof *d->returns.refs, &d->returns.count, d->round_returns);
    drop_first(d->disables, sizeof *d->disables, &d->disable_count, d->round_disables);
    d->round_returns = d->round_disables = 0;
    leases_renewed(d, result);
    mark_hungry(d, result);
    d->claim_count = 0;
    for (size_t i = 0; i < result->claimed_count; i++)
        claim_received(d, &result->claimed[i], now);
}

static void round_start(struct dispatcher *d) {
    uint64_t now = clock_ms();
    if (d->in_round || !d->up || now < d->retry_at_ms)
        return;
    const struct job_end *ends[JOB_ROUND_ENDS];
    struct job_round round = {.ends = ends, .lease_ms = d->options.lease_ms};
    take_renewals(d, now);
    if (!d->acks_alone)
        d->claim_count = endpoint_choose(&d->endpoints, claimable_shards(d), d->options.concurrency - d->in_flight, now,
                                         d->claims, MOST_CLAIMS);
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
    d->claim_serial = (d->claim_serial + 1) & ((1 << TOKEN_BITS) - 1);
    round.token = d->round_token = d->owner << TOKEN_BITS | d->claim_serial;
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

static void leases_counted(void *arg, const struct lease_count *counts, size_t count, const struct error *error) {
    struct dispatcher *d = arg;
    d->counting = false;
    if (error)
        return;
    for (struct endpoint *endpoint = d->endpoints.by_id; endpoint; endpoint = endpoint->hh.next) {
        if (endpoint->lease_asked)
            endpoint->foreign_leases = 0;
        endpoint->lease_asked = false;
    }
    for (size_t i = 0; i < count; i++) {
        struct endpoint *endpoint = endpoint_find(&d->endpoints, counts[i].subscription_id);
        if (endpoint)
            endpoint->foreign_leases = counts[i].leases;
    }
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
        endpoint->lease_asked = endpoint->foreign_leases > 0 || (d->settling & shard_bit(shard_of(endpoint->id)));
        if (endpoint->lease_asked)
            ids[count++] = endpoint->id;
    }
    if (count) {
        d->counting = true;
        d->counted = d->settling;
        d->store->leases(d->store->arg, ids, count, d->owner, leases_counted, d);
    } else {
        d->settling = 0;
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
    if (d->loaded)
        count_leases(d);
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
    if (!d->loaded && d->settling) {
        d->loaded = true;
        count_leases(d);
    }
    d->loaded = true;
    touch(d);
}

static void load_changes(struct dispatcher *d) {
    size_t count = 0;
    struct subscription_known *known = memory_alloc(sizeof *known * (HASH_COUNT(d->endpoints.by_id) + 1));
    for (const struct endpoint *endpoint = d->endpoints.by_id; endpoint; endpoint = endpoint->hh.next)
        if (!endpoint->gone)
            known[count++] = (struct subscription_known){.id = endpoint->id, .version = endpoint->row_version};
    d->loading = true;
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
        if (strcmp(endpoint->version->subscription.state, "active") != 0 &&
            shard_may_claim(&d->shards, shard_of(endpoint->id)))
            ids[count++] = endpoint->id;
    if (count) {
        d->holding = true;
        d->store->hold(d->store->arg, ids, count, held_answered, d);
    }
    free(ids);
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
            endpoint->hungry = true;
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
           !d->ended && !d->confirming && !d->returns.count && !d->acks_alone &&
           !endpoint_any_hungry(&d->endpoints, claimable_shards(d), clock_ms());
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

static void turn_end(struct dispatcher *d) {
    if (!d->dirty)
        return;
    d->dirty = false;
    round_start(d);
    if (d->phase == PHASE_UP && d->options.on_drained && is_drained(d))
        d->options.on_drained(d->options.arg);
    stop_check(d);
}

static void on_prepare(uv_prepare_t *prepare) {
    turn_end(prepare->data);
}
static void on_check(uv_check_t *check) {
    turn_end(check->data);
}

static uint64_t sooner(uint64_t at_ms, uint64_t now_ms, uint64_t wait_ms) {
    if (at_ms <= now_ms)
        return 1;
    return at_ms - now_ms < wait_ms ? at_ms - now_ms : wait_ms;
}

static void on_timer(uv_timer_t *timer) {
    struct dispatcher *d = timer->data;
    uint64_t now = clock_ms();
    if (d->up && d->phase == PHASE_UP) {
        endpoint_wake(&d->endpoints, d->shards.owned);
        if (due(d->survey_at_ms, now)) {
            d->survey_at_ms = now + SURVEY_MS;
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
        }
        if (!d->promoting && due(d->promote_at_ms, now)) {
            d->promoting = true;
            d->store->promote(d->store->arg, promote_answered, d);
        }
    }
    touch(d);
    uint64_t wait_ms = POLL_MS;
    if (d->up && d->phase == PHASE_UP && !d->promoting)
        wait_ms = sooner(d->promote_at_ms, now, wait_ms);
    if (d->retry_at_ms > now)
        wait_ms = sooner(d->retry_at_ms, now, wait_ms);
    uv_timer_start(&d->timer, on_timer, wait_ms, 0);
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
    // 39 random bits name the process in its tokens, which stay positive.
    d->owner = (int64_t)(random_unit() * (double)((int64_t)1 << 39));
    d->progress_ms = clock_ms();
    endpoint_table_init(&d->endpoints, options->sink);
    uv_timer_init(options->loop, &d->timer);
    uv_prepare_init(options->loop, &d->prepare);
    uv_check_init(options->loop, &d->check);
    d->timer.data = d->prepare.data = d->check.data = d;
    uv_timer_start(&d->timer, on_timer, POLL_MS, 0);
    uv_prepare_start(&d->prepare, on_prepare);
    uv_check_start(&d->check, on_check);
    return d;
}

void dispatcher_up(struct dispatcher *d) {
    d->up = true;
    d->shards = (struct shard_set){0};
    d->settling = 0;
    d->surveyed = d->promoted = false;
    d->survey_at_ms = d->promote_at_ms = d->retry_at_ms = 0;
    uv_timer_start(&d->timer, on_timer, 0, 0);
}

void dispatcher_down(struct dispatcher *d) {
    d->up = false;
    d->shards = (struct shard_set){0};
    d->settling = 0;
    metric_set(METRIC_SHARDS_OWNED, d->options.lane, NULL, 0);
}

void dispatcher_wake(struct dispatcher *d, uint64_t shards) {
    endpoint_wake(&d->endpoints, shards);
    if (shards == UINT64_MAX && d->up) { // not one shard: a requeue, and what it moved waits in jobs_waiting
        d->promote_at_ms = 0;
        uv_timer_start(&d->timer, on_timer, 0, 0);
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
