// sink_webhook: a delivery as a signed HTTPS POST (Standard Webhooks 1.0), one attempt a send.
//
// Settings of a subscription (JSON; an unknown key is another part's):
//   url          text, required
//   allow_http   bool, false: http:// besides https://
//   deadline_ms  number, 100 to sink.deadline_ms, which is the default: the whole attempt
//   headers      object of texts, at most 32: sent besides ours. Reserved names are refused
//   statuses     object: what statuses mean where it differs from the usual (status_policy.h)
//   ca           PEM: authorities that this endpoint's certificate is judged by, instead of the usual ones
//   client_certificate, client_key   PEM, the key sealed (common/seal.h): what is shown to a receiver that asks
//   signature    "standard" (default), "timestamp" or "body": webhook_signature.h
#pragma once
#include "common/egress.h"
#include "common/error.h"
#include "dispatcher/sink.h"
#include <stdbool.h>
#include <uv.h>

struct sink_webhook_options {
    const struct egress_policy *egress; // keeps
    bool allow_http;                    // for all subscriptions
    long max_connections;               // open at once, idle ones included; 0: the client's default
    const char *ca_file;                // PEM; NULL: the system's
    const char *secret_key;             // ROWBELL_SECRET_KEY (common/seal.h); NULL: sealed secrets cannot be opened
};

// Fills *ret_sink; sink.close frees it all.
bool sink_webhook_init(struct sink *ret_sink, uv_loop_t *loop, const struct sink_webhook_options *options,
                       struct error *ret_error);

// The body of a delivery: {"id","type","timestamp","subject","data"}, with data as PostgreSQL rendered it.
struct buffer;
void webhook_body_write(struct buffer *body, const struct delivery *delivery);
