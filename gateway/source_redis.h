// source_redis: entries as the dispatchers publish them on Redis. Fast, and allowed to lose any of them.
#pragma once
#include "common/stream_message.h"
#include <stdbool.h>
#include <uv.h>

struct source_redis;

struct source_redis_options {
    const char *url;
    const char *installation; // names the channel
    int stream_id;
    void *arg;
    void (*on_entry)(void *arg, const struct stream_entry *entry); // views
    void (*on_change)(void *arg);                                  // the link came up or went down
};

struct source_redis *source_redis_new(uv_loop_t *loop, const struct source_redis_options *options);
bool source_redis_is_up(const struct source_redis *source); // NULL is down
// The log brought what this link should have. A link that is up and stays silent while that happens again and again is
// dead in truth (a failover behind it, say), and is opened anew.
void source_redis_missed(struct source_redis *source);
void source_redis_close(struct source_redis *source); // NULL is allowed
