// The happy path: the session comes up; once a second the lock table is read, shards are taken and subscriptions
// loaded; whenever an endpoint is hungry and has slots, or attempts have ended, a round goes to the store (ends first,
// claims last, one commit); its answer brings jobs, which go to the sink once the next round is on its way, so that the
// database works while they are sent; each is ended by a later round.
// While work is found no timer is waited for.
//
// The failure modes: a round that fails puts its ends back, and they are sent again alone, without claims, until they
// are confirmed; an end that the database refuses for its data is sent by itself, then without the texts from the wire.
// A session that is lost takes the shards; sends in flight go on and are ended by (job, token) on the next session. A
// claim that is answered too late to be sent under its lease is given back uncounted.
#include "dispatcher/dispatcher.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/memory.h"
#include "common/metrics.h"
#include "dispatcher/dispatcher_state.h"
#include "dispatcher/metrics.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

enum {
    IDLE_POLL_MS = 1000, // after IDLE_MS without a job
    IDLE_MS = 10000,
    UNREADY_MS = 15000,
    DRAIN_MARGIN_MS = 5000,
};

static bool due(uint64_t at_ms, uint64_t now_ms) {
    return now_ms >= at_ms;
}

// ---- Time

static bool is_drained(struct dispatcher *d) {
    return d->up && d->surveyed && d->loaded && d->promoted && !d->settling && !d->in_round && !d->sending &&
           !d->ended && !d->confirming && !d->returns.count && !d->acks_alone && !d->quarantine.wanted &&
           !endpoint_any_held(&d->endpoints, dispatcher_claimable(d)) &&
           !endpoint_any_hungry(&d->endpoints, dispatcher_claimable(d), clock_ms());
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
        if (!d->releasing && endpoint_any_held(&d->endpoints, dispatcher_claimable(d)))
            at_ms = sooner(at_ms, now + POLL_MS);
        if (!d->in_round)
            at_ms = sooner(at_ms, endpoint_next_ms(&d->endpoints, dispatcher_claimable(d), now));
    }
    if (d->retry_at_ms > now)
        at_ms = sooner(at_ms, d->retry_at_ms);
    if (at_ms != d->timer_at_ms || !uv_is_active((const uv_handle_t *)&d->timer)) {
        d->timer_at_ms = at_ms;
        uv_update_time(d->options.loop);
        uv_timer_start(&d->timer, on_timer, at_ms > now ? at_ms - now : 1, 0);
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
        if (due(d->survey_at_ms, now)) {
            d->survey_at_ms = now + SURVEY_MS;
            ownership_survey(d);
            waiting_survey(d, now);
        }
        if (!d->promoting && due(d->promote_at_ms, now))
            waiting_promote(d);
        waiting_release(d, now);
    }
    dispatcher_touch(d);
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
    dispatcher_touch(d);
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
    dispatcher_touch(d);
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
    dispatcher_touch(d);
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
