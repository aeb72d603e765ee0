#include "dispatcher/sink_discard.h"
#include "common/memory.h"
#include <stdlib.h>

enum { DEADLINE_MS = 1000 };

struct waiting {
    sink_done *done;
    void *arg;
};

struct sink_discard {
    uv_idle_t idle; // runs while something waits: the next loop turn
    struct waiting *waiting;
    size_t count, capacity;
    void (*on_closed)(void *arg);
    void *closed_arg;
};

static const struct attempt_outcome delivered = {.verdict = VERDICT_DELIVERED,
                                                 .class = CLASS_DELIVERED,
                                                 .dns_ms = -1,
                                                 .connect_ms = -1,
                                                 .tls_ms = -1,
                                                 .first_byte_ms = -1,
                                                 .total_ms = 0};

static void on_idle(uv_idle_t *idle) {
    struct sink_discard *discard = idle->data;
    for (size_t i = 0; i < discard->count; i++)
        discard->waiting[i].done(discard->waiting[i].arg, &delivered);
    discard->count = 0;
    uv_idle_stop(idle);
}

static bool discard_prepare(void *arg, struct subscription *subscription, struct error *ret_error) {
    return true;
}

static void discard_forget(void *arg, struct subscription *subscription) {
}

static void discard_send(void *arg, const struct delivery *delivery, sink_done *done, void *done_arg) {
    struct sink_discard *discard = arg;
    if (discard->count == discard->capacity) {
        discard->capacity = discard->capacity ? discard->capacity * 2 : 64;
        discard->waiting = memory_resize(discard->waiting, discard->capacity, sizeof *discard->waiting);
    }
    discard->waiting[discard->count++] = (struct waiting){.done = done, .arg = done_arg};
    uv_idle_start(&discard->idle, on_idle);
}

static void idle_closed(uv_handle_t *handle) {
    struct sink_discard *discard = handle->data;
    void (*on_closed)(void *) = discard->on_closed;
    void *arg = discard->closed_arg;
    free(discard->waiting);
    free(discard);
    if (on_closed)
        on_closed(arg);
}

static void discard_close(void *arg, void (*on_closed)(void *closed_arg), void *closed_arg) {
    struct sink_discard *discard = arg;
    on_idle(&discard->idle);
    discard->on_closed = on_closed;
    discard->closed_arg = closed_arg;
    uv_close((uv_handle_t *)&discard->idle, idle_closed);
}

void sink_discard_init(struct sink *ret_sink, uv_loop_t *loop) {
    struct sink_discard *discard = memory_alloc(sizeof *discard);
    uv_idle_init(loop, &discard->idle);
    discard->idle.data = discard;
    *ret_sink = (struct sink){.kind = "webhook",
                              .deadline_ms = DEADLINE_MS,
                              .arg = discard,
                              .prepare = discard_prepare,
                              .forget = discard_forget,
                              .send = discard_send,
                              .close = discard_close};
}
