// The load on a server of Server-Sent Events: opens many streams, publishes, and waits until every stream has what was
// published. One process, one thread; it knows how to publish to each of the servers that are compared.
//
//   load --port P [--host H] --path PATH [--header H] --connections N --channels C --in-flight K --seconds S
//        --publish raw:PORT | http:PORT:PATH | pushpin:PORT | rowbell:REDIS_PORT [--database-url URL]
//        [--stopped-reader] [--hold SECONDS] --server PID...
//
// PATH and the header may hold one %d: the stream's channel. Every event carries a number, counted per channel, so that
// a lost, repeated or reordered one is seen, and streams that the server closed are counted; nobody waits for those.
// Prints name=value lines.
#include "common/buffer.h"
#include "common/stream_message.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    CONNECTS_AT_ONCE = 64,
    WINDOW = 64, // events of a channel that may be in flight
    PUBLISHERS = 16,
    SERVERS_MOST = 16,
    BUCKETS = 4096, // of the latency histogram: 16 a doubling
    STREAMS_OF_A_SOURCE = 20000,
};

struct stream {
    int fd; // -1: closed
    int channel;
    bool open;
    bool stopped;
    uint8_t matched; // of the pattern
    uint8_t head;    // of the end of the response's head
    uint64_t number; // being read
    uint64_t last;   // number that came
};

struct channel {
    uint64_t published;
    uint64_t completed;
    int members; // that read
    uint64_t at_ns[WINDOW];
    int waiting[WINDOW]; // members that do not have it yet
    bool queued;
};

struct publisher {
    int fd;
    bool busy;
    char answer[4096];
    size_t length;
};

static struct {
    const char *host, *path, *header, *publish, *database_url;
    int port, connections, channels, in_flight;
    double seconds, hold;
    bool stopped_reader;
    int servers[SERVERS_MOST];
    int server_count;
} options = {.host = "127.0.0.1", .path = "/", .connections = 1, .channels = 1, .in_flight = 1};

static int poll_fd;
static struct stream *streams;
static struct channel *channels;
static struct publisher publishers[PUBLISHERS];
static int *ready; // channels that may be published to: a queue
static size_t ready_first, ready_count;
static uint64_t deliveries, reads, faults, bytes;
static uint64_t histogram[BUCKETS];
static int open_count, closed_count, unopened_count; // unopened: closed before the response's head
static bool measuring;
static char input[1 << 20];

#define OPEN_NS 30000000000ull // for all of them

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void die(const char *what) {
    fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
    exit(1);
}

// ---- latency ----

static int bucket_of(uint64_t ns) {
    uint64_t us = ns / 1000;
    if (us < 16) {
        return (int)us;
    }
    int shift = 59 - __builtin_clzll(us);
    return (shift << 4) + (int)(us >> shift);
}

static double bucket_us(int bucket) {
    if (bucket < 32) {
        return bucket;
    }
    int shift = (bucket >> 4) - 1;
    return (double)(uint64_t)((bucket & 15) + 16) * (double)(1ull << shift);
}

static double percentile(double share) {
    uint64_t all = 0;
    uint64_t below = 0;
    for (int i = 0; i < BUCKETS; i++) {
        all += histogram[i];
    }
    for (int i = 0; i < BUCKETS; i++) {
        below += histogram[i];
        if (all > 0 && (double)below >= share * (double)all) {
            return bucket_us(i);
        }
    }
    return 0;
}

// ---- what the servers use ----

// Seconds of CPU, by the scheduler's clock.
static double servers_cpu(void) {
    double total = 0;
    for (int i = 0; i < options.server_count; i++) {
        char path[300];
        snprintf(path, sizeof path, "/proc/%d/task", options.servers[i]);
        DIR *tasks = opendir(path);
        if (!tasks) {
            die(path);
        }
        for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
            unsigned long long ns = 0;
            snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", options.servers[i], task->d_name);
            FILE *file = task->d_name[0] == '.' ? NULL : fopen(path, "r");
            if (file && fscanf(file, "%llu", &ns) == 1) {
                total += (double)ns / 1e9;
            }
            if (file) {
                fclose(file);
            }
        }
        closedir(tasks);
    }
    return total;
}

// KiB that are theirs: the proportional share, so that what processes have in common counts once.
static double servers_kib(void) {
    double total = 0;
    for (int i = 0; i < options.server_count; i++) {
        char path[64];
        char line[256];
        double kib;
        snprintf(path, sizeof path, "/proc/%d/smaps_rollup", options.servers[i]);
        FILE *file = fopen(path, "r");
        if (!file) {
            die(path);
        }
        while (fgets(line, sizeof line, file)) {
            if (sscanf(line, "Pss: %lf", &kib) == 1) {
                total += kib;
            }
        }
        fclose(file);
    }
    return total;
}

// ---- sockets ----

static int connect_to(int port, int source, bool wait) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + (uint32_t)source)};
    int one = 1;
    inet_pton(AF_INET, options.host, &address.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | (wait ? 0 : SOCK_NONBLOCK), 0);
    if (fd < 0) {
        die("socket");
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (source > 0) {
        setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
        if (bind(fd, (struct sockaddr *)&from, sizeof from) != 0) {
            die("bind");
        }
    }
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0 && errno != EINPROGRESS) {
        die("connect");
    }
    return fd;
}

static void watch(int fd, uint32_t events, uint64_t tag, int how) {
    struct epoll_event event = {.events = events, .data.u64 = tag};
    if (epoll_ctl(poll_fd, how, fd, &event) != 0) {
        die("epoll_ctl");
    }
}

static void write_all(int fd, const char *text, size_t length) {
    while (length > 0) {
        ssize_t n = send(fd, text, length, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR) {
            die("send");
        }
        text += n > 0 ? n : 0;
        length -= n > 0 ? (size_t)n : 0;
    }
}

// ---- publishing ----

// The bytes of the frame, the same for every server that does not make them itself.
static size_t event_text(char *text, size_t size, uint64_t number) {
    return (size_t)snprintf(text, size, "{\"table\":\"posts\",\"key\":\"%" PRIu64 "\",\"op\":\"update\"}", number);
}
static size_t frame_text(char *text, size_t size, uint64_t number) {
    char event[128];
    event_text(event, sizeof event, number);
    return (size_t)snprintf(text, size, "event: change\nid: %" PRIu64 "\ndata: %s\n\n", 1764446400000000 + number,
                            event);
}

struct event {
    int channel;
    uint64_t number;
};

static bool publish_raw(const struct event *events, int count) {
    static struct buffer text;
    char frame[256];
    buffer_clear(&text);
    for (int i = 0; i < count; i++) {
        size_t length = frame_text(frame, sizeof frame, events[i].number);
        buffer_format(&text, "%d %zu\n", events[i].channel, length);
        buffer_append(&text, frame, length);
    }
    write_all(publishers[0].fd, text.bytes, text.length);
    return true;
}

static struct publisher *idle_publisher(void) {
    for (int i = 0; i < PUBLISHERS; i++) {
        if (!publishers[i].busy) {
            return &publishers[i];
        }
    }
    return NULL;
}

static const char *http_path;

// A channel has one connection, so that its events stay in order; requests do not wait for answers.
static bool publish_http(const struct event *events, int count) {
    struct publisher *publisher = &publishers[events[0].channel % PUBLISHERS];
    char event[128];
    char path[256];
    char text[1024];
    size_t length = event_text(event, sizeof event, events[0].number);
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(path, sizeof path, http_path, events[0].channel);
    int n = snprintf(text, sizeof text,
                     "POST %s HTTP/1.1\r\nHost: x\r\nX-EventSource-Event: change\r\nContent-Type: text/plain\r\n"
                     "Content-Length: %zu\r\n\r\n%s",
                     path, length, event);
    write_all(publisher->fd, text, (size_t)n);
    return true;
}

static bool publish_pushpin(const struct event *events, int count) {
    struct publisher *publisher = idle_publisher();
    char event[128];
    char text[1024];
    struct buffer body = {0};
    if (!publisher) {
        return false;
    }
    size_t length = event_text(event, sizeof event, events[0].number);
    char frame[256];
    int n = snprintf(frame, sizeof frame, "event: change\ndata: %.*s\n\n", (int)length, event);
    buffer_format(&body,
                  "{\"items\":[{\"channel\":\"c%d\",\"formats\":{\"http-stream\":{\"content\":", events[0].channel);
    buffer_json_string(&body, frame, (size_t)n);
    buffer_text(&body, "}}}]}");
    n = snprintf(
        text, sizeof text,
        "POST /publish/ HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
        body.length, body.bytes);
    publisher->busy = true;
    publisher->length = 0;
    write_all(publisher->fd, text, (size_t)n);
    buffer_free(&body);
    return true;
}

// As the dispatcher does it: the log, then Redis; one transaction and one message for what is there.
static PGconn *database;
static char channel_name[256];
static int64_t log_newest;

static void database_check(PGresult *result) {
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
        fprintf(stderr, "load: %s\n", PQresultErrorMessage(result));
        exit(1);
    }
}

static struct stream_keys signing;

static void rowbell_start(void) {
    database = PQconnectdb(options.database_url);
    PGresult *result = PQexec(database, "set synchronous_commit = off");
    database_check(result);
    PQclear(result);
    result = PQexec(
        database,
        "select (select id from rowbell.installation), (select max(position) from rowbell.stream_log),"
        "       k.id, encode(k.key, 'hex') from rowbell.stream_keys k where k.id = rowbell.stream_signing_key()");
    database_check(result);
    stream_keys_add(&signing, PQgetvalue(result, 0, 2), PQgetvalue(result, 0, 3));
    stream_channel(channel_name, sizeof channel_name, PQgetvalue(result, 0, 0), 1);
    log_newest = strtoll(PQgetvalue(result, 0, 1), NULL, 10);
    PQclear(result);
    result = PQprepare(database, "append",
                       "insert into rowbell.stream_log (stream_id, position, prev, event_seq, scope, name, key, op)"
                       " select 1, $1::bigint + i - 1, case i when 1 then $2::bigint else $1::bigint + i - 2 end, 0,"
                       "        's' || c, 'posts', k, 'update'"
                       "   from unnest($3::text[], $4::text[]) with ordinality as u (c, k, i)",
                       0, NULL);
    database_check(result);
    PQclear(result);
}

static bool publish_rowbell(const struct event *events, int count) {
    static struct buffer message, scopes, keys;
    struct timespec wall;
    char first_text[32];
    char prev_text[32];
    clock_gettime(CLOCK_REALTIME, &wall);
    int64_t first = (int64_t)wall.tv_sec * 1000000 + wall.tv_nsec / 1000;
    first = first > log_newest ? first : log_newest + 1;
    buffer_clear(&scopes);
    buffer_clear(&keys);
    stream_message_begin(&message, log_newest, first, count);
    for (int i = 0; i < count; i++) {
        char scope[32];
        char key[32];
        snprintf(scope, sizeof scope, "s%d", events[i].channel);
        snprintf(key, sizeof key, "%" PRIu64, events[i].number);
        stream_message_entry(&message,
                             &(struct stream_entry){.scope = scope, .name = "posts", .key = key, .op = "update"});
        buffer_format(&scopes, "%c%d", i == 0 ? '{' : ',', events[i].channel);
        buffer_format(&keys, "%c%s", i == 0 ? '{' : ',', key);
    }
    stream_message_sign(&message, &signing.keys[0], channel_name);
    buffer_char(&scopes, '}');
    buffer_char(&keys, '}');
    snprintf(first_text, sizeof first_text, "%" PRId64, first);
    snprintf(prev_text, sizeof prev_text, "%" PRId64, log_newest);
    PGresult *result = PQexecPrepared(database, "append", 4,
                                      (const char *[]){first_text, prev_text, scopes.bytes, keys.bytes}, NULL, NULL, 0);
    database_check(result);
    PQclear(result);
    log_newest = first + count - 1;
    static struct buffer command;
    buffer_clear(&command);
    buffer_format(&command, "*3\r\n$7\r\nPUBLISH\r\n$%zu\r\n%s\r\n$%zu\r\n", strlen(channel_name), channel_name,
                  message.length);
    buffer_append(&command, message.bytes, message.length);
    buffer_text(&command, "\r\n");
    write_all(publishers[0].fd, command.bytes, command.length);
    return true;
}

static const struct {
    const char *kind;
    int batch; // events of one call
    int connections;
    bool (*publish)(const struct event *events, int count); // false: not now
} ways[] = {
    {"raw", 512, 1, publish_raw},
    {"http", 1, PUBLISHERS, publish_http},
    {"pushpin", 1, PUBLISHERS, publish_pushpin},
    {"rowbell", STREAM_MESSAGE_MAX_ENTRIES, 1, publish_rowbell},
};
static int way = -1;

static int publish_port;

static void publisher_connect(struct publisher *publisher) {
    publisher->fd = connect_to(publish_port, 0, true);
    publisher->busy = false;
    watch(publisher->fd, EPOLLIN, (uint64_t)options.connections + (uint64_t)(publisher - publishers), EPOLL_CTL_ADD);
}

static void publishers_start(void) {
    const char *colon = strchr(options.publish, ':');
    size_t length = (size_t)(colon - options.publish);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        if (strlen(ways[i].kind) == length && strncmp(ways[i].kind, options.publish, length) == 0) {
            way = (int)i;
        }
    }
    if (way < 0) {
        fprintf(stderr, "load: --publish %s\n", options.publish);
        exit(2);
    }
    char *rest;
    publish_port = (int)strtol(colon + 1, &rest, 10);
    http_path = *rest == ':' ? rest + 1 : "/";
    for (int i = 0; i < ways[way].connections; i++) {
        publisher_connect(&publishers[i]);
    }
    if (ways[way].publish == publish_rowbell) {
        rowbell_start();
    }
}

static void publisher_readable(struct publisher *publisher) {
    ssize_t n = recv(publisher->fd, publisher->answer + publisher->length,
                     sizeof publisher->answer - 1 - publisher->length, MSG_DONTWAIT);
    if (n == 0 && ways[way].connections > 1) {
        close(publisher->fd); // it was the last request of this connection
        publisher_connect(publisher);
        return;
    }
    if (n <= 0) {
        if (n == 0 || errno != EAGAIN) {
            die("the publishing connection was closed");
        }
        return;
    }
    if (ways[way].publish != publish_pushpin) {
        if (memmem(publisher->answer, (size_t)n, "HTTP/1.1 4", 10) || memmem(publisher->answer, (size_t)n, "-ERR", 4)) {
            fprintf(stderr, "load: publish refused: %.*s\n", (int)n, publisher->answer);
            exit(1);
        }
        return; // nobody waits for it
    }
    publisher->length += (size_t)n;
    publisher->answer[publisher->length] = '\0';
    const char *body = strstr(publisher->answer, "\r\n\r\n");
    if (!body) {
        return;
    }
    if (strncmp(publisher->answer, "HTTP/1.1 2", 10) != 0) {
        fprintf(stderr, "load: publish refused: %s\n", publisher->answer);
        exit(1);
    }
    const char *size = strcasestr(publisher->answer, "\ncontent-length:");
    bool whole = size ? publisher->length - (size_t)(body + 4 - publisher->answer) >= strtoul(size + 16, NULL, 10)
                      : strcasestr(publisher->answer, "\ntransfer-encoding:") == NULL || strstr(body, "\r\n0\r\n\r\n");
    if (whole && strcasestr(publisher->answer, "\nconnection: close")) {
        return; // free when it has been closed and opened again
    }
    publisher->busy = !whole;
}

static void channel_queue(int channel) {
    struct channel *at = &channels[channel];
    if (!at->queued && at->members > 0 && at->published - at->completed < (uint64_t)options.in_flight) {
        at->queued = true;
        ready[(ready_first + ready_count++) % (size_t)options.channels] = channel;
    }
}

// Round robin over the channels, all that one may have in flight at once: as rows that one transaction changed.
static void publish_ready(void) {
    struct event events[512];
    while (ready_count > 0) {
        int count = 0;
        size_t taken = 0;
        while (taken < ready_count && count < ways[way].batch) {
            int at = ready[(ready_first + taken) % (size_t)options.channels];
            uint64_t in_flight = channels[at].published - channels[at].completed;
            uint64_t number = channels[at].published;
            while (in_flight++ < (uint64_t)options.in_flight && count < ways[way].batch) {
                events[count++] = (struct event){at, ++number};
            }
            if (in_flight <= (uint64_t)options.in_flight) {
                break; // the rest of it in the next batch
            }
            taken++;
        }
        if (!ways[way].publish(events, count)) {
            return;
        }
        uint64_t now = now_ns();
        for (int i = 0; i < count; i++) {
            struct channel *channel = &channels[events[i].channel];
            channel->published++;
            channel->at_ns[channel->published % WINDOW] = now;
            channel->waiting[channel->published % WINDOW] = channel->members;
        }
        for (; taken > 0; taken--) {
            channels[ready[ready_first]].queued = false;
            ready_first = (ready_first + 1) % (size_t)options.channels;
            ready_count--;
        }
    }
}

// ---- streams ----

static void stream_event(struct stream *stream, uint64_t number, uint64_t now) {
    struct channel *channel = &channels[stream->channel];
    if (number != stream->last + 1) {
        faults++;
    }
    stream->last = number;
    deliveries++;
    if (number > channel->published || number + WINDOW <= channel->published) {
        faults++;
        return;
    }
    if (measuring) {
        int bucket = bucket_of(now - channel->at_ns[number % WINDOW]);
        histogram[bucket < BUCKETS ? bucket : BUCKETS - 1]++;
    }
    if (--channel->waiting[number % WINDOW] == 0) {
        channel->completed++;
        channel_queue(stream->channel);
    }
}

static void stream_scan(struct stream *stream, const char *text, size_t length, uint64_t now) {
    static const char pattern[] = "key\":\"";
    static const char head_end[] = "\r\n\r\n";
    size_t i = 0;
    for (; i < length && stream->head < 4; i++) {
        stream->head = text[i] == head_end[stream->head] ? (uint8_t)(stream->head + 1) : text[i] == '\r';
        if (stream->head == 4) {
            stream->open = true;
            open_count++;
        }
    }
    uint8_t matched = stream->matched;
    for (; i < length; i++) {
        char c = text[i];
        if (matched == sizeof pattern - 1) {
            if (c >= '0' && c <= '9') {
                stream->number = stream->number * 10 + (uint64_t)(c - '0');
                continue;
            }
            stream_event(stream, stream->number, now);
            stream->number = 0;
            matched = 0;
        } else if (c == pattern[matched]) {
            matched++;
        } else {
            matched = c == pattern[0];
            if (matched == 0) {
                const char *next = memchr(text + i, pattern[0], length - i);
                i = next ? (size_t)(next - text) - 1 : length;
            }
        }
    }
    stream->matched = matched;
}

// What it had not read by then is what the others have to have.
static void stream_closed(struct stream *stream) {
    struct channel *channel = &channels[stream->channel];
    watch(stream->fd, 0, 0, EPOLL_CTL_DEL);
    close(stream->fd);
    stream->fd = -1;
    closed_count++;
    unopened_count += !stream->open;
    for (uint64_t number = stream->last + 1; number <= channel->published; number++) {
        if (--channel->waiting[number % WINDOW] == 0) {
            channel->completed++;
        }
    }
    if (channel->members > 0) {
        channel->members--;
        channel_queue(stream->channel);
    }
}

static void stream_readable(struct stream *stream, uint64_t now) {
    ssize_t n = recv(stream->fd, input, sizeof input, 0);
    if (n > 0) {
        reads += measuring;
        bytes += (uint64_t)n;
        stream_scan(stream, input, (size_t)n, now);
    } else if (n == 0 || errno != EAGAIN) {
        stream_closed(stream);
    }
}

static void stream_start(int index) {
    struct stream *stream = &streams[index];
    char path[256];
    char header[256] = "";
    char request[1024];
    stream->fd = connect_to(options.port, index / STREAMS_OF_A_SOURCE, true); // loopback: at once
    fcntl(stream->fd, F_SETFL, O_NONBLOCK);
    stream->channel = index % options.channels;
    snprintf(path, sizeof path, options.path, stream->channel);
    if (options.header) {
        char line[250];
        snprintf(line, sizeof line, options.header, stream->channel);
        snprintf(header, sizeof header, "%s\r\n", line);
    }
    int n = snprintf(request, sizeof request,
                     "GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n%s\r\n", path, header);
    write_all(stream->fd, request, (size_t)n);
    watch(stream->fd, EPOLLIN, (uint64_t)index, EPOLL_CTL_ADD);
}

static void turn(int wait_ms) {
    struct epoll_event events[512];
    int count = epoll_wait(poll_fd, events, 512, wait_ms);
    uint64_t now = now_ns();
    for (int i = 0; i < count; i++) {
        if (events[i].data.u64 < (uint64_t)options.connections) {
            stream_readable(&streams[events[i].data.u64], now);
        } else {
            publisher_readable(&publishers[events[i].data.u64 - (uint64_t)options.connections]);
        }
        if ((i & 63) == 63) {
            now = now_ns();
        }
    }
}

static void streams_open(void) {
    int started = 0;
    uint64_t deadline = now_ns() + OPEN_NS;
    while (open_count + unopened_count < options.connections) {
        while (started < options.connections && started - open_count - unopened_count < CONNECTS_AT_ONCE) {
            stream_start(started++);
        }
        turn(100);
        bool late = now_ns() > deadline;
        for (int i = 0; late && i < started; i++) {
            if (!streams[i].open && streams[i].fd >= 0) {
                stream_closed(&streams[i]); // by us: it was not served
            }
        }
    }
}

// ---- main ----

static void parse(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i];
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        i++;
        if (strcmp(name, "--host") == 0)
            options.host = value;
        else if (strcmp(name, "--port") == 0)
            options.port = atoi(value);
        else if (strcmp(name, "--path") == 0)
            options.path = value;
        else if (strcmp(name, "--header") == 0)
            options.header = value;
        else if (strcmp(name, "--connections") == 0)
            options.connections = atoi(value);
        else if (strcmp(name, "--channels") == 0)
            options.channels = atoi(value);
        else if (strcmp(name, "--in-flight") == 0)
            options.in_flight = atoi(value);
        else if (strcmp(name, "--seconds") == 0)
            options.seconds = atof(value);
        else if (strcmp(name, "--publish") == 0)
            options.publish = value;
        else if (strcmp(name, "--database-url") == 0)
            options.database_url = value;
        else if (strcmp(name, "--hold") == 0)
            options.hold = atof(value);
        else if (strcmp(name, "--server") == 0 && options.server_count < SERVERS_MOST)
            options.servers[options.server_count++] = atoi(value);
        else if (strcmp(name, "--stopped-reader") == 0) {
            options.stopped_reader = true;
            i--;
        } else {
            fprintf(stderr, "load: %s?\n", name);
            exit(2);
        }
    }
    if (options.in_flight >= WINDOW || options.connections < options.channels) {
        fprintf(stderr, "load: --in-flight below %d, a connection for each channel\n", WINDOW);
        exit(2);
    }
}

static void run_until(uint64_t end) {
    while (now_ns() < end) {
        publish_ready();
        turn(100);
    }
}

int main(int argc, char **argv) {
    struct rlimit limit = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    setvbuf(stdout, NULL, _IOLBF, 0);
    parse(argc, argv);
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    poll_fd = epoll_create1(EPOLL_CLOEXEC);
    streams = calloc((size_t)options.connections, sizeof *streams);
    channels = calloc((size_t)options.channels, sizeof *channels);
    ready = calloc((size_t)options.channels, sizeof *ready);

    double cpu = servers_cpu();
    double kib = servers_kib();
    streams_open();
    printf("accept_cpu_us=%.1f\n", (servers_cpu() - cpu) * 1e6 / options.connections);
    if (options.hold > 0) {
        run_until(now_ns() + (uint64_t)(options.hold * 1e9));
        printf("idle_kib=%.3f\nclosed=%d\n", (servers_kib() - kib) / options.connections, closed_count);
        return 0;
    }
    if (options.stopped_reader) {
        streams[0].stopped = true;
        watch(streams[0].fd, 0, 0, EPOLL_CTL_DEL);
    }
    for (int i = 0; i < options.connections; i++) {
        channels[streams[i].channel].members += streams[i].fd >= 0 && !streams[i].stopped;
    }
    publishers_start();
    for (int i = 0; i < options.channels; i++) {
        channel_queue(i);
    }
    run_until(now_ns() + 300000000); // warm
    uint64_t start = now_ns();
    uint64_t before = deliveries;
    cpu = servers_cpu();
    measuring = true;
    run_until(start + (uint64_t)(options.seconds * 1e9));
    double elapsed = (double)(now_ns() - start) / 1e9;
    double rate = (double)(deliveries - before) / elapsed;
    printf("rate=%.0f\nevents_a_read=%.2f\np50_us=%.0f\np99_us=%.0f\nfaults=%" PRIu64 "\nclosed=%d\nserver_cpu=%.2f\n",
           rate, (double)(deliveries - before) / (double)(reads ? reads : 1), percentile(0.5), percentile(0.99), faults,
           closed_count, (servers_cpu() - cpu) / elapsed);
    return 0;
}
