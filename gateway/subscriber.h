// subscriber: the open streams. A subscriber is a cursor over the shared ring, not a queue: it costs a struct, a
// uv_tcp_t and, only while its socket is full, the rest of the one frame that was cut.
//
// Once a loop turn subscribers_flush looks at what was appended to the ring and writes it to whoever may see it, all of
// it in one write each. A socket that is full gets its turn again when it has taken the rest; one that falls more than
// `buffer` events behind, or takes nothing for stall_ms, is disconnected and resumes by its Last-Event-ID.
//
// Who may see what is subscriber_sees alone. With `scoped` the entries of a turn find their subscribers by scope_index,
// so that an event costs nobody else anything; without (--auth none) everybody sees every scope and none.
#pragma once
#include "common/buffer.h"
#include "gateway/admission.h"
#include "gateway/replay.h"
#include "gateway/resume.h"
#include "gateway/ring.h"
#include "gateway/scope_index.h"
#include "gateway/table_filter.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct subscribers;

struct subscribers_options {
    uv_loop_t *loop;
    struct ring *ring;     // borrows
    struct replay *replay; // borrows
    uint64_t heartbeat_ms;
    uint64_t stall_ms;
    unsigned long retry_ms;
    size_t buffer;
    size_t max_replay;
    struct admission *admission; // borrows; may be NULL when no stream has a ticket
    bool scoped;                 // every grant is by scope; else every grant is `open`
    bool unscoped;               // scoped: events without a scope go to everybody who sees anything
};

struct subscribers *subscribers_new(const struct subscribers_options *options);
// Socket options of a listener, for the streams that are accepted from now on.
void subscribers_tune(int listener, uint64_t heartbeat_ms);
// Takes socket (from http_exchange_take) and tables (NULL: all; the grant's are not looked at). `head` is the HTTP
// response head, written before anything else; the opening frames are appended to it. ping: heartbeats and the opening
// position are events that a script sees. The stream is closed when the grant ends. ticket: what the stream holds of
// the options' admission, given back at its end; NULL: nothing.
void subscriber_open(struct subscribers *subscribers, uv_tcp_t *socket, struct buffer *head,
                     const struct resume_ask *ask, const struct grant *grant, struct table_filter *tables, bool ping,
                     const struct admission_ticket *ticket);
size_t subscribers_count(const struct subscribers *subscribers);
void subscribers_flush(struct subscribers *subscribers);
// The ring was cut back to held (stream.h, on_rewound).
void subscribers_rewound(struct subscribers *subscribers, int64_t held, enum reset_reason reason);
// Disconnects the one that has been open longest, telling it to come back after retry_ms. False when there is none.
bool subscribers_disconnect_one(struct subscribers *subscribers, unsigned long retry_ms);
// Disconnects all that are left and frees. NULL is allowed.
void subscribers_close(struct subscribers *subscribers);
