#include "relay/relay_wake.h"
#include "common/backoff.h"
#include "common/db_conn.h"
#include "common/log.h"
#include "common/memory.h"
#include "common/metrics.h"
#include "relay/metrics.h"
#include "relay/sql.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEADLINE_MS = 10000, PROBE_ANSWER_MS = 5000 };

static const char *const channels[] = {"rowbell_events", NULL};

struct relay_wake {
    struct relay_wake_options options;
    struct db_conn *conn;
    struct db_conn *sender;
    uv_timer_t probe_timer; // the next probe, or the end of the patience with this one
    char nonce[40];         // "probe ..."; "" while none is out
    bool working;
    bool told; // whether `working` was logged
    bool awake;
    int open_handles;
    void (*on_closed)(void *arg);
    void *closed_arg;
};

static void nothing(void *arg, const struct db_reply *reply, const struct error *error) {
    (void)arg;
    (void)reply;
    (void)error; // a lost connection gives the lock back by itself
}

static void on_asleep(void *arg, const struct db_reply *reply, const struct error *error) {
    struct relay_wake *wake = arg;
    (void)reply;
    if (!error || error->code != ERROR_CANCELLED)
        wake->options.on_asleep(wake->options.arg);
}

void relay_wake_set_awake(struct relay_wake *wake, bool awake) {
    wake->awake = awake;
    if (!awake)
        db_query(wake->conn, &sql_asleep, 0, NULL, DEADLINE_MS, on_asleep, wake);
    else if (wake->working)
        db_query(wake->conn, &sql_awake, 0, NULL, DEADLINE_MS, nothing, wake);
}

static void set_working(struct relay_wake *wake, bool working) {
    if (working && !wake->working && wake->awake)
        db_query(wake->conn, &sql_awake, 0, NULL, DEADLINE_MS, nothing, wake);
    if (!wake->told || wake->working != working) {
        if (working)
            log_info("listen_working");
        else
            log_warn("listen_not_working",
                     LOG_TEXT("remedy", "give --direct-database-url, past the transaction pooler; polling "
                                        "meanwhile"));
    }
    wake->told = true;
    wake->working = working;
    metric_set(METRIC_LISTEN_WORKING, NULL, NULL, working ? 1 : 0);
}

static void on_probe_timer(uv_timer_t *timer);

static void probe(struct relay_wake *wake) {
    static unsigned long long probes;
    if (!wake->sender || !db_conn_is_up(wake->sender) || !db_conn_is_up(wake->conn)) {
        uv_timer_start(&wake->probe_timer, on_probe_timer, 1000, 0);
        return;
    }
    snprintf(wake->nonce, sizeof wake->nonce, "probe %d.%llu.%06x", db_conn_backend_pid(wake->conn), ++probes,
             (unsigned)(random_unit() * 0xffffff));
    db_query(wake->sender, &sql_probe, 1, (const char *const[]){wake->nonce}, DEADLINE_MS, nothing, wake);
    uv_timer_start(&wake->probe_timer, on_probe_timer, PROBE_ANSWER_MS, 0);
}

static void on_probe_timer(uv_timer_t *timer) {
    struct relay_wake *wake = timer->data;
    if (wake->nonce[0] && db_conn_is_up(wake->sender) && db_conn_is_up(wake->conn))
        set_working(wake, false);
    bool answered = !wake->nonce[0];
    wake->nonce[0] = '\0';
    if (answered)
        probe(wake);
    else
        uv_timer_start(timer, on_probe_timer, wake->options.probe_every_ms, 0);
}

void relay_wake_probe_from(struct relay_wake *wake, struct db_conn *sender) {
    wake->sender = sender;
    wake->nonce[0] = '\0';
    probe(wake);
}

static void on_notify(void *arg, const char *channel, const char *payload) {
    struct relay_wake *wake = arg;
    (void)channel;
    if (strncmp(payload, "probe ", 6) != 0) {
        wake->options.on_wake(wake->options.arg);
    } else if (strcmp(payload, wake->nonce) == 0) {
        wake->nonce[0] = '\0';
        set_working(wake, true);
        uv_timer_start(&wake->probe_timer, on_probe_timer, wake->options.probe_every_ms, 0);
    }
}

static void on_up(void *arg, struct db_conn *conn) {
    struct relay_wake *wake = arg;
    wake->conn = conn;
    // What came while nobody listened is found by a pass.
    wake->options.on_wake(wake->options.arg);
    wake->nonce[0] = '\0';
    probe(wake);
}

static void on_down(void *arg, struct db_conn *conn, const struct error *error, bool first) {
    struct relay_wake *wake = arg;
    (void)conn;
    bool pooler = error->code == ERROR_USAGE;
    if (pooler && wake->options.direct_url && first)
        wake->options.on_refused(wake->options.arg, error);
    else if (pooler)
        set_working(wake, false);
    else if (first)
        log_warn("listen_down", LOG_TEXT("error", error->text));
    wake->working = false;
    wake->told = pooler;
    wake->nonce[0] = '\0';
    metric_set(METRIC_LISTEN_WORKING, NULL, NULL, 0);
}

struct relay_wake *relay_wake_new(uv_loop_t *loop, const struct relay_wake_options *options) {
    struct relay_wake *wake = memory_alloc(sizeof *wake);
    wake->options = *options;
    uv_timer_init(loop, &wake->probe_timer);
    wake->probe_timer.data = wake;
    wake->conn = db_conn_new(loop, &(struct db_conn_options){
                                       .url = options->url,
                                       .direct_url = options->direct_url,
                                       .application_name = "rowbell-relay-listen",
                                       .channels = channels,
                                       .arg = wake,
                                       .on_up = on_up,
                                       .on_down = on_down,
                                       .on_notify = on_notify,
                                   });
    return wake;
}

static void release(struct relay_wake *wake) {
    if (--wake->open_handles > 0)
        return;
    if (wake->on_closed)
        wake->on_closed(wake->closed_arg);
    free(wake);
}

static void on_timer_closed(uv_handle_t *timer) {
    release(timer->data);
}

static void on_conn_closed(void *arg) {
    release(arg);
}

void relay_wake_close(struct relay_wake *wake, void (*on_closed)(void *arg), void *arg) {
    wake->on_closed = on_closed;
    wake->closed_arg = arg;
    wake->open_handles = 2;
    uv_close((uv_handle_t *)&wake->probe_timer, on_timer_closed);
    db_conn_close(wake->conn, on_conn_closed, wake);
}
