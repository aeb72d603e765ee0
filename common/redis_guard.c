#include "common/redis_guard.h"
#include <hiredis/hiredis.h>
#include <string.h>
#include <sys/ioctl.h>

enum { READ_BYTES = 16384 }; // that hiredis takes at once

static bool is_text(const char *text, size_t length, const char *expected) {
    return length == strlen(expected) && memcmp(text, expected, length) == 0;
}

// A part of a message, or the answer to a subscriber's PING: ["message", channel, text], ["subscribe", channel,
// number],
// ["pong", text].
static bool part_fits(const struct redis_guard *guard, const redisReadTask *task, const char *text, size_t length) {
    switch (task->idx) {
    case 0:
        return text && (is_text(text, length, "message") || is_text(text, length, "subscribe") ||
                        is_text(text, length, "pong"));
    case 1:
        return text && (length == 0 || is_text(text, length, guard->channel));
    default:
        return true;
    }
}

// Whether a reply, or a part of one, may be made. text: of a string, else NULL; elements: of an array, else 0.
static bool fits(const redisReadTask *task, const char *text, size_t length, size_t elements) {
    struct redis_guard *guard = task->privdata;
    bool array = task->type == REDIS_REPLY_ARRAY;
    bool good;
    if (task->parent) {
        good = !array && part_fits(guard, task, text, length);
    } else {
        bool asked = guard->context->replies.head || guard->context->c.flags & REDIS_SUBSCRIBED;
        good = (asked || task->type == REDIS_REPLY_ERROR) &&
               (!array || (guard->channel && (elements == 2 || elements == 3)));
    }
    if (task->parent ? task->idx + 1 == task->parent->elements : !array)
        guard->unfinished = 0;
    guard->refused = guard->refused || !good;
    return good;
}

static const redisReplyObjectFunctions *those(const redisReadTask *task) {
    return ((const struct redis_guard *)task->privdata)->those;
}

// NULL makes hiredis close the connection.
static void *create_string(const redisReadTask *task, char *text, size_t length) {
    return fits(task, task->type == REDIS_REPLY_STRING ? text : NULL, length, 0)
               ? those(task)->createString(task, text, length)
               : NULL;
}

static void *create_integer(const redisReadTask *task, long long value) {
    return fits(task, NULL, 0, 0) ? those(task)->createInteger(task, value) : NULL;
}

static void *create_nil(const redisReadTask *task) {
    return fits(task, NULL, 0, 0) ? those(task)->createNil(task) : NULL;
}

#if HIREDIS_MAJOR >= 1
static void *create_array(const redisReadTask *task, size_t elements) {
    return fits(task, NULL, 0, (size_t)elements) ? those(task)->createArray(task, elements) : NULL;
}

// Of protocol version 3, which is not asked for.
static void *create_double(const redisReadTask *task, double value, char *text, size_t length) {
    return NULL;
}

static void *create_bool(const redisReadTask *task, int value) {
    return NULL;
}
#else
static void *create_array(const redisReadTask *task, int elements) {
    return fits(task, NULL, 0, (size_t)elements) ? those(task)->createArray(task, elements) : NULL;
}
#endif

void redis_guard_attach(struct redis_guard *guard, redisAsyncContext *context, const char *channel) {
    redisReader *reader = context->c.reader;
    *guard = (struct redis_guard){.context = context, .those = reader->fn, .channel = channel};
    guard->functions = *reader->fn;
    guard->functions.createString = create_string;
    guard->functions.createArray = create_array;
    guard->functions.createInteger = create_integer;
    guard->functions.createNil = create_nil;
#if HIREDIS_MAJOR >= 1
    guard->functions.createDouble = create_double;
    guard->functions.createBool = create_bool;
#endif
    reader->fn = &guard->functions;
    reader->privdata = guard;
}

bool redis_guard_may_read(struct redis_guard *guard) {
    int waiting = 0;
    if (ioctl(guard->context->c.fd, FIONREAD, &waiting) == 0 && waiting > 0)
        guard->unfinished += waiting < READ_BYTES ? (size_t)waiting : READ_BYTES;
    guard->refused = guard->refused || guard->unfinished > REDIS_REPLY_MAX_BYTES;
    return guard->unfinished <= REDIS_REPLY_MAX_BYTES;
}
