// http_client: HTTPS requests by libcurl's multi interface on a libuv loop, with what libcurl does not do by itself: names
// are resolved through the resolver, the addresses are judged by the egress policy, pinned (CURLOPT_RESOLVE) and judged
// again when the socket is opened, so a name that answers public now and loopback later is caught. No redirects, no
// proxies, no HTTP/2, no credentials in URLs, no hidden retry: each call is one request on the wire at the most.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <uv.h>
#include "common/egress.h"
#include "common/error.h"

struct http_client;

struct http_client_options {
    const char *user_agent;
    const struct egress_policy *egress; // keeps
    long max_connections;               // idle ones kept, in all
};

struct http_call {
    const char *url;                // copied
    const char *const *headers;     // "name: value", NULL-terminated; copied
    const char *body;               // copied
    size_t body_length;
    unsigned deadline_ms;           // whole: DNS to the last byte read
    unsigned connect_ms;
    bool allow_http;
};

// Where it failed; the first of NONE when an answer came (whatever its status).
enum http_failure { HTTP_OK, HTTP_DNS, HTTP_EGRESS_DENIED, HTTP_CONNECT, HTTP_TLS, HTTP_TIMEOUT, HTTP_BAD_ANSWER, HTTP_CANCELLED };

struct http_outcome {
    enum http_failure failure;
    int status;                  // 0 when there was no answer
    double dns_ms, connect_ms, tls_ms, first_byte_ms, total_ms; // -1: not reached
    char peer[64];               // "203.0.113.9:443", "" before connecting
    const char *retry_after;     // raw header, NULL if absent; view
    const char *delivery_control; // `webhook-delivery` header, NULL if absent; view
    const char *response_head;   // first 4 KiB of the body, with non-text bytes replaced; view
    char error[256];             // one line when failure is not HTTP_OK
};
typedef void http_done(void *arg, const struct http_outcome *outcome); // exactly once, never from inside http_client_send

struct http_client *http_client_new(uv_loop_t *loop, const struct http_client_options *options);
// A malformed URL, a scheme that is not allowed, or user info: the outcome is HTTP_BAD_ANSWER-free HTTP_EGRESS_DENIED or
// HTTP_CONNECT with a text; use http_url_check before storing a URL.
void http_client_send(struct http_client *client, const struct http_call *call, http_done *done, void *arg);
size_t http_client_in_flight(const struct http_client *client);
void http_client_close(struct http_client *client, void (*on_closed)(void *arg), void *arg); // calls in flight: HTTP_CANCELLED

// https (or http when allowed), a host, no user info, no fragment, at most 2,048 bytes: else ERROR_USAGE saying what and why.
bool http_url_check(const char *url, bool allow_http, struct error *ret_error);
