// replay: tells what a client missed, from the log, when the ring does not reach back that far. A few reads are in
// flight, the rest wait in a queue. What a copy of the log cannot decide is asked of its primary.
#pragma once
#include "common/buffer.h"
#include "common/error.h"
#include "gateway/resume.h"
#include "gateway/scope_index.h"
#include "gateway/stream_source.h"
#include "gateway/table_filter.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct replay;
struct replay_request;

struct replay_answer {
    struct resume_decision decision; // RESUME_REPLAY or RESUME_RESET
    const struct buffer *frames;     // with RESUME_REPLAY: the events in (after, head] as they go on the wire; view
    size_t count;
};
// Exactly once unless cancelled, never from inside replay_start. error: the log could not be asked, or did not know for
// too long; the client had better come again.
typedef void replay_done(void *arg, const struct replay_answer *answer, const struct error *error);

// The source is closed after the replay.
struct replay *replay_new(uv_loop_t *loop, const struct stream_source *source, size_t max_replay);
// tables: NULL for all; rights: NULL for every scope and none; borrows both until done or cancel.
struct replay_request *replay_start(struct replay *replay, int64_t after, int64_t head,
                                    const struct table_filter *tables, const struct scope_rights *rights,
                                    replay_done *done, void *arg);
void replay_cancel(struct replay_request *request); // NULL is allowed; done will not be called
// No request may be left, or each is cancelled.
void replay_close(struct replay *replay); // NULL is allowed
