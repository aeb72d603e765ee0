// The happy path: the lock is tried when the session comes up and every 10 s; who has it goes through the chores. A
// chore that is due takes a step; while steps find all that they may take, the next one follows after a pause, else the
// chore rests. The failure mode: a step that fails is logged, told to the database (where doctor finds it) and the
// metrics, and tried again when its chore is due; a session that is lost took the lock along.
#include "dispatcher/housekeeper.h"
#include "common/clock.h"
#include "common/db_conn.h"
#include "common/log.h"
#include "common/memory.h"
#include "common/metrics.h"
#include "dispatcher/metrics.h"
#include "dispatcher/sql.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    TICK_MS = 1000,
    PAUSE_MS = 20, // between two steps
    LOCK_MS = 10000,
    STEP_MS = 25000, // by the server, which says so and keeps the session
    STEP_DEADLINE_MS = 30000,
    KEEPALIVE_MS = 3000,
    IDLE_SESSION_MS = 10000, // one that is stopped gives the lock back
    FAILING_MOST_MS = 5 * 24 * 3600 * 1000,
};

// In the order in which they are done by whoever becomes the housekeeper.
enum chore_id {
    FOLLOW_FAILOVER,
    PRUNE_EVENTS,
    PRUNE_ATTEMPTS,
    PRUNE_STREAM,
    PRUNE_ORPHANS,
    DISABLE_FAILING,
    UNBLOCK,
    BACKLOG,
    LIST_SET_ASIDE,
    CHORES
};

// A walk's step goes on after the seq that the one before it told; the chore begins anew the next time, or where it
// was.
enum { ANEW = -1, ONWARDS = -2 };

static const struct chore {
    const char *name;
    const struct db_statement *statement;
    unsigned every_ms;
    int full; // a step that did so many is followed by another; 0: never; or a walk
} chores[CHORES] = {
    [FOLLOW_FAILOVER] = {"failover_followed", &sql_follow_failover, 5000, 0},
    [PRUNE_EVENTS] = {"events_pruned", &sql_prune_events, 60000, ANEW},
    [PRUNE_ATTEMPTS] = {"attempts_pruned", &sql_prune_attempts, 60000, 5000},
    [PRUNE_STREAM] = {"stream_log_pruned", &sql_prune_stream_log, 60000, 5000},
    [PRUNE_ORPHANS] = {"orphans_pruned", &sql_prune_orphans, 60000, 1000},
    [DISABLE_FAILING] = {"subscriptions_disabled", &sql_disable_failing, 60000, 0},
    [UNBLOCK] = {"subjects_unblocked", &sql_unblock_subjects, 5000, 0},
    [BACKLOG] = {"backlog_alerted", &sql_alert_backlog, 30000, 0},
    [LIST_SET_ASIDE] = {"set_aside_listed", &sql_list_set_aside, 60000, ONWARDS},
};

struct housekeeper {
    struct db_conn *conn;
    uv_timer_t timer;
    long age_ms[CHORES]; // the parameter of those that have one
    bool has_age[CHORES];
    uint64_t due_ms[CHORES];
    int64_t done[CHORES];      // since the chore began
    int64_t after_seq[CHORES]; // how far a walk came
    bool well[CHORES];         // the database knows that it succeeded last
    bool locked, busy, closing;
    uint64_t lock_at_ms;
    enum chore_id running;
    void (*on_closed)(void *arg);
    void *closed_arg;
};

static void on_timer(uv_timer_t *timer);

static void lock_tried(void *arg, const struct db_reply *reply, const struct error *error) {
    struct housekeeper *self = arg;
    self->busy = false;
    self->locked = reply && PQgetvalue(reply->results[0], 0, 0)[0] == 't';
    if (self->locked) {
        log_info("housekeeping");
        self->due_ms[FOLLOW_FAILOVER] = 0;
    }
    if (self->locked && !self->closing)
        uv_timer_start(&self->timer, on_timer, PAUSE_MS, TICK_MS);
}

static void told(void *arg, const struct db_reply *reply, const struct error *error) {
    struct housekeeper *self = arg;
    self->busy = false;
    if (reply) {
        bool well = PQgetisnull(reply->results[0], 0, 0);
        self->well[self->running] = well;
        metric_set(METRIC_HOUSEKEEPING_FAILING_SINCE, chores[self->running].name, NULL,
                   well ? 0 : strtod(PQgetvalue(reply->results[0], 0, 0), NULL));
    }
    if (!self->closing)
        uv_timer_start(&self->timer, on_timer, PAUSE_MS, TICK_MS);
}

// Tells the database what came of a step; failure NULL: it succeeded.
static void tell(struct housekeeper *self, const char *failure) {
    const char *values[] = {chores[self->running].name, failure};
    self->busy = true;
    db_query(self->conn, &sql_housekeeping_result, 2, values, STEP_DEADLINE_MS, told, self);
}

// A chore is through for now.
static void rest(struct housekeeper *self, enum chore_id id) {
    self->due_ms[id] = clock_ms() + chores[id].every_ms;
    if (self->done[id] > 0)
        log_info(chores[id].name, LOG_INT("count", self->done[id]));
    self->done[id] = 0;
}

static void step_done(void *arg, const struct db_reply *reply, const struct error *error) {
    struct housekeeper *self = arg;
    enum chore_id id = self->running;
    self->busy = false;
    bool more = false, failed = !reply && error->code != ERROR_CANCELLED && self->locked;
    if (reply) {
        const PGresult *result = reply->results[0];
        int64_t count = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
        self->done[id] += count;
        more = chores[id].full > 0 && count >= chores[id].full;
        if (chores[id].full < 0) {
            more = !PQgetisnull(result, 0, 1);
            if (more)
                self->after_seq[id] = strtoll(PQgetvalue(result, 0, 1), NULL, 10);
            else if (chores[id].full == ANEW)
                self->after_seq[id] = 0;
        }
    } else if (failed) {
        log_warn("housekeeping_failed", LOG_TEXT("chore", chores[id].name), LOG_TEXT("error", error->text));
    }
    if (!more)
        rest(self, id);
    if (self->closing)
        return;
    if (self->locked && (failed || !self->well[id]))
        tell(self, failed ? error->text : NULL);
    else
        uv_timer_start(&self->timer, on_timer, PAUSE_MS, TICK_MS);
}

static void take_step(struct housekeeper *self, enum chore_id id) {
    char age[24], after[24];
    const char *values[2];
    int count = 0;
    snprintf(age, sizeof age, "%ld", self->age_ms[id]);
    snprintf(after, sizeof after, "%" PRId64, self->after_seq[id]);
    if (self->has_age[id])
        values[count++] = age;
    if (chores[id].full < 0)
        values[count++] = after;
    self->running = id;
    self->busy = true;
    db_query(self->conn, chores[id].statement, count, values, STEP_DEADLINE_MS, step_done, self);
}

static void on_timer(uv_timer_t *timer) {
    struct housekeeper *self = timer->data;
    uint64_t now = clock_ms();
    if (self->busy || !db_conn_is_up(self->conn))
        return;
    if (!self->locked) {
        if (now < self->lock_at_ms)
            return;
        self->lock_at_ms = now + LOCK_MS;
        self->busy = true;
        db_query(self->conn, &sql_housekeeping_lock, 0, NULL, STEP_DEADLINE_MS, lock_tried, self);
        return;
    }
    for (int id = 0; id < CHORES; id++)
        if (now >= self->due_ms[id]) {
            take_step(self, (enum chore_id)id);
            return;
        }
}

static void came_up(void *arg, struct db_conn *conn) {
    struct housekeeper *self = arg;
    self->lock_at_ms = 0;
}

static void went_down(void *arg, struct db_conn *conn, const struct error *error, bool first) {
    struct housekeeper *self = arg;
    self->locked = false;
    for (int id = 0; id < CHORES; id++) { // another process is the housekeeper now, and tells
        self->well[id] = false;
        metric_set(METRIC_HOUSEKEEPING_FAILING_SINCE, chores[id].name, NULL, 0);
    }
}

struct housekeeper *housekeeper_new(uv_loop_t *loop, const struct housekeeper_options *options) {
    struct housekeeper *self = memory_alloc(sizeof *self);
    self->age_ms[PRUNE_EVENTS] = options->keep_events_ms;
    self->age_ms[PRUNE_ATTEMPTS] = options->keep_attempts_ms;
    self->age_ms[PRUNE_STREAM] = options->keep_stream_ms;
    self->age_ms[DISABLE_FAILING] = FAILING_MOST_MS;
    for (int id = 0; id < CHORES; id++)
        self->has_age[id] = self->age_ms[id] > 0;
    uv_timer_init(loop, &self->timer);
    self->timer.data = self;
    uv_timer_start(&self->timer, on_timer, TICK_MS, TICK_MS);
    self->conn = db_conn_new(loop, &(struct db_conn_options){.url = options->url,
                                                             .direct_url = options->direct_url,
                                                             .session = true,
                                                             .writes = true,
                                                             .application_name = "rowbell-dispatcher-housekeeper",
                                                             .statement_timeout_ms = STEP_MS,
                                                             .idle_session_timeout_ms = IDLE_SESSION_MS,
                                                             .keepalive_ms = KEEPALIVE_MS,
                                                             .arg = self,
                                                             .on_up = came_up,
                                                             .on_down = went_down});
    return self;
}

static void timer_closed(uv_handle_t *handle) {
    struct housekeeper *self = handle->data;
    void (*on_closed)(void *) = self->on_closed;
    void *arg = self->closed_arg;
    free(self);
    if (on_closed)
        on_closed(arg);
}

static void conn_closed(void *arg) {
    struct housekeeper *self = arg;
    uv_close((uv_handle_t *)&self->timer, timer_closed);
}

void housekeeper_close(struct housekeeper *self, void (*on_closed)(void *arg), void *arg) {
    if (!self) {
        if (on_closed)
            on_closed(arg);
        return;
    }
    self->closing = true;
    self->on_closed = on_closed;
    self->closed_arg = arg;
    uv_timer_stop(&self->timer);
    db_conn_close(self->conn, conn_closed, self);
}
