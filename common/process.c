#include "common/process.h"
#include "common/admin_endpoint.h"
#include "common/db_url.h"
#include "common/log.h"
#include "common/resolver.h"
#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#ifdef __SANITIZE_ADDRESS__
#define SANITIZED
#elif defined __has_feature
#if __has_feature(address_sanitizer)
#define SANITIZED
#endif
#endif

static const uint64_t drain_grace_ms = 2000; // after --drain, before the end by force

static const char *const levels[] = {
    [LOG_DEBUG] = "debug", [LOG_INFO] = "info", [LOG_WARN] = "warn", [LOG_ERROR] = "error"};

static void start_log(const struct process *process) {
    enum log_level level = LOG_INFO;
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        if (strcmp(levels[i], process->config->log_level) == 0)
            level = (enum log_level)i;
    bool json = strcmp(process->config->log_format, "json") == 0;
    log_init(process->program->name, level, json ? LOG_JSON : LOG_LOGFMT);
}

// Each subscriber and each delivery is a descriptor; the soft limit of 1,024 is for programs that use select().
static void raise_descriptor_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

// A core file would hold secrets in clear, and outlive them; a debugger of another process would see them too. The leak
// checker of the sanitizers needs what this takes away.
void process_keep_memory_private(void) {
#ifndef SANITIZED
    const char *allowed = getenv("ROWBELL_ALLOW_CORE_DUMPS");
    if (allowed != NULL && strcmp(allowed, "1") == 0)
        return;
    setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
#endif
}

static void end_by_force(const char *why) {
    log_error("process_ended_by_force", LOG_TEXT("reason", why));
    // Not exit(): what its handlers would touch is still in use. All that matters is in PostgreSQL (G9).
    _exit(1);
}

static void on_drain_over(uv_timer_t *timer) {
    (void)timer;
    end_by_force("drain took too long");
}

void process_stop(struct process *process) {
    if (process->stopping)
        return;
    process->stopping = true;
    // A failed start is one line on stderr, for the person who just typed the command.
    if (process->exit_status == 0)
        log_info("process_stopping", LOG_INT("drain_ms", process->config->drain_ms));
    uv_timer_start(&process->drain_timer, on_drain_over, (uint64_t)process->config->drain_ms + drain_grace_ms, 0);
    // Closed at once, since a scraper's idle connection would keep the loop alive: "not ready" is then "refused".
    admin_endpoint_close(process->admin);
    process->admin = NULL;
    if (process->on_stop != NULL)
        process->on_stop(process->stop_arg);
}

static void on_signal(uv_signal_t *handle, int number) {
    struct process *process = handle->data;
    if (process->stopping)
        end_by_force("second signal");
    log_info("signal_received", LOG_TEXT("signal", number == SIGTERM ? "SIGTERM" : "SIGINT"));
    process_stop(process);
}

static void report(const struct process *process, const struct error *error) {
    fprintf(stderr, "%s: %s\n", process->program->name, error->text);
}

void process_fail(struct process *process, const struct error *error) {
    // The first one is the reason; those after it are its consequences.
    if (process->exit_status == 0) {
        report(process, error);
        process->exit_status = error_exit_status(error);
    }
    process_stop(process);
}

// Neither is work: the loop ends when everything else is closed.
static void start_signals(struct process *process) {
    static const int numbers[] = {SIGTERM, SIGINT};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        uv_signal_init(&process->loop, &process->signals[i]);
        process->signals[i].data = process;
        uv_signal_start(&process->signals[i], on_signal, numbers[i]);
        uv_unref((uv_handle_t *)&process->signals[i]);
    }
    uv_timer_init(&process->loop, &process->drain_timer);
    uv_unref((uv_handle_t *)&process->drain_timer);
}

static void close_loop(struct process *process) {
    for (size_t i = 0; i < sizeof process->signals / sizeof process->signals[0]; i++)
        uv_close((uv_handle_t *)&process->signals[i], NULL);
    uv_close((uv_handle_t *)&process->drain_timer, NULL);
    uv_run(&process->loop, UV_RUN_DEFAULT);
    uv_loop_close(&process->loop);
}

bool process_init(struct process *process, const struct config_program *program, int argc, char **argv, void *config) {
    *process = (struct process){.program = program, .config = config};
    process_keep_memory_private();
    struct error error;
    bool exit_now = false;
    if (!config_parse(program, argc, argv, config, &exit_now, &error))
        goto failed;
    if (exit_now)
        return false;
    if (process->config->database_url == NULL) {
        error_set(&error, ERROR_USAGE, "no database: give --database-url or set DATABASE_URL");
        goto failed;
    }
    const struct config_common *common = process->config;
    if (!db_url_check(common->database_url, &error)) {
        error_wrap(&error, "--database-url");
        goto failed;
    }
    if (common->direct_database_url && !db_url_check(common->direct_database_url, &error)) {
        error_wrap(&error, "--direct-database-url");
        goto failed;
    }
    if (!resolver_set_servers(process->config->dns_servers, &error)) {
        error_wrap(&error, "--dns-servers");
        goto failed;
    }
    start_log(process);
    signal(SIGPIPE, SIG_IGN);
    raise_descriptor_limit();
    int rv = uv_loop_init(&process->loop);
    if (rv != 0) {
        error_set(&error, ERROR_IO, "event loop: %s", uv_strerror(rv));
        goto failed;
    }
    start_signals(process);
    process->admin = admin_endpoint_new(&process->loop, process->config->admin_listen, &error);
    if (process->admin == NULL) {
        error_wrap(&error, "--admin-listen");
        close_loop(process);
        goto failed;
    }
    return true;
failed:
    config_free(program, config);
    report(process, &error);
    process->exit_status = error_exit_status(&error);
    return false;
}

int process_run(struct process *process) {
    uv_run(&process->loop, UV_RUN_DEFAULT);
    close_loop(process);
    config_free(process->program, process->config);
    return process->exit_status;
}
