// The happy path is: db_target_connect resolves the name and starts libpq's handshake; PQconnectPoll is driven by
// uv_poll until the session stands; the set-up (settings, schema check, LISTEN) goes out as one pipeline; on_up. From
// then on a batch is written when it is sent, and each readable event maps libpq's results to the batches in flight, in
// order.
//
// The failure modes are: the handshake fails or takes too long, the set-up is refused, the peer goes away, a batch's
// deadline passes, the owner resets. All end in conn_drop, which closes the socket at once and calls nobody: callbacks
// and on_down are delivered by `soon` in the loop's next turn. So no owner is ever called from inside its own call.
#include "common/db_conn.h"
#include "common/backoff.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "common/db_error.h"
#include "common/db_target.h"
#include "common/log.h"
#include "common/memory.h"
#include "common/schema_version.h"
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONNECT_TIMEOUT_MS = 10000, // name, handshake and set-up together
    STATEMENT_TIMEOUT_MS = 30000,
    DEADLINE_MARGIN_MS = 5000, // a batch without a deadline of its own: the statement's timeout and this
    BACKOFF_FIRST_MS = 100,
    BACKOFF_MOST_MS = 5000,
    STEADY_MS = 5000, // a connection that stood so long starts the backoff anew when it is lost
};
#define NEVER UINT64_MAX
#define NO_VALUE SIZE_MAX // a parameter that is NULL

//   waiting --timer--> starting --socket--> connecting --handshake--> setting up --> up
//      ^                   |                     |                         |         |
//      +-------------------+---------------------+--------conn_drop--------+---------+
//   any but closing --db_conn_close--> closing
enum conn_state { STATE_WAITING, STATE_STARTING, STATE_CONNECTING, STATE_SETTING_UP, STATE_UP, STATE_CLOSING };
#define FROM(state) (1u << (state))
static const unsigned allowed_from[] = {
    [STATE_WAITING] = FROM(STATE_STARTING) | FROM(STATE_CONNECTING) | FROM(STATE_SETTING_UP) | FROM(STATE_UP),
    [STATE_STARTING] = FROM(STATE_WAITING),
    [STATE_CONNECTING] = FROM(STATE_STARTING),
    [STATE_SETTING_UP] = FROM(STATE_CONNECTING),
    [STATE_UP] = FROM(STATE_SETTING_UP),
    [STATE_CLOSING] =
        FROM(STATE_WAITING) | FROM(STATE_STARTING) | FROM(STATE_CONNECTING) | FROM(STATE_SETTING_UP) | FROM(STATE_UP),
};

// What every session of ours relies on, whatever the server, the database or the role says. The isolation's name
// differs where it has to be set inside the transaction; a timeout marked direct has no meaning there.
static const struct {
    const char *name;
    const char *pooled_name; // NULL: not sent behind a pooler
    const char *value;       // NULL: from the options, see session_value
} session_settings[] = {
    {"default_transaction_isolation", "transaction_isolation", "read committed"},
    {"synchronous_commit", "synchronous_commit", "on"},
    {"statement_timeout", "statement_timeout", NULL},
    {"lock_timeout", "lock_timeout", "10s"},
    {"idle_in_transaction_session_timeout", "idle_in_transaction_session_timeout", "5s"},
    {"idle_session_timeout", NULL, NULL},
    {"jit", "jit", "off"},
    {"plan_cache_mode", "plan_cache_mode", "auto"},
    {"search_path", "search_path", "pg_catalog, pg_temp"},
    {"TimeZone", "TimeZone", "UTC"},
    {"DateStyle", "DateStyle", "ISO"},
    {"client_min_messages", "client_min_messages", "warning"},
    {"standard_conforming_strings", "standard_conforming_strings", "on"},
    {"bytea_output", "bytea_output", "hex"},
};

// One statement on one connection. ready is what the server will know when it comes to whatever is sent next.
struct prepared {
    const struct db_statement *statement;
    bool ready;
    struct error error; // why the last prepare failed
};

struct step {
    const struct db_statement *statement;
    size_t first_value; // in value_offsets
    int value_count;
};

// Built, then written in one go, then in flight until its Sync is answered.
struct db_batch {
    struct db_batch *next;
    struct db_conn *conn;
    db_done *done; // NULL allowed
    void *arg;
    bool internal; // ours: not told when the connection drops
    // What is to be sent; values are freed once written.
    struct step *steps;
    int step_count;
    size_t *value_offsets; // into values
    size_t value_count;
    struct buffer values;
    // What is awaited: the answers to `prepare_count` prepares and their Sync, one for the settings behind a pooler,
    // step_count results, a Sync.
    const struct db_statement **prepares;
    int prepare_count;
    int prepares_answered;
    bool preparing;
    bool settings_awaited;
    int result_count;
    PGresult **results;
    struct error error; // the first one
    unsigned deadline_ms;
    uint64_t due_ms;
    unsigned prepared_epoch; // of the connection, when it was written
};

struct batch_list {
    struct db_batch *first;
    struct db_batch *last;
};

// One for each socket that libpq opens; outlives its connection until libuv has let go of it.
struct watch {
    uv_poll_t poll;
    struct db_conn *conn;
    int fd;
    int events; // 0: stopped
};

struct db_conn {
    uv_loop_t *loop;
    struct db_conn_options options; // url is not kept, application_name is owned
    struct db_target *target;
    char *settings_sql;
    enum conn_state state;
    PGconn *pg;
    struct watch *watch;
    uv_timer_t timer; // waiting: the backoff; until up: the connect timeout; up: the next deadline
    uv_timer_t keepalive;
    uv_idle_t soon; // delivers what may not be called from inside a call
    int open_handles;
    uint64_t timer_due_ms; // of the deadline that the timer is set for
    struct backoff backoff;
    struct batch_list in_flight;
    struct batch_list failed; // their callbacks are owed
    struct prepared *prepared;
    size_t prepared_count;
    unsigned prepared_epoch; // raised when the server's prepared statements are dropped
    uint64_t up_since_ms;
    uint64_t answered_ms;
    uint64_t sent_ms;
    bool ever_up;
    struct error farewell; // a FATAL message that came between batches: the reason for the loss that follows
    // What on_down is owed.
    bool down_owed;
    bool down_told; // in this outage
    struct error down_error;
    void (*on_closed)(void *arg);
    void *closed_arg;
};

static void conn_start(struct db_conn *conn);
static void conn_drop(struct db_conn *conn, const struct error *error);
static void conn_event(struct db_conn *conn);
static void on_soon(uv_idle_t *soon);

static void conn_move(struct db_conn *conn, enum conn_state state) {
    assert(allowed_from[state] & FROM(conn->state));
    conn->state = state;
}

static void list_append(struct batch_list *list, struct db_batch *batch) {
    batch->next = NULL;
    if (list->last)
        list->last->next = batch;
    else
        list->first = batch;
    list->last = batch;
}

static struct db_batch *list_take_first(struct batch_list *list) {
    struct db_batch *batch = list->first;
    if (batch) {
        list->first = batch->next;
        if (!list->first)
            list->last = NULL;
    }
    return batch;
}

static void batch_free_values(struct db_batch *batch) {
    buffer_free(&batch->values);
    free(batch->value_offsets);
    batch->value_offsets = NULL;
}

static void batch_free(struct db_batch *batch) {
    for (int i = 0; i < batch->result_count; i++)
        PQclear(batch->results[i]);
    batch_free_values(batch);
    free(batch->results);
    free(batch->prepares);
    free(batch->steps);
    free(batch);
}

static void batch_finish(struct db_batch *batch) {
    if (batch->done) {
        struct db_reply reply = {.results = (const PGresult *const *)batch->results, .count = batch->result_count};
        bool failed = batch->error.code != ERROR_NONE;
        batch->done(batch->arg, failed ? NULL : &reply, failed ? &batch->error : NULL);
    }
    batch_free(batch);
}

// ---- watching the socket

static void on_poll(uv_poll_t *poll, int status, int events) {
    struct watch *watch = (struct watch *)poll;
    if (status < 0)
        watch->events = 0; // libuv has stopped it; libpq will find out what is wrong
    if (watch->conn)
        conn_event(watch->conn);
}

static void on_watch_closed(uv_handle_t *handle) {
    free(handle);
}

// Must precede whatever lets libpq close the socket, or follow it with nothing in between: libuv would go on with a
// descriptor that is somebody else's by then.
static void watch_close(struct db_conn *conn) {
    struct watch *watch = conn->watch;
    if (!watch)
        return;
    conn->watch = NULL;
    watch->conn = NULL;
    uv_poll_stop(&watch->poll);
    uv_close((uv_handle_t *)watch, on_watch_closed);
}

static void watch_set(struct db_conn *conn, int events) {
    int fd = PQsocket(conn->pg);
    if (conn->watch && conn->watch->fd != fd)
        watch_close(conn);
    if (fd < 0)
        return;
    if (!conn->watch) {
        struct watch *watch = memory_alloc(sizeof(*watch));
        int status = uv_poll_init(conn->loop, &watch->poll, fd);
        if (status < 0) {
            free(watch);
            struct error error;
            error_set(&error, ERROR_IO, "watch the database's socket: %s", uv_strerror(status));
            conn_drop(conn, &error);
            return;
        }
        watch->conn = conn;
        watch->fd = fd;
        conn->watch = watch;
    }
    if (conn->watch->events != events) {
        conn->watch->events = events;
        uv_poll_start(&conn->watch->poll, events, on_poll);
    }
}

// ---- deadlines

static void timer_set(struct db_conn *conn, uint64_t due_ms);

static void on_timer(uv_timer_t *timer) {
    struct db_conn *conn = timer->data;
    if (conn->state == STATE_WAITING) {
        conn_start(conn);
        return;
    }
    struct error error;
    if (conn->state != STATE_UP) {
        error_set(&error, ERROR_TIMEOUT, "no answer within %d ms", CONNECT_TIMEOUT_MS);
        conn_drop(conn, &error);
        return;
    }
    // A process that was stopped finds its deadlines passed and the answers waiting: those count first.
    conn->timer_due_ms = NEVER;
    conn_event(conn);
    if (conn->state != STATE_UP)
        return;
    uint64_t now = clock_ms(), next = NEVER;
    for (const struct db_batch *batch = conn->in_flight.first; batch; batch = batch->next) {
        if (batch->due_ms <= now) {
            error_set(&error, ERROR_TIMEOUT, "no answer from the database within %u ms", batch->deadline_ms);
            conn_drop(conn, &error);
            return;
        }
        if (batch->due_ms < next)
            next = batch->due_ms;
    }
    timer_set(conn, next);
}

// The timer is only ever moved forward here; it finds out itself, when it fires, what is due next.
static void timer_set(struct db_conn *conn, uint64_t due_ms) {
    if (due_ms >= conn->timer_due_ms)
        return;
    conn->timer_due_ms = due_ms;
    uint64_t now = clock_ms();
    uv_timer_start(&conn->timer, on_timer, due_ms > now ? due_ms - now : 0, 0);
}

// ---- prepared statements

static struct prepared *prepared_find(struct db_conn *conn, const struct db_statement *statement) {
    for (size_t i = 0; i < conn->prepared_count; i++) {
        if (conn->prepared[i].statement == statement)
            return &conn->prepared[i];
    }
    return NULL;
}

static struct prepared *prepared_get(struct db_conn *conn, const struct db_statement *statement) {
    struct prepared *prepared = prepared_find(conn, statement);
    if (prepared)
        return prepared;
    conn->prepared = memory_resize(conn->prepared, conn->prepared_count + 1, sizeof(*conn->prepared));
    prepared = &conn->prepared[conn->prepared_count++];
    *prepared = (struct prepared){.statement = statement};
    return prepared;
}

// The server's copies are of no use any more: whatever is written from now on is prepared anew.
static void prepared_drop_all(struct db_conn *conn) {
    static const struct db_statement deallocate = {NULL, "deallocate all"};
    conn->prepared_epoch++;
    for (size_t i = 0; i < conn->prepared_count; i++)
        conn->prepared[i].ready = false;
    struct db_batch *batch = db_batch_begin(conn);
    batch->internal = true;
    db_batch_add(batch, &deallocate, 0, NULL);
    db_batch_send(batch, 0, NULL, NULL);
}

// ---- writing

struct db_batch *db_batch_begin(struct db_conn *conn) {
    struct db_batch *batch = memory_alloc(sizeof(*batch));
    batch->conn = conn;
    return batch;
}

void db_batch_add(struct db_batch *batch, const struct db_statement *statement, int value_count,
                  const char *const *values) {
    batch->steps = memory_resize(batch->steps, (size_t)batch->step_count + 1, sizeof(*batch->steps));
    batch->steps[batch->step_count++] =
        (struct step){.statement = statement, .first_value = batch->value_count, .value_count = value_count};
    if (value_count == 0)
        return;
    size_t count = batch->value_count + (size_t)value_count;
    batch->value_offsets = memory_resize(batch->value_offsets, count, sizeof(*batch->value_offsets));
    for (int i = 0; i < value_count; i++) {
        batch->value_offsets[batch->value_count++] = values[i] ? batch->values.length : NO_VALUE;
        if (values[i])
            buffer_append(&batch->values, values[i], strlen(values[i]) + 1);
    }
}

// A prepare stands in a transaction of its own ahead of the batch, so that no error of the batch (or of one ahead of
// it) can undo it, and its own error is told apart.
static bool write_prepares(struct db_conn *conn, struct db_batch *batch) {
    for (int i = 0; i < batch->step_count; i++) {
        const struct db_statement *statement = batch->steps[i].statement;
        if (!statement->name)
            continue;
        struct prepared *prepared = prepared_get(conn, statement);
        if (prepared->ready)
            continue;
        if (!PQsendPrepare(conn->pg, statement->name, statement->sql, 0, NULL))
            return false;
        prepared->ready = true;
        prepared->error.code = ERROR_NONE;
        batch->prepares = memory_resize(batch->prepares, (size_t)batch->prepare_count + 1, sizeof(*batch->prepares));
        batch->prepares[batch->prepare_count++] = statement;
    }
    batch->preparing = batch->prepare_count > 0;
    return !batch->preparing || PQpipelineSync(conn->pg);
}

static bool write_steps(struct db_conn *conn, struct db_batch *batch) {
    if (conn->options.pooled && !batch->internal) {
        if (!PQsendQueryParams(conn->pg, conn->settings_sql, 0, NULL, NULL, NULL, NULL, 0))
            return false;
        batch->settings_awaited = true;
    }
    int most = 0;
    for (int i = 0; i < batch->step_count; i++)
        most = batch->steps[i].value_count > most ? batch->steps[i].value_count : most;
    const char **values = most ? memory_alloc((size_t)most * sizeof(*values)) : NULL;
    int sent = 1;
    for (int i = 0; sent && i < batch->step_count; i++) {
        const struct step *step = &batch->steps[i];
        for (int j = 0; j < step->value_count; j++) {
            size_t offset = batch->value_offsets[step->first_value + (size_t)j];
            values[j] = offset == NO_VALUE ? NULL : batch->values.bytes + offset;
        }
        if (step->statement->name && !conn->options.pooled)
            sent = PQsendQueryPrepared(conn->pg, step->statement->name, step->value_count, values, NULL, NULL, 0);
        else
            sent = PQsendQueryParams(conn->pg, step->statement->sql, step->value_count, NULL, values, NULL, NULL, 0);
    }
    free(values);
    return sent && PQpipelineSync(conn->pg);
}

// What did not fit the socket waits for it to be writable. libpq may read while it writes, and so find the peer gone.
static bool conn_flush(struct db_conn *conn) {
    int left = PQflush(conn->pg);
    if (left < 0 || PQstatus(conn->pg) == CONNECTION_BAD)
        return false;
    watch_set(conn, left ? UV_READABLE | UV_WRITABLE : UV_READABLE);
    return true;
}

static void conn_drop_broken(struct db_conn *conn) {
    struct error error;
    if (conn->farewell.code != ERROR_NONE)
        error = conn->farewell;
    else
        db_error_from_conn(conn->pg, &error);
    conn_drop(conn, &error);
}

static bool conn_accepts(const struct db_conn *conn, const struct db_batch *batch) {
    return conn->state == STATE_UP || (batch->internal && conn->state == STATE_SETTING_UP);
}

void db_batch_send(struct db_batch *batch, unsigned deadline_ms, db_done *done, void *arg) {
    struct db_conn *conn = batch->conn;
    batch->done = done;
    batch->arg = arg;
    batch->deadline_ms = deadline_ms ? deadline_ms : conn->options.statement_timeout_ms + DEADLINE_MARGIN_MS;
    if (!conn_accepts(conn, batch)) {
        if (conn->state == STATE_CLOSING)
            error_set(&batch->error, ERROR_CANCELLED, "the database connection is closing");
        else
            error_set(&batch->error, ERROR_CONNECT, "the database is not connected");
        batch_free_values(batch);
        list_append(&conn->failed, batch);
        uv_idle_start(&conn->soon, on_soon);
        return;
    }
    batch->results = memory_alloc((size_t)(batch->step_count ? batch->step_count : 1) * sizeof(*batch->results));
    batch->prepared_epoch = conn->prepared_epoch;
    conn->sent_ms = clock_ms();
    batch->due_ms = conn->sent_ms + batch->deadline_ms;
    list_append(&conn->in_flight, batch);
    bool written = (conn->options.pooled || write_prepares(conn, batch)) && write_steps(conn, batch);
    batch_free_values(batch);
    if (!written || !conn_flush(conn)) {
        conn_drop_broken(conn);
        return;
    }
    if (conn->state == STATE_UP)
        timer_set(conn, batch->due_ms);
}

void db_query(struct db_conn *conn, const struct db_statement *statement, int value_count, const char *const *values,
              unsigned deadline_ms, db_done *done, void *arg) {
    struct db_batch *batch = db_batch_begin(conn);
    db_batch_add(batch, statement, value_count, values);
    db_batch_send(batch, deadline_ms, done, arg);
}

// ---- reading

static bool result_is_good(const PGresult *result) {
    ExecStatusType status = PQresultStatus(result);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK || status == PGRES_EMPTY_QUERY;
}

static void prepare_answered(struct db_conn *conn, struct db_batch *batch, const PGresult *result) {
    const struct db_statement *statement = batch->prepares[batch->prepares_answered++];
    if (result_is_good(result))
        return;
    struct prepared *prepared = prepared_get(conn, statement);
    if (batch->prepared_epoch == conn->prepared_epoch)
        prepared->ready = false;
    if (PQresultStatus(result) == PGRES_PIPELINE_ABORTED)
        return; // one before it failed
    db_error_from_result(result, &prepared->error);
    error_wrap(&prepared->error, "prepare %s", statement->name);
    if (batch->error.code == ERROR_NONE)
        batch->error = prepared->error;
}

// The first failure of a batch. Two SQLSTATEs say nothing about the batch, only that the server's prepared statements
// are not what we believe they are; the error then has no SQLSTATE, which makes it a fault of the system.
static void step_failed(struct db_conn *conn, struct db_batch *batch, const PGresult *result, int index) {
    struct error *error = &batch->error;
    db_error_from_result(result, error);
    const char *function = PQresultErrorField(result, PG_DIAG_SOURCE_FUNCTION);
    bool stale = strcmp(error->sqlstate, "0A000") == 0 && function && strcmp(function, "RevalidateCachedQuery") == 0;
    bool unknown = strcmp(error->sqlstate, "26000") == 0;
    if (!stale && !unknown)
        return;
    const struct db_statement *statement = index >= 0 ? batch->steps[index].statement : NULL;
    const struct prepared *prepared = statement ? prepared_find(conn, statement) : NULL;
    if (unknown && prepared && prepared->error.code != ERROR_NONE) {
        *error = prepared->error; // a batch ahead of this one has tried, in the same pipeline
        return;
    }
    *error->sqlstate = '\0';
    error_wrap(error, "a prepared statement is out of date");
    if (!conn->options.pooled && batch->prepared_epoch == conn->prepared_epoch)
        prepared_drop_all(conn);
}

static void conn_out_of_step(struct db_conn *conn, const char *what) {
    struct error error;
    error_set(&error, ERROR_PROTOCOL, "unexpected answer from the database: %s", what);
    conn_drop(conn, &error);
}

// One result for the batch at the head. Takes the result.
static void result_arrived(struct db_conn *conn, struct db_batch *batch, PGresult *result) {
    ExecStatusType status = PQresultStatus(result);
    conn->answered_ms = clock_ms();
    if (status == PGRES_PIPELINE_SYNC) {
        PQclear(result);
        if (batch->preparing) {
            batch->preparing = false;
            return;
        }
        if (batch->error.code == ERROR_NONE && batch->result_count != batch->step_count) {
            conn_out_of_step(conn, "too few results");
            return;
        }
        list_take_first(&conn->in_flight);
        batch_finish(batch);
        return;
    }
    if (batch->preparing) {
        if (batch->prepares_answered < batch->prepare_count)
            prepare_answered(conn, batch, result);
        else
            conn_out_of_step(conn, "too many results");
        PQclear(result);
        return;
    }
    bool good = result_is_good(result);
    int index = batch->settings_awaited ? -1 : batch->result_count;
    if (!good && status != PGRES_FATAL_ERROR && status != PGRES_PIPELINE_ABORTED && status != PGRES_BAD_RESPONSE) {
        PQclear(result);
        conn_out_of_step(conn, PQresStatus(status));
        return;
    }
    if (!good && batch->error.code == ERROR_NONE)
        step_failed(conn, batch, result, index);
    if (batch->settings_awaited) {
        batch->settings_awaited = false;
        PQclear(result);
    } else if (batch->result_count < batch->step_count) {
        batch->results[batch->result_count++] = result;
    } else {
        // After the last result only a FATAL may come; it is in batch->error, and the loss follows.
        PQclear(result);
        if (good)
            conn_out_of_step(conn, "too many results");
    }
}

// A callback may send, reset or close: conn->pg is NULL then, or the next connection's, never this one's again.
static void results_read(struct db_conn *conn) {
    PGconn *pg = conn->pg;
    bool ended = false;
    while (conn->pg == pg && conn->in_flight.first && !PQisBusy(pg)) {
        PGresult *result = PQgetResult(pg);
        if (result)
            result_arrived(conn, conn->in_flight.first, result);
        else if (ended)
            break; // nothing left to parse, although something is in flight: the deadline or the loss will tell
        ended = !result;
    }
}

static void notifies_read(struct db_conn *conn) {
    PGconn *pg = conn->pg;
    PGnotify *notify;
    while (conn->pg == pg && (notify = PQnotifies(pg))) {
        if (conn->state == STATE_UP && conn->options.on_notify)
            conn->options.on_notify(conn->options.arg, notify->relname, notify->extra);
        PQfreemem(notify);
    }
}

// The socket is readable or writable, or the timer wants to know.
static void session_event(struct db_conn *conn) {
    PGconn *pg = conn->pg;
    bool alive = PQconsumeInput(pg) && PQstatus(pg) != CONNECTION_BAD && conn_flush(conn);
    if (conn->pg != pg)
        return;
    if (!alive)
        watch_close(conn); // libpq may have closed it
    // What had arrived before the loss still counts.
    results_read(conn);
    if (conn->pg == pg)
        notifies_read(conn);
    if (conn->pg == pg && !alive)
        conn_drop_broken(conn);
}

// ---- connecting and setting up

static void on_notice(void *arg, const PGresult *result) {
    struct db_conn *conn = arg;
    struct error notice;
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    if (!severity)
        return; // libpq's own remarks
    db_error_from_result(result, &notice);
    if (strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0)
        conn->farewell = notice;
    log_debug("db_notice", LOG_TEXT("severity", severity), LOG_TEXT("sqlstate", notice.sqlstate),
              LOG_TEXT("text", notice.text));
}

static void on_keepalive(uv_timer_t *timer);

static void keepalive_set(struct db_conn *conn, uint64_t in_ms) {
    if (conn->options.keepalive_ms)
        uv_timer_start(&conn->keepalive, on_keepalive, in_ms, 0);
}

static void on_keepalive(uv_timer_t *timer) {
    static const struct db_statement trivial = {NULL, "select 1"};
    struct db_conn *conn = timer->data;
    uint64_t idle_ms = clock_ms() - conn->sent_ms;
    if (idle_ms < conn->options.keepalive_ms && !conn->in_flight.first) {
        keepalive_set(conn, conn->options.keepalive_ms - idle_ms);
        return;
    }
    keepalive_set(conn, conn->options.keepalive_ms);
    if (conn->in_flight.first)
        return; // the server is at work for us
    struct db_batch *batch = db_batch_begin(conn);
    batch->internal = true;
    db_batch_add(batch, &trivial, 0, NULL);
    unsigned deadline_ms = 2 * conn->options.keepalive_ms;
    db_batch_send(batch, deadline_ms > DEADLINE_MARGIN_MS ? deadline_ms : DEADLINE_MARGIN_MS, NULL, NULL);
}

static void conn_is_up(struct db_conn *conn) {
    conn_move(conn, STATE_UP);
    uv_timer_stop(&conn->timer);
    conn->timer_due_ms = NEVER;
    conn->up_since_ms = clock_ms();
    conn->ever_up = true;
    conn->down_told = false;
    keepalive_set(conn, conn->options.keepalive_ms);
    log_info("db_connected", LOG_TEXT("application", conn->options.application_name),
             LOG_INT("backend_pid", PQbackendPID(conn->pg)), LOG_INT("server_version", PQserverVersion(conn->pg)));
    if (conn->options.on_up)
        conn->options.on_up(conn->options.arg, conn);
}

static void set_up_failed(struct db_conn *conn, const struct error *error, const char *what) {
    struct error wrapped = *error;
    if (what)
        error_wrap(&wrapped, "%s", what);
    conn_drop(conn, &wrapped);
}

static void on_session_set(void *arg, const struct db_reply *reply, const struct error *error) {
    if (error)
        set_up_failed(arg, error, "set the session up");
}

static void on_schema_read(void *arg, const struct db_reply *reply, const struct error *sql_error) {
    struct db_conn *conn = arg;
    struct error error;
    if (conn->state == STATE_SETTING_UP && !schema_version_check(reply ? reply->results[0] : NULL, sql_error, &error))
        set_up_failed(conn, &error, NULL);
}

static void on_listening(void *arg, const struct db_reply *reply, const struct error *error) {
    struct db_conn *conn = arg;
    if (error)
        set_up_failed(conn, error, "LISTEN");
    else
        conn_is_up(conn);
}

static void send_internal(struct db_conn *conn, const char *sql, db_done *done) {
    if (conn->state != STATE_SETTING_UP)
        return; // an earlier send found the connection broken
    const struct db_statement statement = {NULL, sql};
    struct db_batch *batch = db_batch_begin(conn);
    batch->internal = true;
    if (sql)
        db_batch_add(batch, &statement, 0, NULL);
    db_batch_send(batch, CONNECT_TIMEOUT_MS, done, conn);
}

static void send_listens(struct db_conn *conn) {
    if (conn->state != STATE_SETTING_UP)
        return;
    struct db_batch *batch = db_batch_begin(conn);
    batch->internal = true;
    struct db_statement statements[16];
    char *texts[16];
    int count = 0;
    for (const char *const *channel = conn->options.channels; channel && *channel; channel++) {
        assert(count < 16);
        struct buffer sql = {0};
        char *quoted = PQescapeIdentifier(conn->pg, *channel, strlen(*channel));
        buffer_format(&sql, "listen %s", quoted ? quoted : "");
        PQfreemem(quoted);
        texts[count] = sql.bytes;
        statements[count] = (struct db_statement){NULL, sql.bytes};
        db_batch_add(batch, &statements[count], 0, NULL);
        count++;
    }
    db_batch_send(batch, CONNECT_TIMEOUT_MS, on_listening, conn);
    for (int i = 0; i < count; i++)
        free(texts[i]);
}

static void session_set_up(struct db_conn *conn) {
    conn_move(conn, STATE_SETTING_UP);
    PQsetErrorVerbosity(conn->pg, PQERRORS_TERSE);
    conn->farewell.code = ERROR_NONE;
    if (PQsetnonblocking(conn->pg, 1) != 0 || !PQenterPipelineMode(conn->pg)) {
        conn_drop_broken(conn);
        return;
    }
    send_internal(conn, conn->settings_sql, on_session_set);
    if (!conn->options.skip_schema_check)
        send_internal(conn, schema_version_sql, on_schema_read);
    send_listens(conn);
}

static void handshake_step(struct db_conn *conn, PostgresPollingStatusType polled) {
    switch (polled) {
    case PGRES_POLLING_READING:
        watch_set(conn, UV_READABLE);
        break;
    case PGRES_POLLING_WRITING:
        watch_set(conn, UV_WRITABLE);
        break;
    case PGRES_POLLING_OK:
        session_set_up(conn);
        break;
    default: {
        struct error error;
        db_error_from_conn(conn->pg, &error);
        conn_drop(conn, &error);
    }
    }
}

// PQconnectPoll may close the socket and open another that gets the same number, so libuv lets go of it first.
static void handshake_event(struct db_conn *conn) {
    uv_poll_stop(&conn->watch->poll);
    conn->watch->events = 0;
    handshake_step(conn, PQconnectPoll(conn->pg));
}

static void conn_event(struct db_conn *conn) {
    if (conn->state == STATE_CONNECTING)
        handshake_event(conn);
    else
        session_event(conn);
}

static void on_target_started(void *arg, PGconn *pg, const struct error *error) {
    struct db_conn *conn = arg;
    if (error) {
        conn_drop(conn, error);
        return;
    }
    conn_move(conn, STATE_CONNECTING);
    conn->pg = pg;
    PQsetNoticeReceiver(pg, on_notice, conn);
    PQsetErrorVerbosity(pg, PQERRORS_VERBOSE); // for db_error_from_conn
    handshake_step(conn, PQstatus(pg) == CONNECTION_BAD ? PGRES_POLLING_FAILED : PGRES_POLLING_WRITING);
}

static void conn_start(struct db_conn *conn) {
    conn_move(conn, STATE_STARTING);
    uv_timer_start(&conn->timer, on_timer, CONNECT_TIMEOUT_MS, 0);
    db_target_connect(conn->target, on_target_started, conn);
}

// ---- losing and closing

static void on_timer_closed(uv_handle_t *handle) {
    struct db_conn *conn = handle->data;
    if (--conn->open_handles > 0)
        return;
    void (*on_closed)(void *) = conn->on_closed;
    void *arg = conn->closed_arg;
    db_target_free(conn->target);
    free((char *)conn->options.application_name);
    free(conn->settings_sql);
    free(conn->prepared);
    free(conn);
    if (on_closed)
        on_closed(arg);
}

static void down_deliver(struct db_conn *conn) {
    if (!conn->down_owed || conn->state == STATE_CLOSING)
        return;
    conn->down_owed = false;
    if (conn->options.on_down)
        conn->options.on_down(conn->options.arg, conn, &conn->down_error, !conn->ever_up);
}

static void on_soon(uv_idle_t *soon) {
    struct db_conn *conn = soon->data;
    uv_idle_stop(soon);
    // What the callbacks send to a conn that is down is for the turn after this one.
    struct batch_list failed = conn->failed;
    conn->failed = (struct batch_list){0};
    struct db_batch *batch;
    while ((batch = list_take_first(&failed)))
        batch_finish(batch);
    down_deliver(conn);
    if (conn->state != STATE_CLOSING || conn->failed.first || conn->open_handles != 3)
        return;
    uv_close((uv_handle_t *)&conn->timer, on_timer_closed);
    uv_close((uv_handle_t *)&conn->keepalive, on_timer_closed);
    uv_close((uv_handle_t *)&conn->soon, on_timer_closed);
}

// Lets go of the server and owes every batch in flight its callback.
static void conn_disconnect(struct db_conn *conn, const struct error *error) {
    uint64_t now = clock_ms();
    db_target_cancel(conn->target);
    watch_close(conn);
    PQfinish(conn->pg);
    conn->pg = NULL;
    conn->prepared_count = 0;
    conn->farewell.code = ERROR_NONE;
    conn->timer_due_ms = NEVER;
    uv_timer_stop(&conn->timer);
    uv_timer_stop(&conn->keepalive);
    struct db_batch *batch;
    while ((batch = list_take_first(&conn->in_flight))) {
        if (batch->internal) {
            batch_free(batch);
            continue;
        }
        // One that had failed before the loss keeps its own error: nothing of it was committed.
        if (batch->error.code == ERROR_NONE && error->code == ERROR_TIMEOUT && batch->due_ms > now)
            error_set(&batch->error, ERROR_CONNECT, "the connection was dropped: %s", error->text);
        else if (batch->error.code == ERROR_NONE)
            batch->error = *error;
        list_append(&conn->failed, batch);
    }
    uv_idle_start(&conn->soon, on_soon);
}

// Once an outage; again when it turns out that a person has to do something about it.
static bool down_is_news(const struct db_conn *conn, const struct error *error) {
    if (!conn->down_told)
        return true;
    return error->code != conn->down_error.code && (error->code == ERROR_AUTH || error->code == ERROR_SCHEMA);
}

// A start that fails is read by whoever just typed the URL.
static void remedy_add(struct error *error) {
    const char *remedy = error->code == ERROR_CONNECT || error->code == ERROR_TIMEOUT
                             ? "is PostgreSQL running there? The address is that of --database-url"
                         : error->code == ERROR_AUTH ? "check user, password and database of --database-url"
                                                     : NULL;
    size_t length = strlen(error->text);
    if (remedy)
        snprintf(error->text + length, sizeof(error->text) - length, " (%s)", remedy);
}

static void conn_drop(struct db_conn *conn, const struct error *why) {
    static const char *const doing[] = {
        [STATE_STARTING] = "connect to the database",
        [STATE_CONNECTING] = "connect to the database",
        [STATE_SETTING_UP] = "connect to the database",
        [STATE_UP] = "the connection to the database was lost",
    };
    struct error error = *why; // may live in what is freed below
    if (conn->state == STATE_WAITING || conn->state == STATE_CLOSING)
        return;
    if (conn->state == STATE_UP && clock_ms() - conn->up_since_ms >= STEADY_MS)
        backoff_reset(&conn->backoff);
    if (error.code != ERROR_USAGE && error.code != ERROR_SCHEMA)
        error_wrap(&error, "%s", doing[conn->state]);
    if (!conn->ever_up)
        remedy_add(&error);
    conn_move(conn, STATE_WAITING);
    conn_disconnect(conn, &error);
    uint64_t retry_ms = backoff_next_ms(&conn->backoff);
    bool news = down_is_news(conn, &error);
    // The owner of an on_down says it in its own words.
    log_write(news && !conn->options.on_down ? LOG_WARN : LOG_DEBUG, "db_disconnected",
              LOG_FIELDS(LOG_TEXT("application", conn->options.application_name), LOG_TEXT("reason", error.text),
                         LOG_INT("retry_ms", retry_ms)));
    if (news) {
        conn->down_owed = true;
        conn->down_told = true;
        conn->down_error = error;
    }
    uv_timer_start(&conn->timer, on_timer, retry_ms, 0);
}

void db_conn_reset(struct db_conn *conn, const char *reason) {
    struct error error;
    error_set(&error, ERROR_CONNECT, "reset: %s", reason);
    conn_drop(conn, &error);
}

void db_conn_close(struct db_conn *conn, void (*on_closed)(void *arg), void *arg) {
    if (!conn) {
        if (on_closed)
            on_closed(arg);
        return;
    }
    struct error error;
    error_set(&error, ERROR_CANCELLED, "the database connection is closing");
    conn_move(conn, STATE_CLOSING);
    conn->on_closed = on_closed;
    conn->closed_arg = arg;
    conn_disconnect(conn, &error);
}

// ---- a new one

static char *settings_sql_new(const struct db_conn_options *options) {
    struct buffer sql = {0};
    for (size_t i = 0; i < sizeof(session_settings) / sizeof(*session_settings); i++) {
        const char *name = options->pooled ? session_settings[i].pooled_name : session_settings[i].name;
        if (!name)
            continue;
        buffer_format(&sql, "%s pg_catalog.set_config('%s', '", sql.length ? "," : "select", name);
        if (session_settings[i].value)
            buffer_text(&sql, session_settings[i].value);
        else
            buffer_format(&sql, "%u",
                          strcmp(name, "statement_timeout") == 0 ? options->statement_timeout_ms
                                                                 : options->idle_session_timeout_ms);
        buffer_format(&sql, "', %s)", options->pooled ? "true" : "false");
    }
    return sql.bytes;
}

struct db_conn *db_conn_new(uv_loop_t *loop, const struct db_conn_options *options) {
    assert(!(options->pooled && options->channels)); // a transaction pooler swallows LISTEN
    struct db_conn *conn = memory_alloc(sizeof(*conn));
    conn->loop = loop;
    conn->options = *options;
    conn->options.url = NULL;
    conn->options.application_name =
        memory_copy_text(options->application_name ? options->application_name : "rowbell");
    if (!options->statement_timeout_ms)
        conn->options.statement_timeout_ms = STATEMENT_TIMEOUT_MS;
    conn->settings_sql = settings_sql_new(&conn->options);
    conn->target = db_target_new(loop, options->url, conn->options.application_name);
    conn->backoff = (struct backoff){.first_ms = BACKOFF_FIRST_MS, .most_ms = BACKOFF_MOST_MS};
    conn->timer_due_ms = NEVER;
    uv_timer_init(loop, &conn->timer);
    uv_timer_init(loop, &conn->keepalive);
    uv_idle_init(loop, &conn->soon);
    conn->timer.data = conn->keepalive.data = conn->soon.data = conn;
    conn->open_handles = 3;
    conn_start(conn);
    return conn;
}

bool db_conn_is_up(const struct db_conn *conn) {
    return conn->state == STATE_UP;
}

uint64_t db_conn_answered_ms(const struct db_conn *conn) {
    return conn->answered_ms;
}

int db_conn_backend_pid(const struct db_conn *conn) {
    return conn->state == STATE_UP ? PQbackendPID(conn->pg) : 0;
}
