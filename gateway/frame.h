// frame: the bytes of the wire (docs/stream.md; the grammar is the HTML standard, 9.2.5). A change is encoded once and
// every subscriber's write points at the same bytes.
//
// Nothing from the outside reaches a frame except as a JSON string, so no CR or LF can end a line early.
#pragma once
#include "common/buffer.h"
#include "common/stream_message.h"
#include <stddef.h>
#include <stdint.h>

// One entry of the stream, immutable. What decides who may see it (scope, table) travels beside the bytes: it is not
// on the wire, except that the table is part of the data.
//
// A mark (table NULL) says to everybody that an entry before it could not be told: a reset, whose id is its own.
struct frame {
    int64_t position;
    int64_t prev;
    const char *scope; // NULL: none; views into the same block
    const char *table; // NULL: a mark
    size_t length;
    const char *bytes;
};

// The scope that decides who may see it: `*` for a mark.
static inline const char *frame_audience(const struct frame *frame) {
    return frame->table ? frame->scope : "*";
}

struct frame *frame_new(const struct stream_entry *entry); // returns owned; free with frame_free
void frame_free(struct frame *frame);

// What is written to one subscriber only.
void frame_append_opening(struct buffer *buffer, unsigned long retry_ms); // retry and a comment, so that onopen fires
void frame_append_retry(struct buffer *buffer, unsigned long retry_ms);   // before we close
// Moves Last-Event-ID: an id-only block, which fires no event, or (ping) a `ping` event that a script can keep.
void frame_append_position(struct buffer *buffer, int64_t position, bool ping);
void frame_append_reset(struct buffer *buffer, int64_t position, const char *reason);

// Without an id: a heartbeat says nothing about the position.
extern const char frame_heartbeat[];
extern const char frame_ping[];
