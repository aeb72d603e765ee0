// http_server: a small HTTP/1.1 server on libuv: accept, parse, answer, keep alive. A handler answers at once or later,
// or takes the connection away for a stream. EMFILE-safe accept (a reserve descriptor is closed and reopened, the
// listener pauses), 10 s to send a request, 60 s idle, at most max_connections.
#pragma once
#include "common/error.h"
#include "common/http_request.h"
#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

struct http_server;
struct http_exchange; // one request being answered

typedef void http_handler(void *arg, struct http_exchange *exchange, const struct http_request *request);

struct http_server_options {
    const char *listen;          // "127.0.0.1:0"
    bool reuse_port;             // SO_REUSEPORT: several processes share the port
    size_t max_connections;      // 0: 1,000. Beyond it one that waits for its client makes room (http_server.c); 503
                                 // only when all are being handled
    unsigned request_timeout_ms; // 0: 10 s from the first byte (or the accept) to the last; then 408 and closed
    unsigned idle_timeout_ms;    // 0: 60 s between requests
    unsigned write_timeout_ms;   // 0: 30 s in which the client takes nothing of a response
    void *arg;
    http_handler *handle; // every request that is well-formed; must answer or take exactly once, now or later
};

// Binds and listens at once; a taken port is ERROR_IO "listen on 127.0.0.1:8080: address already in use".
struct http_server *http_server_new(uv_loop_t *loop, const struct http_server_options *options,
                                    struct error *ret_error);
int http_server_listener(const struct http_server *server);        // the socket: what it accepts has its options
int http_server_port(const struct http_server *server);            // the bound one
const char *http_server_address(const struct http_server *server); // "127.0.0.1:40001", view
void http_server_pause(struct http_server *server); // stop accepting (drain); idle keep-alives are closed
// Stops accepting; requests that are being handled are still answered, and their handlers must do so. on_closed (may be
// NULL) is called when the memory is gone; for a NULL server at once.
void http_server_close(struct http_server *server, void (*on_closed)(void *arg), void *arg);

// extra_headers: whole lines, each with CRLF, or NULL. HEAD sends no body. The exchange and its request are gone
// afterwards. content_type may be NULL. Date, Content-Length and Connection are the server's.
void http_exchange_respond(struct http_exchange *exchange, int status, const char *content_type,
                           const char *extra_headers, const char *body, size_t body_length);
const char *http_exchange_peer(const struct http_exchange *exchange); // "127.0.0.1", view
// Takes the connection over: the server forgets it (it no longer counts), frees the parser, and hands over the libuv
// stream (owned: heap, close with uv_close and free in its callback) with reading stopped. stream->data is the
// caller's. The exchange is gone afterwards; the request is valid until the handler returns. Bytes sent after the
// request are dropped.
uv_tcp_t *http_exchange_take(struct http_exchange *exchange);
const char *http_date_now(void); // "Sun, 06 Nov 1994 08:49:37 GMT", of now; view
