// Any bytes as what a Redis sends, to a publisher and to a subscriber: hiredis, whose assertions end the process, gets
// only what the guard lets through.
#include "common/redis_guard.h"
#include "tests/fuzz/fuzz.h"
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { SENT_MOST_BYTES = 60000 };
static const char channel[] = "rowbell:0123abcd:stream:1";

struct client {
    struct redis_guard guard;
    bool gone;
};

static void on_reply(redisAsyncContext *context, void *reply, void *arg) {
}
static void on_gone(const redisAsyncContext *context, int status) {
    ((struct client *)context->data)->gone = true;
}

static char path[100];

static void __attribute__((destructor)) remove_path(void) {
    unlink(path);
}

static int server(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(path, sizeof path, "/tmp/rowbell-fuzz-redis.%d", (int)getpid());
    memcpy(address.sun_path, path, strlen(path) + 1);
    unlink(path);
    require(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 4) == 0);
    return fd;
}

static void run(int listener, const uint8_t *bytes, size_t length, bool subscriber, size_t cut) {
    struct client client = {.gone = false};
    redisAsyncContext *context = redisAsyncConnectUnix(path);
    require(context && context->err == 0);
    context->data = &client;
    redisAsyncSetDisconnectCallback(context, on_gone);
    redis_guard_attach(&client.guard, context, subscriber ? channel : NULL);
    int peer = accept(listener, NULL, NULL);
    require(peer >= 0);
    if (subscriber)
        redisAsyncCommand(context, on_reply, NULL, "SUBSCRIBE %s", channel);
    else
        redisAsyncCommand(context, on_reply, NULL, "PING");
    redisAsyncHandleWrite(context);
    for (size_t at = 0; at < length && !client.gone;) {
        size_t piece = length - at < cut ? length - at : cut;
        require(send(peer, bytes + at, piece, MSG_NOSIGNAL) == (ssize_t)piece);
        at += piece;
        int waiting = 1;
        while (!client.gone && ioctl(context->c.fd, FIONREAD, &waiting) == 0 && waiting > 0) {
            require(redis_guard_may_read(&client.guard));
            redisAsyncHandleRead(context);
        }
    }
    close(peer);
    if (!client.gone)
        redisAsyncHandleRead(context); // the end
    if (!client.gone)
        redisAsyncFree(context);
}

FUZZ_TARGET(redis) {
    static int listener = -1;
    static int owner;
    if (listener < 0 || owner != (int)getpid()) { // Check forks
        listener = server();
        owner = (int)getpid();
    }
    if (length < 1 || length > SENT_MOST_BYTES)
        return 0;
    size_t cut = bytes[0] == 0 ? SENT_MOST_BYTES : bytes[0];
    run(listener, bytes + 1, length - 1, false, cut);
    run(listener, bytes + 1, length - 1, true, cut);
    return 0;
}
