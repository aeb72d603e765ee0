// rowbell-gateway: wires the parts together.
//
//   source --entries, pages--> stream --> ring --> subscribers --> sockets
//      ^--------------------------------- replay (for those who are further back)
//
// A prepare and a check handle write what a loop turn appended, once before and once after the poll for events, and
// keep the stream's timer at its due time.
#include "common/admin_endpoint.h"
#include "common/clock.h"
#include "common/http_server.h"
#include "common/log.h"
#include "common/process.h"
#include "gateway/config.h"
#include "gateway/drain.h"
#include "gateway/events_endpoint.h"
#include "gateway/metrics.h"
#include "gateway/receipts_endpoint.h"
#include "gateway/replay.h"
#include "gateway/ring.h"
#include "gateway/source_log.h"
#include "gateway/source_redis.h"
#include "gateway/stream.h"
#include "gateway/subscriber.h"
#include <string.h>

enum {
    // Heads that are being read, besides the streams. Generous: past it the oldest of whoever holds most is closed for
    // each new one, and a crowd that returns over slow links has thousands of connections that have said nothing yet.
    SPARE_CONNECTIONS = 4000,
    STALL_MS = 30000,
    DRAIN_MARGIN_MS = 2000,
};

struct gateway {
    struct process process;
    struct gateway_config config;
    struct ring *ring;
    struct stream *stream;
    struct stream_source source;
    struct replay *replay;
    struct auth *auth;
    struct receipts_endpoint *receipts;
    struct subscribers *subscribers;
    struct admission *admission;
    struct egress_policy proxies;
    struct events_endpoint endpoint;
    struct http_server *server;
    uv_prepare_t before_poll;
    uv_check_t after_poll;
    uv_timer_t stream_timer;
    uint64_t armed_ms;
    bool started; // as the log says: the first time that it is ready
    bool stopping;
};

static const struct metric metrics[] = {
#define METRIC(kind, id, name, labels, help) [METRIC_##id] = {METRIC_##kind, name, labels, help},
#include "gateway/metrics.def"
#undef METRIC
};

// ---- the loop's turn ----

static void on_stream_due(uv_timer_t *timer) {
    struct gateway *gateway = timer->data;
    gateway->armed_ms = 0;
    stream_tick(gateway->stream);
}

static void arm_stream_timer(struct gateway *gateway) {
    uint64_t due = stream_due_ms(gateway->stream);
    if (due == UINT64_MAX || (gateway->armed_ms != 0 && due == gateway->armed_ms)) {
        return;
    }
    uint64_t now = clock_ms();
    gateway->armed_ms = due;
    uv_update_time(&gateway->process.loop);
    uv_timer_start(&gateway->stream_timer, on_stream_due, due > now ? due - now : 0, 0);
}

static void on_before_poll(uv_prepare_t *prepare) {
    struct gateway *gateway = prepare->data;
    subscribers_flush(gateway->subscribers);
    arm_stream_timer(gateway);
}

static void on_after_poll(uv_check_t *check) {
    struct gateway *gateway = check->data;
    subscribers_flush(gateway->subscribers);
}

// ---- where entries come from ----

static void tell_readiness(struct gateway *gateway) {
    if (gateway->stopping) {
        return;
    }
    const char *reason = NULL;
    if (!stream_is_ready(gateway->stream)) {
        reason = "stream: the log is not loaded yet";
    } else if (!gateway->source.is_up(gateway->source.feed)) {
        reason = "stream: neither the database nor Redis is connected";
    }
    admin_endpoint_set_ready(gateway->process.admin, reason);
    if (reason == NULL && !gateway->started) {
        gateway->started = true;
        const struct gateway_config *config = &gateway->config;
        log_info("gateway_started", LOG_TEXT("listen", http_server_address(gateway->server)),
                 LOG_TEXT("admin", admin_endpoint_address(gateway->process.admin)),
                 LOG_INT("max_connections", config->max_connections), LOG_BOOL("redis", config->redis_url != NULL),
                 LOG_TEXT("auth", config->auth));
    }
}

static void on_source_up(void *arg, const char *installation) {
    struct gateway *gateway = arg;
    log_info("database_up");
    stream_wake(gateway->stream);
    tell_readiness(gateway);
}

static void on_source_down(void *arg, const struct error *error, bool first) {
    struct gateway *gateway = arg;
    if (gateway->stopping) {
        return;
    }
    if (first) {
        process_fail(&gateway->process, error);
        return;
    }
    log_warn("database_down", LOG_TEXT("error", error->text));
    tell_readiness(gateway);
}

// What was published while a way was down is in the log.
static void on_source_change(void *arg) {
    struct gateway *gateway = arg;
    if (gateway->source.check_ms)
        stream_set_check_ms(gateway->stream, gateway->source.check_ms(gateway->source.feed));
    stream_wake(gateway->stream);
    tell_readiness(gateway);
}

static void on_source_news(void *arg, int64_t newest) {
    struct gateway *gateway = arg;
    stream_hint(gateway->stream, newest);
}

static void on_source_entry(void *arg, const struct stream_entry *entry) {
    struct gateway *gateway = arg;
    stream_offer(gateway->stream, entry);
}

static void on_stream_ready(void *arg) {
    struct gateway *gateway = arg;
    log_info("stream_ready", LOG_INT("position", ring_head(gateway->ring)),
             LOG_INT("entries", ring_end(gateway->ring) - ring_begin(gateway->ring)));
    gateway->endpoint.open = !gateway->stopping;
    tell_readiness(gateway);
}

static void on_stream_filled(void *arg, size_t count) {
    struct gateway *gateway = arg;
    if (gateway->source.overlooked) {
        gateway->source.overlooked(gateway->source.feed, count);
    }
}

static void on_stream_rewound(void *arg, int64_t held, enum reset_reason reason) {
    struct gateway *gateway = arg;
    subscribers_rewound(gateway->subscribers, held, reason);
}

// ---- start and end ----

static void on_scrape(void *arg) {
    struct gateway *gateway = arg;
    metric_set(METRIC_STREAM_SUBSCRIBERS, NULL, NULL, (double)subscribers_count(gateway->subscribers));
    metric_set(METRIC_STREAM_POSITION, NULL, NULL, (double)ring_head(gateway->ring));
}

static void on_drained(void *arg) {
    struct gateway *gateway = arg;
    if (gateway->process.exit_status == 0)
        log_info("gateway_drained");
    http_server_close(gateway->server, NULL, NULL);
    auth_close(gateway->auth); // answers who still waits: they come back to another gateway
    receipts_endpoint_close(gateway->receipts);
    subscribers_close(gateway->subscribers);
    replay_close(gateway->replay);
    gateway->source.close(gateway->source.feed);
    uv_close((uv_handle_t *)&gateway->before_poll, NULL);
    uv_close((uv_handle_t *)&gateway->after_poll, NULL);
    uv_close((uv_handle_t *)&gateway->stream_timer, NULL);
}

static void on_stop(void *arg) {
    struct gateway *gateway = arg;
    uint64_t drain_ms = (uint64_t)gateway->config.common.drain_ms;
    gateway->stopping = true;
    gateway->endpoint.open = false;
    http_server_pause(gateway->server);
    // Half of the time is left for the streams when it is short.
    drain_start(&gateway->process.loop, gateway->subscribers,
                drain_ms > 2 * DRAIN_MARGIN_MS ? drain_ms - DRAIN_MARGIN_MS : drain_ms / 2,
                (unsigned long)gateway->config.retry_ms, on_drained, gateway);
}

static void start_turn_handles(struct gateway *gateway) {
    uv_loop_t *loop = &gateway->process.loop;
    uv_prepare_init(loop, &gateway->before_poll);
    uv_check_init(loop, &gateway->after_poll);
    uv_timer_init(loop, &gateway->stream_timer);
    gateway->before_poll.data = gateway->after_poll.data = gateway->stream_timer.data = gateway;
    uv_prepare_start(&gateway->before_poll, on_before_poll);
    uv_check_start(&gateway->after_poll, on_after_poll);
}

static bool start(struct gateway *gateway, struct error *ret_error) {
    uv_loop_t *loop = &gateway->process.loop;
    const struct gateway_config *config = &gateway->config;
    gateway->auth = auth_new(loop, config, ret_error);
    if (!gateway->auth) {
        return false;
    }
    gateway->server = http_server_new(loop,
                                      &(struct http_server_options){
                                          .listen = config->listen,
                                          .max_connections = SPARE_CONNECTIONS,
                                          .arg = &gateway->endpoint,
                                          .handle = events_endpoint_handle,
                                      },
                                      ret_error);
    if (!gateway->server) {
        auth_close(gateway->auth);
        return error_wrap(ret_error, "--listen");
    }
    subscribers_tune(http_server_listener(gateway->server), (uint64_t)config->heartbeat_ms);
    gateway->ring = ring_new((size_t)config->ring);
    gateway->source = source_log_new(loop, config->common.database_url, config->common.direct_database_url);
    if (config->redis_url) {
        gateway->source = source_redis_new(loop, config->redis_url, config->redis_ca, STREAM_ID, gateway->source);
    }
    gateway->replay = replay_new(loop, &gateway->source, (size_t)config->max_replay);
    gateway->admission = admission_new(config);
    egress_policy_init(&gateway->proxies, &config->trusted_proxies, NULL); // gateway_config_check has read it
    gateway->subscribers = subscribers_new(&(struct subscribers_options){
        .loop = loop,
        .ring = gateway->ring,
        .replay = gateway->replay,
        .heartbeat_ms = (uint64_t)config->heartbeat_ms,
        .stall_ms = STALL_MS,
        .retry_ms = (unsigned long)config->retry_ms,
        .buffer = (size_t)config->buffer,
        .max_replay = (size_t)config->max_replay,
        .admission = gateway->admission,
        .scoped = !auth_is_open(gateway->auth),
        .unscoped = strcmp(config->unscoped, "deliver") == 0,
    });
    gateway->stream = stream_new(&(struct stream_options){
        .source = gateway->source,
        .ring = gateway->ring,
        .arg = gateway,
        .on_ready = on_stream_ready,
        .on_filled = on_stream_filled,
        .on_rewound = on_stream_rewound,
    });
    gateway->source.start(gateway->source.feed, &(struct stream_listener){
                                                    .arg = gateway,
                                                    .on_up = on_source_up,
                                                    .on_down = on_source_down,
                                                    .on_change = on_source_change,
                                                    .on_news = on_source_news,
                                                    .on_entry = on_source_entry,
                                                });
    gateway->receipts = receipts_endpoint_new(loop, config, gateway->auth, gateway->admission, &gateway->proxies);
    gateway->endpoint = (struct events_endpoint){.config = config,
                                                 .auth = gateway->auth,
                                                 .subscribers = gateway->subscribers,
                                                 .receipts = gateway->receipts,
                                                 .admission = gateway->admission,
                                                 .proxies = &gateway->proxies};
    start_turn_handles(gateway);
    gateway->process.on_stop = on_stop;
    gateway->process.stop_arg = gateway;
    admin_endpoint_on_scrape(gateway->process.admin, on_scrape, gateway);
    return true;
}

int main(int argc, char **argv) {
    static struct gateway gateway;
    struct error error;
    metrics_init(metrics, GATEWAY_METRIC_COUNT);
    if (!process_init(&gateway.process, &gateway_program, argc, argv, &gateway.config)) {
        return gateway.process.exit_status;
    }
    if (!gateway_config_check(&gateway.config, &error) || !start(&gateway, &error)) {
        process_fail(&gateway.process, &error);
    }
    int exit_status = process_run(&gateway.process);
    stream_free(gateway.stream);
    ring_free(gateway.ring);
    admission_free(gateway.admission);
    egress_policy_close(&gateway.proxies);
    metrics_free();
    return exit_status;
}
