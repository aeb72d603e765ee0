// webhook_endpoint: what a webhook's settings and secrets come to, and the request that follows from them. For the
// dispatcher, which delivers, and the CLI, which tests: both send the same bytes.
//
// Settings (JSON; an unknown key is another part's):
//   url          text, required
//   allow_http   bool, false: http:// besides https://
//   deadline_ms  number, 100 to WEBHOOK_DEADLINE_MS, which is the default: the whole attempt
//   headers      object of texts, at most 32: sent besides ours. Reserved names are refused
//   statuses     object: what statuses mean where it differs from the usual (status_policy.h)
//   ca           PEM: authorities that this endpoint's certificate is judged by, instead of the usual ones
//   client_certificate, client_key   PEM, the key sealed (seal.h): what is shown to a receiver that asks
//   signature    "standard" (default), "timestamp" or "body": webhook_signature.h
// What cannot be honoured is refused.
#pragma once
#include "common/buffer.h"
#include "common/http_client.h"
#include "common/seal.h"
#include "common/status_policy.h"
#include "common/webhook_header.h"
#include "common/webhook_signature.h"

enum { WEBHOOK_DEADLINE_MS = 20000, WEBHOOK_CONNECT_MS = 5000 };

struct webhook_endpoint {
    char *url;
    bool allow_http;
    unsigned deadline_ms;
    char *headers[WEBHOOK_HEADERS_MAX]; // "name: value"
    size_t header_count;
    struct status_policy statuses;
    char *ca, *client_certificate; // PEM; NULL
    struct buffer client_key;
    const struct seal_keys *keys; // borrowed while it is made
    const char *seal_id;          // the same
    struct webhook_signer *signer;
};

// secrets as they are stored, newest first. allow_http: whatever the settings say. ERROR_USAGE says which setting is
// wrong and never holds a secret. Close it in any case.
bool webhook_endpoint_init(struct webhook_endpoint *endpoint, const char *settings, char *const *secrets,
                           int secret_count, const char *seal_id, const struct seal_keys *keys, bool allow_http,
                           struct error *ret_error);
void webhook_endpoint_close(struct webhook_endpoint *endpoint);

// The body of a delivery: {"id","type","timestamp","subject","data"}. subject may be NULL; data is JSON text, taken as
// it is.
struct webhook_event {
    const char *id, *type, *timestamp, *subject, *data;
};
void webhook_body_write(struct buffer *body, const struct webhook_event *event);

// Headers and the signature over the body as it is, at this time. The call's strings are views of endpoint, body,
// headers and list (which ends with NULL).
struct http_call webhook_endpoint_call(const struct webhook_endpoint *endpoint, const char *event_id, int64_t now_s,
                                       const struct buffer *body, struct buffer *headers,
                                       const char *list[HTTP_CALL_MAX_HEADERS + 1]);
