// http_server: a small HTTP/1.1 server on libuv: accept, parse, answer, keep alive. A handler answers at once or later,
// or takes the connection away for a stream. EMFILE-safe accept (a reserve descriptor is closed and reopened, the
// listener pauses), 10 s to send a head, 60 s idle, at most max_connections.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <uv.h>
#include "common/error.h"
#include "common/http_request.h"

struct http_server;
struct http_exchange; // one request being answered

typedef void http_handler(void *arg, struct http_exchange *exchange, const struct http_request *request);

struct http_server_options {
    const char *listen; // "127.0.0.1:0"
    bool reuse_port;    // SO_REUSEPORT: several processes share the port
    size_t max_connections; // 0: 1,000. Connections beyond it are answered 503 and closed
    void *arg;
    http_handler *handle; // every request; must answer or take exactly once
};

// Binds and listens at once; a taken port is ERROR_IO "listen on 127.0.0.1:8080: address already in use".
struct http_server *http_server_new(uv_loop_t *loop, const struct http_server_options *options, struct error *ret_error);
int http_server_port(const struct http_server *server);             // the bound one
const char *http_server_address(const struct http_server *server);  // "127.0.0.1:40001", view
void http_server_pause(struct http_server *server);                 // stop accepting (drain); idle keep-alives are closed
void http_server_close(struct http_server *server, void (*on_closed)(void *arg), void *arg); // NULL server is allowed

// extra_headers: whole lines, each with CRLF, or NULL. HEAD sends no body. The exchange is gone afterwards.
void http_exchange_respond(struct http_exchange *exchange, int status, const char *content_type,
                           const char *extra_headers, const char *body, size_t body_length);
const char *http_exchange_peer(const struct http_exchange *exchange); // "127.0.0.1", view
// Takes the connection over: the server forgets it (it no longer counts), frees the parser, and hands over the libuv
// stream (owned: heap, close with uv_close and free in its callback) with reading stopped. stream->data is the caller's.
uv_tcp_t *http_exchange_take(struct http_exchange *exchange);
