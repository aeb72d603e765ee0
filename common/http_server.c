#include "common/http_server.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/buffer.h"
#include "common/clock.h"
#include "common/config.h"
#include "common/http_peers.h"
#include "common/log.h"
#include "common/memory.h"

// A connection's states:
//
//   READING --request whole--> HANDLING --respond--> WRITING --written, keep-alive--> READING
//      |                          |                     |
//      | bad, slow                | take                | written, close
//      v                          v                     v
//   WRITING (the refusal)      (the taker's)        LINGERING --peer closed, or 2 s--> CLOSING --> freed
//
// One request at a time: while one is handled or its response is written nothing is read, so pipelining and slow
// readers are held back by TCP. LINGERING reads and drops what the client still sends: closing with unread bytes would
// send a reset, which can destroy the response on its way. Between requests a connection holds no parser.
//
// At the cap a new client gets the place of a connection that waits for nobody but its client (a head half sent, an
// idle keep-alive, an answer not read): the oldest of the address that holds most. So nobody is kept out by heads that
// never end. Only when every connection is being handled is the new one told 503.
//
// The listener is a plain socket under uv_poll instead of uv_listen, since libuv cannot pause a listener: out of
// descriptors, it calls back in a loop for ever once its own reserve is gone.
//
// What a connection costs is mostly system calls. The kernel wakes us when the request is there (DEFER_S), it is read
// at once, and only what remains open after that is watched.

enum {
    MAX_CONNECTIONS = 1000,
    // Connections beyond the cap that may be held for a moment to tell them 503; the rest are just closed.
    MAX_TURNED_AWAY = 64,
    ACCEPTS_A_TURN = 64,
    // TCP_DEFER_ACCEPT: the kernel keeps a connection that says nothing for itself for this long (the least there is),
    // then hands it over all the same. Until then it counts in the backlog, so that has room for a crowd; past it
    // the kernel asks with SYN cookies, which are not held back.
    DEFER_S = 1,
    BACKLOG = 4096,
    REQUEST_TIMEOUT_MS = 10000,
    IDLE_TIMEOUT_MS = 60000,
    WRITE_TIMEOUT_MS = 30000,
    LINGER_MS = 2000,
    ACCEPT_PAUSE_MS = 100,
    SHED_LOG_MS = 10000,
    READ_BYTES = 16384,
};

enum connection_state { READING, HANDLING, WRITING, LINGERING, CLOSING };

struct http_connection;

struct http_exchange {
    struct http_connection *connection;
};

union peer_address {
    sa_family_t family;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};

struct http_connection {
    struct http_server *server;
    struct http_connection *prev, *next;
    struct http_peer_link link; // while it counts
    uv_tcp_t *tcp;              // a block of its own, so that a taker frees it; NULL once taken
    enum connection_state state;
    bool turned_away; // beyond the cap
    bool keep_alive;  // after the response that is written
    bool head_only;   // the request was HEAD
    bool feeding;     // connection_feed is on the stack and frees a taken connection
    uint64_t deadline_ms;
    struct http_parser *parser; // NULL between requests
    struct buffer rest;         // pipelined bytes that wait for the response before them
    struct buffer output;       // what the socket did not take at once
    size_t unsent;              // of it, when last looked at
    uv_write_t write;
    struct http_exchange exchange;
    union peer_address address;
    char peer[INET6_ADDRSTRLEN]; // written when somebody asks
};

struct http_server {
    uv_loop_t *loop;
    http_handler *handle;
    void *arg;
    size_t max_connections;
    unsigned request_timeout_ms;
    unsigned idle_timeout_ms;
    unsigned write_timeout_ms;
    size_t connection_count; // without those turned away
    size_t turned_away_count;
    struct http_connection *connections;
    struct http_peers *peers;
    struct http_parser *spare_parser; // a request that is answered at once allocates none
    int listen_fd;
    int reserve_fd;
    uint64_t shed_logged_ms;
    int port;
    char address[INET6_ADDRSTRLEN + 10];
    uv_poll_t listener;
    uv_timer_t accept_pause;
    uv_timer_t sweep;
    int open_handles;
    bool paused;
    bool closing;
    void (*on_closed)(void *arg);
    void *closed_arg;
    char read_bytes[READ_BYTES]; // shared: what is read is used before the next read
};

static void connection_feed(struct http_connection *connection, const char *bytes, size_t length);
static void connection_respond(struct http_connection *connection, int status, const char *content_type,
                               const char *extra_headers, const char *body, size_t body_length);
static void server_free_if_done(struct http_server *server);

// ---- response heads ----

static const struct {
    int status;
    const char *reason;
} reasons[] = {
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
};

static const char *status_reason(int status) {
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        if (reasons[i].status == status)
            return reasons[i].reason;
    }
    return "";
}

// RFC 9110, section 5.6.7; not strftime, whose names follow the locale.
const char *http_date_now(void) {
    static time_t second;
    static char date[32];
    static const char days[][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char months[][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t now = (time_t)(clock_wall_us() / 1000000);
    if (now != second) {
        struct tm utc;
        gmtime_r(&now, &utc);
        snprintf(date, sizeof date, "%s, %02u %s %04u %02u:%02u:%02u GMT", days[utc.tm_wday],
                 (unsigned)utc.tm_mday % 100, months[utc.tm_mon], (unsigned)(utc.tm_year + 1900) % 10000,
                 (unsigned)utc.tm_hour % 100, (unsigned)utc.tm_min % 100, (unsigned)utc.tm_sec % 100);
        second = now;
    }
    return date;
}

// ---- parsers ----

static struct http_parser *parser_take(struct http_server *server) {
    struct http_parser *parser = server->spare_parser;
    server->spare_parser = NULL;
    return parser != NULL ? parser : http_parser_new();
}

static void parser_give_back(struct http_server *server, struct http_parser *parser) {
    if (parser == NULL || server->spare_parser != NULL) {
        http_parser_free(parser);
        return;
    }
    http_parser_reset(parser);
    server->spare_parser = parser;
}

// ---- the end of a connection ----

// It counts no more; its memory may be needed for a while.
static void connection_uncount(struct http_connection *connection) {
    struct http_server *server = connection->server;
    if (connection->link.peer) {
        http_peers_remove(server->peers, &connection->link);
        server->connection_count--;
    }
}

static void connection_unlink(struct http_connection *connection) {
    struct http_server *server = connection->server;
    if (connection->prev != NULL)
        connection->prev->next = connection->next;
    else
        server->connections = connection->next;
    if (connection->next != NULL)
        connection->next->prev = connection->prev;
    if (connection->turned_away)
        server->turned_away_count--;
    connection_uncount(connection);
}

static void connection_free(struct http_connection *connection) {
    struct http_server *server = connection->server;
    connection_unlink(connection);
    parser_give_back(server, connection->parser);
    buffer_free(&connection->rest);
    buffer_free(&connection->output);
    free(connection);
    server_free_if_done(server);
}

static void on_tcp_closed(uv_handle_t *handle) {
    struct http_connection *connection = handle->data;
    free(handle);
    connection_free(connection);
}

static void connection_close(struct http_connection *connection) {
    assert(connection->state != HANDLING); // the handler owes an answer and holds the exchange
    if (connection->state == CLOSING)
        return;
    connection->state = CLOSING;
    connection_uncount(connection);
    uv_close((uv_handle_t *)connection->tcp, on_tcp_closed);
}

// ---- reading ----

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buf) {
    struct http_connection *connection = handle->data;
    *ret_buf = uv_buf_init(connection->server->read_bytes, READ_BYTES);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buf) {
    struct http_connection *connection = stream->data;
    if (count == 0)
        return;
    if (count < 0)
        connection_close(connection);
    else if (connection->state == READING)
        connection_feed(connection, buf->base, (size_t)count);
}

static void connection_read(struct http_connection *connection) {
    int error = uv_read_start((uv_stream_t *)connection->tcp, on_alloc, on_read);
    if (error != 0 && error != UV_EALREADY)
        connection_close(connection);
}

static void connection_linger(struct http_connection *connection) {
    uv_os_fd_t fd = -1;
    buffer_free(&connection->rest);
    connection->state = LINGERING;
    connection->deadline_ms = clock_ms() + LINGER_MS;
    if (uv_fileno((uv_handle_t *)connection->tcp, &fd) != 0 || shutdown(fd, SHUT_WR) != 0) {
        connection_close(connection);
        return;
    }
    connection_read(connection);
}

static void connection_refuse(struct http_connection *connection, int status) {
    char body[64];
    int length = snprintf(body, sizeof body, "%d %s\n", status, status_reason(status));
    connection->keep_alive = false;
    connection->head_only = false;
    connection->state = HANDLING;
    connection_respond(connection, status, "text/plain; charset=utf-8", status == 503 ? "Retry-After: 1\r\n" : NULL,
                       body, (size_t)length);
}

// Tells a client that waits for it to send its body. Best effort: when the socket is full the client goes on by itself.
static void connection_continue(struct http_connection *connection) {
    static char line[] = "HTTP/1.1 100 Continue\r\n\r\n";
    uv_buf_t buf = uv_buf_init(line, sizeof line - 1);
    if (http_parser_expects_continue(connection->parser))
        uv_try_write((uv_stream_t *)connection->tcp, &buf, 1);
}

static void connection_feed(struct http_connection *connection, const char *bytes, size_t length) {
    struct http_server *server = connection->server;
    connection->feeding = true;
    while (connection->tcp != NULL && connection->state == READING && length > 0) {
        if (connection->parser == NULL) {
            connection->parser = parser_take(server);
            connection->deadline_ms = clock_ms() + server->request_timeout_ms;
        }
        size_t consumed = 0;
        int status = 0;
        enum http_parse parse = http_parser_feed(connection->parser, bytes, length, &consumed, &status);
        bytes += consumed;
        length -= consumed;
        if (parse == HTTP_PARSE_BAD) {
            connection_refuse(connection, status);
        } else if (parse == HTTP_PARSE_MORE) {
            connection_continue(connection);
        } else {
            const struct http_request *request = http_parser_request(connection->parser);
            connection->state = HANDLING;
            connection->keep_alive = request->keep_alive;
            connection->head_only = strcmp(request->method, "HEAD") == 0;
            server->handle(server->arg, &connection->exchange, request);
        }
    }
    connection->feeding = false;
    if (connection->tcp == NULL) {
        connection_free(connection);
    } else if (connection->state == HANDLING || connection->state == WRITING) {
        uv_read_stop((uv_stream_t *)connection->tcp);
        buffer_append(&connection->rest, bytes, length);
    } else if (connection->state == READING) {
        connection_read(connection);
    }
}

// Before the loop watches the socket: the request is mostly there.
static void connection_read_first(struct http_connection *connection, int fd) {
    struct http_server *server = connection->server;
    ssize_t count = recv(fd, server->read_bytes, READ_BYTES, 0);
    if (count > 0)
        connection_feed(connection, server->read_bytes, (size_t)count);
    else if (count < 0 && (errno == EAGAIN || errno == EINTR))
        connection_read(connection);
    else
        connection_close(connection);
}

// ---- writing ----

static void connection_written(struct http_connection *connection) {
    parser_give_back(connection->server, connection->parser);
    connection->parser = NULL;
    buffer_free(&connection->output);
    if (!connection->keep_alive || connection->server->paused) {
        connection_linger(connection);
        return;
    }
    connection->state = READING;
    connection->deadline_ms = clock_ms() + connection->server->idle_timeout_ms;
    if (connection->feeding) // it goes on with the pipelined bytes by itself
        return;
    struct buffer rest = connection->rest;
    connection->rest = (struct buffer){0};
    connection_read(connection);
    if (rest.length > 0 && connection->state == READING)
        connection_feed(connection, rest.bytes, rest.length);
    buffer_free(&rest);
}

static void on_written(uv_write_t *write, int status) {
    struct http_connection *connection = write->data;
    if (connection->state == CLOSING)
        return;
    if (status != 0)
        connection_close(connection);
    else
        connection_written(connection);
}

// Takes output's memory.
static void connection_write(struct http_connection *connection, struct buffer output) {
    uv_stream_t *stream = (uv_stream_t *)connection->tcp;
    uv_buf_t buf = uv_buf_init(output.bytes, (unsigned)output.length);
    connection->state = WRITING;
    connection->deadline_ms =
        clock_ms() + (connection->server->closing ? LINGER_MS : connection->server->write_timeout_ms);
    connection->output = output;
    connection->unsent = output.length;
    int written = uv_try_write(stream, &buf, 1);
    if (written == UV_EAGAIN)
        written = 0;
    if (written >= 0 && (size_t)written == output.length) {
        connection_written(connection);
        return;
    }
    if (written >= 0) {
        buf = uv_buf_init(output.bytes + written, (unsigned)(output.length - (size_t)written));
        connection->write.data = connection;
        written = uv_write(&connection->write, stream, &buf, 1, on_written);
    }
    if (written < 0)
        connection_close(connection);
}

static void connection_respond(struct http_connection *connection, int status, const char *content_type,
                               const char *extra_headers, const char *body, size_t body_length) {
    struct http_server *server = connection->server;
    struct buffer output = {0};
    bool bodiless = status == 204 || status == 304 || status < 200; // RFC 9110, section 8.6
    if (server->paused)
        connection->keep_alive = false;
    buffer_format(&output, "HTTP/1.1 %d %s\r\nDate: %s\r\n", status, status_reason(status), http_date_now());
    if (content_type != NULL)
        buffer_format(&output, "Content-Type: %s\r\n", content_type);
    if (!bodiless)
        buffer_format(&output, "Content-Length: %zu\r\n", body_length);
    if (extra_headers != NULL)
        buffer_text(&output, extra_headers);
    buffer_format(&output, "Connection: %s\r\n\r\n", connection->keep_alive ? "keep-alive" : "close");
    if (!bodiless && !connection->head_only)
        buffer_append(&output, body, body_length);
    connection_write(connection, output);
}

// ---- the handler's side ----

void http_exchange_respond(struct http_exchange *exchange, int status, const char *content_type,
                           const char *extra_headers, const char *body, size_t body_length) {
    assert(exchange->connection->state == HANDLING); // once only
    connection_respond(exchange->connection, status, content_type, extra_headers, body, body_length);
}

const char *http_exchange_peer(const struct http_exchange *exchange) {
    struct http_connection *connection = exchange->connection;
    const union peer_address *address = &connection->address;
    if (address->family == AF_INET)
        inet_ntop(AF_INET, &address->in.sin_addr, connection->peer, sizeof connection->peer);
    else if (IN6_IS_ADDR_V4MAPPED(&address->in6.sin6_addr)) // of a dual-stack listener
        inet_ntop(AF_INET, address->in6.sin6_addr.s6_addr + 12, connection->peer, sizeof connection->peer);
    else
        inet_ntop(AF_INET6, &address->in6.sin6_addr, connection->peer, sizeof connection->peer);
    return connection->peer;
}

uv_tcp_t *http_exchange_take(struct http_exchange *exchange) {
    struct http_connection *connection = exchange->connection;
    uv_tcp_t *tcp = connection->tcp;
    assert(connection->state == HANDLING);
    uv_read_stop((uv_stream_t *)tcp);
    tcp->data = NULL;
    connection->tcp = NULL;
    if (!connection->feeding) // else when the handler returns, so that it may still look at the request
        connection_free(connection);
    return tcp;
}

// ---- deadlines ----

// A response may take long to send, as long as its reader takes some of it now and then.
static bool connection_still_sends(struct http_connection *connection) {
    size_t before = connection->unsent;
    connection->unsent = uv_stream_get_write_queue_size((uv_stream_t *)connection->tcp);
    return connection->unsent < before && !connection->server->closing;
}

static void connection_expire(struct http_connection *connection) {
    if (connection->state == READING && connection->parser != NULL)
        connection_refuse(connection, 408);
    else if (connection->state == WRITING && connection_still_sends(connection))
        connection->deadline_ms = clock_ms() + connection->server->write_timeout_ms;
    else
        connection_close(connection);
}

// One timer for all: it looks at every connection, at most once a second. It runs on for a moment after the last one
// has gone, since the next may come at once.
static void on_sweep(uv_timer_t *timer) {
    struct http_server *server = timer->data;
    uint64_t now_ms = clock_ms();
    struct http_connection *next = NULL;
    if (server->connections == NULL)
        uv_timer_stop(timer);
    for (struct http_connection *connection = server->connections; connection != NULL; connection = next) {
        next = connection->next;
        bool timed = connection->state != HANDLING && connection->state != CLOSING;
        if (timed && now_ms >= connection->deadline_ms)
            connection_expire(connection);
    }
}

static void sweep_start(struct http_server *server) {
    unsigned shortest = server->request_timeout_ms;
    if (server->idle_timeout_ms < shortest)
        shortest = server->idle_timeout_ms;
    if (server->write_timeout_ms < shortest)
        shortest = server->write_timeout_ms;
    unsigned period = shortest / 4 > 1000 ? 1000 : shortest / 4 + 1;
    if (!uv_is_active((uv_handle_t *)&server->sweep))
        uv_timer_start(&server->sweep, on_sweep, period, period);
}

// ---- accepting ----

static struct http_connection *connection_of(const struct http_peer_link *link) {
    return (struct http_connection *)((char *)link - offsetof(struct http_connection, link));
}

static bool waits_for_its_client(const struct http_peer_link *link) {
    enum connection_state state = connection_of(link)->state;
    return state == READING || state == WRITING || state == LINGERING;
}

// False: none that is there can be closed for a new one.
static bool server_make_room(struct http_server *server) {
    struct http_peer_link *victim = NULL;
    if (server->connection_count < server->max_connections)
        return true;
    victim = http_peers_victim(server->peers, waits_for_its_client);
    if (victim)
        connection_close(connection_of(victim));
    return victim != NULL;
}

// An address that holds half of all places makes room itself.
static void server_bound_peer(struct http_server *server, struct http_connection *connection) {
    struct http_peer_link *oldest = NULL;
    if (http_peers_held(&connection->link) > server->max_connections / 2 + 1)
        oldest = http_peers_oldest(&connection->link, waits_for_its_client);
    if (oldest && oldest != &connection->link)
        connection_close(connection_of(oldest));
}

static void connection_new(struct http_server *server, int fd, const union peer_address *address) {
    bool turned_away = !server_make_room(server);
    if (turned_away && server->turned_away_count >= MAX_TURNED_AWAY) {
        close(fd);
        return;
    }
    struct http_connection *connection = memory_alloc(sizeof *connection);
    connection->server = server;
    connection->exchange.connection = connection;
    connection->state = READING;
    connection->turned_away = turned_away;
    connection->deadline_ms = clock_ms() + server->request_timeout_ms;
    connection->address = *address;
    connection->tcp = memory_alloc(sizeof *connection->tcp);
    connection->tcp->data = connection;
    connection->next = server->connections;
    if (connection->next != NULL)
        connection->next->prev = connection;
    server->connections = connection;
    if (turned_away) {
        server->turned_away_count++;
    } else {
        server->connection_count++;
        http_peers_add(server->peers, &connection->link, (const struct sockaddr *)address);
        server_bound_peer(server, connection);
    }
    sweep_start(server);
    uv_tcp_init(server->loop, connection->tcp);
    if (uv_tcp_open(connection->tcp, fd) != 0) {
        close(fd);
        connection_close(connection);
        return;
    }
    if (turned_away)
        connection_refuse(connection, 503);
    else
        connection_read_first(connection, fd);
}

static void on_listener_readable(uv_poll_t *poll, int status, int events);

static void on_accept_pause_over(uv_timer_t *timer) {
    struct http_server *server = timer->data;
    uv_poll_start(&server->listener, UV_READABLE, on_listener_readable);
}

// No descriptor (or memory) is left. The reserve pays for accepting and closing one client, which so learns of it at
// once; then the listener rests, without which poll would report the next client at once, for ever.
static void listener_shed(struct http_server *server, int error) {
    uint64_t now_ms = clock_ms();
    if (server->shed_logged_ms == 0 || now_ms - server->shed_logged_ms > SHED_LOG_MS) {
        server->shed_logged_ms = now_ms;
        log_warn("http_accept_failed", LOG_TEXT("listen", server->address), LOG_TEXT("error", strerror(error)));
    }
    if (server->reserve_fd >= 0) {
        close(server->reserve_fd);
        int fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            close(fd);
    }
    server->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    uv_poll_stop(&server->listener);
    uv_timer_start(&server->accept_pause, on_accept_pause_over, ACCEPT_PAUSE_MS, 0);
}

// How many clients can be accepted now. Asked, since an accept that finds nobody makes a socket all the same and costs
// as much as one that does; a bounded number, so that a burst of clients does not keep those that are connected
// waiting.
static unsigned listener_waiting(const struct http_server *server) {
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    // Of a listener tcpi_unacked is the length of its queue.
    if (getsockopt(server->listen_fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || info.tcpi_unacked == 0)
        return 1;
    return info.tcpi_unacked < ACCEPTS_A_TURN ? info.tcpi_unacked : ACCEPTS_A_TURN;
}

static void on_listener_readable(uv_poll_t *poll, int status, int events) {
    struct http_server *server = poll->data;
    unsigned waiting = listener_waiting(server);
    for (unsigned i = 0; i < waiting && !server->paused; i++) { // a handler may have paused it
        union peer_address address = {0};
        socklen_t size = sizeof address;
        int fd = accept4(server->listen_fd, (struct sockaddr *)&address, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            connection_new(server, fd, &address);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            break;
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            listener_shed(server, errno);
            return;
        } // else that client went away while it waited (ECONNABORTED and the network errors of accept(2))
    }
    if (status < 0 && !server->paused) // libuv has stopped the handle
        uv_poll_start(&server->listener, UV_READABLE, on_listener_readable);
}

static bool listener_bind(struct http_server *server, const struct http_server_options *options,
                          struct error *ret_error) {
    char host[64];
    int port = 0;
    int yes = 1;
    int defer_s = DEFER_S;
    struct sockaddr_storage address = {0};
    if (!config_parse_address(options->listen, host, sizeof host, &port, ret_error))
        return false;
    if (uv_ip4_addr(host, port, (struct sockaddr_in *)&address) != 0 &&
        uv_ip6_addr(host, port, (struct sockaddr_in6 *)&address) != 0)
        return error_set(ret_error, ERROR_USAGE, "listen on %s: not an IP address", options->listen);
    socklen_t size = address.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    int fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    server->listen_fd = fd;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        (options->reuse_port && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes) != 0) ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) != 0 || // what is accepted inherits it
        setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &defer_s, sizeof defer_s) != 0 ||
        bind(fd, (struct sockaddr *)&address, size) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0) {
        int error = uv_translate_sys_error(errno);
        if (fd >= 0)
            close(fd);
        return error_set(ret_error, ERROR_IO, "listen on %s: %s%s", options->listen, uv_strerror(error),
                         error == UV_EADDRINUSE ? " (give another port; port 0 takes a free one)" : "");
    }
    bool ipv6 = address.ss_family == AF_INET6;
    server->port =
        ntohs(ipv6 ? ((struct sockaddr_in6 *)&address)->sin6_port : ((struct sockaddr_in *)&address)->sin_port);
    snprintf(server->address, sizeof server->address, ipv6 ? "[%s]:%d" : "%s:%d", host, server->port);
    return true;
}

// ---- the server ----

struct http_server *http_server_new(uv_loop_t *loop, const struct http_server_options *options,
                                    struct error *ret_error) {
    struct http_server *server = memory_alloc(sizeof *server);
    if (!listener_bind(server, options, ret_error)) {
        free(server);
        return NULL;
    }
    server->loop = loop;
    server->handle = options->handle;
    server->arg = options->arg;
    server->max_connections = options->max_connections > 0 ? options->max_connections : MAX_CONNECTIONS;
    server->request_timeout_ms = options->request_timeout_ms > 0 ? options->request_timeout_ms : REQUEST_TIMEOUT_MS;
    server->idle_timeout_ms = options->idle_timeout_ms > 0 ? options->idle_timeout_ms : IDLE_TIMEOUT_MS;
    server->write_timeout_ms = options->write_timeout_ms > 0 ? options->write_timeout_ms : WRITE_TIMEOUT_MS;
    server->peers = http_peers_new(server->max_connections);
    server->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    uv_timer_init(loop, &server->accept_pause);
    uv_timer_init(loop, &server->sweep);
    int error = uv_poll_init(loop, &server->listener, server->listen_fd);
    assert(error == 0); // a socket that we made
    server->accept_pause.data = server->sweep.data = server->listener.data = server;
    server->open_handles = 3;
    uv_poll_start(&server->listener, UV_READABLE, on_listener_readable);
    return server;
}

int http_server_listener(const struct http_server *server) {
    return server->listen_fd;
}

int http_server_port(const struct http_server *server) {
    return server->port;
}

const char *http_server_address(const struct http_server *server) {
    return server->address;
}

static void on_handle_closed(uv_handle_t *handle) {
    struct http_server *server = handle->data;
    if (--server->open_handles > 0)
        return;
    void (*on_closed)(void *arg) = server->on_closed;
    void *arg = server->closed_arg;
    http_parser_free(server->spare_parser);
    http_peers_free(server->peers);
    free(server);
    if (on_closed != NULL)
        on_closed(arg);
}

// The timer is the last to go: connections that are being answered still need their deadlines.
static void server_free_if_done(struct http_server *server) {
    if (server->closing && server->connections == NULL && !uv_is_closing((uv_handle_t *)&server->sweep))
        uv_close((uv_handle_t *)&server->sweep, on_handle_closed);
}

void http_server_pause(struct http_server *server) {
    if (server->paused)
        return;
    server->paused = true;
    uv_close((uv_handle_t *)&server->listener, on_handle_closed);
    uv_close((uv_handle_t *)&server->accept_pause, on_handle_closed);
    close(server->listen_fd);
    if (server->reserve_fd >= 0)
        close(server->reserve_fd);
    for (struct http_connection *connection = server->connections; connection != NULL; connection = connection->next) {
        if (connection->state == READING && connection->parser == NULL)
            connection_close(connection);
    }
}

void http_server_close(struct http_server *server, void (*on_closed)(void *arg), void *arg) {
    if (server == NULL) {
        if (on_closed != NULL)
            on_closed(arg);
        return;
    }
    assert(!server->closing);
    http_server_pause(server);
    server->closing = true;
    server->on_closed = on_closed;
    server->closed_arg = arg;
    uint64_t latest_ms = clock_ms() + LINGER_MS;
    for (struct http_connection *connection = server->connections; connection != NULL; connection = connection->next) {
        if (connection->state == READING || connection->state == LINGERING)
            connection_close(connection);
        else if (connection->deadline_ms > latest_ms)
            connection->deadline_ms = latest_ms;
    }
    server_free_if_done(server);
}
