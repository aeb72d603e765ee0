// drain: the end of a gateway: streams are closed a few at a time, each told a different time to come back, so that the
// other gateways are not stormed.
#pragma once
#include "gateway/subscriber.h"
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

enum { DRAIN_STEP_MS = 50 };

// How many streams to close in this step, with `left` still open and `left_ms` until all must be closed: an equal
// share, at least one (a handful need not take the whole window).
size_t drain_quota(size_t left, uint64_t left_ms);

struct drain;
// on_done when no stream is left, at most window_ms + one step later, and never from inside. The drain frees itself.
void drain_start(uv_loop_t *loop, struct subscribers *subscribers, uint64_t window_ms, unsigned long retry_ms,
                 void (*on_done)(void *arg), void *arg);
