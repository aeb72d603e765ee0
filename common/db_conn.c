// The happy path is: db_target_connect resolves the name and starts libpq's handshake; PQconnectPoll is driven by
// uv_poll until the session stands; db_setup looks at what is there and sets the session up; on_up. From then on a
// batch is written when it is sent, and each readable event maps libpq's results to the batches in flight, in
// order.
//
// The failure modes are: the handshake fails or takes too long, the set-up is refused, the peer goes away, a batch's
// deadline passes, the owner resets. All end in db_conn_drop, which closes the socket at once and calls nobody:
// callbacks and on_down are delivered by `soon` in the loop's next turn. So no owner is ever called from inside its own
// call.
#include "common/db_conn.h"
#include "common/clock.h"
#include "common/db_conn_inside.h"
#include "common/db_error.h"
#include "common/db_target.h"
#include "common/log.h"
#include "common/memory.h"
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

// One for each socket that libpq opens; outlives its connection until libuv has let go of it.
struct watch {
    uv_poll_t poll;
    struct db_conn *conn;
    int fd;
    int events; // 0: stopped
};

static void conn_start(struct db_conn *conn);
static void conn_event(struct db_conn *conn);
static void on_soon(uv_idle_t *soon);

static void conn_move(struct db_conn *conn, enum conn_state state) {
    assert(allowed_from[state] & FROM(conn->state));
    conn->state = state;
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
            db_conn_drop(conn, &error);
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
        db_conn_drop(conn, &error);
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
            db_conn_drop(conn, &error);
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

// The server's copies are of no use any more: whatever is written from now on is prepared anew.
static void prepared_drop_all(struct db_conn *conn) {
    static const struct db_statement deallocate = {NULL, "deallocate all"};
    conn->prepared.epoch++;
    for (size_t i = 0; i < conn->prepared.count; i++)
        conn->prepared.items[i].ready = false;
    struct db_batch *batch = db_batch_begin(conn);
    batch->internal = true;
    db_batch_add(batch, &deallocate, 0, NULL);
    db_batch_send(batch, 0, NULL, NULL);
}

// ---- writing

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
    db_conn_drop(conn, &error);
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
        db_batch_free_values(batch);
        db_batch_list_append(&conn->failed, batch);
        uv_idle_start(&conn->soon, on_soon);
        return;
    }
    conn->sent_ms = clock_ms();
    batch->due_ms = conn->sent_ms + batch->deadline_ms;
    db_batch_list_append(&conn->in_flight, batch);
    bool written = db_batch_write(batch, conn->pg, &conn->prepared, conn->pooled ? conn->settings_sql : NULL);
    db_batch_free_values(batch);
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
    struct db_prepared *prepared = db_prepared_find(&conn->prepared, statement);
    if (batch->prepared_epoch == conn->prepared.epoch)
        prepared->ready = false;
    if (PQresultStatus(result) == PGRES_PIPELINE_ABORTED)
        return; // one before it failed
    db_error_from_result(result, &prepared->error);
    error_wrap(&prepared->error, "prepare %s", statement->name);
    if (batch->error.code == ERROR_NONE)
        batch->error = prepared->error;
}

// For a reason that stays. Said once; where a new connection may find a server that takes writes, or the process should
// end, the connection ends with the batch.
static void statement_refused(struct db_conn *conn, const struct db_statement *statement, const struct error *error) {
    if (strcmp(conn->refusal_told.text, error->text) != 0)
        log_warn("statement_refused", LOG_TEXT("application", conn->options.application_name),
                 LOG_TEXT("statement", statement->name), LOG_TEXT("error", error->text),
                 LOG_TEXT("sqlstate", error->sqlstate));
    conn->refusal_told = *error;
    bool read_only = conn->options.writes && strcmp(error->sqlstate, "25006") == 0;
    if (!read_only && !conn->options.strict)
        return;
    conn->refused = *error;
    error_wrap(&conn->refused, "%s was refused", statement->name);
    if (read_only)
        conn->refused.code = ERROR_CONNECT; // why, and whether it lasts, is found out by the next set-up
}

// The first failure of a batch. Two SQLSTATEs say nothing about the batch, only that the server's prepared statements
// are not what we believe they are; the error then has no SQLSTATE, which makes it a fault of the system.
static void step_failed(struct db_conn *conn, struct db_batch *batch, const PGresult *result, int index) {
    struct error *error = &batch->error;
    db_error_from_result(result, error);
    const char *function = PQresultErrorField(result, PG_DIAG_SOURCE_FUNCTION);
    bool stale = strcmp(error->sqlstate, "0A000") == 0 && function && strcmp(function, "RevalidateCachedQuery") == 0;
    bool unknown = strcmp(error->sqlstate, "26000") == 0;
    const struct db_statement *statement = index >= 0 && !batch->internal ? batch->steps[index].statement : NULL;
    if (statement && db_error_is_lasting(error))
        statement_refused(conn, statement, error);
    if (!stale && !unknown)
        return;
    const struct db_prepared *prepared = statement ? db_prepared_find(&conn->prepared, statement) : NULL;
    if (unknown && prepared && prepared->error.code != ERROR_NONE) {
        *error = prepared->error; // a batch ahead of this one has tried, in the same pipeline
        return;
    }
    *error->sqlstate = '\0';
    error_wrap(error, "a prepared statement is out of date");
    if (!conn->pooled && batch->prepared_epoch == conn->prepared.epoch)
        prepared_drop_all(conn);
}

static void conn_out_of_step(struct db_conn *conn, const char *what) {
    struct error error;
    error_set(&error, ERROR_PROTOCOL, "unexpected answer from the database: %s", what);
    db_conn_drop(conn, &error);
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
        db_batch_list_take_first(&conn->in_flight);
        db_batch_finish(batch);
        if (conn->refused.code != ERROR_NONE)
            db_conn_drop(conn, &conn->refused);
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

void db_conn_is_set_up(struct db_conn *conn) {
    conn_move(conn, STATE_UP);
    uv_timer_stop(&conn->timer);
    conn->timer_due_ms = NEVER;
    conn->up_since_ms = clock_ms();
    conn->ever_up = true;
    conn->down_told = false;
    *conn->refusal_told.text = '\0';
    keepalive_set(conn, conn->options.keepalive_ms);
    log_info("db_connected", LOG_TEXT("application", conn->options.application_name),
             LOG_INT("backend_pid", PQbackendPID(conn->pg)), LOG_INT("server_version", PQserverVersion(conn->pg)));
    if (conn->options.on_up)
        conn->options.on_up(conn->options.arg, conn);
}

static void session_set_up(struct db_conn *conn) {
    conn_move(conn, STATE_SETTING_UP);
    PQsetErrorVerbosity(conn->pg, PQERRORS_TERSE);
    conn->farewell.code = ERROR_NONE;
    if (PQsetnonblocking(conn->pg, 1) != 0 || !PQenterPipelineMode(conn->pg)) {
        conn_drop_broken(conn);
        return;
    }
    db_setup_start(conn);
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
        db_conn_drop(conn, &error);
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
        db_conn_drop(conn, error);
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
    free((char *)conn->options.url);
    free(conn->settings_sql);
    free(conn->prepared.items);
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
    struct db_batch_list failed = conn->failed;
    conn->failed = (struct db_batch_list){0};
    struct db_batch *batch;
    while ((batch = db_batch_list_take_first(&failed)))
        db_batch_finish(batch);
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
    db_setup_stop(conn);
    watch_close(conn);
    PQfinish(conn->pg);
    conn->pg = NULL;
    conn->prepared.count = 0;
    conn->pooled = false;
    conn->farewell.code = conn->refused.code = ERROR_NONE;
    conn->timer_due_ms = NEVER;
    uv_timer_stop(&conn->timer);
    uv_timer_stop(&conn->keepalive);
    struct db_batch *batch;
    while ((batch = db_batch_list_take_first(&conn->in_flight))) {
        if (batch->internal) {
            db_batch_free(batch);
            continue;
        }
        // One that had failed before the loss keeps its own error: nothing of it was committed.
        if (batch->error.code == ERROR_NONE && error->code == ERROR_TIMEOUT && batch->due_ms > now)
            error_set(&batch->error, ERROR_CONNECT, "the connection was dropped: %s", error->text);
        else if (batch->error.code == ERROR_NONE)
            batch->error = *error;
        db_batch_list_append(&conn->failed, batch);
    }
    uv_idle_start(&conn->soon, on_soon);
}

// Once an outage; again when it turns out that a person has to do something about it.
static bool down_is_news(const struct db_conn *conn, const struct error *error) {
    if (!conn->down_told)
        return true;
    return error->code != conn->down_error.code && (error->code == ERROR_AUTH || error->code == ERROR_SCHEMA ||
                                                    error->code == ERROR_READ_ONLY || error->code == ERROR_USAGE);
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

void db_conn_drop(struct db_conn *conn, const struct error *why) {
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
    if (error.code != ERROR_USAGE && error.code != ERROR_SCHEMA && error.code != conn->refused.code)
        error_wrap(&error, "%s", doing[conn->state]);
    if (!conn->ever_up)
        remedy_add(&error);
    conn_move(conn, STATE_WAITING);
    conn_disconnect(conn, &error);
    uint64_t retry_ms = backoff_next_ms(&conn->backoff);
    bool news = down_is_news(conn, &error);
    // The owner of an on_down says it in its own words.
    log_write(news && !conn->options.on_down && conn->ever_up ? LOG_WARN : LOG_DEBUG, "db_disconnected",
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
    db_conn_drop(conn, &error);
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

struct db_conn *db_conn_new(uv_loop_t *loop, const struct db_conn_options *options) {
    struct db_conn *conn = memory_alloc(sizeof(*conn));
    const char *direct_url = options->direct_url, *name = options->application_name;
    conn->loop = loop;
    conn->options = *options;
    conn->options.session = options->session || options->channels;
    conn->options.pooled = options->pooled || (direct_url && !conn->options.session);
    assert(!(conn->options.pooled && conn->options.session)); // a transaction pooler swallows LISTEN
    const char *url = direct_url && conn->options.session ? direct_url : options->url;
    conn->options.url = memory_copy_text(url);
    conn->options.application_name = memory_copy_text(name ? name : "rowbell");
    if (!options->statement_timeout_ms)
        conn->options.statement_timeout_ms = STATEMENT_TIMEOUT_MS;
    conn->target = db_target_new(loop, url);
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
