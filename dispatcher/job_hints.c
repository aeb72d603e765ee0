#include "dispatcher/job_hints.h"
#include "common/clock.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool follow_narrow(struct job_hints *hints, bool due) {
    bool any = false;
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        uint64_t shards = hints->kept[lane].shards;
        any = any || shards;
        if (!due)
            continue;
        hints->kept[lane].shards = 0;
        for (int shard = 0; shard < SHARD_COUNT; shard++)
            if (shards & shard_bit(shard))
                hints->follow(hints->arg, lane_name((enum lane)lane), shard_bit(shard),
                              hints->kept[lane].lowest[shard]);
    }
    return any;
}

static bool follow_wide(struct job_hints *hints, bool due) {
    bool any = hints->kept_wide;
    if (any && due) {
        hints->kept_wide = false;
        hints->follow(hints->arg, hints->kind, UINT64_MAX, 0);
        hints->follow(hints->arg, lane_name(LANE_SSE), UINT64_MAX, 0);
    }
    return any;
}

// Returns when this pace lets kept hints be followed; UINT64_MAX: none is left.
static uint64_t follow_kept(struct job_hints *hints, struct hint_pace *pace, uint64_t now_ms,
                            bool (*kind)(struct job_hints *hints, bool due)) {
    uint64_t due_ms = hint_due_ms(pace, now_ms);
    bool due = due_ms <= now_ms, any = kind(hints, due);
    if (any && due)
        hint_spend(pace, now_ms);
    return any && !due ? due_ms : UINT64_MAX;
}

static void on_timer(uv_timer_t *timer) {
    struct job_hints *hints = timer->data;
    uint64_t now_ms = clock_ms(), narrow_ms = follow_kept(hints, &hints->pace, now_ms, follow_narrow),
             wide_ms = follow_kept(hints, &hints->wide_pace, now_ms, follow_wide),
             next_ms = narrow_ms < wide_ms ? narrow_ms : wide_ms;
    if (next_ms != UINT64_MAX) {
        uv_update_time(timer->loop);
        uv_timer_start(timer, on_timer, next_ms - now_ms, 0);
    }
}

static void keep(struct job_hints *hints, const char *name, int shard, int64_t lowest) {
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        if (strcmp(name, lane_name((enum lane)lane)) != 0)
            continue;
        if (!(hints->kept[lane].shards & shard_bit(shard)) || lowest < hints->kept[lane].lowest[shard])
            hints->kept[lane].lowest[shard] = lowest;
        hints->kept[lane].shards |= shard_bit(shard);
    }
}

// The payload is "lane shard lowest_seq", repeated; what cannot be read wakes everything.
void job_hints_take(struct job_hints *hints, const char *payload) {
    char lane[16];
    int shard, used;
    int64_t seq;
    bool understood = false;
    while (sscanf(payload, " %15s %d %" SCNd64 "%n", lane, &shard, &seq, &used) == 3) {
        bool in_range = shard >= 0 && shard < SHARD_COUNT;
        understood = true;
        payload += used;
        if (in_range)
            keep(hints, lane, shard, seq);
        hints->kept_wide = hints->kept_wide || !in_range;
    }
    hints->kept_wide = hints->kept_wide || !understood;
    on_timer(&hints->timer);
}

void job_hints_init(struct job_hints *hints, uv_loop_t *loop, const char *kind, job_hints_follow *follow, void *arg) {
    *hints = (struct job_hints){.kind = kind,
                                .follow = follow,
                                .arg = arg,
                                .pace = {.every_ms = 10, .burst = 100},
                                .wide_pace = {.every_ms = 1000, .burst = 10}};
    uv_timer_init(loop, &hints->timer);
    hints->timer.data = hints;
}

void job_hints_stop(struct job_hints *hints) {
    uv_timer_stop(&hints->timer);
}

static void on_timer_closed(uv_handle_t *handle) {
    struct job_hints *hints = handle->data;
    hints->on_closed(hints->closed_arg);
}

void job_hints_close(struct job_hints *hints, void (*on_closed)(void *arg), void *arg) {
    hints->on_closed = on_closed;
    hints->closed_arg = arg;
    uv_close((uv_handle_t *)&hints->timer, on_timer_closed);
}
