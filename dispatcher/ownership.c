// Which shards this process has: the lock table is read, shards are taken and given back, and before a shard that was
// taken is claimed for, its subscriptions are read anew and the leases of former owners counted.
#include "common/clock.h"
#include "common/log.h"
#include "common/memory.h"
#include "common/metrics.h"
#include "dispatcher/dispatcher_state.h"
#include "dispatcher/metrics.h"
#include <stdlib.h>
#include <unistd.h>

enum {
    ABSENT_MS = 5000, // a process without a session for so long is gone: a living one is back sooner
};

static void load_changes(struct dispatcher *d);

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
        dispatcher_touch(d);
    }
    free(cuts);
    d->settling &= ~d->counted;
    dispatcher_touch(d);
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
        dispatcher_touch(d);
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
    dispatcher_touch(d);
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
    dispatcher_touch(d);
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
        dispatcher_touch(d);
    }
}

// ---- Subscriptions

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
    dispatcher_touch(d);
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

void ownership_survey(struct dispatcher *d) {
    if (!d->loading)
        load_changes(d);
    if (!d->surveying) {
        d->surveying = true;
        d->store->survey(d->store->arg, survey_answered, d);
    }
    if (d->loaded)
        count_leases(d);
}
