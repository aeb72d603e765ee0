#include "gateway/drain.h"
#include "common/backoff.h"
#include "common/clock.h"
#include "common/memory.h"
#include <stdlib.h>

struct drain {
    uv_timer_t timer;
    struct subscribers *subscribers; // borrows
    uint64_t end_ms;
    unsigned long retry_ms;
    void (*on_done)(void *arg);
    void *arg;
};

size_t drain_quota(size_t left, uint64_t left_ms) {
    uint64_t steps = left_ms / DRAIN_STEP_MS;
    return steps == 0 ? left : (size_t)((left + steps - 1) / steps);
}

static void on_closed(uv_handle_t *handle) {
    struct drain *drain = handle->data;
    drain->on_done(drain->arg);
    free(drain);
}

static void on_step(uv_timer_t *timer) {
    struct drain *drain = timer->data;
    uint64_t now = clock_ms();
    uint64_t left_ms = now < drain->end_ms ? drain->end_ms - now : 0;
    for (size_t quota = drain_quota(subscribers_count(drain->subscribers), left_ms); quota > 0; quota--) {
        subscribers_disconnect_one(drain->subscribers, jitter_ms(drain->retry_ms, 0.5));
    }
    if (subscribers_count(drain->subscribers) == 0) {
        uv_close((uv_handle_t *)timer, on_closed);
    }
}

void drain_start(uv_loop_t *loop, struct subscribers *subscribers, uint64_t window_ms, unsigned long retry_ms,
                 void (*on_done)(void *arg), void *arg) {
    struct drain *drain = memory_alloc(sizeof *drain);
    *drain = (struct drain){
        .subscribers = subscribers,
        .end_ms = clock_ms() + window_ms,
        .retry_ms = retry_ms,
        .on_done = on_done,
        .arg = arg,
    };
    uv_timer_init(loop, &drain->timer);
    drain->timer.data = drain;
    uv_timer_start(&drain->timer, on_step, 0, DRAIN_STEP_MS);
}
