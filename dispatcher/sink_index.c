#include "dispatcher/sink_index.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/memory.h"
#include "dispatcher/index.h"
#include "dispatcher/index_batch.h"
#include "dispatcher/index_walk.h"
#include "dispatcher/outcome.h"
#include <assert.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

enum {
    PAUSE_FIRST_MS = 500, // of a target that is away
    PAUSE_MOST_MS = 15000,
    HEARTBEAT_MS = 1000,
    STILL_MS = 5000,   // without a heartbeat
    SILENCE_MS = 7000, // without an answer of the database, which ends sessions after 10 s
    KEEPALIVE_MS = 3000,
};

// ---- Outcomes

void index_outcome_delivered(struct index_outcome *outcome) {
    *outcome = (struct index_outcome){.outcome = {.verdict = VERDICT_DELIVERED,
                                                  .class = CLASS_DELIVERED,
                                                  .dns_ms = -1,
                                                  .connect_ms = -1,
                                                  .tls_ms = -1,
                                                  .first_byte_ms = -1,
                                                  .total_ms = -1}};
}

void index_outcome_fail(struct index_outcome *outcome, enum attempt_class class, const char *error) {
    free(outcome->response_head);
    index_outcome_delivered(outcome);
    outcome->outcome.verdict = VERDICT_RETRY;
    outcome->outcome.class = class;
    snprintf(outcome->error, sizeof outcome->error, "%s", error);
    outcome->outcome.error = outcome->error;
}

void index_outcome_of_error(struct index_outcome *outcome, const struct error *error) {
    bool cancelled = error->code == ERROR_CANCELLED;
    *outcome = (struct index_outcome){0};
    index_outcome_fail(outcome,
                       cancelled                  ? CLASS_LOST
                       : error->code == ERROR_SQL ? CLASS_REJECTED
                                                  : CLASS_CONNECT,
                       error->text);
}

void index_outcome_of_answer(const struct index_sink *sink, struct index_outcome *outcome,
                             const struct http_outcome *http) {
    char *old_head = outcome->response_head;
    *outcome = (struct index_outcome){.outcome = outcome_of_answer(http, database_clock_now_s(sink->clock))};
    free(old_head);
    snprintf(outcome->peer, sizeof outcome->peer, "%s", http->peer);
    outcome->outcome.peer = outcome->peer[0] ? outcome->peer : NULL;
    outcome->outcome.response_head = NULL;
    outcome->outcome.disable_subscription = false; // a word of webhook receivers
    outcome->outcome.pause_endpoint = false;
    if (outcome->outcome.verdict == VERDICT_DELIVERED)
        return;
    // The target as a whole is in the way, not a document: people repair that, and the jobs wait.
    outcome->outcome.verdict = VERDICT_RETRY;
    outcome->response_head = memory_copy_text(http->response_head);
    outcome->outcome.response_head = outcome->response_head;
    bool refused = http->status == 401 || http->status == 403;
    if (http->failure != HTTP_OK)
        snprintf(outcome->error, sizeof outcome->error, "%s", http->error);
    else
        snprintf(outcome->error, sizeof outcome->error, "the target answered %d%s", http->status,
                 refused ? ": it refuses our authorization" : "");
    outcome->outcome.error = outcome->error;
}

void index_outcome_clear(struct index_outcome *outcome) {
    free(outcome->response_head);
    outcome->response_head = NULL;
    outcome->outcome.response_head = NULL;
}

int64_t index_row_int(const PGresult *result, int row, int column) {
    return strtoll(PQgetvalue(result, row, column), NULL, 10);
}

char *index_row_text(const PGresult *result, int row, int column) {
    return PQgetisnull(result, row, column) ? NULL : memory_copy_text(PQgetvalue(result, row, column));
}

// ---- Waiting

static void on_timer(uv_timer_t *timer) {
    struct index_sink *sink = timer->data;
    uint64_t now = clock_ms();
    struct index_wait *wait, *next, *due = NULL;
    DL_FOREACH_SAFE(sink->waits, wait, next) {
        if (wait->due_ms > now && !sink->closing)
            continue;
        DL_DELETE(sink->waits, wait);
        DL_APPEND(due, wait);
    }
    while (due) {
        wait = due;
        DL_DELETE(due, wait);
        wait->fire(wait->arg);
    }
    uint64_t soonest = UINT64_MAX;
    DL_FOREACH(sink->waits, wait) {
        soonest = wait->due_ms < soonest ? wait->due_ms : soonest;
    }
    now = clock_ms();
    if (soonest != UINT64_MAX)
        uv_timer_start(timer, on_timer, soonest > now ? soonest - now : 0, 0);
}

void index_wait_start(struct index_sink *sink, struct index_wait *wait, uint64_t delay_ms, void (*fire)(void *arg),
                      void *arg) {
    *wait = (struct index_wait){.due_ms = clock_ms() + delay_ms, .fire = fire, .arg = arg};
    DL_APPEND(sink->waits, wait);
    if (!uv_is_active((uv_handle_t *)&sink->timer) || uv_timer_get_due_in(&sink->timer) > delay_ms) {
        uv_update_time(sink->loop);
        uv_timer_start(&sink->timer, on_timer, delay_ms, 0);
    }
}

// ---- Moments

int64_t index_moment(const struct index_sink *sink) {
    return sink->moment;
}

static bool is_sure(const struct index_sink *sink) {
    uint64_t now = clock_ms();
    return now <= sink->heartbeat_ms + STILL_MS && now <= db_conn_answered_ms(sink->conn) + SILENCE_MS;
}

bool index_moment_lasts(const struct index_sink *sink, int64_t moment) {
    return moment == INDEX_ANY_MOMENT || (moment == sink->moment && is_sure(sink));
}

static void on_heartbeat(uv_timer_t *timer) {
    struct index_sink *sink = timer->data;
    if (!is_sure(sink))
        sink->moment++;
    sink->heartbeat_ms = clock_ms();
}

// ---- Queues

void index_touch(struct index_sink *sink) {
    sink->dirty = true;
}

// One job of a subject is in flight at a time, or several in one batch, which are one document.
static bool subject_take(struct index_queue *queue, struct index_item *item) {
    const char *name = item->delivery->subject;
    struct index_subject *subject;
    if (!name)
        return true;
    HASH_FIND_STR(queue->subjects, name, subject);
    if (subject && subject->batch != queue->last_batch)
        return false;
    if (!subject) {
        subject = memory_alloc(sizeof *subject);
        *subject = (struct index_subject){.subject = memory_copy_text(name), .batch = queue->last_batch};
        HASH_ADD_KEYPTR(hh, queue->subjects, subject->subject, strlen(subject->subject), subject);
    }
    subject->items++;
    item->subject = subject;
    return true;
}

static void subject_give_back(struct index_item *item) {
    struct index_subject *subject = item->subject;
    if (!subject || --subject->items > 0)
        return;
    HASH_DEL(item->queue->subjects, subject);
    free(subject->subject);
    free(subject);
}

void index_item_done(struct index_sink *sink, struct index_item *item, const struct attempt_outcome *outcome) {
    sink_done *done = item->done;
    void *arg = item->done_arg;
    subject_give_back(item);
    free(item->table);
    free(item);
    index_touch(sink);
    done(arg, outcome);
}

void index_queue_note(struct index_queue *queue, struct attempt_outcome *outcome) {
    if (outcome->verdict != VERDICT_RETRY) {
        backoff_reset(&queue->backoff);
    } else if (outcome->class != CLASS_LOST && !outcome->unsent) {
        // Else every waiting job would try, each in its turn, whether the target is back.
        uint64_t pause_ms = backoff_next_ms(&queue->backoff);
        if (pause_ms > outcome->after_ms)
            outcome->after_ms = pause_ms;
        outcome->pause_endpoint = true;
    }
}

static struct index_queue *queue_of(struct index_sink *sink, int subscription_id) {
    struct index_queue *queue;
    HASH_FIND_INT(sink->queues, &subscription_id, queue);
    if (queue)
        return queue;
    queue = memory_alloc(sizeof *queue);
    queue->subscription_id = subscription_id;
    queue->sink = sink;
    queue->backoff = (struct backoff){.first_ms = PAUSE_FIRST_MS, .most_ms = PAUSE_MOST_MS};
    HASH_ADD_INT(sink->queues, subscription_id, queue);
    return queue;
}

static void on_batch_end(struct index_queue *queue) {
    queue->batches--;
    queue->turn_taken = false; // a serial target's; else it never is
    index_touch(queue->sink);
}

static void on_walk_end(struct index_queue *queue) {
    index_touch(queue->sink);
}

static bool is_serial(const struct index_item *item) {
    const struct index_target *target = item->delivery->subscription->sink_state;
    return target->engine && target->engine->serial;
}

// The first items that belong to one version of the subscription, without those whose subject is in another batch.
// NULL: there are none, or they wait for a serial target's turn.
static struct index_item *take_batch(struct index_queue *queue) {
    struct index_item *batch = NULL, **end = &batch, **at = &queue->pending;
    queue->last_batch++;
    for (size_t count = 0; *at && count < INDEX_BATCH_MOST;) {
        struct index_item *item = *at;
        if (batch ? item->delivery->subscription != batch->delivery->subscription
                  : is_serial(item) && queue->turn_taken)
            break;
        if (!subject_take(queue, item)) {
            at = &item->next;
            continue;
        }
        *at = item->next;
        item->next = NULL;
        *end = item;
        end = &item->next;
        count++;
    }
    return batch;
}

static void give_back(struct index_queue *queue, struct index_item **list) {
    while (*list) {
        struct index_item *item = *list;
        *list = item->next;
        struct attempt_outcome outcome = {
            .verdict = VERDICT_RETRY, .class = CLASS_LOST, .unsent = !queue->sink->closing};
        index_item_done(queue->sink, item, &outcome);
    }
}

static void queue_advance(struct index_queue *queue) {
    struct index_sink *sink = queue->sink;
    if (sink->draining || sink->closing) {
        give_back(queue, &queue->pending);
        give_back(queue, &queue->walks);
    }
    // A walk that waits for its turn had less of it than single rows.
    if (queue->walk && index_walk_wants_turn(queue->walk) && !queue->turn_taken)
        index_walk_turn(queue->walk);
    for (struct index_item *batch; (batch = take_batch(queue));) {
        queue->turn_taken |= is_serial(batch);
        queue->batches++;
        index_batch_start(queue, batch, on_batch_end);
    }
    if (queue->walks && !queue->walk) {
        struct index_item *item = queue->walks;
        queue->walks = item->next;
        queue->walk = index_walk_start(queue, item, on_walk_end);
    }
}

static void on_turn_end(uv_prepare_t *prepare) {
    struct index_sink *sink = prepare->data;
    while (sink->dirty) {
        sink->dirty = false;
        struct index_queue *queue, *next;
        HASH_ITER(hh, sink->queues, queue, next) {
            queue_advance(queue);
            if (queue->uses == 0 && queue->batches == 0 && !queue->walk && !queue->pending && !queue->walks) {
                HASH_DEL(sink->queues, queue);
                free(queue);
            }
        }
    }
}

// ---- The port

static bool index_prepare(void *arg, struct subscription *subscription, struct error *ret_error) {
    struct index_target *target = index_target_new(subscription, &((struct index_sink *)arg)->keys, ret_error);
    subscription->sink_state = target;
    if (!target)
        return false;
    target->queue = queue_of(arg, subscription->id);
    target->queue->uses++;
    return true;
}

// May come after the sink was closed: queues outlive it.
static void index_forget(void *arg, struct subscription *subscription) {
    struct index_target *target = subscription->sink_state;
    struct index_queue *queue = target->queue;
    subscription->sink_state = NULL;
    index_target_unref(target);
    queue->uses--;
    if (queue->sink)
        index_touch(queue->sink);
    else if (queue->uses == 0)
        free(queue);
}

// The table of an event that names a whole one; NULL for a single row. Returns owned.
static char *table_of(const struct delivery *delivery) {
    struct json_object *data = json_tokener_parse(delivery->data), *table = NULL;
    char *name = NULL;
    // The subject of a row goes on with a slash and its key.
    if (json_object_is_type(data, json_type_object) && json_object_object_get_ex(data, "table", &table) &&
        delivery->subject && strcmp(json_object_get_string(table), delivery->subject) == 0)
        name = memory_copy_text(delivery->subject);
    json_object_put(data);
    return name;
}

static void index_send(void *arg, const struct delivery *delivery, sink_done *done, void *done_arg) {
    struct index_sink *sink = arg;
    struct index_queue *queue = queue_of(sink, delivery->subscription->id);
    struct index_item *item = memory_alloc(sizeof *item);
    *item = (struct index_item){
        .delivery = delivery, .done = done, .done_arg = done_arg, .queue = queue, .table = table_of(delivery)};
    if (item->table)
        LL_APPEND(queue->walks, item);
    else
        LL_APPEND(queue->pending, item);
    index_touch(sink);
}

static void index_drain(void *arg) {
    struct index_sink *sink = arg;
    sink->draining = true; // walks end with their step
    index_touch(sink);
}

// ---- Life

static void on_handle_closed(uv_handle_t *handle) {
    struct index_sink *sink = handle->data;
    if (--sink->open_handles > 0)
        return;
    struct index_queue *queue, *next;
    HASH_ITER(hh, sink->queues, queue, next) {
        HASH_DEL(sink->queues, queue);
        queue->sink = NULL;
        if (queue->uses == 0)
            free(queue);
    }
    void (*on_closed)(void *) = sink->on_closed;
    void *arg = sink->on_closed_arg;
    seal_keys_close(&sink->keys);
    free(sink);
    if (on_closed)
        on_closed(arg);
}

static void on_conn_closed(void *arg) {
    struct index_sink *sink = arg;
    while (sink->waits) // what waits ends now
        on_timer(&sink->timer);
    on_turn_end(&sink->turn_end);
    sink->open_handles = 3;
    uv_close((uv_handle_t *)&sink->heartbeat, on_handle_closed);
    uv_close((uv_handle_t *)&sink->timer, on_handle_closed);
    uv_close((uv_handle_t *)&sink->turn_end, on_handle_closed);
}

static void on_http_closed(void *arg) {
    struct index_sink *sink = arg;
    db_conn_close(sink->conn, on_conn_closed, sink);
}

static void index_close(void *arg, void (*on_closed)(void *closed_arg), void *closed_arg) {
    struct index_sink *sink = arg;
    sink->closing = true;
    sink->on_closed = on_closed;
    sink->on_closed_arg = closed_arg;
    http_client_close(sink->http, on_http_closed, sink);
}

bool sink_index_init(struct sink *ret_sink, uv_loop_t *loop, const struct sink_index_options *options,
                     struct error *ret_error) {
    struct index_sink *sink = memory_alloc(sizeof *sink);
    if (!seal_keys_init(&sink->keys, options->secret_key, ret_error)) {
        free(sink);
        return false;
    }
    sink->loop = loop;
    sink->clock = options->clock;
    uv_timer_init(loop, &sink->timer);
    uv_timer_init(loop, &sink->heartbeat);
    uv_prepare_init(loop, &sink->turn_end);
    sink->timer.data = sink->heartbeat.data = sink->turn_end.data = sink;
    sink->heartbeat_ms = clock_ms();
    uv_timer_start(&sink->heartbeat, on_heartbeat, HEARTBEAT_MS, HEARTBEAT_MS);
    uv_prepare_start(&sink->turn_end, on_turn_end);
    uv_unref((uv_handle_t *)&sink->turn_end);
    sink->http = http_client_new(loop, &(struct http_client_options){.user_agent = "rowbell/" ROWBELL_VERSION,
                                                                     .egress = options->egress,
                                                                     .ca_file = options->ca_file});
    sink->conn = db_conn_new(loop, &(struct db_conn_options){.url = options->url,
                                                             .direct_url = options->direct_url,
                                                             .application_name = "rowbell-dispatcher index",
                                                             .writes = true,
                                                             .keepalive_ms = KEEPALIVE_MS});
    *ret_sink = (struct sink){.kind = "index",
                              .deadline_ms = INDEX_DEADLINE_MS,
                              .paces_itself = true,
                              .arg = sink,
                              .prepare = index_prepare,
                              .forget = index_forget,
                              .send = index_send,
                              .drain = index_drain,
                              .close = index_close};
    return true;
}
