// stream_message: the bytes on the Redis channel `rowbell:<installation>:stream:<id>`. Written by the dispatcher after
// an append commits, read by every gateway. A version that is not known is ignored, and the log is read instead.
//
//   rowbell-stream 1 <prev> <first> <count>\n
//   <scope>\t<name>\t<key>\t<op>\n          (count lines; PostgreSQL's COPY text format: \N is NULL, \t \n \\ escaped)
//
// Entry i has position first + i; the predecessor of the first is prev. At most STREAM_MESSAGE_MAX_ENTRIES entries.
#pragma once
#include "common/buffer.h"
#include <stdbool.h>
#include <stdint.h>

enum { STREAM_MESSAGE_MAX_ENTRIES = 200 };

struct stream_entry {
    int64_t position;
    int64_t prev;
    const char *scope; // NULL: none
    const char *name;
    const char *key; // NULL: the whole collection
    const char *op;
};

// Empties the buffer first. Then `count` entries, in order.
void stream_message_begin(struct buffer *buffer, int64_t prev, int64_t first, int count);
void stream_message_entry(struct buffer *buffer, const struct stream_entry *entry);

// Reads a message in place (the bytes are changed: escapes are undone). each is called per entry, in order; its strings
// are views. False: not a message of a known version, or damaged; each may then have been called for some entries.
bool stream_message_read(char *bytes, size_t length, void (*each)(void *arg, const struct stream_entry *entry),
                         void *arg);
// "rowbell:<installation>:stream:<id>"
void stream_channel(char *ret_channel, size_t size, const char *installation, int stream_id);
