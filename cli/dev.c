// dev: relay, dispatcher and gateway as children of one command, for an application's developer.
//
// Each child leads a process group of its own, so that Ctrl-C reaches this process alone, which tells each child once.
// The first signal drains them, a second ends them at once. When one ends by itself the others are stopped: half an
// installation would only puzzle. A killed parent takes its children along.
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "common/memory.h"
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 3, MAX_ARGUMENTS = 40 };

static const char *const names[CHILDREN] = {"relay", "dispatcher", "gateway"};

struct child {
    const char *arguments[MAX_ARGUMENTS];
    int argument_count;
    char path[PATH_MAX];
    pid_t pid; // 0: not running
};

// Installed, all programs lie together; in a build directory each in its component's.
static bool find_program(const char *name, char ret_path[PATH_MAX], struct error *ret_error) {
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (length < 0)
        return error_set(ret_error, ERROR_IO, "/proc/self/exe: %m");
    self[length] = 0;
    const char *directory = dirname(self);
    if (snprintf(ret_path, PATH_MAX, "%s/rowbell-%s", directory, name) < PATH_MAX && access(ret_path, X_OK) == 0)
        return true;
    if (snprintf(ret_path, PATH_MAX, "%s/../%s/rowbell-%s", directory, name, name) < PATH_MAX &&
        access(ret_path, X_OK) == 0)
        return true;
    return error_set(ret_error, ERROR_IO, "rowbell-%s is not beside this program (%s)", name, directory);
}

static bool add_argument(void *arg, const char *value) {
    struct child *child = arg;
    if (child->argument_count < MAX_ARGUMENTS - 2)
        child->arguments[child->argument_count++] = memory_copy_text(value);
    return true;
}

struct repeated {
    struct child *child;
    const char *flag;
};

static bool add_flag(void *arg, const char *value) {
    struct repeated *repeated = arg;
    return add_argument(repeated->child, repeated->flag) && add_argument(repeated->child, value);
}

// A developer's endpoints and pages are on the same machine.
static void command_lines(struct cli *cli, struct child children[CHILDREN]) {
    struct child *dispatcher = &children[1], *gateway = &children[2];
    add_flag(&(struct repeated){dispatcher, "--allow-egress"}, "127.0.0.0/8");
    add_flag(&(struct repeated){dispatcher, "--allow-egress"}, "::1");
    option_each(cli, "allow-egress", ',', add_flag, &(struct repeated){dispatcher, "--allow-egress"});
    if (option_given(cli, "listen"))
        add_flag(&(struct repeated){gateway, "--listen"}, option_value(cli, "listen"));
    option_each(cli, "cors-origin", ',', add_flag, &(struct repeated){gateway, "--cors-origin"});
    add_argument(gateway, "--auth");
    add_argument(gateway, "none"); // on the loopback address
    add_argument(gateway, "--demo");
}

static bool child_start(struct child *child, const char *name, const sigset_t *signals, struct error *ret_error) {
    pid_t parent = getpid();
    child->pid = fork();
    if (child->pid < 0) {
        child->pid = 0;
        return error_set(ret_error, ERROR_IO, "fork: %m");
    }
    if (child->pid > 0) {
        printf("rowbell-%s runs as process %d\n", name, (int)child->pid);
        fflush(stdout);
        return true;
    }
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(1);
    sigprocmask(SIG_UNBLOCK, signals, NULL);
    char *argv[MAX_ARGUMENTS + 1] = {child->path};
    for (int i = 0; i < child->argument_count; i++)
        argv[i + 1] = (char *)child->arguments[i];
    execv(child->path, argv);
    fprintf(stderr, "%s: %s\n", child->path, strerror(errno));
    _exit(127);
}

static void stop_all(struct child children[CHILDREN]) {
    for (int i = 0; i < CHILDREN; i++)
        if (children[i].pid > 0)
            kill(children[i].pid, SIGTERM);
}

static int running(const struct child children[CHILDREN]) {
    int count = 0;
    for (int i = 0; i < CHILDREN; i++)
        count += children[i].pid > 0;
    return count;
}

// Takes leave of those that ended. The first that did so unasked, or badly, is the command's failure.
static void reap(struct child children[CHILDREN], bool stopping, bool *ret_ok, struct error *ret_error) {
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        if (children[i].pid == 0 || waitpid(children[i].pid, &status, WNOHANG) != children[i].pid)
            continue;
        children[i].pid = 0;
        bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if ((stopping && clean) || !*ret_ok)
            continue;
        *ret_ok = error_set(ret_error, ERROR_IO, "rowbell-%s ended with %s %d, so the others were stopped", names[i],
                            WIFEXITED(status) ? "status" : "signal",
                            WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
    }
}

static bool watch(struct child children[CHILDREN], const sigset_t *signals, bool ok, struct error *ret_error) {
    bool stopping = !ok;
    if (stopping)
        stop_all(children);
    while (running(children) > 0) {
        siginfo_t info;
        int signal = sigwaitinfo(signals, &info);
        reap(children, stopping, &ok, ret_error);
        if (signal == SIGINT || signal == SIGTERM || (!ok && !stopping)) {
            stopping = true;
            stop_all(children);
        }
    }
    return ok;
}

bool run_dev(struct cli *cli, struct error *ret_error) {
    struct child children[CHILDREN] = {0};
    if (!cli_connect(cli, CONNECT_FOR_WORK, ret_error)) // says better what is wrong than three children would
        return false;
    cli_disconnect(cli);
    for (int i = 0; i < CHILDREN; i++)
        if (!find_program(names[i], children[i].path, ret_error))
            return false;
    // Not on their command lines, which others can see.
    if (option_given(cli, "database-url"))
        setenv("ROWBELL_DATABASE_URL", option_value(cli, "database-url"), 1);
    command_lines(cli, children);

    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    bool ok = true;
    for (int i = 0; i < CHILDREN && ok; i++)
        ok = child_start(&children[i], names[i], &signals, ret_error);
    ok = watch(children, &signals, ok, ret_error);
    for (int i = 0; i < CHILDREN; i++)
        for (int k = 0; k < children[i].argument_count; k++)
            free((char *)children[i].arguments[k]);
    return ok;
}
