// index: what the parts of the index sink share. sink_index.c owns queues and batches, index_write.c sends documents to
// a search engine, index_walk.c goes over whole tables.
//
// Invariants: an item is answered exactly once; a queue lives as long as a version of its subscription; a subject is in
// one batch at a time; of a serial target at most one turn is taken at a time, and what a turn writes was read in it.
#pragma once
#include "common/backoff.h"
#include "common/database_clock.h"
#include "common/db_conn.h"
#include "common/http_client.h"
#include "dispatcher/index_target.h"
#include "dispatcher/sink.h"
#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>
#include <uv.h>

enum {
    INDEX_DEADLINE_MS = 20000, // of one request, and of one statement
    INDEX_WALK_ROWS = 500,     // in one step
    INDEX_BATCH_MOST = 1000,
};

struct index_sink;

// Something that is due later; due at once when the sink closes.
struct index_wait {
    struct index_wait *prev, *next;
    uint64_t due_ms;
    void (*fire)(void *arg);
    void *arg;
};
void index_wait_start(struct index_sink *sink, struct index_wait *wait, uint64_t delay_ms, void (*fire)(void *arg),
                      void *arg);
void index_wait_stop(struct index_sink *sink, struct index_wait *wait);

// An outcome that owns its texts.
struct index_outcome {
    struct attempt_outcome outcome;
    char peer[64], error[500];
    char *response_head; // owned
};
void index_outcome_delivered(struct index_outcome *outcome);
void index_outcome_fail(struct index_outcome *outcome, enum attempt_class class,
                        const char *error);                                            // to be tried again
void index_outcome_of_error(struct index_outcome *outcome, const struct error *error); // of the database
void index_outcome_of_answer(const struct index_sink *sink, struct index_outcome *outcome,
                             const struct http_outcome *http);
void index_outcome_clear(struct index_outcome *outcome);

// A subject of which a batch has items.
struct index_subject {
    char *subject; // owned
    int items;
    int64_t batch;
    UT_hash_handle hh;
};

// One delivery in the sink.
struct index_item {
    struct index_item *next;
    const struct delivery *delivery;
    sink_done *done;
    void *done_arg;
    char *table; // owned; of an event that names a whole table, else NULL
    struct index_queue *queue;
    struct index_subject *subject; // NULL: in no batch
    // In a batch.
    bool ask_again, has_document;
    size_t document;
};

struct index_queue {
    int subscription_id;
    int uses; // versions of the subscription
    struct index_sink *sink;
    struct index_item *pending, *walks; // in the order of arrival
    bool turn_taken;                    // of a serial target
    int batches;                        // that run
    int64_t last_batch;
    struct index_subject *subjects; // of the batches that run
    struct index_walk *walk;        // the one that runs
    struct backoff backoff;
    UT_hash_handle hh;
};

struct index_sink {
    uv_loop_t *loop;
    struct db_conn *conn;
    struct http_client *http;
    struct seal_keys keys;
    const struct database_clock *clock; // borrows
    struct index_queue *queues;
    uv_prepare_t turn_end; // what one loop turn brought goes out together
    uv_timer_t timer, heartbeat;
    uint64_t heartbeat_ms;
    int64_t moment; // changes when this process may have lost its shards without noticing
    struct index_wait *waits;
    bool dirty, draining, closing;
    int open_handles;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

void index_item_done(struct index_sink *sink, struct index_item *item, const struct attempt_outcome *outcome); // frees
// What was read in a moment may be sent to a target without versions as long as it lasts: as long as this process did
// not stand still and the database answered, nobody else can have become the subscription's owner and written what is
// newer.
int64_t index_moment(const struct index_sink *sink);
bool index_moment_lasts(const struct index_sink *sink, int64_t moment);
enum { INDEX_ANY_MOMENT = -1 };

void index_touch(struct index_sink *sink); // queues are looked at when the loop's turn ends
// After a write: the target is well, or it is left alone for a while. Adds the pause to the outcome.
void index_queue_note(struct index_queue *queue, struct attempt_outcome *outcome);
int64_t index_row_int(const PGresult *result, int row, int column);
char *index_row_text(const PGresult *result, int row, int column); // returns owned; NULL for NULL
