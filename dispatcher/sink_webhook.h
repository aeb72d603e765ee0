// sink_webhook: a delivery as a signed HTTPS POST (Standard Webhooks 1.0), one attempt a send.
// Its settings: common/webhook_endpoint.h.
#pragma once
#include "common/database_clock.h"
#include "common/egress.h"
#include "common/error.h"
#include "dispatcher/sink.h"
#include <stdbool.h>
#include <uv.h>

struct sink_webhook_options {
    const struct egress_policy *egress; // keeps
    const struct database_clock *clock; // keeps: signatures, ends of secrets and dates are by its time
    bool allow_http;                    // for all subscriptions
    long max_connections;               // open at once, idle ones included; 0: the client's default
    const char *ca_file;                // PEM; NULL: the system's
    const char *secret_key;             // ROWBELL_SECRET_KEY (common/seal.h); NULL: sealed secrets cannot be opened
};

// Fills *ret_sink; sink.close frees it all.
bool sink_webhook_init(struct sink *ret_sink, uv_loop_t *loop, const struct sink_webhook_options *options,
                       struct error *ret_error);
