// The limit: an epoll server that does nothing but write one prepared buffer to each stream of a channel. No log, no
// resuming, no filter by table, nobody is ever disconnected; what arrives in the same turn is one write.
//
//   raw PORT CONTROL_PORT
//
// GET /?channel=N opens a stream. On the control port "CHANNEL LENGTH\n" and LENGTH bytes publish.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DESCRIPTORS = 1 << 17, CHANNELS = 4096, CONTROL_BYTES = 1 << 20 };

struct bytes {
    char *at;
    size_t length, capacity;
};

struct channel {
    int *members;
    int count, capacity;
    struct bytes turn; // published in this turn
};

enum kind { NOTHING, LISTENER, CONTROL_LISTENER, CONTROL, REQUEST, STREAM };

static uint8_t kinds[DESCRIPTORS];
static struct bytes rests[DESCRIPTORS]; // what a full socket did not take
static struct channel channels[CHANNELS];
static int dirty[CHANNELS];
static int dirty_count;
static char control[CONTROL_BYTES];
static size_t control_length;
static int poll_fd;

static void append(struct bytes *bytes, const char *text, size_t length) {
    if (bytes->length + length > bytes->capacity) {
        bytes->capacity = 2 * (bytes->length + length);
        bytes->at = realloc(bytes->at, bytes->capacity);
    }
    memcpy(bytes->at + bytes->length, text, length);
    bytes->length += length;
}

static void watch(int fd, uint32_t events, int how) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    epoll_ctl(poll_fd, how, fd, &event);
}

static void forget(int fd) {
    for (int c = 0; kinds[fd] == STREAM && c < CHANNELS; c++) {
        for (int i = 0; i < channels[c].count; i++) {
            if (channels[c].members[i] == fd) {
                channels[c].members[i--] = channels[c].members[--channels[c].count];
            }
        }
    }
    kinds[fd] = NOTHING;
    rests[fd].length = 0;
    close(fd);
}

static void send_bytes(int fd, const char *text, size_t length) {
    ssize_t n = rests[fd].length > 0 ? 0 : send(fd, text, length, MSG_NOSIGNAL);
    if (n < 0) {
        n = 0;
    }
    if ((size_t)n < length) {
        append(&rests[fd], text + n, length - (size_t)n);
        watch(fd, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
    }
}

static void send_rest(int fd) {
    ssize_t n = send(fd, rests[fd].at, rests[fd].length, MSG_NOSIGNAL);
    if (n > 0) {
        rests[fd].length -= (size_t)n;
        memmove(rests[fd].at, rests[fd].at + n, rests[fd].length);
    }
    if (rests[fd].length == 0) {
        watch(fd, EPOLLIN, EPOLL_CTL_MOD);
    }
}

static void accept_all(int listener) {
    static const int one = 1;
    static const int send_buffer = 16384;
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (kinds[listener] == LISTENER) {
            setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer);
        }
        kinds[fd] = kinds[listener] == LISTENER ? REQUEST : CONTROL;
        watch(fd, EPOLLIN, EPOLL_CTL_ADD);
    }
}

// The request comes in one piece over loopback.
static void open_stream(int fd) {
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n\r\n"
                               "retry: 3000\n\n";
    char text[4096];
    ssize_t n = recv(fd, text, sizeof text - 1, 0);
    if (n <= 0) {
        forget(fd);
        return;
    }
    text[n] = '\0';
    const char *parameter = strstr(text, "channel=");
    struct channel *channel = &channels[(parameter ? atoi(parameter + 8) : 0) % CHANNELS];
    if (channel->count == channel->capacity) {
        channel->capacity = channel->capacity ? 2 * channel->capacity : 16;
        channel->members = realloc(channel->members, (size_t)channel->capacity * sizeof(int));
    }
    channel->members[channel->count++] = fd;
    kinds[fd] = STREAM;
    send_bytes(fd, head, sizeof head - 1);
}

static void control_read(int fd) {
    ssize_t n = recv(fd, control + control_length, sizeof control - 1 - control_length, 0);
    if (n <= 0) {
        forget(fd);
        control_length = 0;
        return;
    }
    control_length += (size_t)n;
    control[control_length] = '\0';
    char *at = control;
    char *end = control + control_length;
    char *line;
    while ((line = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        char *space;
        int which = (int)strtol(at, &space, 10) % CHANNELS;
        size_t length = strtoul(space, NULL, 10);
        if ((size_t)(end - line - 1) < length) {
            break;
        }
        if (channels[which].turn.length == 0) {
            dirty[dirty_count++] = which;
        }
        append(&channels[which].turn, line + 1, length);
        at = line + 1 + length;
    }
    control_length = (size_t)(end - at);
    memmove(control, at, control_length);
}

static void send_turn(void) {
    for (int d = 0; d < dirty_count; d++) {
        struct channel *channel = &channels[dirty[d]];
        for (int i = 0; i < channel->count; i++) {
            send_bytes(channel->members[i], channel->turn.at, channel->turn.length);
        }
        channel->turn.length = 0;
    }
    dirty_count = 0;
}

static int listen_on(int port, enum kind kind) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    static const int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 1024) != 0) {
        perror("raw: listen");
        exit(1);
    }
    kinds[fd] = kind;
    watch(fd, EPOLLIN, EPOLL_CTL_ADD);
    return fd;
}

int main(int argc, char **argv) {
    struct rlimit limit = {.rlim_cur = DESCRIPTORS, .rlim_max = DESCRIPTORS};
    struct epoll_event events[1024];
    if (argc != 3) {
        return 2;
    }
    setrlimit(RLIMIT_NOFILE, &limit);
    poll_fd = epoll_create1(EPOLL_CLOEXEC);
    listen_on(atoi(argv[1]), LISTENER);
    listen_on(atoi(argv[2]), CONTROL_LISTENER);
    for (;;) {
        int count = epoll_wait(poll_fd, events, 1024, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (kinds[fd] == LISTENER || kinds[fd] == CONTROL_LISTENER) {
                accept_all(fd);
            } else if (kinds[fd] == CONTROL) {
                control_read(fd);
            } else if (kinds[fd] == REQUEST) {
                open_stream(fd);
            } else if (events[i].events & EPOLLOUT) {
                send_rest(fd);
            } else if (kinds[fd] == STREAM) {
                char text[512];
                if (recv(fd, text, sizeof text, 0) == 0) {
                    forget(fd);
                }
            }
        }
        send_turn();
    }
}
