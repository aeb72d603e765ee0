// events_endpoint: what the gateway's public port answers: GET /events, /openapi.json and, with --demo, a page at /;
// receipts go to receipts_endpoint.c.
//
// EventSource gives up for ever on any status but 200. So a request that is wrong gets its 4xx, and one that is right
// at the wrong time (starting, draining, too many streams, in all or of this client) gets 200, a `retry:` and the end
// of the connection.
#pragma once
#include "common/http_server.h"
#include "gateway/admission.h"
#include "gateway/auth.h"
#include "gateway/config.h"
#include "gateway/receipts_endpoint.h"
#include "gateway/subscriber.h"
#include <stdbool.h>

struct events_endpoint {
    const struct gateway_config *config;
    struct auth *auth;
    struct subscribers *subscribers;
    struct receipts_endpoint *receipts;
    struct admission *admission;
    const struct egress_policy *proxies; // --trusted-proxy
    bool open;                           // false: not ready yet, or draining
    size_t waiting_count;                // requests that wait for their auth
};

// An http_handler; arg is the struct events_endpoint.
void events_endpoint_handle(void *arg, struct http_exchange *exchange, const struct http_request *request);

// Does an Accept header allow this media type ("text", "event-stream")? NULL header: yes. RFC 9110, 12.5.1.
bool accept_allows(const char *accept, const char *type, const char *subtype);
