// rowbell-relay: claims outbox rows and queues a job for each event and subscription that match.
#include "common/admin_endpoint.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/process.h"
#include "relay/config.h"
#include "relay/metrics.h"
#include "relay/relay.h"
#include "relay/relay_store_pg.h"

static const struct config_option options[] = {
#define OPTION(kind, field, flag, fallback, argument, help)                                                            \
    {CONFIG_##kind, offsetof(struct relay_config, field), flag, fallback, argument, help},
#include "relay/config.def"
#undef OPTION
};

static const struct config_program program = {
    .name = "rowbell-relay",
    .summary = "Claims outbox rows and queues a job for each event and subscription that match. Run any number.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
};

static const struct metric metrics[] = {
#define METRIC(kind, id, name, labels, help) [METRIC_##id] = {METRIC_##kind, name, labels, help},
#include "relay/metrics.def"
#undef METRIC
};

struct relay_program {
    struct process process;
    struct relay_config config;
    struct relay relay;
    struct relay_store_pg *store;
    bool started;
};

static void on_up(void *arg) {
    struct relay_program *self = arg;
    admin_endpoint_set_ready(self->process.admin, NULL);
    if (self->started) {
        log_info("database_connected");
    } else {
        log_info("relay_started", LOG_TEXT("admin", admin_endpoint_address(self->process.admin)),
                 LOG_INT("poll_ms", self->config.poll_ms));
        self->started = true;
    }
}

static void on_down(void *arg, const struct error *error, bool first) {
    struct relay_program *self = arg;
    if (self->process.stopping) {
        return;
    }
    admin_endpoint_set_ready(self->process.admin, "database: not connected");
    // With --once a lost connection comes back; what takes a person does not.
    bool lost = error->code == ERROR_CONNECT || error->code == ERROR_TIMEOUT;
    if (first || (self->config.once && !lost)) {
        process_fail(&self->process, error);
    } else {
        log_warn("database_lost", LOG_TEXT("error", error->text));
    }
}

static void on_stop(void *arg) {
    struct relay_program *self = arg;
    relay_store_pg_close(self->store);
}

static void on_drained(void *arg) {
    process_stop(arg);
}

static bool check_config(const struct relay_config *config, struct error *ret_error) {
    if (config->batch_size != RELAY_BATCH_SIZE) {
        return error_set(ret_error, ERROR_USAGE, "--batch-size %ld: only %d is supported", config->batch_size,
                         RELAY_BATCH_SIZE);
    }
    if (config->poll_ms != 0 && (config->poll_ms < 10 || config->poll_ms > 60000)) {
        return error_set(ret_error, ERROR_USAGE, "--poll-ms: must be 10ms to 1m, or 0s for none");
    }
    if (config->sweep_ms < 1000 || config->sweep_ms > 3600000) {
        return error_set(ret_error, ERROR_USAGE, "--sweep: must be 1s to 1h");
    }
    return true;
}

int main(int argc, char **argv) {
    static struct relay_program self;
    if (!process_init(&self.process, &program, argc, argv, &self.config)) {
        return self.process.exit_status;
    }
    metrics_init(metrics, METRIC_COUNT);
    struct error error;
    if (!check_config(&self.config, &error)) {
        process_fail(&self.process, &error);
        return process_run(&self.process);
    }
    self.store = relay_store_pg_new(&self.process.loop, &(struct relay_store_pg_options){
                                                            .url = self.config.common.database_url,
                                                            .direct_url = self.config.common.direct_database_url,
                                                            .once = self.config.once,
                                                            .sweep_ms = (unsigned)self.config.sweep_ms,
                                                            .relay = &self.relay,
                                                            .arg = &self,
                                                            .on_up = on_up,
                                                            .on_down = on_down,
                                                        });
    relay_init(&self.relay, relay_store_pg_port(self.store),
               &(struct relay_options){
                   .poll_ms = (uint32_t)self.config.poll_ms,
                   .sweep_ms = (uint32_t)self.config.sweep_ms,
                   .once = self.config.once,
                   .on_drained = on_drained,
                   .arg = &self.process,
               });
    self.process.on_stop = on_stop;
    self.process.stop_arg = &self;
    return process_run(&self.process);
}
