#include "dispatcher/shard.h"
#include <assert.h>

int shard_count(uint64_t mask) {
    return __builtin_popcountll(mask);
}

bool shard_may_claim(const struct shard_set *shards, int shard) {
    return (shards->owned & ~shards->leaving & shard_bit(shard)) != 0;
}

// Up to `count` members of mask, starting at `offset` and wrapping.
static uint64_t pick(uint64_t mask, int count, int offset) {
    uint64_t picked = 0;
    for (int i = 0; i < SHARD_COUNT && count > 0; i++) {
        uint64_t bit = shard_bit((offset + i) % SHARD_COUNT);
        if (mask & bit) {
            picked |= bit;
            count--;
        }
    }
    return picked;
}

struct shard_plan shard_plan(struct shard_set *shards, int dispatchers, uint64_t held, uint64_t busy, int offset) {
    assert(offset >= 0);
    if (dispatchers < 1)
        dispatchers = 1; // our own lock is not in the table yet
    int target = (SHARD_COUNT + dispatchers - 1) / dispatchers;
    int excess = shard_count(shards->owned) - target;
    struct shard_plan plan = {0};
    if (excess > 0) {
        // What is on its way out already stays so: its jobs are running dry.
        uint64_t leaving = pick(shards->leaving, excess, offset);
        leaving |= pick(shards->owned & ~leaving & ~busy, excess - shard_count(leaving), offset);
        leaving |= pick(shards->owned & ~leaving, excess - shard_count(leaving), offset);
        shards->leaving = leaving;
        plan.release = leaving & ~busy;
    } else {
        shards->leaving = 0;
        plan.take = pick(~held & ~shards->owned, -excess, offset);
    }
    return plan;
}
