#include "gateway/source_redis.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/memory.h"
#include "common/redis_conn.h"
#include <stdlib.h>

// How often the log must have been first, with nothing from Redis in between, until the link counts as dead. A
// dispatcher that publishes nothing (no --redis-url) looks the same, hence not more often than every REOPEN_MS.
enum { MISSES_MOST = 3, REOPEN_MS = 30000 };

struct source_redis {
    struct source_redis_options options;
    struct redis_conn *conn;
    struct buffer message; // messages are read in place
    unsigned misses;
    uint64_t reopened_ms;
    bool version_told;
};

static void on_message(void *arg, const char *bytes, size_t length) {
    struct source_redis *source = arg;
    source->misses = 0;
    buffer_clear(&source->message);
    buffer_append(&source->message, bytes, length);
    bool known = stream_message_read(source->message.bytes, length, source->options.on_entry, source->options.arg);
    if (!known && !source->version_told) {
        source->version_told = true; // the log has what it says; one line is enough
        log_warn("redis_message_unknown", LOG_INT("bytes", length));
    }
}

static void on_up(void *arg) {
    struct source_redis *source = arg;
    source->misses = 0;
    log_info("redis_up");
    source->options.on_change(source->options.arg);
}

static void on_down(void *arg, const struct error *error) {
    struct source_redis *source = arg;
    log_warn("redis_down", LOG_TEXT("error", error->text));
    source->options.on_change(source->options.arg);
}

struct source_redis *source_redis_new(uv_loop_t *loop, const struct source_redis_options *options) {
    char channel[200];
    stream_channel(channel, sizeof channel, options->installation, options->stream_id);
    struct source_redis *source = memory_alloc(sizeof *source);
    source->options = *options;
    source->options.installation = NULL; // the caller's, not kept
    source->conn = redis_conn_new(loop, &(struct redis_conn_options){
                                            .url = options->url,
                                            .channel = channel,
                                            .arg = source,
                                            .on_up = on_up,
                                            .on_down = on_down,
                                            .on_message = on_message,
                                        });
    return source;
}

bool source_redis_is_up(const struct source_redis *source) {
    return source && redis_conn_is_up(source->conn);
}

void source_redis_missed(struct source_redis *source) {
    uint64_t now = clock_ms();
    if (!source_redis_is_up(source) || ++source->misses < MISSES_MOST || now - source->reopened_ms < REOPEN_MS) {
        return;
    }
    source->misses = 0;
    source->reopened_ms = now;
    log_warn("redis_silent");
    redis_conn_reset(source->conn, "delivers nothing");
}

static void on_closed(void *arg) {
    struct source_redis *source = arg;
    buffer_free(&source->message);
    free(source);
}

void source_redis_close(struct source_redis *source) {
    if (source) {
        redis_conn_close(source->conn, on_closed, source);
    }
}
