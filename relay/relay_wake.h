// relay_wake: how a sleeping relay is woken. A direct connection LISTENs on `rowbell_events` and holds the awake lock,
// which tells writers that they need not NOTIFY.
//
// Whether LISTEN really delivers is probed with a nonce sent over another connection: a transaction pooler swallows
// LISTEN without a word. While the probe is unanswered the lock is not taken (behind a pooler it would stay behind for
// ever) and polling is the way; a log line and rowbell_listen_working say so.
#pragma once
#include <stdbool.h>
#include <uv.h>

struct db_conn;
struct relay_wake;

struct relay_wake_options {
    const char *url; // direct
    unsigned probe_every_ms;
    void *arg;
    void (*on_wake)(void *arg);   // a writer's NOTIFY
    void (*on_asleep)(void *arg); // after relay_wake_set_awake(false), in a later turn
};

struct relay_wake *relay_wake_new(uv_loop_t *loop, const struct relay_wake_options *options);
void relay_wake_set_awake(struct relay_wake *wake, bool awake);
// Probes now and from then on; `sender` (borrowed until the next call) is the connection that claims.
void relay_wake_probe_from(struct relay_wake *wake, struct db_conn *sender);
void relay_wake_close(struct relay_wake *wake, void (*on_closed)(void *arg), void *arg);
