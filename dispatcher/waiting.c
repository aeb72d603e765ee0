// Jobs that nobody may claim now: those of subscriptions that are not active are held, and released when they are
// again; those that wait for a retry are promoted when they are due.
#include "common/clock.h"
#include "common/memory.h"
#include "dispatcher/dispatcher_state.h"
#include <stdlib.h>

enum {
    HELD_SURVEY_MS = 5000,
    RELEASE_MOST = 500, // held jobs of a subscription that go in one step
};

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
            endpoint_hold(&d->endpoints, endpoint);
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
    dispatcher_touch(d);
}

// Each at its own rate.
void waiting_release(struct dispatcher *d, uint64_t now_ms) {
    if (d->releasing)
        return;
    struct job_release *releases = memory_alloc(sizeof *releases * (HASH_COUNT(d->endpoints.by_id) + 1));
    size_t count = 0;
    for (struct endpoint *endpoint = d->endpoints.by_id; endpoint; endpoint = endpoint->hh.next) {
        endpoint->release_asked = 0;
        if (!endpoint->held || endpoint->gone || !endpoint->version->active ||
            !(dispatcher_claimable(d) & shard_bit(shard_of(endpoint->id))))
            continue;
        endpoint->release_asked = endpoint_may_release(endpoint, now_ms, RELEASE_MOST);
        if (endpoint->release_asked == 0)
            continue;
        releases[count] = (struct job_release){.subscription_id = endpoint->id, .count = endpoint->release_asked};
        count++;
    }
    if (count) {
        d->releasing = true;
        d->store->release_held(d->store->arg, releases, count, held_were_released, d);
    }
    free(releases);
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
    dispatcher_touch(d);
}

void waiting_promote(struct dispatcher *d) {
    d->promoting = true;
    d->store->promote(d->store->arg, promote_answered, d);
}

void waiting_survey(struct dispatcher *d, uint64_t now_ms) {
    if (!d->holding)
        hold_inactive(d);
    if (now_ms >= d->held_survey_at_ms) {
        d->held_survey_at_ms = now_ms + HELD_SURVEY_MS;
        d->store->held(d->store->arg, held_were_found, d);
    }
}
