// The happy path: a stream is woken (NOTIFY, or the poll floor), one batch of two statements takes its turn and appends
// up to 500 entries, they are published, and the stream is appended to again at once as long as a burst comes back.
//
//   IDLE --woken--> APPENDING --burst--> APPENDING ... --few--> IDLE
//                       |--fault of the system--> IDLE, again after a backoff
//                       `--fault of the data--> LISTING --> TRYING each job alone --> IDLE
//
// A job that fails alone is counted, set aside and tried again alone (2 s doubling to 1 min), while the others go on
// without it; its fifth failure poisons it and marks the log.
#include "dispatcher/sink_sse.h"
#include "common/backoff.h"
#include "common/clock.h"
#include "common/db_conn.h"
#include "common/db_error.h"
#include "common/log.h"
#include "common/memory.h"
#include "common/metrics.h"
#include "common/redis_conn.h"
#include "common/stream_message.h"
#include "dispatcher/metrics.h"
#include "dispatcher/pg_array.h"
#include "dispatcher/sql.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    POLL_MS = 200,
    LIST_MS = 1000,
    DEADLINE_MS = 10000,
    STOP_MS = 5000,
    UNREADY_MS = 15000,
    SUSPECTS_MOST = 500, // the literal in stream_suspects.sql
    BURST_ENTRIES = 100, // after fewer than that, what came meanwhile is told by NOTIFY
};
static const char lane[] = "sse";

enum state { STATE_IDLE, STATE_APPENDING, STATE_LISTING, STATE_TRYING };

struct seq_list {
    int64_t *seqs;
    size_t count, capacity;
};

struct stream {
    struct stream *next;
    struct sink_sse *sse;
    int id;
    char channel[STREAM_CHANNEL_SIZE]; // on Redis
    enum state state;
    bool woken;               // there may be something to append
    bool listed;              // it is there and active
    struct seq_list suspects; // being tried alone
    size_t suspect_at;
    struct seq_list faulty; // failed alone; left out of batches
    struct backoff system_backoff, data_backoff;
    uint64_t retry_at_ms;  // after a fault of the system
    uint64_t faulty_at_ms; // when the faulty are tried again
};

struct sink_sse {
    struct sink_sse_options options;
    struct db_conn *conn;
    struct redis_conn *redis;
    struct stream *streams;
    bool up, stopping, stopped, listing, listed_once;
    uint64_t list_at_ms, progress_ms, stop_ms;
    struct buffer message;
    struct stream_keys keys; // the one that signs, or none
    void (*on_stopped)(void *arg);
    void *stopped_arg;
    void (*on_closed)(void *arg);
    void *closed_arg;
    int open_parts;
    uv_timer_t timer;
};

static void stream_advance(struct stream *stream);
static void on_timer(uv_timer_t *timer);

// ---- Lists of seqs

static void seq_add(struct seq_list *list, int64_t seq) {
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? list->capacity * 2 : 16;
        list->seqs = memory_resize(list->seqs, list->capacity, sizeof *list->seqs);
    }
    list->seqs[list->count++] = seq;
}

static void seq_remove(struct seq_list *list, int64_t seq) {
    for (size_t i = 0; i < list->count; i++)
        if (list->seqs[i] == seq)
            list->seqs[i--] = list->seqs[--list->count];
}

// ---- What was appended

static void publish(struct stream *stream, const PGresult *result, int from, int to) {
    struct sink_sse *sse = stream->sse;
    int64_t first = strtoll(PQgetvalue(result, from, 0), NULL, 10);
    int64_t prev = strtoll(PQgetvalue(result, from, 1), NULL, 10);
    stream_message_begin(&sse->message, prev, first, to - from);
    for (int row = from; row < to; row++) {
        struct stream_entry entry = {.scope = PQgetisnull(result, row, 2) ? NULL : PQgetvalue(result, row, 2),
                                     .name = PQgetvalue(result, row, 3),
                                     .key = PQgetisnull(result, row, 4) ? NULL : PQgetvalue(result, row, 4),
                                     .op = PQgetvalue(result, row, 5)};
        stream_message_entry(&sse->message, &entry);
    }
    // A message that is lost here is a gap to the gateways, and they read the log.
    if (stream_message_sign(&sse->message, &sse->keys.keys[0], stream->channel))
        redis_conn_publish(sse->redis, stream->channel, sse->message.bytes, sse->message.length);
}

static void appended(struct stream *stream, const PGresult *result) {
    int rows = PQntuples(result);
    stream->sse->progress_ms = clock_ms();
    if (rows == 0)
        return;
    metric_add(METRIC_ATTEMPTS, lane, "delivered", rows);
    metric_set(METRIC_STREAM_POSITION, NULL, NULL, strtod(PQgetvalue(result, rows - 1, 0), NULL));
    bool publishes = stream->sse->redis && stream->sse->keys.count > 0;
    for (int from = 0; publishes && from < rows; from += STREAM_MESSAGE_MAX_ENTRIES) {
        int to = rows - from > STREAM_MESSAGE_MAX_ENTRIES ? from + STREAM_MESSAGE_MAX_ENTRIES : rows;
        publish(stream, result, from, to);
    }
}

// ---- Appending

static bool is_data_fault(const struct error *error) {
    return !db_error_is_system(error) && !db_error_is_transient_conflict(error);
}

static void system_fault(struct stream *stream, const struct error *error) {
    stream->state = STATE_IDLE;
    stream->woken = true;
    uint64_t wait_ms = db_error_is_transient_conflict(error) ? 0 : backoff_next_ms(&stream->system_backoff);
    stream->retry_at_ms = clock_ms() + wait_ms;
    if (stream->sse->up && error->code != ERROR_CANCELLED)
        log_warn("append_failed", LOG_INT("stream", stream->id), LOG_TEXT("error", error->text),
                 LOG_INT("retry_ms", wait_ms));
}

static void send_append(struct stream *stream, int64_t lowest, int64_t highest, const struct seq_list *except,
                        db_done *done) {
    struct sink_sse *sse = stream->sse;
    char id[16], from[24], to[24];
    snprintf(id, sizeof id, "%d", stream->id);
    snprintf(from, sizeof from, "%" PRId64, lowest);
    snprintf(to, sizeof to, "%" PRId64, highest);
    struct buffer seqs = {0};
    pg_array_begin(&seqs);
    for (size_t i = 0; except && i < except->count; i++)
        pg_array_int(&seqs, except->seqs[i]);
    const char *values[] = {id, from, to, pg_array_end(&seqs), sse->redis ? "f" : "t"};
    struct db_batch *batch = db_batch_begin(sse->conn);
    db_batch_add(batch, &sql_stream_lock, 1, values);
    db_batch_add(batch, &sql_stream_append, 5, values);
    db_batch_send(batch, DEADLINE_MS, done, stream);
    buffer_free(&seqs);
}

static void try_next(struct stream *stream);

static void suspects_listed(void *arg, const struct db_reply *reply, const struct error *error) {
    struct stream *stream = arg;
    if (error) {
        system_fault(stream, error);
        stream_advance(stream);
        return;
    }
    stream->suspects.count = stream->suspect_at = 0;
    for (int i = 0; i < PQntuples(reply->results[0]); i++)
        seq_add(&stream->suspects, strtoll(PQgetvalue(reply->results[0], i, 0), NULL, 10));
    try_next(stream);
}

static void list_suspects(struct stream *stream) {
    stream->state = STATE_LISTING;
    char id[16];
    snprintf(id, sizeof id, "%d", stream->id);
    struct buffer seqs = {0};
    pg_array_begin(&seqs);
    for (size_t i = 0; i < stream->faulty.count; i++)
        pg_array_int(&seqs, stream->faulty.seqs[i]);
    db_query(stream->sse->conn, &sql_stream_suspects, 2, (const char *[]){id, pg_array_end(&seqs)}, DEADLINE_MS,
             suspects_listed, stream);
    buffer_free(&seqs);
}

static void batch_done(void *arg, const struct db_reply *reply, const struct error *error) {
    struct stream *stream = arg;
    stream->state = STATE_IDLE;
    if (!error) {
        backoff_reset(&stream->system_backoff);
        appended(stream, reply->results[1]);
        // With --once nobody may be there to tell: it is drained when nothing came.
        int again = stream->sse->options.on_drained ? 1 : BURST_ENTRIES;
        stream->woken = stream->woken || PQntuples(reply->results[1]) >= again;
    } else if (is_data_fault(error) && !stream->sse->stopping) {
        log_warn("append_isolating", LOG_INT("stream", stream->id), LOG_TEXT("error", error->text));
        list_suspects(stream);
        return;
    } else {
        system_fault(stream, error);
    }
    stream_advance(stream);
}

// ---- One by one

static void fault_counted(void *arg, const struct db_reply *reply, const struct error *error) {
    struct stream *stream = arg;
    int64_t seq = stream->suspects.seqs[stream->suspect_at];
    const PGresult *fault = reply ? reply->results[1] : NULL;
    bool there = fault && PQntuples(fault) == 1;
    seq_remove(&stream->faulty, seq);
    if (error || (there && PQgetvalue(fault, 0, 1)[0] == 'f')) {
        seq_add(&stream->faulty, seq);
    } else if (there) {
        metric_add(METRIC_JOBS_POISONED, lane, "rejected", 1);
        log_error("job_poisoned", LOG_TEXT("lane", lane), LOG_TEXT("subscription_id", PQgetvalue(fault, 0, 2)),
                  LOG_INT("seq", seq), LOG_TEXT("attempt", PQgetvalue(fault, 0, 0)), LOG_TEXT("class", "rejected"));
    }
    stream->suspect_at++;
    try_next(stream);
}

static void one_done(void *arg, const struct db_reply *reply, const struct error *error) {
    struct stream *stream = arg;
    int64_t seq = stream->suspects.seqs[stream->suspect_at];
    if (!error) {
        appended(stream, reply->results[1]);
        seq_remove(&stream->faulty, seq);
    } else if (is_data_fault(error)) {
        char id[16], text[24];
        snprintf(id, sizeof id, "%d", stream->id);
        snprintf(text, sizeof text, "%" PRId64, seq);
        log_warn("append_refused", LOG_INT("stream", stream->id), LOG_INT("seq", seq), LOG_TEXT("error", error->text));
        const char *values[] = {id, text};
        struct db_batch *batch = db_batch_begin(stream->sse->conn);
        db_batch_add(batch, &sql_stream_lock, 1, values); // it may append a mark
        db_batch_add(batch, &sql_stream_fault, 2, values);
        db_batch_send(batch, DEADLINE_MS, fault_counted, stream);
        return;
    } else {
        system_fault(stream, error);
        stream_advance(stream);
        return;
    }
    stream->suspect_at++;
    try_next(stream);
}

static void try_next(struct stream *stream) {
    if (stream->suspect_at < stream->suspects.count && !stream->sse->stopping) {
        int64_t seq = stream->suspects.seqs[stream->suspect_at];
        stream->state = STATE_TRYING;
        send_append(stream, seq, seq, NULL, one_done);
        return;
    }
    if (stream->faulty.count > 0)
        stream->faulty_at_ms = clock_ms() + backoff_next_ms(&stream->data_backoff);
    else
        backoff_reset(&stream->data_backoff);
    stream->state = STATE_IDLE;
    stream->woken = true;
    stream_advance(stream);
}

static void retry_faulty(struct stream *stream) {
    stream->suspects.count = stream->suspect_at = 0;
    for (size_t i = 0; i < stream->faulty.count; i++)
        seq_add(&stream->suspects, stream->faulty.seqs[i]);
    try_next(stream);
}

// ---- What to do next

static bool is_drained(const struct sink_sse *sse) {
    for (const struct stream *stream = sse->streams; stream; stream = stream->next)
        if (stream->state != STATE_IDLE || stream->woken || stream->faulty.count > 0)
            return false;
    return sse->up && sse->listed_once;
}

static void stop_check(struct sink_sse *sse) {
    if (!sse->stopping || sse->stopped)
        return;
    bool in_flight = false;
    for (const struct stream *stream = sse->streams; stream; stream = stream->next)
        in_flight = in_flight || stream->state != STATE_IDLE;
    if (in_flight && clock_ms() < sse->stop_ms + STOP_MS)
        return;
    sse->stopped = true;
    sse->on_stopped(sse->stopped_arg);
}

static void stream_advance(struct stream *stream) {
    struct sink_sse *sse = stream->sse;
    uint64_t now = clock_ms();
    if (sse->stopping) {
        // Told from the timer: on_stopped may close what our caller still uses.
        uv_timer_start(&sse->timer, on_timer, 0, 0);
        return;
    }
    if (!sse->up || stream->state != STATE_IDLE || now < stream->retry_at_ms)
        return;
    if (stream->faulty.count > 0 && now >= stream->faulty_at_ms) {
        retry_faulty(stream);
    } else if (stream->woken && stream->listed) {
        stream->woken = false;
        stream->state = STATE_APPENDING;
        send_append(stream, 0, INT64_MAX, &stream->faulty, batch_done);
    } else if (sse->options.on_drained && is_drained(sse)) {
        sse->options.on_drained(sse->options.arg);
    }
}

// ---- Streams

static struct stream *stream_find(struct sink_sse *sse, int id) {
    for (struct stream *stream = sse->streams; stream; stream = stream->next)
        if (stream->id == id)
            return stream;
    struct stream *stream = memory_alloc(sizeof *stream);
    *stream = (struct stream){.next = sse->streams,
                              .sse = sse,
                              .id = id,
                              .woken = true,
                              .system_backoff = {.first_ms = 200, .most_ms = 5000},
                              .data_backoff = {.first_ms = 2000, .most_ms = 60000}};
    sse->streams = stream;
    return stream;
}

static void streams_listed(void *arg, const struct db_reply *reply, const struct error *error) {
    struct sink_sse *sse = arg;
    sse->listing = false;
    if (error)
        return;
    sse->listed_once = true;
    sse->progress_ms = clock_ms();
    for (struct stream *stream = sse->streams; stream; stream = stream->next)
        stream->listed = false;
    stream_keys_clear(&sse->keys);
    for (int i = 0; i < PQntuples(reply->results[0]); i++) {
        if (i == 0)
            stream_keys_add(&sse->keys, PQgetvalue(reply->results[0], i, 2), PQgetvalue(reply->results[0], i, 3));
        struct stream *stream = stream_find(sse, atoi(PQgetvalue(reply->results[0], i, 0)));
        stream_channel(stream->channel, sizeof stream->channel, PQgetvalue(reply->results[0], i, 1), stream->id);
        stream->listed = true;
    }
    for (struct stream *stream = sse->streams; stream; stream = stream->next) {
        if (!stream->listed)
            stream->woken = false; // paused or gone
        stream_advance(stream);
    }
    if (!sse->streams && sse->options.on_drained && !sse->stopping)
        sse->options.on_drained(sse->options.arg);
}

static void on_timer(uv_timer_t *timer) {
    struct sink_sse *sse = timer->data;
    uint64_t now = clock_ms();
    uv_timer_start(&sse->timer, on_timer, POLL_MS, 0);
    if (sse->up && !sse->stopping) {
        if (!sse->listing && now >= sse->list_at_ms) {
            sse->list_at_ms = now + LIST_MS;
            sse->listing = true;
            db_query(sse->conn, &sql_stream_list, 0, NULL, DEADLINE_MS, streams_listed, sse);
        }
        sink_sse_wake(sse);
    }
    stop_check(sse);
}

void sink_sse_wake(struct sink_sse *sse) {
    for (struct stream *stream = sse->streams; stream; stream = stream->next) {
        stream->woken = stream->woken || stream->listed;
        stream_advance(stream);
    }
}

const char *sink_sse_unready(const struct sink_sse *sse) {
    if (!sse->up)
        return "database: not connected";
    return clock_ms() > sse->progress_ms + UNREADY_MS ? "database: no answer" : NULL;
}

// ---- Life

static void conn_up(void *arg, struct db_conn *conn) {
    struct sink_sse *sse = arg;
    sse->conn = conn;
    sse->up = true;
    sse->list_at_ms = 0;
    for (struct stream *stream = sse->streams; stream; stream = stream->next)
        stream->retry_at_ms = 0;
    uv_timer_start(&sse->timer, on_timer, 0, 0);
    sse->options.on_up(sse->options.arg);
}

static void conn_down(void *arg, struct db_conn *conn, const struct error *error, bool first) {
    struct sink_sse *sse = arg;
    sse->conn = conn;
    sse->up = false;
    sse->options.on_down(sse->options.arg, error, first);
}

static void redis_up(void *arg) {
    metric_set(METRIC_REDIS_CONNECTED, NULL, NULL, 1);
}

static void redis_down(void *arg, const struct error *error) {
    metric_set(METRIC_REDIS_CONNECTED, NULL, NULL, 0);
}

struct sink_sse *sink_sse_new(uv_loop_t *loop, const struct sink_sse_options *options) {
    struct sink_sse *sse = memory_alloc(sizeof *sse);
    sse->options = *options;
    sse->progress_ms = clock_ms();
    uv_timer_init(loop, &sse->timer);
    sse->timer.data = sse;
    uv_timer_start(&sse->timer, on_timer, POLL_MS, 0);
    if (options->redis_url)
        sse->redis = redis_conn_new(loop, &(struct redis_conn_options){.url = options->redis_url,
                                                                       .ca_file = options->redis_ca,
                                                                       .arg = sse,
                                                                       .on_up = redis_up,
                                                                       .on_down = redis_down});
    sse->conn = db_conn_new(loop, &(struct db_conn_options){.url = options->url,
                                                            .direct_url = options->direct_url,
                                                            .application_name = "rowbell-dispatcher-sse",
                                                            .writes = true,
                                                            .strict = options->on_drained != NULL,
                                                            .arg = sse,
                                                            .on_up = conn_up,
                                                            .on_down = conn_down});
    return sse;
}

void sink_sse_stop(struct sink_sse *sse, void (*on_stopped)(void *arg), void *arg) {
    sse->stopping = true;
    sse->on_stopped = on_stopped;
    sse->stopped_arg = arg;
    sse->stop_ms = clock_ms();
    uv_timer_start(&sse->timer, on_timer, 0, 0);
}

static void part_closed(struct sink_sse *sse) {
    if (--sse->open_parts > 0)
        return;
    while (sse->streams) {
        struct stream *stream = sse->streams;
        sse->streams = stream->next;
        free(stream->suspects.seqs);
        free(stream->faulty.seqs);
        free(stream);
    }
    buffer_free(&sse->message);
    stream_keys_clear(&sse->keys);
    void (*on_closed)(void *) = sse->on_closed;
    void *arg = sse->closed_arg;
    free(sse);
    if (on_closed)
        on_closed(arg);
}

static void client_closed(void *arg) {
    part_closed(arg);
}
static void timer_closed(uv_handle_t *handle) {
    part_closed(handle->data);
}

static void conn_closed(void *arg) {
    struct sink_sse *sse = arg;
    // Only now: answers that are cancelled by closing the connection may still start the timer.
    uv_close((uv_handle_t *)&sse->timer, timer_closed);
    part_closed(sse);
}

void sink_sse_close(struct sink_sse *sse, void (*on_closed)(void *arg), void *arg) {
    if (!sse) {
        if (on_closed)
            on_closed(arg);
        return;
    }
    sse->stopping = sse->stopped = true;
    sse->on_closed = on_closed;
    sse->closed_arg = arg;
    sse->open_parts = 3;
    redis_conn_close(sse->redis, client_closed, sse);
    db_conn_close(sse->conn, conn_closed, sse);
}
