// Our binaries as children. Logs go to files that a passing test removes, so that dev/test can show those of a failing
// one. A child dies with the test's process, whatever ends it.
#include "tests/support/fixture.h"
#include "tests/support/support.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_DAEMONS = 256, MAX_ARGUMENTS = 64, RUN_DEADLINE_MS = 5 * HANG_MS };

static struct daemon *daemons[MAX_DAEMONS];
static char *log_paths[MAX_DAEMONS];
static int daemon_count;

static const char *binary_path(const char *binary) {
    const char *directory = strncmp(binary, "rowbell-", 8) == 0 ? binary + 8 : "cli";
    char *path = NULL;
    ck_assert_int_gt(asprintf(&path, "%s/%s/%s", support_env("ROWBELL_TEST_BIN"), directory, binary), 0);
    if (access(path, X_OK) != 0)
        ck_abort_msg("%s: %s", path, strerror(errno));
    return support_keep(path);
}

static void command_line(const char *binary, const char *const *arguments, char *argv[MAX_ARGUMENTS]) {
    int count = 0;
    bool has_url = false;
    argv[count++] = (char *)binary_path(binary);
    for (; arguments != NULL && *arguments != NULL; arguments++) {
        ck_assert_int_lt(count, MAX_ARGUMENTS - 3);
        if (strncmp(*arguments, "--database-url", 14) == 0)
            has_url = true;
        argv[count++] = (char *)*arguments;
    }
    if (!has_url && support_database_url() != NULL) {
        argv[count++] = (char *)"--database-url";
        argv[count++] = (char *)support_database_url();
    }
    argv[count] = NULL;
}

static pid_t spawn(char *const argv[], int out, int err) {
    pid_t test = getpid();
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid > 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != test)
        _exit(127);
    int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    execv(argv[0], argv);
    fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

static char *log_path_new(const char *binary) {
    const char *directory = getenv("ROWBELL_TEST_LOGS");
    char *path = NULL;
    ck_assert_int_gt(
        asprintf(&path, "%s/%d-%d-%s.log", directory == NULL ? "/tmp" : directory, (int)getpid(), daemon_count, binary),
        0);
    return path;
}

struct daemon *daemon_start(const char *binary, const char *const *arguments) {
    ck_assert_int_lt(daemon_count, MAX_DAEMONS);
    char *argv[MAX_ARGUMENTS];
    command_line(binary, arguments, argv);
    char *path = log_path_new(binary);
    int out = open(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (out < 0)
        ck_abort_msg("%s: %s", path, strerror(errno));
    struct daemon *daemon = calloc(1, sizeof(*daemon));
    ck_assert_ptr_nonnull(daemon);
    daemon->pid = spawn(argv, out, out);
    daemon->log_fd = out;
    daemon->log = calloc(1, 1);
    daemon->exit_status = -1;
    daemons[daemon_count] = daemon;
    log_paths[daemon_count++] = path;
    return daemon;
}

static void read_log(struct daemon *daemon) {
    struct stat stat;
    ck_assert_int_eq(fstat(daemon->log_fd, &stat), 0);
    size_t size = (size_t)stat.st_size;
    if (size <= daemon->log_length)
        return;
    daemon->log = realloc(daemon->log, size + 1);
    ck_assert_ptr_nonnull(daemon->log);
    ssize_t got =
        pread(daemon->log_fd, daemon->log + daemon->log_length, size - daemon->log_length, (off_t)daemon->log_length);
    ck_assert_int_ge(got, 0);
    daemon->log_length += (size_t)got;
    daemon->log[daemon->log_length] = '\0';
}

static int exit_status_of(int wait_status) {
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

static bool has_ended(struct daemon *daemon) {
    if (daemon->exit_status >= 0)
        return true;
    int status;
    if (waitpid(daemon->pid, &status, WNOHANG) == daemon->pid)
        daemon->exit_status = exit_status_of(status);
    return daemon->exit_status >= 0;
}

int support_wait_child(pid_t pid, unsigned deadline_ms, const char *what) {
    uint64_t end = support_end_ms(deadline_ms);
    for (;;) {
        int status;
        pid_t ended = waitpid(pid, &status, WNOHANG);
        ck_assert_int_ge(ended, 0);
        if (ended == pid)
            return status;
        if (support_now_ms() >= end) {
            kill(pid, SIGKILL);
            ck_abort_msg("%s still runs after %u ms", what, deadline_ms);
        }
        support_pause();
    }
}

void daemon_wait_log(struct daemon *daemon, const char *text, unsigned deadline_ms) {
    uint64_t end = support_end_ms(deadline_ms);
    for (;;) {
        bool ended = has_ended(daemon); // before reading, so that the last line is not missed
        read_log(daemon);
        if (strstr(daemon->log, text) != NULL)
            return;
        if (ended)
            ck_abort_msg("ended with status %d and never logged '%s':\n%s", daemon->exit_status, text, daemon->log);
        if (support_now_ms() >= end)
            ck_abort_msg("after %u ms no '%s' in the log:\n%s", deadline_ms, text, daemon->log);
        support_pause();
    }
}

int daemon_log_port(struct daemon *daemon, const char *key) {
    char *pattern = NULL;
    ck_assert_int_gt(asprintf(&pattern, " %s=", key), 0);
    daemon_wait_log(daemon, pattern, HANG_MS);
    const char *value = strstr(daemon->log, pattern) + strlen(pattern);
    size_t length = strcspn(value, " \n");
    while (length == 0 || (value[length] != ' ' && value[length] != '\n')) { // half a line was read
        support_pause();
        read_log(daemon);
        value = strstr(daemon->log, pattern) + strlen(pattern);
        length = strcspn(value, " \n");
    }
    const char *colon = memrchr(value, ':', length);
    if (colon == NULL)
        ck_abort_msg("%.*s is not an address with a port", (int)length, value);
    free(pattern);
    return atoi(colon + 1);
}

void daemon_signal(struct daemon *daemon, int signal) {
    ck_assert_msg(!has_ended(daemon), "ended already with status %d:\n%s", daemon->exit_status, daemon->log);
    ck_assert_int_eq(kill(daemon->pid, signal), 0);
}

int daemon_wait_exit(struct daemon *daemon, unsigned deadline_ms) {
    uint64_t end = support_end_ms(deadline_ms);
    while (!has_ended(daemon)) {
        if (support_now_ms() >= end) {
            read_log(daemon);
            ck_abort_msg("still runs after %u ms:\n%s", deadline_ms, daemon->log);
        }
        support_pause();
    }
    read_log(daemon);
    return daemon->exit_status;
}

void support_stop_daemons(void) {
    for (int i = 0; i < daemon_count; i++) {
        struct daemon *daemon = daemons[i];
        if (!has_ended(daemon)) {
            kill(daemon->pid, SIGKILL); // a stopped one too
            waitpid(daemon->pid, NULL, 0);
        }
        close(daemon->log_fd);
        unlink(log_paths[i]);
        free(log_paths[i]);
        free(daemon->log);
        free(daemon);
    }
    daemon_count = 0;
}

static const char *read_whole(int fd) {
    struct stat stat;
    ck_assert_int_eq(fstat(fd, &stat), 0);
    char *text = support_keep(calloc(1, (size_t)stat.st_size + 1));
    ck_assert_int_eq(pread(fd, text, (size_t)stat.st_size, 0), stat.st_size);
    close(fd);
    return text;
}

static int temporary_file(void) {
    int fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    return fd;
}

int program_run(const char *binary, const char *const *arguments, const char **ret_stdout, const char **ret_stderr) {
    char *argv[MAX_ARGUMENTS];
    command_line(binary, arguments, argv);
    int out = temporary_file(), err = temporary_file();
    pid_t pid = spawn(argv, out, err);
    int status = support_wait_child(pid, RUN_DEADLINE_MS, binary);
    const char *out_text = read_whole(out), *err_text = read_whole(err);
    if (ret_stdout != NULL)
        *ret_stdout = out_text;
    if (ret_stderr != NULL)
        *ret_stderr = err_text;
    return exit_status_of(status);
}
