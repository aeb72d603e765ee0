// http_client: HTTP/1.1 requests (POST or GET) on a libuv loop. libcurl makes the connections (http_connection.h), and
// llhttp reads the answers (http_answer.h). Names are resolved through the resolver, the addresses are judged by the
// egress policy, pinned, and judged again when the socket is opened, so a name that answers public now and loopback
// later is caught. No redirects, no proxies, no HTTP/2, no credentials in URLs, no hidden retry: each call is one
// request on the wire at the most. TLS is always verified. At most 16 KiB of headers and 64 KiB of body (or what a call
// asks for) are read; nothing is decompressed, since nothing compressed is asked for.
#pragma once
#include "common/egress.h"
#include "common/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

enum { HTTP_CALL_MAX_HEADERS = 48, HTTP_URL_MAX_BYTES = 2048 };

struct http_client;

struct http_client_options {
    const char *user_agent;             // copied
    const struct egress_policy *egress; // keeps
    long max_connections; // open ones, in use and idle; 0: 1,024. More than calls in flight, else none is reused
    const char *ca_file;  // PEM; NULL: the system's. Copied
};

struct http_call {
    const char *url;            // copied
    const char *const *headers; // "name: value", NULL-terminated, at most HTTP_CALL_MAX_HEADERS; copied
    const char *body;           // copied
    size_t body_length;
    unsigned deadline_ms; // whole: DNS to the last byte read
    unsigned connect_ms;  // TCP and TLS
    bool allow_http;
    bool get;                    // a GET: body is not sent
    const char *ca_pem;          // certificates that this call trusts instead of the client's; NULL. Copied
    const char *certificate_pem; // of the client, with key_pem; NULL. Copied
    const char *key_pem;
    size_t answer_max_bytes; // keep the body of the answer, up to so many bytes; 0: its head only
};

// Where it failed; the first of NONE when an answer came (whatever its status). HTTP_REFUSED: the call itself is not
// allowed (the URL, or a header with a line break); nothing was sent.
enum http_failure {
    HTTP_OK,
    HTTP_DNS,
    HTTP_EGRESS_DENIED,
    HTTP_CONNECT,
    HTTP_TLS,
    HTTP_TIMEOUT,
    HTTP_BAD_ANSWER,
    HTTP_CANCELLED,
    HTTP_REFUSED,
};

struct http_outcome {
    enum http_failure failure;
    // 0 when there was no answer. Where the body is asked for (answer_max_bytes), also set when it broke off, was
    // malformed or did not end in time, which are failures; where it is not, they are HTTP_OK: the status came.
    int status;
    // dns, connect and tls are how long each took, 0 on a connection that is used again; first_byte and total count
    // from http_client_send. -1: not reached.
    double dns_ms, connect_ms, tls_ms, first_byte_ms, total_ms;
    char peer[64];                // "203.0.113.9:443", "" before connecting
    const char *retry_after;      // raw header, NULL if absent; view
    const char *date;             // raw header, NULL if absent; view
    const char *delivery_control; // `webhook-delivery` header, NULL if absent; view
    const char *response_head;    // first 4 KiB of the body as UTF-8 text, other bytes replaced; view
    // The body and a NUL, when answer_max_bytes was set (incomplete if it was longer); view.
    const char *answer;
    size_t answer_length;
    char error[256]; // one line when failure is not HTTP_OK
};
typedef void http_done(void *arg,
                       const struct http_outcome *outcome); // exactly once, never from inside http_client_send

struct http_client *http_client_new(uv_loop_t *loop, const struct http_client_options *options);
void http_client_send(struct http_client *client, const struct http_call *call, http_done *done, void *arg);
// 0: the address of the URL's host is known, or why there is none: a call would not wait for it. Else it is being
// looked up, and it is worth asking again in so many milliseconds.
unsigned http_client_wait_ms(struct http_client *client, const char *url);
size_t http_client_in_flight(const struct http_client *client);
uint64_t http_client_connections_opened(const struct http_client *client); // since the start
void http_client_close(struct http_client *client, void (*on_closed)(void *arg),
                       void *arg); // calls in flight: HTTP_CANCELLED

// https (or http when allowed), a host that every reader reads alike (common/http_target.h), no user, no fragment, at
// most 2,048 bytes: else ERROR_USAGE saying what and why.
bool http_url_check(const char *url, bool allow_http, struct error *ret_error);
