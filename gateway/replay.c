// The happy path is: WAITING in the queue, ASKED when a place is free, done. The failure modes are: a database that is
// behind our head (a standby that lags) or was lost with the question in flight (LATER: asked again), and one that is
// away (the queue stands). Past PATIENCE_MS a request is done with an error: the client is sent away and comes back.
#include "gateway/replay.h"
#include "common/clock.h"
#include "common/db_conn.h"
#include "common/log.h"
#include "common/memory.h"
#include "gateway/frame.h"
#include "gateway/log_rows.h"
#include "gateway/metrics.h"
#include "gateway/source_log.h"
#include "gateway/sql.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <utlist.h>

enum {
    IN_FLIGHT_MOST = 8,
    DEADLINE_MS = 10000,
    ROWS_LOOKED_AT_MOST = 50000,
    RETRY_MS = 100,
    PATIENCE_MS = 5000,
};

struct replay_request {
    struct replay *replay;
    struct replay_request *prev, *next; // of `waiting` or `later`
    enum { WAITING, ASKED, LATER } state;
    bool cancelled; // while ASKED: the answer is dropped
    int64_t after;
    int64_t head;
    const struct table_filter *tables;
    uint64_t started_ms;
    replay_done *done;
    void *arg;
};

struct replay {
    struct db_conn *conn;
    size_t max_replay;
    size_t in_flight;
    struct replay_request *waiting;
    struct replay_request *later;
    uv_timer_t retry_timer;
    bool closing;
    int open; // the connection and the timer
};

static void send_waiting(struct replay *replay);

static void finish(struct replay_request *request, const struct replay_answer *answer, const struct error *error) {
    if (!request->cancelled) {
        metric_observe(METRIC_REPLAY_SECONDS, NULL, (double)(clock_ms() - request->started_ms) / 1000);
        request->done(request->arg, answer, error);
    }
    free(request);
}

static bool is_out_of_patience(const struct replay_request *request) {
    return clock_ms() - request->started_ms > PATIENCE_MS;
}

static void on_retry_timer(uv_timer_t *timer) {
    struct replay *replay = timer->data;
    struct replay_request *request, *following;
    DL_CONCAT(replay->waiting, replay->later);
    replay->later = NULL;
    DL_FOREACH_SAFE(replay->waiting, request, following) {
        request->state = WAITING;
        if (!db_conn_is_up(replay->conn) && is_out_of_patience(request)) {
            struct error error;
            error_set(&error, ERROR_CONNECT, "the database is away");
            DL_DELETE(replay->waiting, request);
            finish(request, NULL, &error);
        }
    }
    send_waiting(replay);
}

static void arm_retry_timer(struct replay *replay) {
    if (!replay->closing && !uv_is_active((uv_handle_t *)&replay->retry_timer)) {
        uv_timer_start(&replay->retry_timer, on_retry_timer, RETRY_MS, 0);
    }
}

static void ask_again_later(struct replay_request *request, const struct error *error) {
    if (is_out_of_patience(request)) {
        finish(request, NULL, error);
        return;
    }
    request->state = LATER;
    DL_APPEND(request->replay->later, request);
    arm_retry_timer(request->replay);
}

// Appends the events of the result that pass the live filter, and counts them.
static size_t append_frames(const PGresult *result, const struct table_filter *tables, struct buffer *frames) {
    size_t count = 0;
    for (int row = 0; row < PQntuples(result); row++) {
        struct stream_entry entry;
        if (log_row_entry(result, row, 4, &entry) && table_filter_holds(tables, entry.name)) {
            struct frame *frame = frame_new(&entry);
            buffer_append(frames, frame->bytes, frame->length);
            frame_free(frame);
            count++;
        }
    }
    return count;
}

static void on_answer(void *arg, const struct db_reply *reply, const struct error *error) {
    struct replay_request *request = arg;
    struct replay *replay = request->replay;
    replay->in_flight--;
    if (error || request->cancelled) {
        if (!request->cancelled && error->code == ERROR_CONNECT) {
            ask_again_later(request, error);
        } else {
            finish(request, NULL, error);
        }
        send_waiting(replay);
        return;
    }
    const PGresult *result = reply->results[0];
    struct buffer frames = {0};
    struct replay_answer answer = {.frames = &frames};
    answer.count = append_frames(result, request->tables, &frames);
    answer.decision = resume_decide(request->after, request->head, replay->max_replay,
                                    &(struct resume_facts){
                                        .holds = log_row_bool(result, 0, 0),
                                        .oldest = log_row_int(result, 0, 1),
                                        .newest = log_row_int(result, 0, 2),
                                        .missed = answer.count,
                                        .over_budget = log_row_bool(result, 0, 3),
                                    });
    if (answer.decision.kind == RESUME_LAGGING) {
        struct error lagging;
        error_set(&lagging, ERROR_TIMEOUT, "the database lags behind the stream");
        ask_again_later(request, &lagging);
    } else {
        finish(request, &answer, NULL);
    }
    buffer_free(&frames);
    send_waiting(replay);
}

static void ask(struct replay *replay, struct replay_request *request) {
    char stream[16];
    char after[24];
    char head[24];
    char rows[24];
    char looked_at[24];
    struct buffer tables = {0};
    snprintf(stream, sizeof stream, "%d", STREAM_ID);
    snprintf(after, sizeof after, "%" PRId64, request->after);
    snprintf(head, sizeof head, "%" PRId64, request->head);
    snprintf(rows, sizeof rows, "%zu", replay->max_replay + 1);
    snprintf(looked_at, sizeof looked_at, "%d", ROWS_LOOKED_AT_MOST);
    if (request->tables) {
        table_filter_append_array(request->tables, &tables);
    }
    request->state = ASKED;
    replay->in_flight++;
    db_query(replay->conn, &sql_replay, 6, (const char *[]){stream, after, head, rows, tables.bytes, looked_at},
             DEADLINE_MS, on_answer, request);
    buffer_free(&tables);
}

static void send_waiting(struct replay *replay) {
    if (replay->waiting && !db_conn_is_up(replay->conn)) {
        arm_retry_timer(replay); // on_up comes first, or patience ends
        return;
    }
    while (replay->waiting && replay->in_flight < IN_FLIGHT_MOST && !replay->closing) {
        struct replay_request *request = replay->waiting;
        DL_DELETE(replay->waiting, request);
        ask(replay, request);
    }
}

static void on_up(void *arg, struct db_conn *conn) {
    send_waiting(arg);
}

static void on_down(void *arg, struct db_conn *conn, const struct error *error, bool first) {
    log_warn("replay_database_down", LOG_TEXT("error", error->text));
}

struct replay *replay_new(uv_loop_t *loop, const char *url, bool pooled, size_t max_replay) {
    struct replay *replay = memory_alloc(sizeof *replay);
    replay->max_replay = max_replay;
    replay->open = 2;
    uv_timer_init(loop, &replay->retry_timer);
    replay->retry_timer.data = replay;
    replay->conn = db_conn_new(loop, &(struct db_conn_options){
                                         .url = url,
                                         .application_name = "rowbell-gateway",
                                         .pooled = pooled,
                                         .arg = replay,
                                         .on_up = on_up,
                                         .on_down = on_down,
                                     });
    return replay;
}

struct replay_request *replay_start(struct replay *replay, int64_t after, int64_t head,
                                    const struct table_filter *tables, replay_done *done, void *arg) {
    struct replay_request *request = memory_alloc(sizeof *request);
    *request = (struct replay_request){
        .replay = replay,
        .state = WAITING,
        .after = after,
        .head = head,
        .tables = tables,
        .started_ms = clock_ms(),
        .done = done,
        .arg = arg,
    };
    DL_APPEND(replay->waiting, request);
    send_waiting(replay);
    return request;
}

void replay_cancel(struct replay_request *request) {
    if (!request) {
        return;
    }
    if (request->state == ASKED) {
        request->cancelled = true;
        request->tables = NULL; // the borrow ends here
        return;
    }
    if (request->state == WAITING) {
        DL_DELETE(request->replay->waiting, request);
    } else {
        DL_DELETE(request->replay->later, request);
    }
    free(request);
}

static void closed_one(struct replay *replay) {
    if (--replay->open == 0) {
        free(replay);
    }
}

static void on_timer_closed(uv_handle_t *handle) {
    closed_one(handle->data);
}

static void on_conn_closed(void *arg) {
    closed_one(arg);
}

void replay_close(struct replay *replay) {
    if (!replay) {
        return;
    }
    assert(!replay->waiting && !replay->later);
    replay->closing = true;
    uv_close((uv_handle_t *)&replay->retry_timer, on_timer_closed);
    db_conn_close(replay->conn, on_conn_closed, replay);
}
