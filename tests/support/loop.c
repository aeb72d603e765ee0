#include "tests/support/loop.h"
#include "tests/support/fixture.h"
#include <check.h>
#include <stdbool.h>

static void on_late(uv_timer_t *timer) {
    *(bool *)timer->data = true;
}

// True: *count has reached the number in time. count may be NULL.
static bool turn(uv_loop_t *loop, const int *count, int number, unsigned ms) {
    bool late = false;
    uv_timer_t timer;
    uv_timer_init(loop, &timer);
    timer.data = &late;
    uv_update_time(loop);
    uv_timer_start(&timer, on_late, ms, 0);
    while ((!count || *count < number) && !late)
        uv_run(loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(loop, UV_RUN_NOWAIT);
    return count && *count >= number;
}

void loop_turn_until(uv_loop_t *loop, const int *count, int number, unsigned deadline_ms, const char *what) {
    if (!turn(loop, count, number, deadline_ms < HANG_MS ? HANG_MS : deadline_ms))
        ck_abort_msg("%s: %d of %d after %u ms", what, *count, number, deadline_ms);
}

void loop_turn_for(uv_loop_t *loop, unsigned ms) {
    turn(loop, NULL, 0, ms);
}
