// process: what each of our daemons is: flags, log, loop, signals, admin endpoint, exit status.
//
//   int main(int argc, char **argv) {
//       struct relay_config config;
//       struct process process;
//       if (!process_init(&process, &program, argc, argv, &config)) return process.exit_status;
//       ... process.on_stop = stop; process.stop_arg = relay; start things on process.loop ...
//       return process_run(&process);
//   }
//
// The first SIGTERM or SIGINT calls on_stop once. on_stop closes everything that it owns; process_run returns when the
// loop has no handle left. A second signal, or `--drain` + 2 s, ends the process at once with status 1. The admin
// endpoint is closed before on_stop and `admin` is NULL from then on: read it from here each time, keep no copy.
#pragma once
#include "common/config.h"
#include "common/error.h"
#include <stdbool.h>
#include <uv.h>

struct admin_endpoint;

// First in main of whatever has secrets in memory: no core file, no debugger. Not with ROWBELL_ALLOW_CORE_DUMPS=1, nor
// under the sanitizers. process_init does it.
void process_keep_memory_private(void);

struct process {
    uv_loop_t loop;
    const struct config_program *program;
    struct config_common *config;
    struct admin_endpoint *admin; // started by process_init; routes: common/admin_endpoint.h
    void (*on_stop)(void *arg);
    void *stop_arg;
    bool stopping;
    int exit_status;
    uv_signal_t signals[2];
    uv_timer_t drain_timer;
};

// Parses flags (exit_status 0 for --help, 2 for a usage error, printed to stderr; no database URL is one), sets up log,
// ignores SIGPIPE, raises RLIMIT_NOFILE, initialises the loop, binds the admin listener (a taken port is a one-line
// error). False: return exit_status.
bool process_init(struct process *process, const struct config_program *program, int argc, char **argv, void *config);
// Ends the process with this error: one line on stderr "rowbell-relay: TEXT", exit status by error_exit_status.
// Calls on_stop, as a signal would.
void process_fail(struct process *process, const struct error *error);
void process_stop(struct process *process); // like SIGTERM, from inside (--once)
int process_run(struct process *process);
