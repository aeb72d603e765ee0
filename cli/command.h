// command: what a subcommand of `rowbell` is, and what its function is given. The table is in cli/commands.c; from it
// come the parser, --help and docs/cli.md.
#pragma once
#include "common/error.h"
#include <libpq-fe.h>
#include <stdbool.h>

struct cli;

struct command_option {
    const char *flag;     // without dashes; NULL ends a table
    const char *argument; // for --help; NULL: the flag takes no value
    const char *help;     // without a full stop
};

struct command {
    const char *path;      // "subscription add webhook"; NULL ends the table
    const char *arguments; // positional ones, for --help; "" for none
    int least, most;       // how many positional arguments
    const char *sentence;
    const struct command_option *options; // besides the global ones; may be NULL
    // False: ret_error says why, on one line, with the remedy.
    bool (*run)(struct cli *cli, struct error *ret_error);
};

extern const struct command commands[]; // ends with path NULL

struct given_option {
    const struct command_option *option;
    const char *value; // view of argv; NULL for a flag without a value
};

struct cli {
    const struct command *command;
    const char *const *arguments; // view of argv
    int argument_count;
    struct given_option *given; // owned; in the order of the command line
    int given_count;
    bool json;
    PGconn *conn;          // owned; NULL until cli_connect
    bool transaction_sets; // statements bring no settings: their transaction has its own
    char *search_path;     // owned; the one of the user
};

bool run_migrate(struct cli *cli, struct error *ret_error);
bool run_publish(struct cli *cli, struct error *ret_error);
bool run_unpublish(struct cli *cli, struct error *ret_error);
bool run_subscription_add_index(struct cli *cli, struct error *ret_error);
bool run_index_rebuild(struct cli *cli, struct error *ret_error);
bool run_index_status(struct cli *cli, struct error *ret_error);
bool run_subscription_add_webhook(struct cli *cli, struct error *ret_error);
bool run_subscription_set(struct cli *cli, struct error *ret_error);
bool run_subscription_set_owner(struct cli *cli, struct error *ret_error);
bool run_subscription_rotate_secret(struct cli *cli, struct error *ret_error);
bool run_subscription_test(struct cli *cli, struct error *ret_error);
bool run_subscription_list(struct cli *cli, struct error *ret_error);
bool run_subscription_show(struct cli *cli, struct error *ret_error);
bool run_subscription_remove(struct cli *cli, struct error *ret_error);
bool run_subscription_pause(struct cli *cli, struct error *ret_error);
bool run_subscription_resume(struct cli *cli, struct error *ret_error);
bool run_secrets_rekey(struct cli *cli, struct error *ret_error);
bool run_event_list(struct cli *cli, struct error *ret_error);
bool run_event_show(struct cli *cli, struct error *ret_error);
bool run_event_cancel(struct cli *cli, struct error *ret_error);
bool run_attempt_list(struct cli *cli, struct error *ret_error);
bool run_job_list(struct cli *cli, struct error *ret_error);
bool run_job_retry(struct cli *cli, struct error *ret_error);
bool run_job_cancel(struct cli *cli, struct error *ret_error);
bool run_prune(struct cli *cli, struct error *ret_error);
bool run_requeue_events(struct cli *cli, struct error *ret_error);
bool run_requeue_jobs(struct cli *cli, struct error *ret_error);
bool run_replay(struct cli *cli, struct error *ret_error);
bool run_doctor(struct cli *cli, struct error *ret_error);
bool run_status(struct cli *cli, struct error *ret_error);
bool run_generate_client(struct cli *cli, struct error *ret_error);
bool run_tail(struct cli *cli, struct error *ret_error);
bool run_console(struct cli *cli, struct error *ret_error);
bool run_dev(struct cli *cli, struct error *ret_error);
