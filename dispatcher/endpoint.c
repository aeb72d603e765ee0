#include "dispatcher/endpoint.h"
#include "common/log.h"
#include "common/memory.h"
#include "dispatcher/shard.h"
#include <assert.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_IN_FLIGHT_MOST = 1000,
    LOOK_MS = 200,        // between claims that ignore the mark
    LOOK_SHARE = 20,      // they take no more than one part of so many
    IDLE_STALE_MS = 1000, // a success is written down once a second
    FAILING_MS = 5000,    // a former owner saw no success for longer: it is probed first
};

static bool read_number(struct json_object *root, const char *key, double least, double most, bool whole, double *value,
                        struct error *ret_error) {
    struct json_object *item = NULL;
    if (!json_object_is_type(root, json_type_object) || !json_object_object_get_ex(root, key, &item) || !item)
        return true;
    double number = json_object_get_double(item);
    bool is_number =
        json_object_is_type(item, json_type_int) || (!whole && json_object_is_type(item, json_type_double));
    if (!is_number || !(number >= least && number <= most))
        return error_set(ret_error, ERROR_USAGE, "settings.%s is not a number from %g to %g", key, least, most);
    *value = number;
    return true;
}

static bool read_limits(struct endpoint_version *version, const char *settings, struct error *ret_error) {
    struct json_object *root = json_tokener_parse(settings);
    double most = 0, deadline = version->deadline_ms;
    bool ok = read_number(root, "max_in_flight", 1, MAX_IN_FLIGHT_MOST, true, &most, ret_error) &&
              read_number(root, "deadline_ms", 1, RETRY_DELAY_MOST_MS, true, &deadline, ret_error) &&
              read_number(root, "rate", 0.0001, 100000, false, &version->rate, ret_error) &&
              read_number(root, "resume_rate", 0.0001, 100000, false, &version->resume_rate, ret_error);
    json_object_put(root);
    if (!ok)
        return false;
    if (most > 0)
        version->max_in_flight = version->window_most = (int)most;
    if (deadline < version->deadline_ms)
        version->deadline_ms = (unsigned)deadline;
    return true;
}

static void read_secrets(struct subscription *subscription, const char *json) {
    struct json_object *array = json_tokener_parse(json);
    size_t count = json_object_is_type(array, json_type_array) ? json_object_array_length(array) : 0;
    subscription->secrets = memory_alloc(sizeof(char *) * (count + 1));
    for (size_t i = 0; i < count; i++)
        subscription->secrets[i] = memory_copy_text(json_object_get_string(json_object_array_get_idx(array, i)));
    subscription->secret_count = (int)count;
    json_object_put(array);
}

static struct endpoint_version *version_new(const struct sink *sink, const struct subscription_change *change) {
    struct endpoint_version *version = memory_alloc(sizeof *version);
    version->subscription =
        (struct subscription){.id = change->id,
                              .name = memory_copy_text(change->name),
                              .kind = memory_copy_text(change->kind),
                              .state = memory_copy_text(change->state),
                              .ordered = change->ordered,
                              .settings = memory_copy_text(change->settings),
                              .seal_id = change->seal_id ? memory_copy_text(change->seal_id) : NULL};
    read_secrets(&version->subscription, change->secrets);
    version->uses = 1;
    version->active = strcmp(change->state, "active") == 0;
    version->max_in_flight = ENDPOINT_MAX_IN_FLIGHT;
    version->window_most = ENDPOINT_WINDOW_MOST;
    version->deadline_ms = sink->deadline_ms;
    retry_schedule_default(&version->schedule);
    version->prepared = read_limits(version, change->settings, &version->fault) &&
                        retry_schedule_from_settings(change->settings, &version->schedule, &version->fault) &&
                        sink->prepare(sink->arg, &version->subscription, &version->fault);
    if (!version->prepared)
        log_warn("subscription_unusable", LOG_TEXT("subscription", change->name),
                 LOG_TEXT("error", version->fault.text));
    return version;
}

static void version_release(const struct sink *sink, struct endpoint_version *version) {
    if (!version || --version->uses > 0)
        return;
    struct subscription *subscription = &version->subscription;
    if (version->prepared)
        sink->forget(sink->arg, subscription);
    for (int i = 0; i < subscription->secret_count; i++) {
        explicit_bzero(subscription->secrets[i], strlen(subscription->secrets[i]));
        free(subscription->secrets[i]);
    }
    free(subscription->secrets);
    free(subscription->name);
    free(subscription->kind);
    free(subscription->state);
    free(subscription->settings);
    free(subscription->seal_id);
    free(version);
}

void endpoint_table_init(struct endpoint_table *table, const struct sink *sink) {
    *table = (struct endpoint_table){.sink = sink};
}

static void endpoint_free(struct endpoint_table *table, struct endpoint *endpoint) {
    HASH_DEL(table->by_id, endpoint);
    version_release(table->sink, endpoint->version);
    free(endpoint->row_version);
    free(endpoint);
}

void endpoint_table_close(struct endpoint_table *table) {
    struct endpoint *endpoint, *next;
    HASH_ITER(hh, table->by_id, endpoint, next) {
        endpoint_free(table, endpoint);
    }
    free(table->wants);
    free(table->wanting);
}

struct endpoint *endpoint_find(const struct endpoint_table *table, int id) {
    struct endpoint *endpoint;
    HASH_FIND_INT(table->by_id, &id, endpoint);
    return endpoint && !endpoint->gone ? endpoint : NULL;
}

void endpoint_table_apply(struct endpoint_table *table, const struct subscription_change *change, uint64_t now_ms) {
    struct endpoint *endpoint;
    HASH_FIND_INT(table->by_id, &change->id, endpoint);
    if (!change->name) {
        if (endpoint && endpoint->in_flight == 0)
            endpoint_free(table, endpoint);
        else if (endpoint)
            endpoint->gone = true;
        return;
    }
    if (!endpoint) {
        endpoint = memory_alloc(sizeof *endpoint);
        endpoint->id = change->id;
        HASH_ADD_INT(table->by_id, id, endpoint);
    }
    version_release(table->sink, endpoint->version);
    endpoint->version = version_new(table->sink, change);
    free(endpoint->row_version);
    endpoint->row_version = memory_copy_text(change->version);
    endpoint->gone = false;
    endpoint->hungry = true;
    endpoint->held = false;
    if (endpoint->version->active)
        endpoint_hold(table, endpoint);
    endpoint->mark = 0;
    endpoint->look_at_ms = 0;
    endpoint->quiet_until_ms = change->pause_ms ? now_ms + change->pause_ms : 0;
    // Who changed it may have mended it: what was learnt is forgotten, but not that it fails.
    endpoint->window = endpoint->version->max_in_flight;
    endpoint->latency_ms = 0;
    endpoint->faults = 0;
    endpoint->failing = !table->sink->paces_itself && change->failing_ms > FAILING_MS;
    endpoint->probing = false;
    endpoint->probe_at_ms = now_ms;
    endpoint->probe_wait_ms = ENDPOINT_PROBE_FIRST_MS;
    endpoint->ramp = (struct pace_ramp){0};
    pace_set(&endpoint->pace, endpoint->version->rate, now_ms);
    if (change->idle_ms >= 0)
        pace_continue(&endpoint->pace, now_ms,
                      change->idle_ms > IDLE_STALE_MS ? (uint64_t)change->idle_ms - IDLE_STALE_MS : 0);
    endpoint->release_ms = now_ms;
    endpoint->release_credit = 0;
}

void endpoint_wake(struct endpoint_table *table, uint64_t shards) {
    for (struct endpoint *endpoint = table->by_id; endpoint; endpoint = endpoint->hh.next)
        if (shards & shard_bit(shard_of(endpoint->id)))
            endpoint->hungry = true;
}

void endpoint_lower(struct endpoint *endpoint, int64_t lowest) {
    endpoint->hungry = true;
    if (lowest < endpoint->mark)
        endpoint->mark = lowest;
    if (lowest < endpoint->lowered)
        endpoint->lowered = lowest;
}

void endpoint_wake_from(struct endpoint_table *table, uint64_t shards, int64_t lowest) {
    for (struct endpoint *endpoint = table->by_id; endpoint; endpoint = endpoint->hh.next)
        if (shards & shard_bit(shard_of(endpoint->id)))
            endpoint_lower(endpoint, lowest);
}

void endpoint_forget_shards(struct endpoint_table *table, uint64_t shards) {
    for (struct endpoint *endpoint = table->by_id; endpoint; endpoint = endpoint->hh.next)
        if ((shards & shard_bit(shard_of(endpoint->id))) && endpoint->row_version)
            endpoint->row_version[0] = '\0';
}

void endpoint_probe_now(struct endpoint_table *table, uint64_t now_ms) {
    for (struct endpoint *endpoint = table->by_id; endpoint; endpoint = endpoint->hh.next) {
        endpoint->probe_at_ms = now_ms;
        endpoint->probe_wait_ms = ENDPOINT_PROBE_FIRST_MS;
    }
}

static int least(int a, int b) {
    return a < b ? a : b;
}

// Slots but for the time: what a rate, a ramp or the wait for a probe holds back is not seen here.
static int slots_in_time(const struct endpoint *endpoint, uint64_t shards, uint64_t now_ms) {
    if (!endpoint->hungry || endpoint->gone || !endpoint->version->active ||
        !(shards & shard_bit(shard_of(endpoint->id))))
        return 0;
    int window = endpoint->failing ? 1 : least((int)endpoint->window, endpoint->version->window_most);
    int slots = window - endpoint->in_flight - endpoint->foreign_leases;
    return slots > 0 ? slots : 0;
}

static int slots_of(const struct endpoint *endpoint, uint64_t shards, uint64_t now_ms) {
    int slots = slots_in_time(endpoint, shards, now_ms);
    if (slots == 0 || endpoint->quiet_until_ms > now_ms || (endpoint->failing && endpoint->probe_at_ms > now_ms))
        return 0;
    slots = least(slots, pace_allows(&endpoint->pace, now_ms));
    return endpoint->failing ? slots : least(slots, pace_ramp_allows(&endpoint->ramp, now_ms));
}

bool endpoint_waits_for_name(const struct endpoint_table *table, struct endpoint *endpoint, uint64_t now_ms) {
    const struct sink *sink = table->sink;
    unsigned wait_ms = sink->wait_ms ? sink->wait_ms(sink->arg, &endpoint->version->subscription) : 0;
    if (wait_ms > 0)
        endpoint->quiet_until_ms = now_ms + wait_ms;
    return wait_ms > 0;
}

// Lists those that want slots, from the one after the last that was served; the pool learns who holds what.
static size_t list_wants(struct endpoint_table *table, uint64_t shards, uint64_t now_ms, struct slot_pool *pool) {
    size_t endpoints = HASH_COUNT(table->by_id), count = 0;
    if (endpoints > table->capacity) {
        table->capacity = endpoints * 2;
        table->wants = memory_resize(table->wants, table->capacity, sizeof *table->wants);
        table->wanting = memory_resize(table->wanting, table->capacity, sizeof *table->wanting);
    }
    struct endpoint *endpoint;
    HASH_FIND_INT(table->by_id, &table->last_served, endpoint);
    for (size_t i = 0; i < endpoints; i++) {
        endpoint = endpoint && endpoint->hh.next ? endpoint->hh.next : table->by_id;
        if (!endpoint->hungry && endpoint->in_flight == 0)
            continue; // has no slot and wants none
        double held_ms;
        enum slot_class class = slot_use_note(&endpoint->use, now_ms, &held_ms);
        pool->held[class] += endpoint->in_flight;
        pool->bytes[class] += endpoint->bytes;
        int slots = slots_of(endpoint, shards, now_ms);
        if (slots > 0) {
            table->wanting[count] = endpoint;
            table->wants[count++] =
                (struct slot_want){.class = class, .held_ms = held_ms, .holds = endpoint->in_flight, .wants = slots};
        }
    }
    return count;
}

// Of those that were granted slots, who waits for a name wants none. Only they are asked, since asking costs more than
// sharing.
static bool drop_waiting(struct endpoint_table *table, size_t wanting, uint64_t now_ms) {
    bool any = false;
    for (size_t i = 0; i < wanting; i++)
        if (table->wants[i].granted > 0 && endpoint_waits_for_name(table, table->wanting[i], now_ms)) {
            table->wants[i].wants = 0;
            any = true;
        }
    return any;
}

static void claim_begin(struct endpoint *endpoint, int slots, uint64_t now_ms) {
    endpoint->claim = (struct job_claim){.subscription_id = endpoint->id,
                                         .slots = slots,
                                         .lease_ms = endpoint->version->deadline_ms + ENDPOINT_LEASE_MARGIN_MS,
                                         .ordered = endpoint->version->subscription.ordered,
                                         .lowest = now_ms >= endpoint->look_at_ms ? 0 : endpoint->mark,
                                         .highest = INT64_MAX};
    endpoint->got = 0;
    endpoint->highest = 0;
    endpoint->lowered = INT64_MAX;
    endpoint->hungry = false;
}

size_t endpoint_choose(struct endpoint_table *table, uint64_t shards, int total, int room, uint64_t now_ms,
                       struct job_claim *ret_claims, size_t most) {
    if (room <= 0)
        return 0;
    struct slot_pool pool = {.total = total, .bytes_most = (size_t)total * ENDPOINT_JOB_BYTES};
    size_t wanting = list_wants(table, shards, now_ms, &pool), count = 0;
    if (wanting == 0)
        return 0;
    do
        fair_share(&pool, room, table->wants, wanting);
    while (drop_waiting(table, wanting, now_ms));
    int first_served = 0;
    for (int holding = 0; holding < 2; holding++)
        for (size_t i = 0; i < wanting && count < most; i++) {
            struct endpoint *endpoint = table->wanting[i];
            if (table->wants[i].granted == 0 || (table->wants[i].holds > 0) != holding)
                continue;
            claim_begin(endpoint, table->wants[i].granted, now_ms);
            ret_claims[count++] = endpoint->claim;
            table->last_served = endpoint->id;
            first_served = first_served ? first_served : endpoint->id;
        }
    if (count == wanting) // all were, so another one is first the next time
        table->last_served = first_served;
    return count;
}

void endpoint_took(struct endpoint *endpoint, int64_t event_seq) {
    endpoint->got++;
    if (event_seq > endpoint->highest)
        endpoint->highest = event_seq;
}

static void mark_move(struct endpoint *endpoint, uint64_t claimed_ms, uint64_t now_ms) {
    bool short_of = endpoint->got < endpoint->claim.slots;
    if (endpoint->claim.lowest == 0) {
        uint64_t cost_ms = (now_ms - claimed_ms) * LOOK_SHARE;
        endpoint->look_at_ms = now_ms + (cost_ms > LOOK_MS ? cost_ms : LOOK_MS);
        endpoint->mark = 0;
    }
    if (endpoint->got > 0)
        endpoint->mark = endpoint->highest + 1;
    if (endpoint->lowered < endpoint->mark)
        endpoint->mark = endpoint->lowered;
    endpoint->unlooked = short_of && endpoint->claim.lowest > 0;
}

void endpoint_answered(struct endpoint *endpoint, uint64_t claimed_ms, uint64_t now_ms) {
    mark_move(endpoint, claimed_ms, now_ms);
    pace_take(&endpoint->pace, claimed_ms, endpoint->got);
    endpoint->probing = endpoint->failing && (endpoint->probing || endpoint->got > 0);
    if (endpoint->ramp.began_ms)
        pace_ramp_take(&endpoint->ramp, endpoint->got);
    if (endpoint->got >= endpoint->claim.slots) // it got all it asked for, so it may have more
        endpoint->hungry = true;
}

void endpoint_hold(struct endpoint_table *table, struct endpoint *endpoint) {
    endpoint->held = true;
    table->held_shards |= shard_bit(shard_of(endpoint->id));
}

bool endpoint_any_held(struct endpoint_table *table, uint64_t shards) {
    if (!(table->held_shards & shards)) // asked in every turn of the loop: nearly always none is
        return false;
    table->held_shards = 0;
    for (const struct endpoint *endpoint = table->by_id; endpoint; endpoint = endpoint->hh.next)
        if (endpoint->held && !endpoint->gone && endpoint->version->active)
            table->held_shards |= shard_bit(shard_of(endpoint->id));
    return table->held_shards & shards;
}

int endpoint_may_release(struct endpoint *endpoint, uint64_t now_ms, int most) {
    double rate = endpoint->version->resume_rate;
    if (rate == 0)
        return most;
    double credit = endpoint->release_credit + rate * (double)(now_ms - endpoint->release_ms) / 1000;
    double credit_most = rate > 1 ? rate : 1;
    endpoint->release_ms = now_ms;
    endpoint->release_credit = credit < credit_most ? credit : credit_most;
    return least((int)endpoint->release_credit, most);
}

void endpoint_released(struct endpoint *endpoint, int asked, int count) {
    endpoint->held = count >= asked;
    if (count > 0)
        endpoint_lower(endpoint, 0);
    endpoint->release_credit -= count;
}

bool endpoint_any_hungry(const struct endpoint_table *table, uint64_t shards, uint64_t now_ms) {
    for (const struct endpoint *endpoint = table->by_id; endpoint; endpoint = endpoint->hh.next) {
        bool unlooked = endpoint->unlooked && !endpoint->gone && endpoint->version->active &&
                        (shards & shard_bit(shard_of(endpoint->id)));
        if (unlooked || (slots_in_time(endpoint, shards, now_ms) > 0 && endpoint->quiet_until_ms <= now_ms &&
                         !(endpoint->failing && endpoint->probe_at_ms > now_ms)))
            return true;
    }
    return false;
}

static uint64_t later(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

uint64_t endpoint_next_ms(const struct endpoint_table *table, uint64_t shards, uint64_t now_ms) {
    uint64_t next_ms = UINT64_MAX;
    for (const struct endpoint *endpoint = table->by_id; endpoint; endpoint = endpoint->hh.next) {
        if (slots_in_time(endpoint, shards, now_ms) == 0)
            continue;
        uint64_t at_ms = later(endpoint->quiet_until_ms, pace_next_ms(&endpoint->pace));
        at_ms = later(at_ms, endpoint->failing ? endpoint->probe_at_ms : pace_ramp_next_ms(&endpoint->ramp));
        if (at_ms > now_ms && at_ms < next_ms)
            next_ms = at_ms;
    }
    return next_ms;
}

uint64_t endpoint_busy_shards(const struct endpoint_table *table) {
    uint64_t busy = 0;
    for (const struct endpoint *endpoint = table->by_id; endpoint; endpoint = endpoint->hh.next)
        if (endpoint->in_flight > 0)
            busy |= shard_bit(shard_of(endpoint->id));
    return busy;
}

struct endpoint_version *endpoint_begin(struct endpoint *endpoint, size_t bytes, uint64_t started_ms) {
    endpoint->in_flight++;
    endpoint->bytes += bytes;
    slot_use_begin(&endpoint->use, started_ms);
    endpoint->version->uses++;
    return endpoint->version;
}

void endpoint_end(struct endpoint_table *table, struct endpoint *endpoint, struct endpoint_version *version,
                  size_t bytes, uint64_t started_ms, uint64_t now_ms) {
    assert(endpoint->in_flight > 0 && endpoint->bytes >= bytes);
    endpoint->in_flight--;
    endpoint->bytes -= bytes;
    slot_use_end(&endpoint->use, started_ms, now_ms);
    version_release(table->sink, version);
    if (endpoint->gone && endpoint->in_flight == 0)
        endpoint_free(table, endpoint);
}

// ---- What an attempt says

static bool is_fault(enum attempt_class class) {
    return class == CLASS_DNS || class == CLASS_CONNECT || class == CLASS_TLS || class == CLASS_TIMEOUT ||
           class == CLASS_HTTP_5XX;
}

// Too much at once, as far as an answer can say: no answer in time, or 429 and 503. Any other 5xx may be about the job.
static bool is_overload(const struct attempt_outcome *outcome) {
    return outcome->class == CLASS_TIMEOUT || outcome->class == CLASS_CONNECT || outcome->status == 429 ||
           outcome->status == 503;
}

static void window_grow(struct endpoint *endpoint, double latency_ms) {
    static const double drift = 1.00002, slower = 1.5, slower_ms = 5;
    const struct endpoint_version *version = endpoint->version;
    if (endpoint->latency_ms == 0 || latency_ms < endpoint->latency_ms)
        endpoint->latency_ms = latency_ms;
    else
        endpoint->latency_ms *= drift;
    if (endpoint->in_flight * 2 < (int)endpoint->window)
        return; // it is not the window that limits
    bool slowed = latency_ms > endpoint->latency_ms * slower + slower_ms;
    double step = endpoint->ramp.began_ms && endpoint->window < version->max_in_flight ? 1 : 1 / endpoint->window;
    if (endpoint->window >= version->max_in_flight && slowed)
        endpoint->window -= endpoint->window > version->max_in_flight ? step : 0;
    else if (endpoint->window + step <= version->window_most)
        endpoint->window += step;
    else
        endpoint->window = version->window_most;
}

static void fault_seen(struct endpoint *endpoint, const struct attempt_outcome *outcome, uint64_t now_ms, double unit) {
    endpoint->faults++;
    if (endpoint->failing) {
        if (!endpoint->probing)
            return; // it began before
        endpoint->probing = false;
        uint64_t wait_ms = endpoint->probe_wait_ms * 2;
        endpoint->probe_wait_ms = wait_ms < ENDPOINT_PROBE_MOST_MS ? wait_ms : ENDPOINT_PROBE_MOST_MS;
    } else if (endpoint->faults >= ENDPOINT_FAULTS) {
        endpoint->failing = true;
        endpoint->probe_wait_ms = ENDPOINT_PROBE_FIRST_MS;
    } else {
        if (is_overload(outcome) && now_ms >= endpoint->shrink_at_ms) {
            endpoint->window = endpoint->window > 2 ? endpoint->window / 2 : 1;
            endpoint->shrink_at_ms = now_ms + (outcome->total_ms > 0 ? (uint64_t)outcome->total_ms : 0) + 1;
        }
        return;
    }
    endpoint->probe_at_ms = now_ms + (uint64_t)((double)endpoint->probe_wait_ms * (0.8 + 0.4 * unit));
}

void endpoint_pause(struct endpoint *endpoint, const struct attempt_outcome *outcome, uint64_t now_ms) {
    if (outcome->pause_endpoint && outcome->after_ms > 0)
        endpoint->quiet_until_ms = later(endpoint->quiet_until_ms, now_ms + outcome->after_ms);
}

void endpoint_learn(struct endpoint *endpoint, const struct attempt_outcome *outcome, uint64_t now_ms, double unit) {
    endpoint_pause(endpoint, outcome, now_ms);
    if (is_fault(outcome->class) || outcome->status == 429) {
        fault_seen(endpoint, outcome, now_ms, unit);
        return;
    }
    if (outcome->verdict != VERDICT_DELIVERED && outcome->class != CLASS_HTTP_4XX && outcome->class != CLASS_ABORTED)
        return; // nothing was asked of it
    endpoint->faults = 0;
    if (endpoint->failing) {
        endpoint->failing = endpoint->probing = false;
        endpoint->window = 1;
        pace_ramp_begin(&endpoint->ramp, now_ms);
    } else if (outcome->verdict == VERDICT_DELIVERED) {
        window_grow(endpoint, outcome->total_ms);
    }
}
