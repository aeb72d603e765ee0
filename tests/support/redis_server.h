// redis_server: a Redis of the test's own, which can be killed and started again. It dies with the test's process.
#pragma once
#include <hiredis/hiredis.h>
#include <sys/types.h>

struct redis {
    const char *password; // that it asks for, NULL: none
    pid_t pid;
    int port;
    char url[64]; // without the password
    redisContext *context;
};

void redis_start(struct redis *redis); // on its port, a new one if 0; returns when it answers
void redis_kill(struct redis *redis);
void redis_command(struct redis *redis, const char *format, ...); // as redisCommand; must succeed
void redis_stop(struct redis *redis);                             // the end, also of one that was killed
