// sse_parser: an event stream (HTML standard, 9.2.6) from bytes in any pieces. Own buffers, bounded; no I/O.
//
// Lines end with LF, CR or CRLF. A block without data fires no event, yet its id becomes the last event id. An id with
// a NUL is ignored. A block that the connection cuts off is discarded by sse_parser_reconnect.
#pragma once
#include "common/buffer.h"
#include <stdbool.h>
#include <stddef.h>

enum { SSE_EVENT_MAX_BYTES = 1 << 20 };

struct sse_event {
    const char *type; // "message" when the stream named none
    const char *data; // lines joined by LF
    const char *id;   // the last event id; "" when there is none
};

struct sse_parser {
    void (*on_event)(void *arg, const struct sse_event *event); // views; called from inside sse_parser_feed
    void *arg;
    long retry_ms;            // what the stream asked for last; -1: nothing
    struct buffer last_id;    // what a reconnect sends as Last-Event-ID, after a blank line
    struct buffer pending_id; // of the block that is being read
    struct buffer type, data, line;
    bool after_cr; // an LF that follows belongs to it
    bool begun;    // a byte order mark can only be first
    bool has_data; // a block with an empty data line is not a block without data
};

void sse_parser_init(struct sse_parser *parser, void (*on_event)(void *arg, const struct sse_event *event), void *arg);
// False: a block is longer than SSE_EVENT_MAX_BYTES; nothing more can be read from this connection.
bool sse_parser_feed(struct sse_parser *parser, const char *bytes, size_t length);
void sse_parser_reconnect(struct sse_parser *parser); // forgets the unfinished block, keeps last_id and retry_ms
void sse_parser_close(struct sse_parser *parser);
