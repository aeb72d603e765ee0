// libcurl tells which sockets to watch and when to call again (on_socket, on_set_timer); it is entered from the poll
// and timer callbacks only, and what ended is taken after each entry (drain_messages), so that it is never entered from
// its own callbacks. The failure mode is a socket in error: libuv stops the handle and reports a negative status;
// whoever has the socket is told so, and either closes it or waits for it again.
#include "common/curl_loop.h"
#include "common/memory.h"
#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct curl_watch {
    uv_poll_t poll;
    struct curl_loop *owner;
    curl_socket_t fd;
    CURL *easy;                              // whose connection it may become
    bool ours;                               // from curl_loop_open_socket, so curl_loop_close_socket will come
    int wanted;                              // events that its user waits for
    int armed;                               // events that are polled for
    void (*on_event)(void *arg, int events); // of who took it; NULL: libcurl has it
    void *event_arg;
    void (*connected)(void *arg); // NULL once called
    void *connected_arg;
};

struct curl_loop {
    uv_loop_t *loop;
    CURLM *multi;
    void (*connected)(void *easy_private, CURLcode code);
    uv_timer_t timer;
    struct curl_watch **watches; // by descriptor
    size_t watch_slots;
    uint64_t connections_opened;
    size_t handles; // of libuv, not closed yet
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

static void on_handle_closed(struct curl_loop *self) {
    if (--self->handles > 0)
        return;
    assert(self->on_closed); // the timer is one of them, and curl_loop_close closes it
    void (*on_closed)(void *) = self->on_closed;
    void *arg = self->on_closed_arg;
    free(self->watches);
    free(self);
    on_closed(arg);
}

// ---- watches

static struct curl_watch *watch_at(struct curl_loop *self, curl_socket_t fd) {
    return (size_t)fd < self->watch_slots ? self->watches[fd] : NULL;
}

// Of libcurl 7.88 an address that failed leaves a handle that waits for its timer before it tries the next, which can
// be half of its time: this makes it go on.
static void wake(CURL *easy) {
    curl_easy_pause(easy, CURLPAUSE_RECV);
    curl_easy_pause(easy, CURLPAUSE_CONT);
}

static void on_watch_closed(uv_handle_t *handle) {
    struct curl_watch *watch = handle->data;
    struct curl_loop *self = watch->owner;
    if (watch->connected && !self->on_closed) // TCP never stood
        wake(watch->easy);
    free(watch);
    on_handle_closed(self);
}

static void watch_close(struct curl_watch *watch) {
    watch->owner->watches[watch->fd] = NULL;
    uv_close((uv_handle_t *)&watch->poll, on_watch_closed);
}

static struct curl_watch *watch_new(struct curl_loop *self, curl_socket_t fd, bool ours) {
    if ((size_t)fd >= self->watch_slots) {
        size_t slots = (size_t)fd * 2 + 64;
        self->watches = memory_resize(self->watches, slots, sizeof *self->watches);
        memset(self->watches + self->watch_slots, 0, (slots - self->watch_slots) * sizeof *self->watches);
        self->watch_slots = slots;
    }
    if (self->watches[fd]) // of a descriptor that is no more
        watch_close(self->watches[fd]);
    struct curl_watch *watch = memory_alloc(sizeof *watch);
    if (uv_poll_init_socket(self->loop, &watch->poll, fd) != 0) {
        free(watch);
        return NULL;
    }
    watch->poll.data = watch;
    watch->owner = self;
    watch->fd = fd;
    watch->ours = ours;
    self->watches[fd] = watch;
    self->handles++;
    return watch;
}

static void watch_connected(struct curl_watch *watch) {
    void (*connected)(void *) = watch->connected;
    watch->connected = NULL;
    if (connected)
        connected(watch->connected_arg);
}

static void drain_messages(struct curl_loop *self) {
    int left;
    for (CURLMsg *message; (message = curl_multi_info_read(self->multi, &left));) {
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode code = message->data.result; // the message goes with the handle
        void *easy_private = NULL;
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&easy_private);
        self->connected(easy_private, code);
    }
}

static void watch_arm(struct curl_watch *watch, int events);

static void on_poll(uv_poll_t *poll, int status, int events) {
    struct curl_watch *watch = poll->data;
    struct curl_loop *self = watch->owner;
    if (status < 0)
        watch->armed = 0; // libuv has stopped the handle
    if (watch->on_event) {
        watch->on_event(watch->event_arg, status < 0 ? UV_READABLE | UV_WRITABLE : events);
    } else {
        if (status == 0)
            watch_connected(watch);
        int flags = status < 0 ? CURL_CSELECT_ERR : 0;
        flags |= events & UV_READABLE ? CURL_CSELECT_IN : 0;
        flags |= events & UV_WRITABLE ? CURL_CSELECT_OUT : 0;
        int running;
        curl_multi_socket_action(self->multi, watch->fd, flags, &running);
        drain_messages(self);
    }
    if (!uv_is_closing((uv_handle_t *)poll))
        watch_arm(watch, watch->wanted);
}

static void watch_arm(struct curl_watch *watch, int events) {
    watch->wanted = events;
    if (events == watch->armed)
        return;
    if (events != 0)
        uv_poll_start(&watch->poll, events, on_poll);
    else
        uv_poll_stop(&watch->poll);
    watch->armed = events;
}

// ---- what libcurl asks for

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg) {
    struct curl_loop *self = arg;
    (void)easy, (void)socket_arg;
    struct curl_watch *watch = watch_at(self, fd);
    if (watch && watch->on_event)
        return 0;
    if (what == CURL_POLL_REMOVE) {
        // It stands, and will be taken; or libcurl closed it without a word, as it does with one that did not connect.
        if (watch && watch->ours && fcntl(fd, F_GETFD) >= 0)
            watch_arm(watch, 0);
        else if (watch)
            watch_close(watch);
        return 0;
    }
    if (!watch)
        watch = watch_new(self, fd, false);
    if (!watch)
        return 0;
    if (what & CURL_POLL_IN) // while TCP connects, only writing is waited for
        watch_connected(watch);
    watch_arm(watch, (what & CURL_POLL_IN ? UV_READABLE : 0) | (what & CURL_POLL_OUT ? UV_WRITABLE : 0));
    return 0;
}

static void on_timer(uv_timer_t *timer) {
    struct curl_loop *self = timer->data;
    int running;
    curl_multi_socket_action(self->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    drain_messages(self);
}

static int on_set_timer(CURLM *multi, long timeout_ms, void *arg) {
    struct curl_loop *self = arg;
    (void)multi;
    if (timeout_ms < 0)
        uv_timer_stop(&self->timer);
    else
        uv_timer_start(&self->timer, on_timer, (uint64_t)timeout_ms, 0);
    return 0;
}

curl_socket_t curl_loop_open_socket(struct curl_loop *self, CURL *easy, const struct curl_sockaddr *address,
                                    void (*connected)(void *arg), void *arg) {
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address->protocol);
    if (fd < 0)
        return CURL_SOCKET_BAD;
    struct curl_watch *watch = watch_new(self, fd, true);
    if (!watch) {
        close(fd);
        return CURL_SOCKET_BAD;
    }
    watch->easy = easy;
    watch->connected = connected;
    watch->connected_arg = arg;
    self->connections_opened++;
    return fd;
}

// The poll handle goes before the descriptor does: libuv would else watch whatever gets that number next.
int curl_loop_close_socket(void *self, curl_socket_t fd) {
    struct curl_watch *watch = watch_at(self, fd);
    if (watch && watch->on_event)
        return 0;
    if (watch)
        watch_close(watch);
    return close(fd);
}

uint64_t curl_loop_connections_opened(const struct curl_loop *self) {
    return self->connections_opened;
}

// ---- sockets that were taken

struct curl_watch *curl_loop_take(struct curl_loop *self, curl_socket_t fd, void (*on_event)(void *arg, int events),
                                  void *arg) {
    struct curl_watch *watch = watch_at(self, fd);
    assert(watch && watch->ours);
    watch->connected = NULL;
    watch->on_event = on_event;
    watch->event_arg = arg;
    return watch;
}

curl_socket_t curl_watch_socket(const struct curl_watch *watch) {
    return watch->fd;
}

void curl_watch_want(struct curl_watch *watch, int events) {
    watch_arm(watch, events);
}

void curl_watch_close(struct curl_watch *watch) {
    curl_socket_t fd = watch->fd;
    watch_close(watch);
    close(fd);
}

// ---- life

void curl_loop_add(struct curl_loop *self, CURL *easy) {
    CURLMcode code = curl_multi_add_handle(self->multi, easy); // it asks for the timer, and starts from there
    assert(code == CURLM_OK);
}

void curl_loop_remove(struct curl_loop *self, CURL *easy) {
    curl_multi_remove_handle(self->multi, easy);
}

struct curl_loop *curl_loop_new(uv_loop_t *loop, void (*connected)(void *easy_private, CURLcode code)) {
    struct curl_loop *self = memory_alloc(sizeof *self);
    self->loop = loop;
    self->connected = connected;
    self->multi = curl_multi_init();
    assert(self->multi);
    uv_timer_init(loop, &self->timer);
    self->timer.data = self;
    self->handles = 1;
    curl_multi_setopt(self->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(self->multi, CURLMOPT_SOCKETDATA, self);
    curl_multi_setopt(self->multi, CURLMOPT_TIMERFUNCTION, on_set_timer);
    curl_multi_setopt(self->multi, CURLMOPT_TIMERDATA, self);
    return self;
}

static void on_timer_closed(uv_handle_t *handle) {
    on_handle_closed(handle->data);
}

void curl_loop_close(struct curl_loop *self, void (*on_closed)(void *arg), void *arg) {
    self->on_closed = on_closed;
    self->on_closed_arg = arg;
    curl_multi_cleanup(self->multi); // closes the idle connections, and with them their watches
    for (size_t fd = 0; fd < self->watch_slots; fd++)
        if (self->watches[fd])
            watch_close(self->watches[fd]);
    uv_close((uv_handle_t *)&self->timer, on_timer_closed);
}
