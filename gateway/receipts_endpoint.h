// receipts_endpoint: GET /receipts/{token}?wait=2s&for=index: what became of the changes of one transaction
// (docs/receipts.md).
//
// It answers as soon as they are fanned out (for=index: and indexed), at the end of the wait, or at once when too many
// wait already. Waiters share one connection and one LISTEN; one statement looks for all of them. A connection is
// opened with the first request, so a gateway that nobody asks has none.
#pragma once
#include "common/http_server.h"
#include "gateway/admission.h"
#include "gateway/auth.h"
#include "gateway/config.h"
#include <stdbool.h>
#include <uv.h>

enum { RECEIPTS_WAITERS_MOST = 64, RECEIPTS_WAIT_MOST_MS = 30000 };

struct receipts_endpoint;

struct receipts_endpoint *receipts_endpoint_new(uv_loop_t *loop, const struct gateway_config *config, struct auth *auth,
                                                struct admission *admission,
                                                const struct egress_policy *proxies); // borrows both
bool receipts_endpoint_matches(const char *path);                                     // is it a receipt's?
void receipts_endpoint_get(struct receipts_endpoint *endpoint, struct http_exchange *exchange,
                           const struct http_request *request);
// Waiters are answered with what is known. After auth_close. NULL is allowed.
void receipts_endpoint_close(struct receipts_endpoint *endpoint);
