// redis_guard: what hiredis would believe of a Redis, bounded. hiredis ends the process by an assertion when a reply
// comes that nobody asked for or that has another form, and takes arrays and texts of any size. A guard lets through
// only what this client can get: one reply to each command, and to a subscriber messages of its channel.
#pragma once
#include <hiredis/async.h>
#include <stdbool.h>
#include <stddef.h>

enum { REDIS_REPLY_MAX_BYTES = 2 << 20 };

struct redis_guard {
    redisAsyncContext *context;
    redisReplyObjectFunctions functions;
    const redisReplyObjectFunctions *those; // of hiredis
    const char *channel;                    // view; NULL: not a subscriber
    size_t unfinished;                      // bytes since the last whole reply
    bool refused;                           // it sent what is not let through: the connection ends
};

// For a context that has read nothing yet. The guard lives as long as the context; the channel too.
void redis_guard_attach(struct redis_guard *guard, redisAsyncContext *context, const char *channel);
// Before each read of its socket. False: the reply is too long, read no more.
bool redis_guard_may_read(struct redis_guard *guard);
