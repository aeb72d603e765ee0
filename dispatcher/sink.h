// sink: the port behind which a delivery happens (webhook, index). The dispatcher owns jobs, leases and
// retries; a sink makes one attempt and classifies it. A sink never retries by itself.
#pragma once
#include "common/error.h"
#include <stdbool.h>
#include <stdint.h>

// A subscription as the dispatcher knows it; reloaded when it changes.
struct subscription {
    int id;
    char *name;
    char *kind;  // "webhook"
    char *state; // "active"
    bool ordered;
    char *settings; // JSON text; each sink reads its own keys
    char **secrets; // newest first, as stored ("plain:whsec_...")
    int secret_count;
    char *seal_id;    // sealed secrets open for it alone
    void *sink_state; // the sink's, made by prepare
};

// One claimed job. Strings are views, valid until done is called.
struct delivery {
    const struct subscription *subscription;
    int64_t event_seq;
    int attempt;             // 1 for the first
    const char *event_id;    // UUIDv7 text
    const char *type;        // "posts.update"
    const char *occurred_at; // RFC 3339, UTC, microseconds
    const char *subject;     // "posts/p1", NULL if none
    const char *data;        // JSON text: {"table","key","op"} for a row change, the recorded data for a domain event
};

enum verdict {
    VERDICT_DELIVERED,
    VERDICT_RETRY,    // not now; after_ms is a floor
    VERDICT_REJECTED, // never: poison at once
    VERDICT_ABORTED,  // never, because the receiver asked for that: cancelled, which is nobody's fault
};

// Names of rowbell.attempts.class; attempt_class_name gives the text.
enum attempt_class {
    CLASS_DELIVERED,
    CLASS_DNS,
    CLASS_CONNECT,
    CLASS_TLS,
    CLASS_TIMEOUT,
    CLASS_HTTP_4XX,
    CLASS_HTTP_5XX,
    CLASS_REJECTED,
    CLASS_LOST,
    CLASS_EGRESS_DENIED,
    CLASS_CONDITION,
    CLASS_ABORTED,
};
const char *attempt_class_name(enum attempt_class class);

struct attempt_outcome {
    enum verdict verdict;
    enum attempt_class class;
    uint64_t after_ms;         // with VERDICT_RETRY: what the receiver asked for (Retry-After), 0 if nothing
    bool unsent;               // nothing happened: the claim is given back, and no attempt is recorded
    bool disable_subscription; // the receiver said so (410, webhook-delivery: disable)
    bool pause_endpoint;       // 429 or 503 with Retry-After: after_ms holds for the whole endpoint
    int status;                // HTTP status, 0 when there was no answer
    double dns_ms, connect_ms, tls_ms, first_byte_ms, total_ms; // -1: not reached
    const char *peer;                                           // views, NULL if none
    const char *response_head;
    const char *error; // one line for people, NULL when delivered
};

// Called exactly once for each send, in a later loop turn.
typedef void sink_done(void *arg, const struct attempt_outcome *outcome);

struct sink {
    const char *kind;
    unsigned deadline_ms; // the longest that one attempt may take; leases must be longer
    // Many jobs share a request, so their outcomes say nothing one by one: it asks for pauses (pause_endpoint) itself.
    bool paces_itself;
    void *arg;
    // Parses settings and secrets once. On failure the text goes to subscription_state.last_error, and each job of the
    // subscription is answered CLASS_REJECTED with it.
    bool (*prepare)(void *arg, struct subscription *subscription, struct error *ret_error);
    void (*forget)(void *arg, struct subscription *subscription);
    // 0: send would not wait for a host's address. Else it is being looked up, without holding a slot, and it is worth
    // asking again in so many milliseconds. May be NULL.
    unsigned (*wait_ms)(void *arg, const struct subscription *subscription);
    void (*send)(void *arg, const struct delivery *delivery, sink_done *done, void *done_arg);
    // The process is stopping: what takes long may be ended as unsent. May be NULL.
    void (*drain)(void *arg);
    void (*close)(void *arg, void (*on_closed)(void *closed_arg), void *closed_arg); // sends in flight: CLASS_LOST
};
