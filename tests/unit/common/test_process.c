// process: what every daemon does at its start and its end. Each case is a child process, watched from outside.
#include "common/admin_endpoint.h"
#include "common/process.h"
#include "tests/support/fixture.h"
#include "tests/unit/common/tests.h"
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct child_config {
    struct config_common common;
};
static const struct config_program child_program = {"rowbell-child", "is a child of a test", NULL, 0};

static pid_t child;
static int child_stderr;
static char said[20000]; // everything that the child wrote to stderr so far
static size_t said_length;

// A daemon with one timer as its work. `stubborn`: on_stop leaves the work open.
static struct process process;
static uv_timer_t work;
static bool stubborn;
static int stops;

static void on_work(uv_timer_t *timer) {
    (void)timer;
}

static void on_stop(void *arg) {
    (void)arg;
    fprintf(stderr, "on_stop %d\n", ++stops);
    admin_endpoint_set_ready(process.admin, "stopping"); // there is none any more, which is no error
    if (!stubborn)
        uv_close((uv_handle_t *)&work, NULL);
}

static int child_main(char **argv) {
    int argc = 0;
    while (argv[argc] != NULL)
        argc++;
    struct child_config config;
    if (!process_init(&process, &child_program, argc, argv, &config))
        return process.exit_status;
    process.on_stop = on_stop;
    uv_timer_init(&process.loop, &work);
    uv_timer_start(&work, on_work, 3600000, 3600000);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    fprintf(stderr, "admin %s, limit raised %d\n", admin_endpoint_address(process.admin),
            limit.rlim_cur == limit.rlim_max);
    if (getenv("CHILD_FAILS") != NULL) {
        struct error error;
        error_set(&error, ERROR_SCHEMA, "the schema is missing: run `rowbell migrate`");
        process_fail(&process, &error);
        error_set(&error, ERROR_USAGE, "a consequence");
        process_fail(&process, &error);
    }
    fprintf(stderr, "running\n");
    return process_run(&process);
}

static void start(char **argv) {
    int pair[2];
    ck_assert_int_eq(pipe(pair), 0);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        dup2(pair[1], STDERR_FILENO);
        close(pair[0]);
        _exit(child_main(argv));
    }
    close(pair[1]);
    child_stderr = pair[0];
    said_length = 0;
}
#define start_child(...) start((char *[]){"rowbell-child", __VA_ARGS__, NULL})

// Blocks until the child says it, or ends.
static void wait_said(const char *text) {
    while (said[said_length] = '\0', strstr(said, text) == NULL) {
        ssize_t length = read(child_stderr, said + said_length, sizeof said - 1 - said_length);
        if (length <= 0)
            ck_abort_msg("the child did not say \"%s\" but:\n%s", text, said);
        said_length += (size_t)length;
    }
}

static int wait_status(void) {
    for (ssize_t length = 1; length > 0; said_length += length > 0 ? (size_t)length : 0)
        length = read(child_stderr, said + said_length, sizeof said - 1 - said_length);
    said[said_length] = '\0';
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    child = 0;
    ck_assert_msg(WIFEXITED(status), "killed by %d: %s", WTERMSIG(status), said);
    return WEXITSTATUS(status);
}

static void teardown(void) {
    if (child > 0)
        kill(child, SIGKILL);
    close(child_stderr);
}

START_TEST(process_usage_errors) {
    start_child("--no-such-flag");
    ck_assert_int_eq(wait_status(), 2);
    ck_assert_str_eq(said, "rowbell-child: unknown flag --no-such-flag; see rowbell-child --help\n");
    close(child_stderr);
    start_child("--log-format=json");
    ck_assert_int_eq(wait_status(), 2);
    ck_assert_str_eq(said, "rowbell-child: no database: give --database-url or set DATABASE_URL\n");
}
END_TEST

START_TEST(process_taken_admin_port) {
    int taken = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    ck_assert_int_eq(bind(taken, (struct sockaddr *)&address, length), 0);
    ck_assert_int_eq(listen(taken, 1), 0);
    ck_assert_int_eq(getsockname(taken, (struct sockaddr *)&address, &length), 0);
    char listen_on[40];
    snprintf(listen_on, sizeof listen_on, "127.0.0.1:%d", ntohs(address.sin_port));
    start_child("--database-url=postgres://h/d", "--admin-listen", listen_on);
    ck_assert_int_eq(wait_status(), 1);
    ck_assert_ptr_nonnull(strstr(said, "rowbell-child: --admin-listen: "));
    ck_assert_ptr_nonnull(strstr(said, listen_on));
    ck_assert_ptr_eq(strchr(said, '\n'), said + strlen(said) - 1); // one line
    close(taken);
}
END_TEST

START_TEST(process_ends_on_sigterm) {
    start_child("--database-url=postgres://h/d");
    wait_said("running\n");
    wait_said("limit raised 1");
    kill(child, SIGTERM);
    ck_assert_int_eq(wait_status(), 0);
    ck_assert_ptr_nonnull(strstr(said, "event=signal_received process=rowbell-child signal=SIGTERM"));
    ck_assert_ptr_nonnull(strstr(said, "on_stop 1\n"));
}
END_TEST

START_TEST(process_answers_on_the_admin_port) {
    start_child("--database-url=postgres://h/d");
    wait_said("running\n");
    char url[100];
    const char *address = strstr(said, "admin ") + 6;
    snprintf(url, sizeof url, "http://%.*s/healthz", (int)strcspn(address, ","), address);
    ck_assert_int_eq(http_get(url, NULL), 200);
    kill(child, SIGINT);
    ck_assert_int_eq(wait_status(), 0);
}
END_TEST

START_TEST(process_second_signal_ends_at_once) {
    stubborn = true;
    start_child("--database-url=postgres://h/d");
    wait_said("running\n");
    kill(child, SIGINT);
    wait_said("on_stop 1\n");
    kill(child, SIGTERM);
    ck_assert_int_eq(wait_status(), 1);
    ck_assert_ptr_nonnull(strstr(said, "second signal"));
    ck_assert_ptr_null(strstr(said, "on_stop 2"));
}
END_TEST

START_TEST(process_drain_is_bounded) {
    stubborn = true;
    start_child("--database-url=postgres://h/d", "--drain=1ms");
    wait_said("running\n");
    kill(child, SIGTERM);
    ck_assert_int_eq(wait_status(), 1);
    ck_assert_ptr_nonnull(strstr(said, "drain took too long"));
}
END_TEST

START_TEST(process_fail_reports_the_first_error) {
    setenv("CHILD_FAILS", "1", 1);
    start_child("--database-url=postgres://h/d");
    ck_assert_int_eq(wait_status(), 4);
    ck_assert_ptr_nonnull(strstr(said, "rowbell-child: the schema is missing: run `rowbell migrate`\n"));
    ck_assert_ptr_null(strstr(said, "a consequence"));
    ck_assert_ptr_null(strstr(said, "event="));
    ck_assert_ptr_nonnull(strstr(said, "on_stop 1\n"));
    ck_assert_ptr_null(strstr(said, "on_stop 2"));
}
END_TEST

void process_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "process", 10);
    tcase_add_checked_fixture(tcase, NULL, teardown);
    tcase_add_test(tcase, process_usage_errors);
    tcase_add_test(tcase, process_taken_admin_port);
    tcase_add_test(tcase, process_ends_on_sigterm);
    tcase_add_test(tcase, process_answers_on_the_admin_port);
    tcase_add_test(tcase, process_second_signal_ends_at_once);
    tcase_add_test(tcase, process_drain_is_bounded);
    tcase_add_test(tcase, process_fail_reports_the_first_error);
}
