// relay_wake: how a sleeping relay is woken. A direct connection LISTENs on `rowbell_events` and holds the awake lock,
// which tells writers that they need not NOTIFY.
//
// Nothing is left on a transaction pooler: where one is found (db_setup), there is no LISTEN and no lock, and polling
// is the way. Whether LISTEN really delivers is probed besides, with a nonce sent over another connection; while the
// probe is unanswered the lock is not taken. A log line and rowbell_listen_working say so.
#pragma once
#include "common/error.h"
#include <stdbool.h>
#include <uv.h>

struct db_conn;
struct relay_wake;

struct relay_wake_options {
    const char *url, *direct_url; // the second may be NULL
    unsigned probe_every_ms;
    void *arg;
    void (*on_wake)(void *arg);                               // a writer's NOTIFY
    void (*on_asleep)(void *arg);                             // after relay_wake_set_awake(false), in a later turn
    void (*on_refused)(void *arg, const struct error *error); // what was given as direct_url is of no use for this
};

struct relay_wake *relay_wake_new(uv_loop_t *loop, const struct relay_wake_options *options);
void relay_wake_set_awake(struct relay_wake *wake, bool awake);
// Probes now and from then on; `sender` (borrowed until the next call) is the connection that claims.
void relay_wake_probe_from(struct relay_wake *wake, struct db_conn *sender);
void relay_wake_close(struct relay_wake *wake, void (*on_closed)(void *arg), void *arg);
