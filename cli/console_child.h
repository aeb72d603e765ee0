// console_child: one command of this program, run for the console's page in a process of its own.
#pragma once
#include "common/buffer.h"
#include "common/error.h"
#include <uv.h>

struct console_child;

struct console_outcome {
    int status;           // the command's exit status
    struct buffer output; // its document, or nothing
    struct buffer error;  // the line that it ended with, or nothing
};

// Starts it. arguments: with the program's name; ends with NULL; copied. deadline_ms 0: none. on_end is called once,
// later, unless this fails; then what the outcome holds is the caller's. error NULL: the command ended by itself; else
// it was killed, for time or length, or by console_child_stop, and there is no outcome. NULL: it could not be started.
struct console_child *console_child_start(uv_loop_t *loop, char *const *arguments, unsigned deadline_ms,
                                          void (*on_end)(void *arg, const struct console_outcome *outcome,
                                                         const struct error *error),
                                          void *arg, struct error *ret_error);
void console_child_stop(struct console_child *child);
