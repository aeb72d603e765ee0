// stream_message: the bytes on the Redis channel `rowbell:<installation>:stream:<id>`. Written by the dispatcher after
// an append commits, read by every gateway. What does not verify is dropped, and the log is read instead.
//
//   rowbell-stream 2 <key id> <signature>\n
//   <prev> <first> <count>\n
//   <scope>\t<name>\t<key>\t<op>\n          (count lines; PostgreSQL's COPY text format: \N is NULL, \t \n \\ escaped)
//
// Entry i has position first + i; the predecessor of the first is prev. At most STREAM_MESSAGE_MAX_ENTRIES entries.
//
// Redis is no trusted party. The signature is HMAC-SHA-256 (RFC 2104) over "rowbell-stream 2\n<channel>\n" and all that
// follows the first line, the leftmost 128 bits, in lower-case hex: a message counts for one stream of one
// installation. The keys are in rowbell.stream_keys; several are valid at a time, so that they can be rotated.
#pragma once
#include "common/buffer.h"
#include <stdbool.h>
#include <stdint.h>

enum {
    STREAM_MESSAGE_MAX_ENTRIES = 200,
    STREAM_MESSAGE_MAX_BYTES = 1 << 20,
    STREAM_KEYS_MAX = 8,
    STREAM_KEY_BYTES = 32,
    STREAM_CHANNEL_SIZE = 128,
};

struct stream_key {
    int id;
    unsigned char bytes[STREAM_KEY_BYTES];
};

// The keys that count now. Wipe them with stream_keys_clear.
struct stream_keys {
    struct stream_key keys[STREAM_KEYS_MAX];
    int count;
};

// One more, from texts: "7", and 64 hex digits. What is no key, or one too many, is left out.
void stream_keys_add(struct stream_keys *keys, const char *id, const char *hex);
void stream_keys_clear(struct stream_keys *keys);

struct stream_entry {
    int64_t position;
    int64_t prev;
    const char *scope; // NULL: none
    const char *name;
    const char *key; // NULL: the whole collection
    const char *op;
};

// Empties the buffer first. Then `count` entries, in order, then the signature. False: it is too long to be sent.
void stream_message_begin(struct buffer *buffer, int64_t prev, int64_t first, int count);
void stream_message_entry(struct buffer *buffer, const struct stream_entry *entry);
bool stream_message_sign(struct buffer *buffer, const struct stream_key *key, const char *channel);

// Why a message is dropped.
enum stream_message_fault {
    STREAM_MESSAGE_GOOD,
    STREAM_MESSAGE_TOO_LONG,
    STREAM_MESSAGE_VERSION,   // of another version, version 1 without a signature among them
    STREAM_MESSAGE_KEY,       // signed with a key that does not count (any more, or yet)
    STREAM_MESSAGE_SIGNATURE, // forged, or of another stream
    STREAM_MESSAGE_DAMAGED,   // signed, and yet it cannot be read
};
const char *stream_message_fault_name(enum stream_message_fault fault);

// Checks the signature, which costs a hash, then reads the message in place (the bytes are changed: escapes are
// undone). each is called per entry, in order; its strings are views. Before the signature has been found good it is
// not called; when the message turns out to be damaged it may have been called for some entries.
enum stream_message_fault stream_message_read(char *bytes, size_t length, const struct stream_keys *keys,
                                              const char *channel,
                                              void (*each)(void *arg, const struct stream_entry *entry), void *arg);
// "rowbell:<installation>:stream:<id>"
void stream_channel(char *ret_channel, size_t size, const char *installation, int stream_id);
