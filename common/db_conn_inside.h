// db_conn_inside: what db_conn.c (a connection's life) and db_setup.c (what it is before its owner gets it) share.
// Nobody else includes it.
#pragma once
#include "common/backoff.h"
#include "common/db_batch.h"
#include "common/db_conn.h"

struct db_target;
struct db_witness;

//   waiting --timer--> starting --socket--> connecting --handshake--> setting up --> up
//      ^                   |                     |                         |         |
//      +-------------------+---------------------+--------conn_drop--------+---------+
//   any but closing --db_conn_close--> closing
enum conn_state { STATE_WAITING, STATE_STARTING, STATE_CONNECTING, STATE_SETTING_UP, STATE_UP, STATE_CLOSING };

struct db_conn {
    uv_loop_t *loop;
    struct db_conn_options options; // url is owned, and the one that is used; direct_url is only there or not
    struct db_target *target;
    bool pooled;        // each transaction may run in another server process: nothing may outlive it
    char *settings_sql; // of the session; pooled: of each batch. NULL until the set-up knows
    int server_pid;     // the process that answered first
    struct db_witness *witness;
    enum conn_state state;
    PGconn *pg;
    struct watch *watch;
    uv_timer_t timer; // waiting: the backoff; until up: the connect timeout; up: the next deadline
    uv_timer_t keepalive;
    uv_idle_t soon; // delivers what may not be called from inside a call
    int open_handles;
    uint64_t timer_due_ms; // of the deadline that the timer is set for
    struct backoff backoff;
    struct db_batch_list in_flight;
    struct db_batch_list failed; // their callbacks are owed
    struct db_prepared_set prepared;
    uint64_t up_since_ms;
    uint64_t answered_ms;
    uint64_t sent_ms;
    bool ever_up;
    struct error refused;      // a statement, for a reason that makes this connection of no use; NONE: none was
    struct error refusal_told; // the last one that was logged
    struct error farewell;     // a FATAL message that came between batches: the reason for the loss that follows
    // What on_down is owed.
    bool down_owed;
    bool down_told; // in this outage
    struct error down_error;
    void (*on_closed)(void *arg);
    void *closed_arg;
};

void db_conn_drop(struct db_conn *conn, const struct error *why); // goes to `waiting`; why may live in what is freed
void db_conn_is_set_up(struct db_conn *conn);                     // the set-up's end

// ---- db_setup.c
void db_setup_start(struct db_conn *conn); // in `setting up`; ends with db_conn_is_set_up or db_conn_drop
void db_setup_stop(struct db_conn *conn);  // whatever state it is in
