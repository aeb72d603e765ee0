// shard: which of the 64 shards this process owns and which it should. Pure: the locks themselves are taken and given
// back by the store, on the session whose life is the ownership.
//
// A shard belongs to whoever holds the session advisory lock (0x726f7763, shard). Dispatchers count each other by a
// shared lock (0x726f7763, 64) and each aims at ceil(64 / dispatchers) shards.
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { SHARD_COUNT = 64 };

static inline int shard_of(int subscription_id) {
    return (int)((unsigned)subscription_id % SHARD_COUNT);
}
static inline uint64_t shard_bit(int shard) {
    return (uint64_t)1 << shard;
}

struct shard_set {
    uint64_t owned;   // this session holds their locks
    uint64_t leaving; // of the owned: nothing new is claimed, given back when nothing is in flight
};

struct shard_plan {
    uint64_t release;
    uint64_t take;
};

// What to do after a look at the lock table: `dispatchers` are present (this one included), `held` are the shards that
// anybody holds, `busy` those with jobs of ours in flight. Sets `leaving`. Above the target, shards without anything in
// flight leave first; `release` are those that can go now. Below it, `take` are free ones, chosen from a place that
// differs between processes (`offset`), so that two newcomers do not race for the same ones.
struct shard_plan shard_plan(struct shard_set *shards, int dispatchers, uint64_t held, uint64_t busy, int offset);
bool shard_may_claim(const struct shard_set *shards, int shard);
int shard_count(uint64_t mask);
