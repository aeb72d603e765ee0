// db_conn: one PostgreSQL connection on a libuv loop that comes back by itself.
//
// Happy path: db_conn_new starts connecting (host names are resolved off the loop), looks at what is there (a pooler, a
// standby, the schema's owner and version), sets the session up, LISTENs, and calls on_up. Batches are written as they
// are sent; libpq's pipeline mode keeps any
// number in flight, answered in order. Failure: the connection is dropped, every batch in flight gets its callback
// with ERROR_CONNECT (or ERROR_TIMEOUT), on_down is called once, and after a backoff (100 ms doubling to 5 s, with
// jitter) it tries again. A batch whose deadline passes drops the connection: a black-holed peer cannot hang a process.
//
// A batch is one or more statements that commit together: the statements between two protocol Syncs are one implicit
// transaction (PostgreSQL docs, 34.5.1.1), so there is no BEGIN, no COMMIT and nothing left open after an error. Each
// statement sees what those before it did; READ COMMITTED gives each a new snapshot.
//
// Every session sets, itself: isolation, synchronous_commit, statement_timeout, lock_timeout, idle timeouts, jit,
// search_path = pg_catalog, pg_temp, time zone, client_min_messages. Behind a transaction pooler the session is not
// ours: the same is sent with every batch as transaction-local settings, nothing is prepared, and nothing stays behind.
// A pooler is found at each connect (db_setup); one is taken for granted on url where direct_url is given too.
#pragma once
#include "common/error.h"
#include <libpq-fe.h>
#include <stdbool.h>
#include <uv.h>

struct db_conn;
struct db_batch;

// A statement of a sql/*.sql file. Prepared at its first use on a connection. Static storage.
struct db_statement {
    const char *name; // unique in the process, at most 60 characters
    const char *sql;
};

struct db_reply {
    const PGresult *const *results; // view, valid during the callback: one for each statement of the batch, in order
    int count;
};

// Called exactly once for each batch sent, never from inside db_batch_send. Either error is NULL and every statement
// succeeded, or error says why and reply is NULL (nothing of the batch was committed, unless the connection was lost
// after the Sync was sent: then it may have been; callers must be idempotent).
typedef void db_done(void *arg, const struct db_reply *reply, const struct error *error);

struct db_conn_options {
    const char *url;                  // kept by copy; so are the two that follow
    const char *direct_url;           // the same database past a transaction pooler; NULL: url may lead there, or not
    const char *application_name;     // "rowbell-relay"
    bool session;                     // needs one (LISTEN, session locks): direct_url is used where there is one, and
                                      // a pooler is ERROR_USAGE. channels imply it
    bool pooled;                      // url leads to a transaction pooler for certain
    bool writes;                      // a standby, or a login that is read-only, is ERROR_READ_ONLY: it waits for
                                      // a server that takes writes
    bool strict;                      // a statement that is refused for good (db_error_is_lasting) ends the connection
                                      // with that error: for a process with --once
    bool skip_schema_check;           // for migrate
    unsigned statement_timeout_ms;    // 0: 30 s
    unsigned idle_session_timeout_ms; // 0: none
    unsigned keepalive_ms;            // a trivial query after so long without one; 0: none
    const char *const *channels;      // to LISTEN on, NULL-terminated; static; may be NULL
    void *arg;
    // Each may be NULL. on_up after every (re)connect, before any batch is accepted from elsewhere.
    void (*on_up)(void *arg, struct db_conn *conn);
    // Once an outage, after the callbacks of the batches that were in flight; again in the same outage only when the
    // next try ends in another of ERROR_AUTH, ERROR_SCHEMA, ERROR_READ_ONLY and ERROR_USAGE, which time alone does not
    // heal. All tries go on by themselves, so that a failover is waited for.
    // first: no connection was ever established (a start with a wrong URL should fail, not wait). A URL that cannot be
    // read, or leads to a pooler where a session is needed, is ERROR_USAGE.
    void (*on_down)(void *arg, struct db_conn *conn, const struct error *error, bool first);
    void (*on_notify)(void *arg, const char *channel, const char *payload);
};

// Calls nobody before it has returned.
struct db_conn *db_conn_new(uv_loop_t *loop, const struct db_conn_options *options);
bool db_conn_is_up(const struct db_conn *conn);
uint64_t db_conn_answered_ms(const struct db_conn *conn); // clock_ms of the last answer; 0 before the first
int db_conn_backend_pid(const struct db_conn *conn);      // 0 when down
// In later turns of the loop batches in flight get ERROR_CANCELLED, then on_closed (may be NULL) is called, when the
// memory is gone; their args must live until then. on_up, on_down and on_notify are not called any more. Once only.
// NULL conn is allowed: on_closed is called at once.
void db_conn_close(struct db_conn *conn, void (*on_closed)(void *arg), void *arg);
// Drops the connection and connects anew, as if it had been lost: at once for the server, callbacks and on_down follow
// in the loop's next turn. No effect on a conn that is down.
void db_conn_reset(struct db_conn *conn, const char *reason);

// A batch is begun, filled and sent in one go, without returning to the loop. On a conn that is down the callback
// gets ERROR_CONNECT in a later turn. values are text format, copied; NULL is SQL NULL. A statement is prepared ahead
// of its batch, so it cannot name what an earlier statement of the same batch creates.
struct db_batch *db_batch_begin(struct db_conn *conn);
void db_batch_add(struct db_batch *batch, const struct db_statement *statement, int value_count,
                  const char *const *values);
// deadline_ms counts from here; 0: statement_timeout_ms and 5 s. done may be NULL.
void db_batch_send(struct db_batch *batch, unsigned deadline_ms, db_done *done, void *arg);
// The common case: a batch of one.
void db_query(struct db_conn *conn, const struct db_statement *statement, int value_count, const char *const *values,
              unsigned deadline_ms, db_done *done, void *arg);
