// rowbell-dispatcher: delivers jobs: webhooks to their receivers, row changes into the stream.
#include "common/admin_endpoint.h"
#include "common/egress.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/process.h"
#include "common/redis_conn.h"
#include "dispatcher/config.h"
#include "dispatcher/dispatcher.h"
#include "dispatcher/job_store_pg.h"
#include "dispatcher/lanes.h"
#include "dispatcher/metrics.h"
#include "dispatcher/sink_discard.h"
#include "dispatcher/sink_sse.h"
#include "dispatcher/sink_webhook.h"
#include <string.h>

static const struct config_option options[] = {
#define OPTION(kind, field, flag, fallback, argument, help)                                                            \
    {CONFIG_##kind, offsetof(struct dispatcher_config, field), flag, fallback, argument, help},
#include "dispatcher/config.def"
#undef OPTION
};

static const struct config_program program = {
    .name = "rowbell-dispatcher",
    .summary = "Delivers jobs: webhooks to their receivers, row changes into the stream. Run any number.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
};

static const struct metric metrics[] = {
#define METRIC(kind, id, name, labels, help) [METRIC_##id] = {METRIC_##kind, name, labels, help},
#include "dispatcher/metrics.def"
#undef METRIC
};

enum { READY_CHECK_MS = 1000 };

struct dispatcher_program {
    struct process process;
    struct dispatcher_config config;
    struct lanes lanes;
    struct egress_policy egress;
    struct sink webhook;
    struct job_store_pg *store;    // of the webhook lane; also hears NOTIFY for the sse lane
    struct dispatcher *dispatcher; // NULL: no webhook lane
    struct sink_sse *sse;          // NULL: no sse lane
    bool store_up, sse_up, wired, started;
    bool dispatcher_drained, sse_drained; // --once
    int running;                          // lanes that have not stopped
    uv_timer_t ready_timer;
};

// ---- Readiness

static const char *unready(const struct dispatcher_program *self) {
    const char *reason = !self->store_up ? "database: not connected" : NULL;
    if (!reason && self->dispatcher)
        reason = dispatcher_unready(self->dispatcher);
    if (!reason && self->sse)
        reason = sink_sse_unready(self->sse);
    return reason;
}

static void tell_ready(struct dispatcher_program *self) {
    if (self->process.admin)
        admin_endpoint_set_ready(self->process.admin, unready(self));
}

static void on_ready_timer(uv_timer_t *timer) {
    tell_ready(timer->data);
}

static void on_scrape(void *arg) {
    struct dispatcher_program *self = arg;
    tell_ready(self);
    if (self->dispatcher)
        metric_set(METRIC_JOBS, lane_name(LANE_WEBHOOK), "running", dispatcher_in_flight(self->dispatcher));
}

// ---- Connections

static void session_came(struct dispatcher_program *self) {
    bool all = self->store_up && (self->sse_up || !self->lanes.wanted[LANE_SSE]);
    metric_set(METRIC_DATABASE_CONNECTED, NULL, NULL, all);
    if (!all)
        return;
    if (self->started) {
        log_info("database_connected");
        return;
    }
    self->started = true;
    log_info("dispatcher_started", LOG_TEXT("admin", admin_endpoint_address(self->process.admin)),
             LOG_BOOL("webhook", self->lanes.wanted[LANE_WEBHOOK]), LOG_BOOL("sse", self->lanes.wanted[LANE_SSE]),
             LOG_INT("lease_ms", self->config.lease_ms));
}

static void session_went(struct dispatcher_program *self, const char *session, const struct error *error, bool first) {
    metric_set(METRIC_DATABASE_CONNECTED, NULL, NULL, 0);
    if (self->process.stopping)
        return;
    tell_ready(self);
    if (first)
        process_fail(&self->process, error);
    else
        log_warn("database_lost", LOG_TEXT("session", session), LOG_TEXT("error", error->text));
}

static void store_came_up(void *arg) {
    struct dispatcher_program *self = arg;
    self->store_up = true;
    if (self->process.stopping && !self->dispatcher)
        return;
    if (!self->process.stopping)
        session_came(self);
    if (self->dispatcher)
        dispatcher_up(self->dispatcher);
}

static void store_went_down(void *arg, const struct error *error, bool first) {
    struct dispatcher_program *self = arg;
    self->store_up = false;
    if (self->dispatcher)
        dispatcher_down(self->dispatcher);
    session_went(self, "direct", error, first);
}

static void sse_came_up(void *arg) {
    struct dispatcher_program *self = arg;
    self->sse_up = true;
    if (!self->process.stopping)
        session_came(self);
}

static void sse_went_down(void *arg, const struct error *error, bool first) {
    struct dispatcher_program *self = arg;
    self->sse_up = false;
    session_went(self, "sse", error, first);
}

static void on_jobs(void *arg, const char *lane, uint64_t shards) {
    struct dispatcher_program *self = arg;
    if (self->dispatcher && strcmp(lane, lane_name(LANE_WEBHOOK)) == 0)
        dispatcher_wake(self->dispatcher, shards);
    else if (self->sse && strcmp(lane, lane_name(LANE_SSE)) == 0)
        sink_sse_wake(self->sse);
}

// ---- --once

static void check_once(struct dispatcher_program *self) {
    if ((self->dispatcher_drained || !self->lanes.wanted[LANE_WEBHOOK]) &&
        (self->sse_drained || !self->lanes.wanted[LANE_SSE]))
        process_stop(&self->process);
}

static void dispatcher_is_drained(void *arg) {
    struct dispatcher_program *self = arg;
    self->dispatcher_drained = true;
    check_once(self);
}

static void sse_is_drained(void *arg) {
    struct dispatcher_program *self = arg;
    self->sse_drained = true;
    check_once(self);
}

// ---- The end: lanes stop, then the sink, then the sessions, then the memory

static void store_closed(void *arg) {
    struct dispatcher_program *self = arg;
    dispatcher_close(self->dispatcher, NULL, NULL);
    self->dispatcher = NULL;
}

static void webhook_closed(void *arg) {
    struct dispatcher_program *self = arg;
    struct job_store_pg *store = self->store;
    self->store = NULL;
    job_store_pg_close(store, store_closed, self);
}

static void lane_stopped(void *arg) {
    struct dispatcher_program *self = arg;
    if (--self->running > 0)
        return;
    uv_close((uv_handle_t *)&self->ready_timer, NULL);
    struct sink_sse *sse = self->sse;
    self->sse = NULL;
    sink_sse_close(sse, NULL, NULL);
    if (self->dispatcher)
        self->webhook.close(self->webhook.arg, webhook_closed, self);
    else
        webhook_closed(self);
}

static void on_stop(void *arg) {
    struct dispatcher_program *self = arg;
    if (!self->wired)
        return; // main sees that the process is stopping
    self->running = 1 + (self->dispatcher != NULL) + (self->sse != NULL);
    if (self->dispatcher)
        dispatcher_stop(self->dispatcher, lane_stopped, self);
    if (self->sse)
        sink_sse_stop(self->sse, lane_stopped, self);
    lane_stopped(self);
}

// ---- The start

static bool open_sink(struct dispatcher_program *self, struct error *ret_error) {
    if (strcmp(self->config.sink, "discard") == 0) {
        sink_discard_init(&self->webhook, &self->process.loop);
        return true;
    }
    return sink_webhook_init(&self->webhook, &self->process.loop,
                             &(struct sink_webhook_options){.egress = &self->egress,
                                                            .ca_file = self->config.ca_file,
                                                            .secret_key = self->config.secret_key},
                             ret_error);
}

static bool check_config(struct dispatcher_program *self, struct error *ret_error) {
    const struct dispatcher_config *config = &self->config;
    if (!lanes_read(&config->lanes, &config->concurrency, &self->lanes, ret_error))
        return false;
    if (strcmp(config->sink, "discard") == 0 && !config->allow_discard)
        return error_set(ret_error, ERROR_USAGE,
                         "--sink discard throws deliveries away; add --allow-discard if that is meant");
    if (config->redis_url && !redis_url_check(config->redis_url, ret_error))
        return error_wrap(ret_error, "--redis-url");
    if (config->lease_ms > 600000)
        return error_set(ret_error, ERROR_USAGE, "--lease: at most 10m");
    if (!egress_policy_init(&self->egress, &config->allow_egress, ret_error))
        return error_wrap(ret_error, "--allow-egress");
    return true;
}

static bool check_lease(const struct dispatcher_program *self, struct error *ret_error) {
    unsigned least_ms = self->webhook.deadline_ms + DISPATCHER_LEASE_MARGIN_MS;
    if (self->config.lease_ms < (long)least_ms)
        return error_set(ret_error, ERROR_USAGE, "--lease: at least %ums: the request deadline (%ums) and %ds more",
                         least_ms, self->webhook.deadline_ms, DISPATCHER_LEASE_MARGIN_MS / 1000);
    return true;
}

static void open_lanes(struct dispatcher_program *self) {
    struct config_common *common = &self->config.common;
    uv_loop_t *loop = &self->process.loop;
    bool direct = common->direct_database_url != NULL;
    self->store = job_store_pg_new(
        loop, &(struct job_store_pg_options){.url = direct ? common->direct_database_url : common->database_url,
                                             .kind = lane_name(LANE_WEBHOOK),
                                             .arg = self,
                                             .on_up = store_came_up,
                                             .on_down = store_went_down,
                                             .on_jobs = on_jobs});
    if (self->lanes.wanted[LANE_WEBHOOK])
        self->dispatcher = dispatcher_new(
            &(struct dispatcher_options){.loop = loop,
                                         .store = job_store_pg_port(self->store),
                                         .sink = &self->webhook,
                                         .lane = lane_name(LANE_WEBHOOK),
                                         .concurrency = self->lanes.concurrency[LANE_WEBHOOK],
                                         .lease_ms = (unsigned)self->config.lease_ms,
                                         .arg = self,
                                         .on_drained = self->config.once ? dispatcher_is_drained : NULL});
    if (self->lanes.wanted[LANE_SSE])
        self->sse =
            sink_sse_new(loop, &(struct sink_sse_options){.url = common->database_url,
                                                          .pooled = direct,
                                                          .redis_url = self->config.redis_url,
                                                          .arg = self,
                                                          .on_up = sse_came_up,
                                                          .on_down = sse_went_down,
                                                          .on_drained = self->config.once ? sse_is_drained : NULL});
}

int main(int argc, char **argv) {
    static struct dispatcher_program self;
    if (!process_init(&self.process, &program, argc, argv, &self.config))
        return self.process.exit_status;
    metrics_init(metrics, METRIC_COUNT);
    self.process.on_stop = on_stop;
    self.process.stop_arg = &self;
    struct error error;
    bool sink_open = false;
    bool ok = check_config(&self, &error);
    if (ok && self.lanes.wanted[LANE_WEBHOOK])
        ok = sink_open = open_sink(&self, &error);
    if (sink_open)
        ok = check_lease(&self, &error);
    if (!ok) {
        process_fail(&self.process, &error);
        if (sink_open)
            self.webhook.close(self.webhook.arg, NULL, NULL);
    } else {
        admin_endpoint_on_scrape(self.process.admin, on_scrape, &self);
        uv_timer_init(&self.process.loop, &self.ready_timer);
        self.ready_timer.data = &self;
        uv_timer_start(&self.ready_timer, on_ready_timer, READY_CHECK_MS, READY_CHECK_MS);
        open_lanes(&self);
        self.wired = true;
        if (self.process.stopping) // a session failed while the lanes were being opened
            on_stop(&self);
        else if (self.store_up && self.dispatcher)
            dispatcher_up(self.dispatcher);
    }
    int status = process_run(&self.process);
    egress_policy_close(&self.egress);
    return status;
}
