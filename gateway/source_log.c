// The happy path is: connect, LISTEN, ask for the installation's id, then on_up. The failure mode is the connection:
// db_conn answers what is in flight with an error, and who asked asks again.
//
// Three connections: one follows the log, one reads what clients missed, so that a crowd that reconnects does not hold
// up the following, and one, opened when it is first needed, asks the primary when the second is a copy.
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

enum { READ_DEADLINE_MS = 10000, KEEPALIVE_MS = 10000, ROWS_LOOKED_AT_MOST = 50000 };

struct source_log {
    struct stream_listener listener;
    uv_loop_t *loop;
    char *url;        // owned
    char *direct_url; // owned, NULL: url is the primary's
    struct db_conn *follow;
    struct db_conn *missed;
    struct db_conn *primary; // NULL until needed
    int open;                // connections, once closing
};

// What a read needs to hand its answer on.
struct read {
    stream_page_done *page_done;
    stream_position_done *position_done;
    stream_missed_done *missed_done;
    stream_keys_done *keys_done;
    void *arg;
};

static struct read *read_new(struct read read) {
    struct read *kept = memory_alloc(sizeof *kept);
    *kept = read;
    return kept;
}

// A number as a statement's parameter: a view that lives as long as the block it stands in.
#define NUMBER(value) number_text((char[24]){0}, (int64_t)(value))
static const char *number_text(char *ret_text, int64_t value) {
    snprintf(ret_text, 24, "%" PRId64, value);
    return ret_text;
}

// ---- connections ----

static void on_installation(void *arg, const struct db_reply *reply, const struct error *error) {
    struct source_log *source = arg;
    if (error) {
        if (error->code != ERROR_CANCELLED) {
            log_warn("installation_unknown", LOG_TEXT("error", error->text));
        }
        if (db_conn_is_up(source->follow)) {
            db_conn_reset(source->follow, error->text); // tries again, with the connection's backoff
        }
        return;
    }
    const PGresult *result = reply->results[0];
    source->listener.on_up(source->listener.arg, PQntuples(result) > 0 ? PQgetvalue(result, 0, 0) : "");
}

static void on_follow_up(void *arg, struct db_conn *conn) {
    db_query(conn, &sql_installation, 0, NULL, READ_DEADLINE_MS, on_installation, arg);
}

static void on_follow_down(void *arg, struct db_conn *conn, const struct error *error, bool first) {
    struct source_log *source = arg;
    source->listener.on_down(source->listener.arg, error, first);
}

static void on_notify(void *arg, const char *channel, const char *payload) {
    struct source_log *source = arg;
    source->listener.on_news(source->listener.arg, strtoll(payload, NULL, 10));
}

static void on_read_down(void *arg, struct db_conn *conn, const struct error *error, bool first) {
    // The first connection's failure ends the process, which says it in one line.
    log_write(first ? LOG_DEBUG : LOG_WARN, "replay_database_down", LOG_FIELDS(LOG_TEXT("error", error->text)));
}

static struct db_conn *connect_for_reads(struct source_log *source, bool primary) {
    return db_conn_new(source->loop, &(struct db_conn_options){
                                         .url = source->url,
                                         .direct_url = source->direct_url,
                                         .session = primary,
                                         .application_name = "rowbell-gateway",
                                         .arg = source,
                                         .on_down = on_read_down,
                                     });
}

static void feed_start(void *arg, const struct stream_listener *listener) {
    static const char *const channels[] = {"rowbell_stream", NULL};
    struct source_log *source = arg;
    source->listener = *listener;
    source->follow = db_conn_new(source->loop, &(struct db_conn_options){
                                                   .url = source->url,
                                                   .direct_url = source->direct_url,
                                                   .application_name = "rowbell-gateway",
                                                   .keepalive_ms = KEEPALIVE_MS,
                                                   .channels = channels,
                                                   .arg = source,
                                                   .on_up = on_follow_up,
                                                   .on_down = on_follow_down,
                                                   .on_notify = on_notify,
                                               });
    source->missed = connect_for_reads(source, false);
}

static bool feed_is_up(void *arg) {
    const struct source_log *source = arg;
    return db_conn_is_up(source->follow);
}

static void on_closed(void *arg) {
    struct source_log *source = arg;
    if (--source->open == 0) {
        free(source->url);
        free(source->direct_url);
        free(source);
    }
}

static void feed_close(void *arg) {
    struct source_log *source = arg;
    source->open = 3;
    db_conn_close(source->follow, on_closed, source);
    db_conn_close(source->missed, on_closed, source);
    db_conn_close(source->primary, on_closed, source);
}

// ---- following ----

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
    const char *values[] = {NUMBER(STREAM_ID), NUMBER(depth)};
    db_query(source->follow, &sql_log_begin, 2, values, READ_DEADLINE_MS, on_position,
             read_new((struct read){.position_done = done, .arg = done_arg}));
}

static void on_keys(void *arg, const struct db_reply *reply, const struct error *error) {
    struct read *read = arg;
    struct stream_keys keys = {0};
    for (int row = 0; !error && row < PQntuples(reply->results[0]); row++) {
        stream_keys_add(&keys, PQgetvalue(reply->results[0], row, 0), PQgetvalue(reply->results[0], row, 1));
    }
    read->keys_done(read->arg, error ? NULL : &keys, error);
    stream_keys_clear(&keys);
    free(read);
}

static void port_read_keys(void *arg, stream_keys_done *done, void *done_arg) {
    struct source_log *source = arg;
    db_query(source->follow, &sql_stream_keys, 0, NULL, READ_DEADLINE_MS, on_keys,
             read_new((struct read){.keys_done = done, .arg = done_arg}));
}

// The entries of a result from this column on; returns owned.
static struct stream_entry *entries_new(const PGresult *result, int column, size_t *ret_count) {
    int rows = PQntuples(result);
    struct stream_entry *entries = memory_alloc((size_t)rows * sizeof *entries);
    *ret_count = 0;
    for (int row = 0; row < rows; row++) {
        if (log_row_entry(result, row, column, &entries[*ret_count])) {
            ++*ret_count;
        }
    }
    return entries;
}

static void on_page(void *arg, const struct db_reply *reply, const struct error *error) {
    struct read *read = arg;
    if (error) {
        read->page_done(read->arg, NULL, error);
        free(read);
        return;
    }
    const PGresult *result = reply->results[0];
    struct stream_page page = {
        .holds = log_row_bool(result, 0, 0),
        .oldest = log_row_int(result, 0, 1),
        .newest = log_row_int(result, 0, 2),
    };
    struct stream_entry *entries = entries_new(result, 3, &page.count);
    page.entries = entries;
    read->page_done(read->arg, &page, NULL);
    free(entries);
    free(read);
}

static void port_read_after(void *arg, int64_t position, size_t limit, stream_page_done *done, void *done_arg) {
    struct source_log *source = arg;
    const char *values[] = {NUMBER(STREAM_ID), NUMBER(position), NUMBER(limit)};
    db_query(source->follow, &sql_log_after, 3, values, READ_DEADLINE_MS, on_page,
             read_new((struct read){.page_done = done, .arg = done_arg}));
}

static void port_newest_held(void *arg, const int64_t *positions, size_t count, stream_position_done *done,
                             void *done_arg) {
    struct source_log *source = arg;
    struct buffer array = {0};
    for (size_t i = 0; i < count; i++) {
        buffer_format(&array, "%c%" PRId64, i == 0 ? '{' : ',', positions[i]);
    }
    buffer_char(&array, '}');
    const char *values[] = {NUMBER(STREAM_ID), array.bytes};
    db_query(source->follow, &sql_log_newest_held, 2, values, READ_DEADLINE_MS, on_position,
             read_new((struct read){.position_done = done, .arg = done_arg}));
    buffer_free(&array);
}

// ---- what a client missed ----

static void on_missed(void *arg, const struct db_reply *reply, const struct error *error) {
    struct read *read = arg;
    if (error) {
        read->missed_done(read->arg, NULL, error);
        free(read);
        return;
    }
    const PGresult *result = reply->results[0];
    struct stream_missed missed = {
        .holds = log_row_bool(result, 0, 0),
        .oldest = log_row_int(result, 0, 1),
        .newest = log_row_int(result, 0, 2),
        .over_budget = log_row_bool(result, 0, 3),
        .holds_head = log_row_bool(result, 0, 4),
        .primary = log_row_bool(result, 0, 5),
    };
    struct stream_entry *entries = entries_new(result, 6, &missed.count);
    missed.entries = entries;
    read->missed_done(read->arg, &missed, NULL);
    free(entries);
    free(read);
}

static void port_read_missed(void *arg, const struct stream_missed_ask *ask, stream_missed_done *done, void *done_arg) {
    struct source_log *source = arg;
    struct db_conn *conn = source->missed;
    struct buffer tables = {0};
    struct buffer scopes = {0};
    bool listed = !scope_rights_see_every_scope(ask->rights);
    const char *unscoped = scope_rights_see(ask->rights, NULL) ? "t" : "f";
    if (ask->primary && source->direct_url) {
        if (!source->primary) {
            source->primary = connect_for_reads(source, true);
        }
        conn = source->primary;
    }
    if (ask->tables) {
        table_filter_append_array(ask->tables, &tables);
    }
    if (listed) {
        scope_rights_append_array(ask->rights, &scopes);
    }
    const char *values[] = {NUMBER(STREAM_ID),
                            NUMBER(ask->after),
                            NUMBER(ask->head),
                            NUMBER(ask->limit),
                            tables.bytes,
                            NUMBER(ROWS_LOOKED_AT_MOST),
                            listed ? scopes.bytes : unscoped,
                            unscoped};
    db_query(conn, listed ? &sql_replay_scoped : &sql_replay, listed ? 8 : 7, values, READ_DEADLINE_MS, on_missed,
             read_new((struct read){.missed_done = done, .arg = done_arg}));
    buffer_free(&tables);
    buffer_free(&scopes);
}

struct stream_source source_log_new(uv_loop_t *loop, const char *url, const char *direct_url) {
    struct source_log *source = memory_alloc(sizeof *source);
    *source = (struct source_log){
        .loop = loop,
        .url = memory_copy_text(url),
        .direct_url = direct_url ? memory_copy_text(direct_url) : NULL,
    };
    return (struct stream_source){
        .arg = source,
        .now_ms = port_now_ms,
        .begin = port_begin,
        .read_after = port_read_after,
        .newest_held = port_newest_held,
        .read_missed = port_read_missed,
        .read_keys = port_read_keys,
        .feed = source,
        .start = feed_start,
        .is_up = feed_is_up,
        .close = feed_close,
    };
}
