// The happy path is: spawn, both pipes to their ends, the exit, on_end. It ends when all three are closed, in whatever
// order they do so. A child that takes too long or says too much is killed, and its pipes end with it.
#include "cli/console_child.h"
#include "common/memory.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum {
    OUTPUT_MAX_BYTES = 8 << 20,
    ERROR_MAX_BYTES = 16 << 10,
    READ_BYTES = 64 << 10,
};

struct console_child {
    uv_process_t process;
    uv_timer_t deadline;
    struct pipe {
        uv_pipe_t handle; // first, so that the handle is the pipe
        struct console_child *child;
        struct buffer *text;
        size_t most;
    } pipes[2];
    int open; // handles
    struct console_outcome outcome;
    struct error killed; // why, when it was
    void (*on_end)(void *arg, const struct console_outcome *outcome, const struct error *error);
    void *arg;
    char chunk[READ_BYTES];
};

static void on_closed(uv_handle_t *handle) {
    struct console_child *child = handle->data;
    if (--child->open > 0)
        return;
    bool killed = child->killed.code != ERROR_NONE;
    if (child->on_end != NULL)
        child->on_end(child->arg, killed ? NULL : &child->outcome, killed ? &child->killed : NULL);
    buffer_free(&child->outcome.output);
    buffer_free(&child->outcome.error);
    free(child);
}

static void close_once(uv_handle_t *handle) {
    if (!uv_is_closing(handle))
        uv_close(handle, on_closed);
}

static void kill_for(struct console_child *child, enum error_code code, const char *why) {
    if (child->killed.code == ERROR_NONE)
        error_set(&child->killed, code, "%s", why);
    uv_process_kill(&child->process, SIGKILL);
}

static void on_ended(uv_process_t *process, int64_t status, int signal) {
    struct console_child *child = process->data;
    child->outcome.status = (int)status;
    if (signal != 0 && child->killed.code == ERROR_NONE)
        error_set(&child->killed, ERROR_IO, "the command was ended by signal %d", signal);
    close_once((uv_handle_t *)process);
    close_once((uv_handle_t *)&child->deadline);
}

static void on_deadline(uv_timer_t *timer) {
    kill_for(timer->data, ERROR_TIMEOUT, "the command took too long and was ended: ask for less at a time");
}

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_room) {
    struct console_child *child = handle->data;
    *ret_room = uv_buf_init(child->chunk, sizeof(child->chunk));
}

static void on_read(uv_stream_t *stream, ssize_t length, const uv_buf_t *chunk) {
    struct pipe *pipe = (struct pipe *)stream;
    if (length < 0)
        close_once((uv_handle_t *)stream);
    else if (pipe->text->length + (size_t)length > pipe->most)
        kill_for(pipe->child, ERROR_REFUSED, "the answer is longer than 8 MiB: ask for less at a time");
    else
        buffer_append(pipe->text, chunk->base, (size_t)length);
}

static void own(struct console_child *child, uv_handle_t *handle) {
    handle->data = child;
    child->open++;
}

struct console_child *console_child_start(uv_loop_t *loop, char *const *arguments, unsigned deadline_ms,
                                          void (*on_end)(void *arg, const struct console_outcome *outcome,
                                                         const struct error *error),
                                          void *arg, struct error *ret_error) {
    struct console_child *child = memory_alloc(sizeof(*child));
    uv_stdio_container_t stdio[3] = {{.flags = UV_IGNORE}};
    child->pipes[0] = (struct pipe){.child = child, .text = &child->outcome.output, .most = OUTPUT_MAX_BYTES};
    child->pipes[1] = (struct pipe){.child = child, .text = &child->outcome.error, .most = ERROR_MAX_BYTES};
    for (int i = 0; i < 2; i++) {
        uv_pipe_init(loop, &child->pipes[i].handle, 0);
        own(child, (uv_handle_t *)&child->pipes[i].handle);
        stdio[i + 1].flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE;
        stdio[i + 1].data.stream = (uv_stream_t *)&child->pipes[i].handle;
    }
    uv_timer_init(loop, &child->deadline);
    own(child, (uv_handle_t *)&child->deadline);
    const uv_process_options_t options = {.file = "/proc/self/exe",
                                          .args = (char **)arguments,
                                          .exit_cb = on_ended,
                                          // A group of its own: Ctrl-C is for the console, which ends it.
                                          .flags = UV_PROCESS_DETACHED,
                                          .stdio_count = 3,
                                          .stdio = stdio};
    int failed = uv_spawn(loop, &child->process, &options);
    own(child, (uv_handle_t *)&child->process);
    if (failed != 0) {
        error_set(ret_error, ERROR_IO, "the command could not be started: %s", uv_strerror(failed));
        close_once((uv_handle_t *)&child->process);
        close_once((uv_handle_t *)&child->deadline);
        for (int i = 0; i < 2; i++)
            close_once((uv_handle_t *)&child->pipes[i].handle);
        return NULL;
    }
    child->on_end = on_end;
    child->arg = arg;
    if (deadline_ms > 0)
        uv_timer_start(&child->deadline, on_deadline, deadline_ms, 0);
    for (int i = 0; i < 2; i++)
        uv_read_start((uv_stream_t *)&child->pipes[i].handle, on_room, on_read);
    return child;
}

void console_child_stop(struct console_child *child) {
    kill_for(child, ERROR_CANCELLED, "the console ends");
}
