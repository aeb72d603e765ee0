// db_batch: the inside of a batch, for db_conn alone: what is sent, and what is awaited in return.
//
// A batch is built, written in one go, and then in flight until its Sync is answered:
//   [a prepare for each statement that is new to the connection, Sync]   [settings, behind a pooler]   statements, Sync
// The prepares stand in a transaction of their own, so that no error of the batch (or of one ahead of it) can undo
// them, and their own errors are told apart.
#pragma once
#include "common/buffer.h"
#include "common/db_conn.h"
#include <stdint.h>

// One statement on one connection. ready is what the server will know when it comes to whatever is written next.
struct db_prepared {
    const struct db_statement *statement;
    bool ready;
    struct error error; // why the last prepare failed
};

struct db_prepared_set {
    struct db_prepared *items;
    size_t count;
    unsigned epoch; // raised when the server's prepared statements are dropped
};

struct db_batch_step {
    const struct db_statement *statement; // of an internal batch: dangling once written
    size_t first_value;                   // in value_offsets
    int value_count;
};

struct db_batch {
    struct db_batch *next;
    struct db_conn *conn;
    db_done *done; // NULL allowed
    void *arg;
    bool internal; // of db_conn itself: no settings ahead of it, freed untold when the connection drops
    // What is to be sent; the values are freed once written.
    struct db_batch_step *steps;
    int step_count;
    size_t *value_offsets; // into values
    size_t value_count;
    struct buffer values;
    // What is awaited.
    const struct db_statement **prepares;
    int prepare_count;
    int prepares_answered;
    bool preparing;
    bool settings_awaited;
    PGresult **results; // room for step_count
    int result_count;
    struct error error; // the first one
    unsigned deadline_ms;
    uint64_t due_ms;
    unsigned prepared_epoch; // of the set, when it was written
};

struct db_batch_list {
    struct db_batch *first;
    struct db_batch *last;
};

// Hands the messages to libpq. settings_sql: behind a pooler, where nothing is prepared; else NULL. False: libpq
// refused, and the connection is of no use any more.
bool db_batch_write(struct db_batch *batch, PGconn *pg, struct db_prepared_set *prepared, const char *settings_sql);
void db_batch_finish(struct db_batch *batch); // calls done, frees
void db_batch_free(struct db_batch *batch);
void db_batch_free_values(struct db_batch *batch);

void db_batch_list_append(struct db_batch_list *list, struct db_batch *batch);
struct db_batch *db_batch_list_take_first(struct db_batch_list *list); // NULL when empty

struct db_prepared *db_prepared_find(struct db_prepared_set *set, const struct db_statement *statement); // or NULL
