#include "tests/support/redis_server.h"
#include "tests/support/fixture.h"
#include "tests/support/support.h"
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct timeval deadline = {.tv_sec = HANG_MS / 1000};

void redis_start(struct redis *redis) {
    char port[16];
    if (redis->port == 0) {
        redis->port = support_port();
        snprintf(redis->url, sizeof redis->url, "redis://127.0.0.1:%d", redis->port);
    }
    snprintf(port, sizeof port, "%d", redis->port);
    pid_t test = getpid();
    redis->pid = fork();
    ck_assert_int_ge(redis->pid, 0);
    if (redis->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(open("/dev/null", O_RDWR), STDOUT_FILENO);
        if (getppid() == test) {
            execlp("redis-server", "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", "/tmp",
                   "--requirepass", redis->password ? redis->password : "", (char *)NULL);
        }
        _exit(127);
    }
    uint64_t end = support_now_ms() + HANG_MS;
    for (;;) {
        redisFree(redis->context);
        redis->context = redisConnectWithTimeout("127.0.0.1", redis->port, deadline);
        ck_assert_ptr_nonnull(redis->context);
        if (!redis->context->err) {
            break;
        }
        ck_assert_msg(support_now_ms() < end, "redis-server does not answer: %s", redis->context->errstr);
        support_pause();
    }
    redisSetTimeout(redis->context, deadline);
}

void redis_kill(struct redis *redis) {
    kill(redis->pid, SIGKILL);
    waitpid(redis->pid, NULL, 0);
    redis->pid = 0;
}

void redis_command(struct redis *redis, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    redisReply *reply = redisvCommand(redis->context, format, arguments);
    va_end(arguments);
    ck_assert_msg(reply && reply->type != REDIS_REPLY_ERROR, "redis: %s", reply ? reply->str : redis->context->errstr);
    freeReplyObject(reply);
}

void redis_stop(struct redis *redis) {
    if (redis->pid > 0) {
        redis_kill(redis);
    }
    redisFree(redis->context);
    *redis = (struct redis){0};
}
