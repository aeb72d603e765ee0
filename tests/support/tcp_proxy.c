#include "tests/support/tcp_proxy.h"
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_PAIRS = 64 };
enum mode { MODE_PASS, MODE_REFUSE, MODE_SILENCE, MODE_ANSWER };

struct pair {
    int client;
    int server; // -1: none
};

// The thread owns the sockets. A command takes the lock, wakes the thread by the pipe and waits until it is done.
struct tcp_proxy {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int wake[2];
    unsigned asked, done;
    enum mode mode;
    bool stopping;
    struct sockaddr_in own, target;
    int listener;
    struct pair pairs[MAX_PAIRS];
    int pair_count;
    int accepted;
    char answer[1000];
    size_t answer_length;
};

static void listener_open(struct tcp_proxy *proxy) {
    if (proxy->listener >= 0)
        return;
    proxy->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int yes = 1;
    setsockopt(proxy->listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(proxy->listener, (struct sockaddr *)&proxy->own, sizeof(proxy->own)) != 0 ||
        listen(proxy->listener, 64) != 0)
        abort();
    socklen_t size = sizeof(proxy->own);
    getsockname(proxy->listener, (struct sockaddr *)&proxy->own, &size);
}

static void socket_reset(int fd) {
    struct linger linger = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
    close(fd);
}

static void pair_close(struct tcp_proxy *proxy, int index, bool reset) {
    struct pair *pair = &proxy->pairs[index];
    if (reset)
        socket_reset(pair->client);
    else
        close(pair->client);
    if (pair->server >= 0)
        close(pair->server);
    *pair = proxy->pairs[--proxy->pair_count];
}

static int server_connect(struct tcp_proxy *proxy) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&proxy->target, sizeof(proxy->target)) == 0)
        return fd;
    close(fd);
    return -1;
}

static void pair_accept(struct tcp_proxy *proxy) {
    int client = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC);
    if (client < 0)
        return;
    proxy->accepted++;
    if (proxy->pair_count == MAX_PAIRS)
        abort();
    struct pair pair = {.client = client, .server = -1};
    if (proxy->mode == MODE_ANSWER) {
        if (send(client, proxy->answer, proxy->answer_length, MSG_NOSIGNAL) < 0) {
            close(client);
            return;
        }
    } else if (proxy->mode == MODE_PASS) {
        pair.server = server_connect(proxy);
        if (pair.server < 0) {
            close(client);
            return;
        }
    }
    proxy->pairs[proxy->pair_count++] = pair;
}

// False: the pair is at its end.
static bool forward(int from, int to) {
    char bytes[65536];
    ssize_t length = recv(from, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (length < 0)
        return errno == EAGAIN;
    for (ssize_t sent = 0; sent < length && to >= 0;) {
        ssize_t count = send(to, bytes + sent, (size_t)(length - sent), MSG_NOSIGNAL);
        if (count < 0)
            return false;
        sent += count;
    }
    return length > 0 && to >= 0;
}

static void mode_apply(struct tcp_proxy *proxy) {
    if (proxy->mode == MODE_REFUSE || proxy->mode == MODE_ANSWER) {
        while (proxy->pair_count > 0)
            pair_close(proxy, 0, true);
    }
    if (proxy->mode == MODE_REFUSE) {
        close(proxy->listener);
        proxy->listener = -1;
    } else {
        listener_open(proxy);
    }
    // Who was accepted in silence has no server yet.
    for (int i = 0; proxy->mode == MODE_PASS && i < proxy->pair_count; i++) {
        if (proxy->pairs[i].server < 0)
            proxy->pairs[i].server = server_connect(proxy);
    }
}

static void turn(struct tcp_proxy *proxy) {
    struct pollfd polls[2 + 2 * MAX_PAIRS];
    int pairs = proxy->mode == MODE_SILENCE ? 0 : proxy->pair_count;
    polls[0] = (struct pollfd){.fd = proxy->wake[0], .events = POLLIN};
    polls[1] = (struct pollfd){.fd = proxy->listener, .events = POLLIN};
    for (int i = 0; i < pairs; i++) {
        polls[2 + 2 * i] = (struct pollfd){.fd = proxy->pairs[i].client, .events = POLLIN};
        polls[3 + 2 * i] = (struct pollfd){.fd = proxy->pairs[i].server, .events = POLLIN};
    }
    pthread_mutex_unlock(&proxy->lock);
    poll(polls, (nfds_t)(2 + 2 * pairs), -1);
    pthread_mutex_lock(&proxy->lock);
    if (polls[0].revents) {
        char bytes[64];
        if (read(proxy->wake[0], bytes, sizeof(bytes)) < 0)
            abort();
        mode_apply(proxy);
        proxy->done = proxy->asked;
        pthread_cond_broadcast(&proxy->changed);
        return; // the descriptors are others now
    }
    for (int i = pairs - 1; i >= 0; i--) {
        bool open = true;
        if (polls[2 + 2 * i].revents)
            open = forward(proxy->pairs[i].client, proxy->pairs[i].server);
        if (open && polls[3 + 2 * i].revents)
            open = forward(proxy->pairs[i].server, proxy->pairs[i].client);
        if (!open)
            pair_close(proxy, i, false);
    }
    if (polls[1].revents)
        pair_accept(proxy);
}

static void *run(void *arg) {
    struct tcp_proxy *proxy = arg;
    pthread_mutex_lock(&proxy->lock);
    while (!proxy->stopping)
        turn(proxy);
    proxy->done = UINT_MAX; // whoever stops it may have missed its turn
    pthread_cond_broadcast(&proxy->changed);
    pthread_mutex_unlock(&proxy->lock);
    return NULL;
}

static void command(struct tcp_proxy *proxy, enum mode mode) {
    pthread_mutex_lock(&proxy->lock);
    proxy->mode = mode;
    unsigned mine = ++proxy->asked;
    ck_assert_int_eq(write(proxy->wake[1], "x", 1), 1);
    while (proxy->done < mine)
        pthread_cond_wait(&proxy->changed, &proxy->lock);
    pthread_mutex_unlock(&proxy->lock);
}

struct tcp_proxy *tcp_proxy_start(const char *host, int port) {
    struct tcp_proxy *proxy = calloc(1, sizeof(*proxy));
    ck_assert_ptr_nonnull(proxy);
    proxy->listener = -1;
    proxy->own = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    proxy->target = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    ck_assert_int_eq(inet_pton(AF_INET, host, &proxy->target.sin_addr), 1);
    ck_assert_int_eq(pipe2(proxy->wake, O_CLOEXEC), 0);
    pthread_mutex_init(&proxy->lock, NULL);
    pthread_cond_init(&proxy->changed, NULL);
    listener_open(proxy);
    ck_assert_int_eq(pthread_create(&proxy->thread, NULL, run, proxy), 0);
    return proxy;
}

int tcp_proxy_port(const struct tcp_proxy *proxy) {
    return ntohs(proxy->own.sin_port);
}

void tcp_proxy_pass(struct tcp_proxy *proxy) {
    command(proxy, MODE_PASS);
}

void tcp_proxy_refuse(struct tcp_proxy *proxy) {
    command(proxy, MODE_REFUSE);
}

void tcp_proxy_silence(struct tcp_proxy *proxy) {
    command(proxy, MODE_SILENCE);
}

void tcp_proxy_answer(struct tcp_proxy *proxy, const void *bytes, size_t length) {
    ck_assert_uint_le(length, sizeof(proxy->answer));
    pthread_mutex_lock(&proxy->lock);
    memcpy(proxy->answer, bytes, length);
    proxy->answer_length = length;
    pthread_mutex_unlock(&proxy->lock);
    command(proxy, MODE_ANSWER);
}

int tcp_proxy_accepted(struct tcp_proxy *proxy) {
    pthread_mutex_lock(&proxy->lock);
    int accepted = proxy->accepted;
    pthread_mutex_unlock(&proxy->lock);
    return accepted;
}

void tcp_proxy_stop(struct tcp_proxy *proxy) {
    pthread_mutex_lock(&proxy->lock);
    proxy->stopping = true;
    pthread_mutex_unlock(&proxy->lock);
    command(proxy, MODE_REFUSE);
    pthread_join(proxy->thread, NULL);
    while (proxy->pair_count > 0)
        pair_close(proxy, 0, true);
    if (proxy->listener >= 0)
        close(proxy->listener);
    close(proxy->wake[0]);
    close(proxy->wake[1]);
    pthread_cond_destroy(&proxy->changed);
    pthread_mutex_destroy(&proxy->lock);
    free(proxy);
}
