// The happy path is: connect, LISTEN, ask for the installation's id, then on_up. The failure mode is the connection:
// db_conn answers what is in flight with an error, and stream.c asks again after on_up.
#include "gateway/source_log.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "common/db_conn.h"
#include "common/log.h"
#include "common/memory.h"
#include "gateway/log_rows.h"
#include "gateway/sql.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { READ_DEADLINE_MS = 10000, KEEPALIVE_MS = 10000 };

struct source_log {
    struct source_log_options options;
    struct db_conn *conn;
};

// What a read needs to hand its answer on.
struct read {
    stream_page_done *page_done;
    stream_position_done *position_done;
    void *arg;
};

static struct read *read_new(stream_page_done *page_done, stream_position_done *position_done, void *arg) {
    struct read *read = memory_alloc(sizeof *read);
    *read = (struct read){page_done, position_done, arg};
    return read;
}

static void on_installation(void *arg, const struct db_reply *reply, const struct error *error) {
    struct source_log *source = arg;
    if (error) {
        if (error->code != ERROR_CANCELLED) {
            log_warn("installation_unknown", LOG_TEXT("error", error->text));
        }
        if (db_conn_is_up(source->conn)) {
            db_conn_reset(source->conn, error->text); // tries again, with the connection's backoff
        }
        return;
    }
    const PGresult *result = reply->results[0];
    source->options.on_up(source->options.arg, PQntuples(result) > 0 ? PQgetvalue(result, 0, 0) : "");
}

static void on_up(void *arg, struct db_conn *conn) {
    db_query(conn, &sql_installation, 0, NULL, READ_DEADLINE_MS, on_installation, arg);
}

static void on_down(void *arg, struct db_conn *conn, const struct error *error, bool first) {
    struct source_log *source = arg;
    source->options.on_down(source->options.arg, error, first);
}

static void on_notify(void *arg, const char *channel, const char *payload) {
    struct source_log *source = arg;
    source->options.on_news(source->options.arg, strtoll(payload, NULL, 10));
}

struct source_log *source_log_new(uv_loop_t *loop, const struct source_log_options *options) {
    static const char *const channels[] = {"rowbell_stream", NULL};
    struct source_log *source = memory_alloc(sizeof *source);
    source->options = *options;
    source->conn = db_conn_new(loop, &(struct db_conn_options){
                                         .url = options->url,
                                         .application_name = "rowbell-gateway",
                                         .keepalive_ms = KEEPALIVE_MS,
                                         .channels = channels,
                                         .arg = source,
                                         .on_up = on_up,
                                         .on_down = on_down,
                                         .on_notify = on_notify,
                                     });
    return source;
}

bool source_log_is_up(const struct source_log *source) {
    return db_conn_is_up(source->conn);
}

void source_log_close(struct source_log *source) {
    if (source) {
        db_conn_close(source->conn, free, source);
    }
}

// ---- the port ----

static uint64_t port_now_ms(void *arg) {
    return clock_ms();
}

static void on_position(void *arg, const struct db_reply *reply, const struct error *error) {
    struct read *read = arg;
    read->position_done(read->arg, error ? 0 : log_row_int(reply->results[0], 0, 0), error);
    free(read);
}

static void port_begin(void *arg, size_t depth, stream_position_done *done, void *done_arg) {
    struct source_log *source = arg;
    char stream[16];
    char entries[24];
    snprintf(stream, sizeof stream, "%d", STREAM_ID);
    snprintf(entries, sizeof entries, "%zu", depth);
    db_query(source->conn, &sql_log_begin, 2, (const char *[]){stream, entries}, READ_DEADLINE_MS, on_position,
             read_new(NULL, done, done_arg));
}

static void on_page(void *arg, const struct db_reply *reply, const struct error *error) {
    struct read *read = arg;
    if (error) {
        read->page_done(read->arg, NULL, error);
        free(read);
        return;
    }
    const PGresult *result = reply->results[0];
    int rows = PQntuples(result);
    struct stream_entry *entries = memory_alloc((size_t)rows * sizeof *entries);
    struct stream_page page = {
        .holds = log_row_bool(result, 0, 0),
        .oldest = log_row_int(result, 0, 1),
        .newest = log_row_int(result, 0, 2),
        .entries = entries,
    };
    for (int row = 0; row < rows; row++) {
        if (log_row_entry(result, row, 3, &entries[page.count])) {
            page.count++;
        }
    }
    read->page_done(read->arg, &page, NULL);
    free(entries);
    free(read);
}

static void port_read_after(void *arg, int64_t position, size_t limit, stream_page_done *done, void *done_arg) {
    struct source_log *source = arg;
    char stream[16];
    char after[24];
    char most[24];
    snprintf(stream, sizeof stream, "%d", STREAM_ID);
    snprintf(after, sizeof after, "%" PRId64, position);
    snprintf(most, sizeof most, "%zu", limit);
    db_query(source->conn, &sql_log_after, 3, (const char *[]){stream, after, most}, READ_DEADLINE_MS, on_page,
             read_new(done, NULL, done_arg));
}

static void port_newest_held(void *arg, const int64_t *positions, size_t count, stream_position_done *done,
                             void *done_arg) {
    struct source_log *source = arg;
    char stream[16];
    struct buffer array = {0};
    snprintf(stream, sizeof stream, "%d", STREAM_ID);
    for (size_t i = 0; i < count; i++) {
        buffer_format(&array, "%c%" PRId64, i == 0 ? '{' : ',', positions[i]);
    }
    buffer_char(&array, '}');
    db_query(source->conn, &sql_log_newest_held, 2, (const char *[]){stream, array.bytes}, READ_DEADLINE_MS,
             on_position, read_new(NULL, done, done_arg));
    buffer_free(&array);
}

struct stream_source source_log_port(struct source_log *source) {
    return (struct stream_source){
        .arg = source,
        .now_ms = port_now_ms,
        .begin = port_begin,
        .read_after = port_read_after,
        .newest_held = port_newest_held,
    };
}
