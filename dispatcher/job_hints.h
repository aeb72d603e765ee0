// job_hints: what NOTIFY rowbell_jobs says, which anybody may send, followed at a pace (common/hint.h). Hints that come
// sooner are kept and followed together, so that a storm of them costs a steady number of looks, and delays nobody's
// jobs by more than the time between two.
#pragma once
#include "common/hint.h"
#include "dispatcher/lanes.h"
#include "dispatcher/shard.h"
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

typedef void job_hints_follow(void *arg, const char *lane, uint64_t shards, int64_t lowest);

struct job_hints {
    const char *kind; // the lane that is woken with SSE by what cannot be read; static
    job_hints_follow *follow;
    void *arg;
    struct hint_pace pace, wide_pace; // wide: every shard; it makes paused endpoints be tried
    struct {
        uint64_t shards;
        int64_t lowest[SHARD_COUNT]; // of each of them
    } kept[LANE_COUNT];
    bool kept_wide;
    uv_timer_t timer;
    void (*on_closed)(void *arg);
    void *closed_arg;
};

void job_hints_init(struct job_hints *hints, uv_loop_t *loop, const char *kind, job_hints_follow *follow, void *arg);
void job_hints_take(struct job_hints *hints, const char *payload);
void job_hints_stop(struct job_hints *hints); // nothing is followed from now on
void job_hints_close(struct job_hints *hints, void (*on_closed)(void *arg), void *arg);
