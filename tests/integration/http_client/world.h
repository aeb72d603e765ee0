// A client, the peer that it talks to, and what it was told.
#pragma once
#include "common/http_client.h"
#include "tests/support/fixture.h"
#include "tests/support/script_server.h"
#include <check.h>
#include <uv.h>

#define OK_EMPTY "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
#define BODY "{\"id\":1}"

#define CHECK_FAILURE(result, expected)                                                                                \
    ck_assert_msg((result).outcome.failure == (expected), "failure %d instead of %d: %s", (result).outcome.failure,    \
                  (expected), (result).outcome.error)

struct result {
    struct http_outcome outcome;
    char retry_after[128]; // copies; "(none)" for NULL
    char delivery_control[64];
    char response_head[4097];
    int calls;
};

extern uv_loop_t loop;
extern struct script_server server; // answers OK_EMPTY unless told otherwise
extern struct egress_policy egress; // of the client
extern struct http_client *client;
extern const struct http_call usual; // a POST of BODY, without a URL

// The world of one test: where it may go, and whom it trusts (NULL: the system's).
void start(const char *const *allowed, size_t count, const char *ca_file);
void start_allowing_loopback(void);
// Nothing may be left in the loop: what is would hold up a process that ends.
void stop(void);
void on_client_closed(void *arg); // arg: a bool, which becomes true

void on_done(void *arg, const struct http_outcome *outcome); // arg: struct result
void wait_done(const struct result *result);
struct result post(struct http_call call); // and waits
// The same for one that its own deadline ends: not later than when a timer of so many ms does (tests/support/loop.h).
struct result post_within(struct http_call call, unsigned ms);
struct result post_to(const char *url);
struct result post_script(struct script script);        // to a peer that does this
const char *url_to(const char *host, const char *path); // of server; until the next call

void requests_tests(Suite *suite);
void answers_tests(Suite *suite);
void connections_tests(Suite *suite);
void tls_tests(Suite *suite);
