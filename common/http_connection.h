// http_connection: connections to HTTP servers, made by libcurl (addresses in turn, TCP, TLS, verification; at the
// pinned addresses only, each judged by the egress policy when its socket is opened) and kept while they idle. What is
// said on them is their user's.
#pragma once
#include "common/egress.h"
#include "common/http_client.h"
#include "common/http_target.h"
#include "common/resolver.h"
#include <uv.h>

struct http_pool;
struct http_connection;

struct http_pool_options {
    const struct egress_policy *egress; // keeps
    size_t max_connections;             // with those that idle; one in use is never closed for it
    const char *ca_file;                // PEM; NULL: the system's. Copied
    // Of a connection's user. opened: as http_pool_connect says; never from inside it. ready: events of libuv, once it
    // is open.
    void (*opened)(void *user);
    void (*ready)(void *user, int events);
};

// What to connect to; two with equal ones share connections.
struct http_connect {
    const struct http_target *target;
    const struct resolver_answer *addresses;        // not asked for where the host is an address
    const char *ca_pem, *certificate_pem, *key_pem; // http_call
    unsigned connect_ms;
};

// What is known of a connection.
struct http_connection_facts {
    enum http_failure failure; // when it is not open and opened came
    char error[256];           // one line when it failed
    char peer[64];
    bool tcp_stands, open;
    double connect_ms, tls_ms; // how long each took; -1: not reached
};

struct http_pool *http_pool_new(uv_loop_t *loop, const struct http_pool_options *options);
// One that idles, or NULL.
struct http_connection *http_pool_take(struct http_pool *pool, const struct http_connect *to, void *user);
// Begins one; opened comes when it is open or failed, which the facts tell.
struct http_connection *http_pool_connect(struct http_pool *pool, const struct http_connect *to, void *user);
const struct http_connection_facts *http_connection_facts(const struct http_connection *connection);
// Bytes sent or read; 0: not now, ready will come. -1: it is broken, or (reading) the peer closed it; *ret_error says
// what libcurl says, "" when it is no more than closed.
ptrdiff_t http_connection_send(struct http_connection *connection, const void *bytes, size_t length,
                               const char **ret_error);
ptrdiff_t http_connection_read(struct http_connection *connection, void *bytes, size_t length, const char **ret_error);
// Right after a send. Reading is always waited for, and may be what a write of TLS waits for.
void http_connection_want_write(struct http_connection *connection, bool want);
// Its user is done with it, at any time. keep: for the next who goes there.
void http_connection_release(struct http_connection *connection, bool keep);

uint64_t http_pool_connections_opened(const struct http_pool *pool);                   // since the start
void http_pool_close(struct http_pool *pool, void (*on_closed)(void *arg), void *arg); // none may be in use
