// sink_discard: delivers to nowhere, at once: for benchmarks of everything but the network. Its deliveries are lost for
// the receivers, so the process demands --allow-discard.
#pragma once
#include "dispatcher/sink.h"
#include <uv.h>

// Fills *ret_sink; sink.close frees it all.
void sink_discard_init(struct sink *ret_sink, uv_loop_t *loop);
