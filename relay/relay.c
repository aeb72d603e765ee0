// The happy path: pass after pass until one finds less than a whole batch and leaves nothing. While events come close
// together, writers are told that a relay is awake, so that they need not NOTIFY, and it lingers for some passes 1 ms
// apart; then it tells them that nobody is awake, looks once more, and sleeps until a writer's NOTIFY, the fallback
// poll or the sweep. A lone event is told by NOTIFY, which is faster than the next look and cheaper than ten. The
// failure modes: a pass that fails for its data is done again one event at a time, so that one bad row does not hold
// back the others; a fault of the system (no database, a lock time-out, a full disk) counts against no event and makes
// the relay as a whole back off. A pass whose conditions take too long is done again one event at a time, too; but
// first the event's conditions are examined one by one, so that a slow one counts only against its own subscription.
#include "relay/relay.h"
#include "common/db_error.h"
#include "common/log.h"
#include "common/metrics.h"
#include "relay/metrics.h"
#include <assert.h>
#include <string.h>

enum { RETRIES_EVERY_MS = 1000, LINGER_STEP_MS = 1, LINGER_PASSES = 10, CLOSE_MS = 10, FIRST_POLL_MS = 5 };
enum { HINT_EVERY_MS = 50, HINTS_BURST = 20 };

static const char *const state_names[] = {
    [RELAY_DOWN] = "down",
    [RELAY_PASSING] = "passing",
    [RELAY_LISTING] = "listing",
    [RELAY_EXAMINING] = "examining",
    [RELAY_ISOLATING] = "isolating",
    [RELAY_LINGERING] = "lingering",
    [RELAY_FALLING_ASLEEP] = "falling_asleep",
    [RELAY_ASLEEP] = "asleep",
    [RELAY_BACKING_OFF] = "backing_off",
};

static const unsigned allowed[] = {
#define TO(state) (1u << RELAY_##state)
    [RELAY_DOWN] = TO(PASSING),
    [RELAY_PASSING] =
        TO(PASSING) | TO(LISTING) | TO(LINGERING) | TO(FALLING_ASLEEP) | TO(ASLEEP) | TO(BACKING_OFF) | TO(DOWN),
    [RELAY_LISTING] = TO(EXAMINING) | TO(ISOLATING) | TO(PASSING) | TO(BACKING_OFF) | TO(DOWN),
    [RELAY_EXAMINING] = TO(EXAMINING) | TO(ISOLATING) | TO(BACKING_OFF) | TO(DOWN),
    [RELAY_ISOLATING] = TO(EXAMINING) | TO(ISOLATING) | TO(PASSING) | TO(BACKING_OFF) | TO(DOWN),
    [RELAY_LINGERING] = TO(PASSING) | TO(LISTING) | TO(DOWN),
    [RELAY_FALLING_ASLEEP] = TO(PASSING) | TO(DOWN),
    [RELAY_ASLEEP] = TO(PASSING) | TO(LISTING) | TO(DOWN),
    [RELAY_BACKING_OFF] = TO(PASSING) | TO(DOWN),
#undef TO
};

static void move(struct relay *relay, enum relay_state state) {
    assert(allowed[relay->state] & (1u << state));
    relay->state = state;
}

static uint64_t now(const struct relay *relay) {
    return relay->store->now_ms(relay->store->arg);
}

// What was slow for the event in hand is skipped, and so is what is aside: once, and for all events.
static struct relay_conditions conditions(struct relay *relay) {
    struct relay_conditions of = {0};
    of.aside_count = condition_watch_aside(&relay->conditions, now(relay), of.aside);
    for (size_t i = 0; i < of.aside_count; i++)
        of.skip[of.skip_count++] = of.aside[i];
    relay->aside_count = of.aside_count;
    for (size_t i = 0; i < relay->slow_count; i++)
        of.skip[of.skip_count++] = relay->slow[i];
    return of;
}

static void pass(struct relay *relay) {
    move(relay, RELAY_PASSING);
    relay->slow_count = 0;
    bool hardly = !relay->woken && (relay->idle_passes > 0 || !relay->busy);
    relay->hinted = relay->woken;
    relay->woken = false;
    uint64_t now_ms = now(relay);
    int64_t mark = low_water_next(&relay->water, now_ms);
    if (now_ms - relay->swept_ms >= relay->options.sweep_ms)
        mark = 0;
    if (mark == 0)
        relay->swept_ms = now_ms;
    struct relay_conditions of = conditions(relay);
    relay->store->pass(relay->store->arg, mark, low_water_wants_sample(&relay->water, now_ms), hardly, &of);
}

static void list(struct relay *relay, enum relay_suspects which) {
    move(relay, RELAY_LISTING);
    relay->store->list(relay->store->arg, which);
}

static void list_due(struct relay *relay) {
    relay->examines = true;
    list(relay, RELAY_SUSPECTS_DUE);
}

static bool retries_are_due(struct relay *relay) {
    uint64_t now_ms = now(relay);
    if (now_ms - relay->retries_looked_ms < RETRIES_EVERY_MS)
        return false;
    relay->retries_looked_ms = now_ms;
    return true;
}

// The next pass; once a second the events that were set aside come first, however busy the database is.
static void look(struct relay *relay) {
    if (!relay->options.once && retries_are_due(relay))
        list_due(relay);
    else
        pass(relay);
}

static void wake(struct relay *relay) {
    if (!relay->awake) {
        relay->awake = true;
        relay->store->set_awake(relay->store->arg, true);
    }
}

// A writer that saw us awake says nothing when it commits after our last look, and some may never speak (wake = poll).
// So a fresh sleep is light: the next look comes after as long again as the sleep lasted, until the ordinary interval
// is reached.
static unsigned asleep_ms(struct relay *relay) {
    if (relay->options.poll_ms == 0) {
        return relay->options.sweep_ms;
    }
    unsigned wait_ms = relay->asleep_ms < relay->options.poll_ms ? relay->asleep_ms : relay->options.poll_ms;
    relay->asleep_ms = 2 * wait_ms;
    return wait_ms;
}

// Somebody said that there are events, who may be anybody. Passes that find none have a pace (common/hint.h).
static void follow_hint(struct relay *relay) {
    uint64_t now_ms = now(relay);
    uint64_t due_ms = hint_due_ms(&relay->hints, now_ms);
    if (due_ms <= now_ms) {
        pass(relay);
        return;
    }
    if (relay->state != RELAY_ASLEEP && relay->state != RELAY_LINGERING)
        move(relay, RELAY_LINGERING);
    relay->store->wait(relay->store->arg, due_ms - now_ms);
}

// Nothing was left by the pass that just ended.
static void rest(struct relay *relay) {
    if (relay->options.once) {
        move(relay, RELAY_ASLEEP);
        relay->options.on_drained(relay->options.arg);
    } else if (retries_are_due(relay)) {
        list_due(relay);
    } else if (relay->woken) {
        follow_hint(relay);
    } else if (!relay->awake) {
        move(relay, RELAY_ASLEEP);
        relay->store->wait(relay->store->arg, asleep_ms(relay));
    } else if (relay->busy && relay->idle_passes < LINGER_PASSES) {
        move(relay, RELAY_LINGERING);
        relay->store->wait(relay->store->arg, LINGER_STEP_MS);
    } else {
        move(relay, RELAY_FALLING_ASLEEP);
        relay->awake = false;
        relay->asleep_ms = FIRST_POLL_MS;
        relay->idle_passes++;
        relay->store->set_awake(relay->store->arg, false);
    }
}

// A deadlock or a serialization failure is nobody's fault: the same again, soon.
static void back_off(struct relay *relay, const struct error *error) {
    move(relay, RELAY_BACKING_OFF);
    low_water_init(&relay->water);
    uint64_t wait_ms = db_error_is_transient_conflict(error) ? jitter_ms(20, 0.5) : backoff_next_ms(&relay->backoff);
    log_warn("pass_failed", LOG_TEXT("error", error->text), LOG_TEXT("sqlstate", error->sqlstate),
             LOG_INT("retry_ms", wait_ms));
    metric_add(METRIC_FANOUT_ERRORS, NULL, NULL, 1);
    relay->store->wait(relay->store->arg, wait_ms);
}

static void examine(struct relay *relay, int after_subscription) {
    move(relay, RELAY_EXAMINING);
    struct relay_conditions of = conditions(relay);
    relay->store->examine(relay->store->arg, relay->suspects[relay->suspect_next].seq, after_subscription, &of);
}

static void pass_one(struct relay *relay) {
    move(relay, RELAY_ISOLATING);
    struct relay_conditions of = conditions(relay);
    relay->store->pass_one(relay->store->arg, relay->suspects[relay->suspect_next].seq, relay->examined, &of);
}

static void isolate_next(struct relay *relay) {
    if (relay->suspect_next == relay->suspect_count) {
        pass(relay);
        return;
    }
    relay->slow_count = 0;
    relay->examined = false;
    if (relay->examines)
        examine(relay, 0);
    else
        pass_one(relay);
}

void relay_init(struct relay *relay, const struct relay_store *store, const struct relay_options *options) {
    *relay = (struct relay){
        .hints = {.every_ms = HINT_EVERY_MS, .burst = HINTS_BURST},
        .store = store,
        .options = *options,
        .backoff = {.first_ms = 2000, .most_ms = 60000},
        .swept_ms = store->now_ms(store->arg),
        .retries_looked_ms = store->now_ms(store->arg),
    };
}

void relay_on_up(struct relay *relay) {
    if (relay->state == RELAY_DOWN) {
        low_water_init(&relay->water);
        relay->awake = relay->woken = false;
        relay->busy = true; // who was away may have much to do
        relay->idle_passes = 0;
        wake(relay);
        pass(relay);
    }
}

void relay_on_down(struct relay *relay) {
    log_debug("relay_down", LOG_TEXT("was", state_names[relay->state]));
    if (relay->state != RELAY_DOWN)
        move(relay, RELAY_DOWN);
}

void relay_on_timer(struct relay *relay) {
    if (relay->state == RELAY_BACKING_OFF)
        pass(relay);
    else if (relay->state == RELAY_LINGERING || relay->state == RELAY_ASLEEP)
        look(relay);
}

void relay_on_wake(struct relay *relay) {
    relay->woken = true;
    if (relay->state == RELAY_ASLEEP || relay->state == RELAY_LINGERING) {
        relay->idle_passes = 0;
        follow_hint(relay); // what was set aside does not make new events wait
    }
}

void relay_on_asleep(struct relay *relay) {
    if (relay->state == RELAY_FALLING_ASLEEP)
        pass(relay);
}

static void count(struct relay *relay, const struct relay_pass *done) {
    metric_add(METRIC_FANOUT_PASSES, NULL, NULL, 1);
    if (done->events > 0) {
        metric_add(METRIC_FANOUT_EVENTS, NULL, NULL, (double)done->events);
        metric_add(METRIC_FANOUT_JOBS, NULL, NULL, (double)done->jobs);
        metric_observe(METRIC_FANOUT_LATENCY, NULL, done->oldest_age_s);
    }
    if (relay->aside_count > 0 && done->put_aside == (int64_t)relay->aside_count)
        condition_watch_recorded(&relay->conditions);
    if (done->poisoned > 0)
        log_error("job_poisoned", LOG_TEXT("class", "condition"), LOG_INT("jobs", done->poisoned));
}

static void found(struct relay *relay, const struct relay_pass *done) {
    uint64_t now_ms = now(relay);
    relay->busy = done->claim.full || now_ms - relay->found_ms <= CLOSE_MS;
    relay->found_ms = now_ms;
    relay->woken = relay->woken || done->claim.left > 0;
    relay->idle_passes = 0;
    relay->asleep_ms = FIRST_POLL_MS;
    if (relay->busy)
        wake(relay);
}

// Class 42 in a batch may be one subscription's condition (an unknown variable); alone, conditions are fenced off, so
// that it is the system's when it comes again.
static bool may_be_one_rows(const struct error *error) {
    return !db_error_is_transient_conflict(error) &&
           (!db_error_is_system(error) || strncmp(error->sqlstate, "42", 2) == 0);
}

static bool is_time_out(const struct error *error) {
    return strcmp(error->sqlstate, "57014") == 0;
}

void relay_on_pass(struct relay *relay, const struct relay_pass *done, const struct error *error) {
    if (relay->state != RELAY_PASSING)
        return; // the connection went down meanwhile; the pass is claimed again
    if (!error) {
        backoff_reset(&relay->backoff);
        count(relay, done);
        if (done->sampled)
            low_water_on_sample(&relay->water, &done->sample, now(relay));
        low_water_on_pass(&relay->water, &done->claim, now(relay));
        metric_set(METRIC_LOW_WATER_MARK, NULL, NULL, (double)relay->water.mark);
        if (done->events > 0 || done->claim.left > 0)
            found(relay, done);
        else
            relay->idle_passes++;
        if (relay->hinted && done->events == 0)
            hint_spend(&relay->hints, now(relay));
        if (done->claim.full || done->claim.left > 0)
            look(relay);
        else
            rest(relay);
    } else if (!may_be_one_rows(error) && !(is_time_out(error) && done->conditions)) {
        back_off(relay, error);
    } else {
        log_warn("batch_failed", LOG_TEXT("error", error->text), LOG_TEXT("sqlstate", error->sqlstate));
        metric_add(METRIC_FANOUT_ERRORS, NULL, NULL, 1);
        low_water_init(&relay->water);
        relay->examines = is_time_out(error);
        list(relay, RELAY_SUSPECTS_BATCH);
    }
}

void relay_on_list(struct relay *relay, const struct relay_suspect *suspects, size_t count_of,
                   const struct error *error) {
    if (relay->state != RELAY_LISTING) {
        return;
    }
    if (error) {
        back_off(relay, error);
        return;
    }
    assert(count_of <= RELAY_BATCH_SIZE);
    memcpy(relay->suspects, suspects, count_of * sizeof *suspects);
    relay->suspect_count = count_of;
    relay->suspect_next = 0;
    isolate_next(relay);
}

void relay_on_examine(struct relay *relay, const struct relay_examined *examined, const struct error *error) {
    if (relay->state != RELAY_EXAMINING) {
        return;
    }
    const struct relay_suspect *suspect = &relay->suspects[relay->suspect_next];
    if (error) {
        back_off(relay, error);
    } else if (!examined->key[0] || relay->slow_count == CONDITION_WATCH_SLOTS) {
        relay->examined = true;
        pass_one(relay);
    } else if (examined->slow) {
        bool aside = condition_watch_slow(&relay->conditions, examined->key, now(relay));
        memcpy(relay->slow[relay->slow_count++], examined->key, sizeof examined->key);
        log_warn(aside ? "condition_put_aside" : "condition_slow", LOG_INT("subscription", examined->subscription),
                 LOG_INT("seq", suspect->seq));
        metric_add(METRIC_CONDITIONS_SLOW, NULL, NULL, 1);
        examine(relay, examined->subscription);
    } else {
        examine(relay, examined->subscription - 1);
    }
}

// A time-out is the row's own when the row ran alone and no condition of it was slow.
static bool counts_against_row(const struct error *error) {
    return is_time_out(error) || (!db_error_is_system(error) && !db_error_is_transient_conflict(error));
}

void relay_on_pass_one(struct relay *relay, const struct relay_pass *done, const struct error *error) {
    if (relay->state != RELAY_ISOLATING) {
        return;
    }
    if (!error) {
        count(relay, done);
        relay->suspect_next++;
        isolate_next(relay);
    } else if (is_time_out(error) && !relay->examined) {
        examine(relay, 0);
    } else if (counts_against_row(error)) {
        relay->store->fail(relay->store->arg, &relay->suspects[relay->suspect_next], error->text);
    } else {
        back_off(relay, error);
    }
}

void relay_on_fail(struct relay *relay, bool counted, bool poisoned, const struct error *error) {
    if (relay->state != RELAY_ISOLATING) {
        return;
    }
    if (error) {
        back_off(relay, error);
        return;
    }
    if (counted) {
        const struct relay_suspect *suspect = &relay->suspects[relay->suspect_next];
        metric_add(METRIC_FANOUT_ERRORS, NULL, NULL, 1);
        if (poisoned) {
            log_error("event_poisoned", LOG_INT("seq", suspect->seq), LOG_INT("attempts", suspect->attempts + 1));
        } else {
            log_warn("event_set_aside", LOG_INT("seq", suspect->seq), LOG_INT("attempts", suspect->attempts + 1));
        }
    }
    relay->suspect_next++;
    isolate_next(relay);
}
