// dispatcher: one lane of jobs with leases (webhook now, index later): owns shards, claims, hands each job to the sink,
// writes how it ended.
//
// It is told by its owner when the store's session is up or gone and when there is work; it sets its own timers.
// Guarantees: each job that was claimed is ended, returned or left to its lease (G4); max_in_flight of a subscription
// and the concurrency of the process are never exceeded; after dispatcher_stop no new send begins.
#pragma once
#include "dispatcher/job_store.h"
#include "dispatcher/sink.h"
#include <stdbool.h>
#include <uv.h>

struct dispatcher;

enum {
    DISPATCHER_LEASE_MARGIN_MS = 5000, // a lease is at least this much longer than the sink's deadline
};

struct dispatcher_options {
    uv_loop_t *loop;
    const struct job_store *store; // borrows
    const struct sink *sink;       // borrows
    const char *lane;              // static; a metric label
    int concurrency;
    unsigned lease_ms;
    uint64_t throttle_grace_ms; // 429 with Retry-After uses up no retry for so long
    void *arg;
    void (*on_drained)(void *arg); // nothing is due, ready or in flight; may be called again and again. May be NULL
};

struct dispatcher *dispatcher_new(const struct dispatcher_options *options);
void dispatcher_up(struct dispatcher *dispatcher);   // a new session: it owns no shards
void dispatcher_down(struct dispatcher *dispatcher); // the session is gone, and its shards with it
void dispatcher_wake(struct dispatcher *dispatcher, uint64_t shards, int64_t lowest); // jobs came, from this seq on
const char *dispatcher_unready(const struct dispatcher *dispatcher); // NULL: ready; else why not (static)
int dispatcher_in_flight(const struct dispatcher *dispatcher);

// Claims no more, gives back what was not sent, waits for what is in flight (the sink's deadline + 5 s at the most) and
// for its acks to be written. on_stopped is called once; then dispatcher_close may follow.
void dispatcher_stop(struct dispatcher *dispatcher, void (*on_stopped)(void *arg), void *arg);
// After on_stopped, the sink's close and the store's last answer. on_closed: the memory is gone. NULL is allowed.
void dispatcher_close(struct dispatcher *dispatcher, void (*on_closed)(void *arg), void *arg);
