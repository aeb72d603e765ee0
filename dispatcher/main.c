// rowbell-dispatcher: delivers jobs: webhooks to their receivers, rows to search indexes, row changes into the stream.
#include "common/admin_endpoint.h"
#include "common/egress.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/process.h"
#include "common/redis_conn.h"
#include "dispatcher/clock_watch.h"
#include "dispatcher/config.h"
#include "dispatcher/dispatcher.h"
#include "dispatcher/housekeeper.h"
#include "dispatcher/job_store_pg.h"
#include "dispatcher/lanes.h"
#include "dispatcher/metrics.h"
#include "dispatcher/sink_discard.h"
#include "dispatcher/sink_index.h"
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
    .summary = "Delivers jobs: webhooks, search indexes, the stream of row changes. Run any number.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
};

static const struct metric metrics[] = {
#define METRIC(kind, id, name, labels, help) [METRIC_##id] = {METRIC_##kind, name, labels, help},
#include "dispatcher/metrics.def"
#undef METRIC
};

enum { READY_CHECK_MS = 1000 };

// A lane whose jobs are claimed under leases by the owner of their shard: a session, a dispatcher and a sink.
struct leased_lane {
    struct dispatcher_program *program;
    enum lane lane;
    struct sink sink;
    struct job_store_pg *store;    // NULL: not opened; the first one also hears NOTIFY for the sse lane
    struct dispatcher *dispatcher; // NULL: not wanted
    bool sink_open, up, drained;
};
enum { LEASED_LANES = 2 };

struct dispatcher_program {
    struct process process;
    struct dispatcher_config config;
    struct lanes lanes;
    struct egress_policy egress;
    struct clock_watch clock;
    struct leased_lane leased[LEASED_LANES];
    struct sink_sse *sse;            // NULL: no sse lane
    struct housekeeper *housekeeper; // NULL: --once
    bool sse_up, wired, started;
    bool sse_drained; // --once
    int running;      // lanes that have not stopped
    uv_timer_t ready_timer;
};

// ---- Readiness

static bool all_up(const struct dispatcher_program *self) {
    bool up = self->sse_up || !self->lanes.wanted[LANE_SSE];
    for (int i = 0; i < LEASED_LANES; i++)
        up = up && (self->leased[i].up || !self->leased[i].store);
    return up;
}

static const char *unready(const struct dispatcher_program *self) {
    const char *reason = NULL;
    for (int i = 0; i < LEASED_LANES && !reason; i++) {
        const struct leased_lane *lane = &self->leased[i];
        if (lane->store && !lane->up)
            reason = "database: not connected";
        else if (lane->dispatcher)
            reason = dispatcher_unready(lane->dispatcher);
    }
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
    metric_set(METRIC_CLOCK_OFFSET_SECONDS, NULL, NULL, clock_watch_offset_s(&self->clock));
    for (int i = 0; i < LEASED_LANES; i++)
        if (self->leased[i].dispatcher)
            metric_set(METRIC_JOBS, lane_name(self->leased[i].lane), "running",
                       dispatcher_in_flight(self->leased[i].dispatcher));
}

// ---- Connections

static void session_came(struct dispatcher_program *self) {
    bool all = self->wired && all_up(self);
    metric_set(METRIC_DATABASE_CONNECTED, NULL, NULL, all);
    if (!all)
        return;
    if (self->started) {
        log_info("database_connected");
        return;
    }
    self->started = true;
    log_info("dispatcher_started", LOG_TEXT("admin", admin_endpoint_address(self->process.admin)),
             LOG_BOOL("webhook", self->lanes.wanted[LANE_WEBHOOK]), LOG_BOOL("index", self->lanes.wanted[LANE_INDEX]),
             LOG_BOOL("sse", self->lanes.wanted[LANE_SSE]), LOG_INT("lease_ms", self->config.lease_ms));
}

static void session_went(struct dispatcher_program *self, const char *session, const struct error *error, bool first) {
    metric_set(METRIC_DATABASE_CONNECTED, NULL, NULL, 0);
    if (self->process.stopping)
        return;
    tell_ready(self);
    // With --once a lost session comes back; what takes a person does not.
    bool lost = error->code == ERROR_CONNECT || error->code == ERROR_TIMEOUT;
    if (first || (self->config.once && !lost))
        process_fail(&self->process, error);
    else
        log_warn("database_lost", LOG_TEXT("session", session), LOG_TEXT("error", error->text));
}

static void tell_clock(const struct leased_lane *lane) {
    char text[40];
    clock_watch_name(&lane->program->clock, text, sizeof text);
    job_store_pg_name_session(lane->store, text);
}

static void on_time(void *arg, int64_t sent_us, int64_t database_us) {
    struct leased_lane *lane = arg;
    if (!clock_watch_told(&lane->program->clock, sent_us, database_us))
        return;
    for (int i = 0; i < LEASED_LANES; i++)
        if (lane->program->leased[i].up)
            tell_clock(&lane->program->leased[i]);
}

static void store_came_up(void *arg) {
    struct leased_lane *lane = arg;
    struct dispatcher_program *self = lane->program;
    lane->up = true;
    if (self->process.stopping && !lane->dispatcher)
        return;
    if (!self->process.stopping)
        session_came(self);
    if (self->clock.told_s != 0 && lane->store)
        tell_clock(lane);
    if (lane->dispatcher)
        dispatcher_up(lane->dispatcher);
}

static void store_went_down(void *arg, const struct error *error, bool first) {
    struct leased_lane *lane = arg;
    lane->up = false;
    if (lane->dispatcher)
        dispatcher_down(lane->dispatcher);
    session_went(lane->program, lane_name(lane->lane), error, first);
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

static void on_jobs(void *arg, const char *name, uint64_t shards, int64_t lowest) {
    struct leased_lane *lane = arg;
    struct dispatcher_program *self = lane->program;
    bool first = lane == &self->leased[0] || !self->leased[0].store;
    if (lane->dispatcher && strcmp(name, lane_name(lane->lane)) == 0)
        dispatcher_wake(lane->dispatcher, shards, lowest);
    else if (self->sse && first && strcmp(name, lane_name(LANE_SSE)) == 0)
        sink_sse_wake(self->sse);
}

// ---- --once

static void check_once(struct dispatcher_program *self) {
    bool drained = self->sse_drained || !self->lanes.wanted[LANE_SSE];
    for (int i = 0; i < LEASED_LANES; i++)
        drained = drained && (self->leased[i].drained || !self->leased[i].dispatcher);
    if (drained)
        process_stop(&self->process);
}

static void lane_is_drained(void *arg) {
    struct leased_lane *lane = arg;
    lane->drained = true;
    check_once(lane->program);
}

static void sse_is_drained(void *arg) {
    struct dispatcher_program *self = arg;
    self->sse_drained = true;
    check_once(self);
}

// ---- The end: lanes stop, then the sink, then the sessions, then the memory

static void store_closed(void *arg) {
    struct leased_lane *lane = arg;
    dispatcher_close(lane->dispatcher, NULL, NULL);
    lane->dispatcher = NULL;
}

static void sink_closed(void *arg) {
    struct leased_lane *lane = arg;
    struct job_store_pg *store = lane->store;
    lane->sink_open = false;
    lane->store = NULL;
    job_store_pg_close(store, store_closed, lane);
}

static void leased_close(struct leased_lane *lane) {
    if (lane->sink_open)
        lane->sink.close(lane->sink.arg, sink_closed, lane);
    else
        sink_closed(lane);
}

static void lane_stopped(void *arg) {
    struct dispatcher_program *self = arg;
    if (--self->running > 0)
        return;
    uv_close((uv_handle_t *)&self->ready_timer, NULL);
    struct sink_sse *sse = self->sse;
    self->sse = NULL;
    sink_sse_close(sse, NULL, NULL);
    housekeeper_close(self->housekeeper, NULL, NULL);
    self->housekeeper = NULL;
    for (int i = 0; i < LEASED_LANES; i++)
        leased_close(&self->leased[i]);
}

static void on_stop(void *arg) {
    struct dispatcher_program *self = arg;
    if (!self->wired)
        return; // main sees that the process is stopping
    self->running = 1 + (self->sse != NULL);
    for (int i = 0; i < LEASED_LANES; i++)
        self->running += self->leased[i].dispatcher != NULL;
    for (int i = 0; i < LEASED_LANES; i++)
        if (self->leased[i].dispatcher)
            dispatcher_stop(self->leased[i].dispatcher, lane_stopped, self);
    if (self->sse)
        sink_sse_stop(self->sse, lane_stopped, self);
    lane_stopped(self);
}

// ---- The start

static bool open_webhook_sink(struct dispatcher_program *self, struct sink *ret_sink, struct error *ret_error) {
    if (strcmp(self->config.sink, "discard") == 0) {
        sink_discard_init(ret_sink, &self->process.loop);
        return true;
    }
    return sink_webhook_init(ret_sink, &self->process.loop,
                             &(struct sink_webhook_options){.egress = &self->egress,
                                                            .clock = &self->clock.clock,
                                                            .ca_file = self->config.ca_file,
                                                            .secret_key = self->config.secret_key},
                             ret_error);
}

static bool open_index_sink(struct dispatcher_program *self, struct sink *ret_sink, struct error *ret_error) {
    const struct config_common *common = &self->config.common;
    return sink_index_init(ret_sink, &self->process.loop,
                           &(struct sink_index_options){.url = common->database_url,
                                                        .direct_url = common->direct_database_url,
                                                        .egress = &self->egress,
                                                        .clock = &self->clock.clock,
                                                        .ca_file = self->config.ca_file,
                                                        .secret_key = self->config.secret_key},
                           ret_error);
}

static const struct {
    enum lane lane;
    int lock_offset;
    int jobs_each; // of one unit of --concurrency
    bool (*open_sink)(struct dispatcher_program *self, struct sink *ret_sink, struct error *ret_error);
} leased_table[LEASED_LANES] = {
    {LANE_WEBHOOK, 0, 1, open_webhook_sink},
    {LANE_INDEX, 128, 200, open_index_sink},
};

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

static bool check_lease(const struct dispatcher_program *self, const struct sink *sink, struct error *ret_error) {
    unsigned least_ms = sink->deadline_ms + DISPATCHER_LEASE_MARGIN_MS;
    if (self->config.lease_ms < (long)least_ms)
        return error_set(ret_error, ERROR_USAGE, "--lease: at least %ums: the request deadline (%ums) and %ds more",
                         least_ms, sink->deadline_ms, DISPATCHER_LEASE_MARGIN_MS / 1000);
    return true;
}

static bool open_sinks(struct dispatcher_program *self, struct error *ret_error) {
    for (int i = 0; i < LEASED_LANES; i++) {
        struct leased_lane *lane = &self->leased[i];
        lane->program = self;
        lane->lane = leased_table[i].lane;
        if (!self->lanes.wanted[lane->lane])
            continue;
        lane->sink_open = leased_table[i].open_sink(self, &lane->sink, ret_error);
        if (!lane->sink_open || !check_lease(self, &lane->sink, ret_error))
            return false;
    }
    return true;
}

static void open_leased(struct dispatcher_program *self, int index) {
    const struct config_common *common = &self->config.common;
    struct leased_lane *lane = &self->leased[index];
    uv_loop_t *loop = &self->process.loop;
    lane->store = job_store_pg_new(loop, &(struct job_store_pg_options){.url = common->database_url,
                                                                        .direct_url = common->direct_database_url,
                                                                        .once = self->config.once,
                                                                        .kind = lane_name(lane->lane),
                                                                        .lock_offset = leased_table[index].lock_offset,
                                                                        .arg = lane,
                                                                        .on_up = store_came_up,
                                                                        .on_down = store_went_down,
                                                                        .on_jobs = on_jobs,
                                                                        .on_time = on_time});
    if (!self->lanes.wanted[lane->lane])
        return;
    int concurrency = self->lanes.concurrency[lane->lane] * leased_table[index].jobs_each;
    lane->dispatcher =
        dispatcher_new(&(struct dispatcher_options){.loop = loop,
                                                    .store = job_store_pg_port(lane->store),
                                                    .sink = &lane->sink,
                                                    .lane = lane_name(lane->lane),
                                                    .concurrency = concurrency,
                                                    .lease_ms = (unsigned)self->config.lease_ms,
                                                    .throttle_grace_ms = (uint64_t)self->config.throttle_grace_ms,
                                                    .arg = lane,
                                                    .on_drained = self->config.once ? lane_is_drained : NULL});
}

static void open_lanes(struct dispatcher_program *self) {
    struct config_common *common = &self->config.common;
    uv_loop_t *loop = &self->process.loop;
    // Without any leased lane the session of the first one is there all the same: somebody must hear NOTIFY.
    bool none = !self->lanes.wanted[LANE_WEBHOOK] && !self->lanes.wanted[LANE_INDEX];
    for (int i = 0; i < LEASED_LANES; i++)
        if (self->lanes.wanted[self->leased[i].lane] || (none && i == 0))
            open_leased(self, i);
    if (!self->config.once)
        self->housekeeper =
            housekeeper_new(loop, &(struct housekeeper_options){.url = common->database_url,
                                                                .direct_url = common->direct_database_url,
                                                                .keep_events_ms = self->config.keep_events_ms,
                                                                .keep_attempts_ms = self->config.keep_attempts_ms,
                                                                .keep_stream_ms = self->config.keep_stream_ms});
    if (self->lanes.wanted[LANE_SSE])
        self->sse =
            sink_sse_new(loop, &(struct sink_sse_options){.url = common->database_url,
                                                          .direct_url = common->direct_database_url,
                                                          .redis_url = self->config.redis_url,
                                                          .redis_ca = self->config.redis_ca,
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
    if (!check_config(&self, &error) || !open_sinks(&self, &error)) {
        process_fail(&self.process, &error);
        for (int i = 0; i < LEASED_LANES; i++)
            if (self.leased[i].sink_open)
                self.leased[i].sink.close(self.leased[i].sink.arg, NULL, NULL);
    } else {
        admin_endpoint_on_scrape(self.process.admin, on_scrape, &self);
        uv_timer_init(&self.process.loop, &self.ready_timer);
        self.ready_timer.data = &self;
        uv_timer_start(&self.ready_timer, on_ready_timer, READY_CHECK_MS, READY_CHECK_MS);
        open_lanes(&self);
        self.wired = true;
        if (self.process.stopping) { // a session failed while the lanes were being opened
            on_stop(&self);
        } else {
            session_came(&self);
            for (int i = 0; i < LEASED_LANES; i++)
                if (self.leased[i].up && self.leased[i].dispatcher)
                    dispatcher_up(self.leased[i].dispatcher);
        }
    }
    int status = process_run(&self.process);
    egress_policy_close(&self.egress);
    return status;
}
