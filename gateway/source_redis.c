// The happy path is: the log comes up and says the installation, its channel is subscribed to, entries are pushed as
// they come. The failure modes are: a link that is down (redis_conn tries again by itself) and one that is up in TCP
// and delivers nothing, because of a failover behind it, say. What arrives is the judge: while the log brings what this
// link should have brought the log is compared as often as without Redis, and when that goes on the link is opened
// anew.
//
// Redis is no trusted party: what no key of the installation has signed is counted and dropped. It is not news either,
// so that a flood of forged messages costs a hash each, and no read of the log.
#include "gateway/source_redis.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/memory.h"
#include "common/redis_conn.h"
#include "gateway/metrics.h"
#include "gateway/stream.h"
#include <stdlib.h>

// How often the log must have been first, with nothing from Redis in between, until the link counts as dead. A
// dispatcher that publishes nothing (no --redis-url) looks the same, hence not more often than every REOPEN_MS.
enum { MISSES_MOST = 3, REOPEN_MS = 30000 };
// A new key signs 30 s after it was made (rowbell.stream_signing_key), so that it is known here by then.
enum { KEYS_MS = 5000, REJECTED_LOG_MS = 60000 };

struct source_redis {
    struct stream_source log; // owned
    struct stream_listener listener;
    uv_loop_t *loop;
    char *url;     // owned
    char *ca_file; // owned, NULL: the system's
    int stream_id;
    struct redis_conn *conn; // NULL until the installation is known
    struct buffer message;   // messages are read in place
    unsigned misses;         // in a row
    uint64_t reopened_ms;    // 0: never
    char channel[STREAM_CHANNEL_SIZE];
    struct stream_keys keys;
    bool asking_keys;
    uv_timer_t keys_timer;
    uint64_t rejected; // since it was logged
    uint64_t rejected_logged_ms;
    int open; // the connection and the timer, once closing
};

static void tell_change(struct source_redis *source) {
    source->listener.on_change(source->listener.arg);
}

// ---- the link ----

static void reject(struct source_redis *source, enum stream_message_fault fault) {
    uint64_t now = clock_ms();
    metric_add(METRIC_STREAM_REJECTED, stream_message_fault_name(fault), NULL, 1);
    source->rejected++;
    if (source->rejected_logged_ms == 0 || now - source->rejected_logged_ms >= REJECTED_LOG_MS) {
        log_warn("redis_message_rejected", LOG_TEXT("reason", stream_message_fault_name(fault)),
                 LOG_INT("count", source->rejected));
        source->rejected_logged_ms = now;
        source->rejected = 0;
    }
}

static void on_message(void *arg, const char *bytes, size_t length) {
    struct source_redis *source = arg;
    buffer_clear(&source->message);
    buffer_text(&source->message, "");
    buffer_append(&source->message, bytes,
                  length < STREAM_MESSAGE_MAX_BYTES + 1 ? length : STREAM_MESSAGE_MAX_BYTES + 1);
    enum stream_message_fault fault =
        stream_message_read(source->message.bytes, source->message.length, &source->keys, source->channel,
                            source->listener.on_entry, source->listener.arg);
    if (fault != STREAM_MESSAGE_GOOD) {
        reject(source, fault);
        return;
    }
    bool delivers_again = source->misses > 0;
    source->misses = 0;
    if (delivers_again) {
        tell_change(source);
    }
}

static void on_redis_up(void *arg) {
    struct source_redis *source = arg;
    source->misses = 0;
    log_info("redis_up");
    metric_set(METRIC_REDIS_CONNECTED, NULL, NULL, 1);
    tell_change(source);
}

static void on_redis_down(void *arg, const struct error *error) {
    struct source_redis *source = arg;
    log_warn("redis_down", LOG_TEXT("error", error->text));
    metric_set(METRIC_REDIS_CONNECTED, NULL, NULL, 0);
    tell_change(source);
}

static void feed_overlooked(void *arg, size_t count) {
    struct source_redis *source = arg;
    metric_add(METRIC_STREAM_GAP_FILLS, NULL, NULL, (double)count);
    if (!source->conn || !redis_conn_is_up(source->conn)) {
        return;
    }
    uint64_t now = clock_ms();
    if (source->misses++ == 0) {
        tell_change(source);
    }
    if (source->misses < MISSES_MOST || (source->reopened_ms != 0 && now - source->reopened_ms < REOPEN_MS)) {
        return;
    }
    source->reopened_ms = now;
    log_warn("redis_silent");
    redis_conn_reset(source->conn, "delivers nothing");
}

// ---- the log behind it ----

static void connect_once(struct source_redis *source) {
    if (source->conn) {
        return;
    }
    source->conn = redis_conn_new(source->loop, &(struct redis_conn_options){
                                                    .url = source->url,
                                                    .ca_file = source->ca_file,
                                                    .channel = source->channel,
                                                    .arg = source,
                                                    .on_up = on_redis_up,
                                                    .on_down = on_redis_down,
                                                    .on_message = on_message,
                                                });
}

static void on_keys(void *arg, const struct stream_keys *keys, const struct error *error) {
    struct source_redis *source = arg;
    source->asking_keys = false;
    if (error && error->code == ERROR_CANCELLED) {
        return;
    }
    if (error) {
        log_warn("stream_keys_unknown", LOG_TEXT("error", error->text)); // those that are known go on counting
    } else {
        source->keys = *keys;
    }
    connect_once(source);
}

static void ask_keys(struct source_redis *source) {
    if (!source->asking_keys && source->channel[0] != '\0' && source->log.read_keys) {
        source->asking_keys = true;
        source->log.read_keys(source->log.arg, on_keys, source);
    }
}

static void on_keys_due(uv_timer_t *timer) {
    struct source_redis *source = timer->data;
    if (source->log.is_up(source->log.feed)) {
        ask_keys(source);
    }
}

static void on_log_up(void *arg, const char *installation) {
    struct source_redis *source = arg;
    if (source->channel[0] == '\0') {
        stream_channel(source->channel, sizeof source->channel, installation, source->stream_id);
        uv_timer_start(&source->keys_timer, on_keys_due, KEYS_MS, KEYS_MS);
    }
    ask_keys(source);
    source->listener.on_up(source->listener.arg, installation);
}

static void on_log_down(void *arg, const struct error *error, bool first) {
    struct source_redis *source = arg;
    source->listener.on_down(source->listener.arg, error, first);
}

static void on_log_news(void *arg, int64_t newest) {
    struct source_redis *source = arg;
    source->listener.on_news(source->listener.arg, newest);
}

static void feed_start(void *arg, const struct stream_listener *listener) {
    struct source_redis *source = arg;
    source->listener = *listener;
    source->log.start(source->log.feed, &(struct stream_listener){
                                            .arg = source,
                                            .on_up = on_log_up,
                                            .on_down = on_log_down,
                                            .on_news = on_log_news,
                                        });
}

// ---- the feed ----

static bool feed_is_up(void *arg) {
    const struct source_redis *source = arg;
    return (source->conn && redis_conn_is_up(source->conn)) || source->log.is_up(source->log.feed);
}

static unsigned feed_check_ms(void *arg) {
    const struct source_redis *source = arg;
    bool delivers = source->conn && redis_conn_is_up(source->conn) && source->misses == 0;
    return delivers ? STREAM_CHECK_MS : STREAM_POLL_MS;
}

static void part_closed(struct source_redis *source) {
    if (--source->open > 0) {
        return;
    }
    stream_keys_clear(&source->keys);
    buffer_free(&source->message);
    free(source->url);
    free(source->ca_file);
    free(source);
}

static void on_conn_closed(void *arg) {
    part_closed(arg);
}

static void on_timer_closed(uv_handle_t *handle) {
    part_closed(handle->data);
}

static void feed_close(void *arg) {
    struct source_redis *source = arg;
    source->open = 2;
    source->log.close(source->log.feed);
    redis_conn_close(source->conn, on_conn_closed, source);
    uv_close((uv_handle_t *)&source->keys_timer, on_timer_closed);
}

struct stream_source source_redis_new(uv_loop_t *loop, const char *url, const char *ca_file, int stream_id,
                                      struct stream_source log) {
    struct source_redis *source = memory_alloc(sizeof *source);
    *source = (struct source_redis){.log = log,
                                    .loop = loop,
                                    .url = memory_copy_text(url),
                                    .ca_file = ca_file ? memory_copy_text(ca_file) : NULL,
                                    .stream_id = stream_id};
    uv_timer_init(loop, &source->keys_timer);
    source->keys_timer.data = source;
    struct stream_source port = log; // reads are the log's
    port.feed = source;
    port.start = feed_start;
    port.overlooked = feed_overlooked;
    port.is_up = feed_is_up;
    port.check_ms = feed_check_ms;
    port.close = feed_close;
    return port;
}
