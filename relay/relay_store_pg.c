// The SQL is in sql/; this file only sends it and reads its answers.
#include "relay/relay_store_pg.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "common/db_conn.h"
#include "common/memory.h"
#include "common/metrics.h"
#include "relay/metrics.h"
#include "relay/relay_wake.h"
#include "relay/sql.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OPERATION_DEADLINE_MS = 30000,
    // Others wait meanwhile: a pass that evaluates conditions, and the examination of the conditions of one event.
    CONDITIONS_PASS_MS = 2000,
    EXAMINE_MS = 500,
    GAUGES_EVERY_MS = 5000,
    WHOLE_PASSES = 20, // what left its events costs a pass twice, so that it is tried where they are rare
};

struct relay_store_pg {
    struct relay_store port;
    struct relay_store_pg_options options;
    struct db_conn *conn;
    struct relay_wake *wake;
    int64_t mark;              // of the pass in flight
    int whole;                 // passes by the whole statement, until pass_plain.sql is tried again
    bool sampled;              // the pass in flight takes a sample
    bool conditions;           // it evaluates conditions
    struct buffer skip, aside; // keys of conditions, as arrays, for the pass in flight
    int open_handles;
    uv_timer_t *timer;  // relay_store.wait
    uv_timer_t *gauges; // asks for counts of what waits
};

static int64_t number(const PGresult *row, int column) {
    return strtoll(PQgetvalue(row, 0, column), NULL, 10);
}

// The columns of enqueue.sql.
enum { EVENTS, JOBS, OLDEST_AGE, CLAIMED, HIGHEST, CLAIM_MS, XMIN, POISONED, SPECIAL, LEFT, PUT_ASIDE };

static struct relay_pass read_pass(const struct relay_store_pg *store, const struct db_reply *reply) {
    const PGresult *row = reply->results[reply->count - 1];
    struct relay_pass pass = {
        .events = number(row, EVENTS),
        .jobs = number(row, JOBS),
        .poisoned = number(row, POISONED),
        .oldest_age_s = strtod(PQgetvalue(row, 0, OLDEST_AGE), NULL),
        .claim =
            {
                .mark = store->mark,
                .claimed = number(row, CLAIMED),
                .marked = number(row, EVENTS),
                .highest = number(row, HIGHEST),
                .full = number(row, CLAIMED) == RELAY_BATCH_SIZE,
                .claim_ms = strtod(PQgetvalue(row, 0, CLAIM_MS), NULL),
                .xmin = strtoull(PQgetvalue(row, 0, XMIN), NULL, 10),
            },
        .sampled = store->sampled,
        .conditions = store->conditions,
        .put_aside = number(row, PUT_ASIDE),
    };
    if (pass.sampled)
        pass.sample = (struct low_water_sample){
            .seq = number(reply->results[0], 0),
            .xid = strtoull(PQgetvalue(reply->results[1], 0, 0), NULL, 10),
        };
    return pass;
}

static void on_pass(void *arg, const struct db_reply *reply, const struct error *error) {
    struct relay_store_pg *store = arg;
    struct relay_pass pass = {.conditions = store->conditions};
    if (!error) {
        const PGresult *row = reply->results[reply->count - 1];
        pass = read_pass(store, reply);
        pass.claim.left = number(row, LEFT);
        if (number(row, SPECIAL) > 0)
            store->whole = WHOLE_PASSES;
        else if (pass.claim.claimed > 0 && store->whole > 0)
            store->whole--;
    }
    relay_on_pass(store->options.relay, &pass, error);
}

static void on_pass_one(void *arg, const struct db_reply *reply, const struct error *error) {
    struct relay_store_pg *store = arg;
    struct relay_pass pass = error ? (struct relay_pass){0} : read_pass(store, reply);
    relay_on_pass_one(store->options.relay, error ? NULL : &pass, error);
}

static void on_examine(void *arg, const struct db_reply *reply, const struct error *error) {
    struct relay_store_pg *store = arg;
    struct relay_examined examined = {0};
    if (!error && PQntuples(reply->results[1]) == 1) {
        const PGresult *row = reply->results[1];
        examined.subscription = (int)number(row, 0);
        snprintf(examined.key, sizeof examined.key, "%s", PQgetvalue(row, 0, 1));
        examined.slow = PQgetvalue(row, 0, 2)[0] == 't';
    }
    relay_on_examine(store->options.relay, error ? NULL : &examined, error);
}

static void on_list(void *arg, const struct db_reply *reply, const struct error *error) {
    struct relay_store_pg *store = arg;
    struct relay_suspect suspects[RELAY_BATCH_SIZE];
    size_t count = 0;
    if (!error) {
        const PGresult *rows = reply->results[0];
        for (int i = 0; i < PQntuples(rows) && count < RELAY_BATCH_SIZE; i++) {
            suspects[count++] = (struct relay_suspect){
                .seq = strtoll(PQgetvalue(rows, i, 0), NULL, 10),
                .attempts = atoi(PQgetvalue(rows, i, 1)),
            };
        }
    }
    relay_on_list(store->options.relay, suspects, count, error);
}

static void on_fail(void *arg, const struct db_reply *reply, const struct error *error) {
    struct relay_store_pg *store = arg;
    bool counted = !error && PQntuples(reply->results[0]) == 1;
    bool poisoned = counted && PQgetvalue(reply->results[0], 0, 0)[0] == 't';
    relay_on_fail(store->options.relay, counted, poisoned, error);
}

// A key is made of digits, a colon and a minus: nothing to quote.
static void keys_array(struct buffer *array, const char *const *keys, size_t count) {
    buffer_clear(array);
    buffer_text(array, "{");
    for (size_t i = 0; i < count; i++)
        buffer_format(array, "%s%s", i ? "," : "", keys[i]);
    buffer_text(array, "}");
}

static void keep_conditions(struct relay_store_pg *store, const struct relay_conditions *conditions) {
    keys_array(&store->skip, conditions->skip, conditions->skip_count);
    keys_array(&store->aside, conditions->aside, conditions->aside_count);
}

static void add_time_limit(struct db_batch *batch, int ms) {
    char text[12];
    snprintf(text, sizeof text, "%d", ms);
    db_batch_add(batch, &sql_time_limit, 1, (const char *const[]){text});
}

static void send_pass(struct relay_store_pg *store, bool sample) {
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, store->mark);
    store->sampled = sample;
    store->conditions = store->whole > 0;
    struct db_batch *batch = db_batch_begin(store->conn);
    if (sample) {
        db_batch_add(batch, &sql_sample_sequence, 0, NULL);
        db_batch_add(batch, &sql_sample_xid, 0, NULL);
    }
    const char *const values[] = {text, "false", store->skip.bytes, store->aside.bytes};
    if (store->conditions) {
        add_time_limit(batch, CONDITIONS_PASS_MS);
        db_batch_add(batch, &sql_pass, 4, values);
    } else {
        db_batch_add(batch, &sql_pass_plain, 1, values);
    }
    db_batch_send(batch, OPERATION_DEADLINE_MS, on_pass, store);
}

static void on_waiting(void *arg, const struct db_reply *reply, const struct error *error) {
    struct relay_store_pg *store = arg;
    if (error) {
        relay_on_pass(store->options.relay, &(struct relay_pass){0}, error);
        return;
    }
    const PGresult *row = reply->results[0];
    if (PQgetvalue(row, 0, 0)[0] == 't') {
        send_pass(store, false);
        return;
    }
    struct relay_pass none = {.claim = {.mark = store->mark,
                                        .claim_ms = strtod(PQgetvalue(row, 0, 1), NULL),
                                        .xmin = strtoull(PQgetvalue(row, 0, 2), NULL, 10)}};
    relay_on_pass(store->options.relay, &none, NULL);
}

static void port_pass(void *arg, int64_t mark, bool sample, bool hardly, const struct relay_conditions *conditions) {
    struct relay_store_pg *store = arg;
    store->mark = mark;
    keep_conditions(store, conditions);
    if (sample || !hardly) {
        send_pass(store, sample);
        return;
    }
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, mark);
    db_query(store->conn, &sql_waiting, 1, (const char *const[]){text}, OPERATION_DEADLINE_MS, on_waiting, store);
}

static void port_examine(void *arg, int64_t seq, int after_subscription, const struct relay_conditions *conditions) {
    struct relay_store_pg *store = arg;
    char seq_text[24];
    char after[12];
    snprintf(seq_text, sizeof seq_text, "%" PRId64, seq);
    snprintf(after, sizeof after, "%d", after_subscription);
    keep_conditions(store, conditions);
    struct db_batch *batch = db_batch_begin(store->conn);
    add_time_limit(batch, EXAMINE_MS);
    db_batch_add(batch, &sql_examine, 3, (const char *const[]){seq_text, after, store->skip.bytes});
    db_batch_send(batch, OPERATION_DEADLINE_MS, on_examine, store);
}

static void port_pass_one(void *arg, int64_t seq, bool patient, const struct relay_conditions *conditions) {
    struct relay_store_pg *store = arg;
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, seq);
    keep_conditions(store, conditions);
    store->sampled = false;
    struct db_batch *batch = db_batch_begin(store->conn);
    if (!patient)
        add_time_limit(batch, CONDITIONS_PASS_MS);
    const char *const values[] = {text, "true", store->skip.bytes, store->aside.bytes};
    db_batch_add(batch, &sql_pass_one, 4, values);
    db_batch_send(batch, OPERATION_DEADLINE_MS, on_pass_one, store);
}

static void port_list(void *arg, enum relay_suspects which) {
    struct relay_store_pg *store = arg;
    db_query(store->conn, which == RELAY_SUSPECTS_BATCH ? &sql_isolate : &sql_due, 0, NULL, OPERATION_DEADLINE_MS,
             on_list, store);
}

static void port_set_awake(void *arg, bool awake) {
    struct relay_store_pg *store = arg;
    relay_wake_set_awake(store->wake, awake);
}

static uint64_t port_now_ms(void *arg) {
    (void)arg;
    return clock_ms();
}

static void port_fail(void *arg, const struct relay_suspect *suspect, const char *reason) {
    struct relay_store_pg *store = arg;
    char seq[24];
    char attempts[12];
    snprintf(seq, sizeof seq, "%" PRId64, suspect->seq);
    snprintf(attempts, sizeof attempts, "%d", suspect->attempts);
    db_query(store->conn, &sql_fail, 3, (const char *const[]){seq, attempts, reason}, OPERATION_DEADLINE_MS, on_fail,
             store);
}

static void on_timer(uv_timer_t *timer) {
    struct relay_store_pg *store = timer->data;
    relay_on_timer(store->options.relay);
}

static void port_wait(void *arg, uint64_t ms) {
    struct relay_store_pg *store = arg;
    uv_timer_start(store->timer, on_timer, ms, 0);
}

static void on_pending(void *arg, const struct db_reply *reply, const struct error *error) {
    if (!error) {
        const PGresult *row = reply->results[0];
        metric_set(METRIC_EVENTS_PENDING, NULL, NULL, strtod(PQgetvalue(row, 0, 0), NULL));
        metric_set(METRIC_EVENTS_OLDEST_AGE, NULL, NULL, strtod(PQgetvalue(row, 0, 1), NULL));
        metric_set(METRIC_EVENTS_POISONED, NULL, NULL, strtod(PQgetvalue(row, 0, 2), NULL));
    }
}

static void on_gauges(uv_timer_t *timer) {
    struct relay_store_pg *store = timer->data;
    if (db_conn_is_up(store->conn)) {
        db_query(store->conn, &sql_pending, 0, NULL, OPERATION_DEADLINE_MS, on_pending, store);
    }
}

static void on_up(void *arg, struct db_conn *conn) {
    struct relay_store_pg *store = arg;
    store->conn = conn; // on_up may come before db_conn_new has returned to us
    metric_set(METRIC_DATABASE_CONNECTED, NULL, NULL, 1);
    if (store->options.on_up) {
        store->options.on_up(store->options.arg);
    }
    relay_on_up(store->options.relay);
    relay_wake_probe_from(store->wake, conn);
}

static void on_wake(void *arg) {
    struct relay_store_pg *store = arg;
    relay_on_wake(store->options.relay);
}

static void on_asleep(void *arg) {
    struct relay_store_pg *store = arg;
    relay_on_asleep(store->options.relay);
}

static void on_down(void *arg, struct db_conn *conn, const struct error *error, bool first) {
    struct relay_store_pg *store = arg;
    (void)conn;
    uv_timer_stop(store->timer);
    metric_set(METRIC_DATABASE_CONNECTED, NULL, NULL, 0);
    relay_on_down(store->options.relay);
    if (store->options.on_down) {
        store->options.on_down(store->options.arg, error, first);
    }
}

static void on_wake_refused(void *arg, const struct error *error) {
    const struct relay_store_pg *store = arg;
    if (store->options.on_down)
        store->options.on_down(store->options.arg, error, true);
}

static uv_timer_t *timer_new(uv_loop_t *loop, struct relay_store_pg *store) {
    uv_timer_t *timer = memory_alloc(sizeof *timer);
    uv_timer_init(loop, timer);
    timer->data = store;
    return timer;
}

struct relay_store_pg *relay_store_pg_new(uv_loop_t *loop, const struct relay_store_pg_options *options) {
    struct relay_store_pg *store = memory_alloc(sizeof *store);
    store->options = *options;
    store->port = (struct relay_store){
        .arg = store,
        .pass = port_pass,
        .list = port_list,
        .examine = port_examine,
        .pass_one = port_pass_one,
        .fail = port_fail,
        .set_awake = port_set_awake,
        .wait = port_wait,
        .now_ms = port_now_ms,
    };
    store->timer = timer_new(loop, store);
    store->gauges = timer_new(loop, store);
    uv_timer_start(store->gauges, on_gauges, 0, GAUGES_EVERY_MS);
    store->wake = relay_wake_new(loop, &(struct relay_wake_options){
                                           .url = options->url,
                                           .direct_url = options->direct_url,
                                           .probe_every_ms = options->sweep_ms,
                                           .arg = store,
                                           .on_wake = on_wake,
                                           .on_asleep = on_asleep,
                                           .on_refused = on_wake_refused,
                                       });
    store->conn = db_conn_new(loop, &(struct db_conn_options){
                                        .url = options->url,
                                        .direct_url = options->direct_url,
                                        .application_name = "rowbell-relay",
                                        .writes = true,
                                        .strict = options->once,
                                        .arg = store,
                                        .on_up = on_up,
                                        .on_down = on_down,
                                    });
    return store;
}

const struct relay_store *relay_store_pg_port(struct relay_store_pg *store) {
    return &store->port;
}

static void on_timer_closed(uv_handle_t *timer) {
    free(timer);
}

static void on_closed(void *arg) {
    struct relay_store_pg *store = arg;
    if (--store->open_handles > 0)
        return;
    buffer_free(&store->skip);
    buffer_free(&store->aside);
    free(store);
}

void relay_store_pg_close(struct relay_store_pg *store) {
    uv_close((uv_handle_t *)store->timer, on_timer_closed);
    uv_close((uv_handle_t *)store->gauges, on_timer_closed);
    store->open_handles = 2;
    relay_wake_close(store->wake, on_closed, store);
    db_conn_close(store->conn, on_closed, store);
}
