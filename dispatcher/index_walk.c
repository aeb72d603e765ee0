// The happy path: open (until no older transaction runs), then read and write INDEX_WALK_ROWS rows a step, then remove
// what no row renewed, then done. The failure modes: a step fails, and the job is tried again from where it was saved;
// a document is refused, which is told at the end, when the others are in.
#include "dispatcher/index_walk.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/memory.h"
#include "common/plain_text.h"
#include "dispatcher/index_write.h"
#include "dispatcher/pg_array.h"
#include "dispatcher/sql.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WAITING_MS = 100,
};

struct index_walk {
    struct index_queue *queue;
    struct index_sink *sink;
    struct index_target *target;
    struct index_item *item;
    void (*on_end)(struct index_queue *queue);
    struct index_wait wait;
    struct index_request request;
    bool wants_turn, has_turn;
    int64_t mark;
    char *after_key;
    bool cut; // the step took less than there was, by its bytes
    struct index_document *documents;
    size_t document_count;
    size_t listed;  // documents on the page of a sweep
    int64_t offset; // of the sweep
    int64_t moment; // of the reading
    uint64_t started_ms;
    int64_t refused; // rows that are in no document, so far
    char first_refused[300];
    struct buffer refused_rows; // of this step, for the database
};

static void walk_open(struct index_walk *walk);

static void clear_documents(struct index_walk *walk) {
    for (size_t i = 0; i < walk->document_count; i++)
        index_document_clear(&walk->documents[i]);
    free(walk->documents);
    walk->documents = NULL;
    walk->document_count = 0;
}

static void walk_end(struct index_walk *walk, struct index_outcome *outcome) {
    struct index_queue *queue = walk->queue;
    void (*on_end)(struct index_queue *) = walk->on_end;
    outcome->outcome.total_ms = (double)(clock_ms() - walk->started_ms);
    if (walk->has_turn)
        queue->turn_taken = false;
    queue->walk = NULL;
    index_queue_note(queue, &outcome->outcome);
    index_item_done(walk->sink, walk->item, &outcome->outcome);
    index_outcome_clear(outcome);
    clear_documents(walk);
    index_request_free(&walk->request);
    buffer_free(&walk->refused_rows);
    index_target_unref(walk->target);
    free(walk->after_key);
    free(walk);
    on_end(queue);
}

static void walk_fail(struct index_walk *walk, enum attempt_class class, const char *error) {
    struct index_outcome outcome = {0};
    index_outcome_fail(&outcome, class, error);
    walk_end(walk, &outcome);
}

static void walk_fail_error(struct index_walk *walk, const struct error *error) {
    struct index_outcome outcome;
    index_outcome_of_error(&outcome, error);
    walk_end(walk, &outcome);
}

static void walk_done(struct index_walk *walk) {
    struct index_outcome outcome;
    index_outcome_delivered(&outcome);
    if (walk->refused > 0) {
        outcome.outcome.verdict = VERDICT_REJECTED;
        outcome.outcome.class = CLASS_REJECTED;
        snprintf(outcome.error, sizeof outcome.error,
                 "%" PRId64 " documents were refused, the others are in; the first: %s", walk->refused,
                 walk->first_refused);
        outcome.outcome.error = outcome.error;
    }
    log_info("index_walk_done", LOG_TEXT("subscription", walk->item->delivery->subscription->name),
             LOG_TEXT("table", walk->item->table), LOG_INT("refused", walk->refused));
    walk_end(walk, &outcome);
}

// ---- Turns: a step of a serial target begins when it has one

static void step_begin(struct index_walk *walk) {
    if (walk->sink->closing || walk->sink->draining) {
        struct index_outcome outcome = {0};
        index_outcome_fail(&outcome, CLASS_LOST, "the process is stopping");
        outcome.outcome.unsent = !walk->sink->closing;
        walk_end(walk, &outcome);
        return;
    }
    walk_open(walk);
}

static void on_step_due(void *arg) {
    struct index_walk *walk = arg;
    if (walk->target->engine && walk->target->engine->serial && !walk->sink->closing && !walk->sink->draining) {
        walk->wants_turn = true;
        index_touch(walk->sink);
    } else {
        step_begin(walk);
    }
}

// Gives the turn back. The next step begins when it is due and has a turn.
static void step_end(struct index_walk *walk, uint64_t delay_ms) {
    clear_documents(walk);
    pg_array_begin(&walk->refused_rows);
    if (walk->has_turn) {
        walk->has_turn = false;
        walk->queue->turn_taken = false;
        index_touch(walk->sink);
    }
    index_wait_start(walk->sink, &walk->wait, delay_ms, on_step_due, walk);
}

bool index_walk_wants_turn(const struct index_walk *walk) {
    return walk->wants_turn;
}

void index_walk_turn(struct index_walk *walk) {
    walk->wants_turn = false;
    walk->has_turn = true;
    walk->queue->turn_taken = true;
    step_begin(walk);
}

// ---- Saving

static void on_saved(void *arg, const struct db_reply *reply, const struct error *error) {
    struct index_walk *walk = arg;
    if (error)
        walk_fail_error(walk, error);
    else
        step_end(walk, 0);
}

static void on_saved_done(void *arg, const struct db_reply *reply, const struct error *error) {
    struct index_walk *walk = arg;
    if (error)
        walk_fail_error(walk, error);
    else
        walk_done(walk);
}

static void save(struct index_walk *walk, const char *phase, const char *after_key, size_t rows) {
    char id[16], mark[24], count[24];
    snprintf(id, sizeof id, "%d", walk->queue->subscription_id);
    snprintf(mark, sizeof mark, "%" PRId64, walk->mark);
    snprintf(count, sizeof count, "%zu", rows);
    const char *values[] = {id, walk->item->table, mark, phase, after_key, count, pg_array_end(&walk->refused_rows)};
    db_query(walk->sink->conn, &sql_index_walk_save, 7, values, INDEX_DEADLINE_MS,
             strcmp(phase, "done") == 0 ? on_saved_done : on_saved, walk);
}

// ---- Rows

static void note_refused(struct index_walk *walk, const struct index_document *document, const char *problem) {
    char row[300];
    snprintf(row, sizeof row, "%.80s: %.200s", document->key, problem);
    plain_text_make(row, strlen(row)); // it may be cut within a character
    pg_array_text(&walk->refused_rows, row);
    if (walk->refused++ == 0)
        snprintf(walk->first_refused, sizeof walk->first_refused, "%s", row);
}

// True: the step goes on. Refused documents are remembered; anything else ends the walk for now.
static bool written_well(struct index_walk *walk, const struct index_outcome *whole) {
    const char *retry = NULL;
    for (size_t i = 0; i < walk->document_count; i++) {
        const struct index_document *document = &walk->documents[i];
        if (document->fate == FATE_RETRY && !retry)
            retry = document->problem ? document->problem : "the target refuses for now";
        if (document->fate == FATE_REJECTED)
            note_refused(walk, document, document->problem ? document->problem : "");
    }
    if (whole->outcome.verdict == VERDICT_DELIVERED && !retry)
        return true;
    struct index_outcome outcome = {0};
    if (whole->outcome.verdict == VERDICT_DELIVERED) {
        index_outcome_fail(&outcome, CLASS_HTTP_5XX, retry);
    } else {
        index_outcome_fail(&outcome, whole->outcome.class, whole->error);
        outcome.outcome.status = whole->outcome.status;
        outcome.outcome.after_ms = whole->outcome.after_ms;
    }
    walk_end(walk, &outcome);
    return false;
}

static void on_rows_written(void *arg, const struct index_outcome *whole) {
    struct index_walk *walk = arg;
    if (!written_well(walk, whole))
        return;
    size_t rows = walk->document_count;
    if (rows < INDEX_WALK_ROWS && !walk->cut)
        save(walk, "sweep", NULL, rows);
    else
        save(walk, "rows", walk->documents[rows - 1].key, rows);
}

static void on_rows(void *arg, const struct db_reply *reply, const struct error *error) {
    struct index_walk *walk = arg;
    if (error) {
        walk_fail_error(walk, error);
        return;
    }
    const PGresult *rows = reply->results[0];
    size_t count = 0;
    while (count < (size_t)PQntuples(rows) && strcmp(PQgetvalue(rows, (int)count, 4), "t") != 0)
        count++;
    walk->cut = count < (size_t)PQntuples(rows);
    if (count == 0) {
        save(walk, "sweep", NULL, 0);
        return;
    }
    walk->documents = memory_alloc(sizeof *walk->documents * count);
    for (size_t i = 0; i < count; i++) {
        walk->documents[i] = (struct index_document){.name = memory_copy_text(walk->item->table),
                                                     .key = index_row_text(rows, (int)i, 0),
                                                     .scope = index_row_text(rows, (int)i, 1),
                                                     .body = index_row_text(rows, (int)i, 2),
                                                     .version = walk->mark};
        if (!PQgetisnull(rows, (int)i, 3)) // it has no body, so what the target has of it goes
            note_refused(walk, &walk->documents[i], PQgetvalue(rows, (int)i, 3));
    }
    walk->document_count = count;
    index_write_start(walk->sink, walk->target, walk->documents, count,
                      walk->target->engine->serial ? walk->moment : INDEX_ANY_MOMENT, on_rows_written, walk);
}

static void walk_rows(struct index_walk *walk) {
    char id[16], limit[16];
    snprintf(id, sizeof id, "%d", walk->queue->subscription_id);
    snprintf(limit, sizeof limit, "%d", INDEX_WALK_ROWS);
    const char *values[] = {id, walk->item->table, walk->after_key, limit};
    walk->moment = index_moment(walk->sink);
    db_query(walk->sink->conn, &sql_index_walk_rows, 4, values, INDEX_DEADLINE_MS, on_rows, walk);
}

// ---- The sweep by a query

static void request(struct index_walk *walk, http_done *done) {
    if (!index_request_send(walk->sink, walk->target, &walk->request, done, walk))
        walk_fail(walk, CLASS_LOST, "the process is closing");
}

// True: an answer of status 2xx. No index: nothing to sweep. Anything else ends the walk for now.
static bool answered_well(struct index_walk *walk, const struct http_outcome *http) {
    if (http->failure == HTTP_OK && http->status == 404) {
        save(walk, "done", NULL, 0);
        return false;
    }
    struct index_outcome outcome = {0};
    index_outcome_of_answer(walk->queue->sink, &outcome, http);
    if (outcome.outcome.verdict == VERDICT_DELIVERED) {
        index_outcome_clear(&outcome);
        return true;
    }
    walk_end(walk, &outcome);
    return false;
}

static void on_swept(void *arg, const struct http_outcome *http) {
    struct index_walk *walk = arg;
    bool more;
    if (!answered_well(walk, http))
        return;
    if (!walk->target->engine->judge_sweep(http->answer, &more))
        walk_fail(walk, CLASS_HTTP_5XX, "the target could not remove old documents");
    else if (more)
        step_end(walk, 0);
    else
        save(walk, "done", NULL, 0);
}

static void on_refreshed(void *arg, const struct http_outcome *http) {
    struct index_walk *walk = arg;
    if (!answered_well(walk, http))
        return;
    index_request_clear(&walk->request);
    walk->target->engine->build_sweep(walk->target, walk->item->table, walk->mark, &walk->request);
    request(walk, on_swept);
}

// ---- The sweep by a list

static void on_gone_written(void *arg, const struct index_outcome *whole) {
    struct index_walk *walk = arg;
    size_t removed = walk->document_count;
    if (!written_well(walk, whole))
        return;
    if (walk->listed < INDEX_WALK_ROWS) {
        save(walk, "done", NULL, 0);
        return;
    }
    // What was removed makes the later ones move up.
    walk->offset += (int64_t)(walk->listed - removed);
    step_end(walk, 0);
}

static void on_keys_read(void *arg, const struct db_reply *reply, const struct error *error) {
    struct index_walk *walk = arg;
    if (error) {
        walk_fail_error(walk, error);
        return;
    }
    const PGresult *rows = reply->results[0];
    walk->documents = memory_alloc(sizeof *walk->documents * ((size_t)PQntuples(rows) + 1));
    for (int row = 0; row < PQntuples(rows); row++)
        if (strcmp(PQgetvalue(rows, row, 1), "f") == 0)
            walk->documents[walk->document_count++] =
                (struct index_document){.name = memory_copy_text(walk->item->table),
                                        .key = index_row_text(rows, row, 0),
                                        .version = walk->mark};
    index_write_start(walk->sink, walk->target, walk->documents, walk->document_count, walk->moment, on_gone_written,
                      walk);
}

static void on_list(void *arg, const struct http_outcome *http) {
    struct index_walk *walk = arg;
    char **keys;
    if (!answered_well(walk, http))
        return;
    bool good = walk->target->engine->judge_list(http->answer, &keys, &walk->listed);
    struct buffer array = {0};
    pg_array_begin(&array);
    for (size_t i = 0; i < walk->listed; i++) {
        if (keys[i][0] != '\0') // one that we did not write
            pg_array_text(&array, keys[i]);
        free(keys[i]);
    }
    free(keys);
    char id[16];
    snprintf(id, sizeof id, "%d", walk->queue->subscription_id);
    const char *values[] = {id, walk->item->table, pg_array_end(&array)};
    walk->moment = index_moment(walk->sink);
    if (good)
        db_query(walk->sink->conn, &sql_index_read_keys, 3, values, INDEX_DEADLINE_MS, on_keys_read, walk);
    else
        walk_fail(walk, CLASS_HTTP_5XX, "the target's answer is not a list of documents");
    buffer_free(&array);
}

static void walk_sweep(struct index_walk *walk) {
    index_request_clear(&walk->request);
    const struct index_engine *engine = walk->target->engine;
    if (engine->build_sweep) {
        engine->build_refresh(walk->target, walk->item->table, &walk->request);
        request(walk, on_refreshed);
    } else {
        engine->build_list(walk->target, walk->item->table, walk->offset, INDEX_WALK_ROWS, &walk->request);
        request(walk, on_list);
    }
}

// ---- Opening

static const struct {
    const char *phase;
    void (*step)(struct index_walk *walk);
} phases[] = {
    {"rows", walk_rows},
    {"sweep", walk_sweep},
    {"done", walk_done},
};

static void on_open(void *arg, const struct db_reply *reply, const struct error *error) {
    struct index_walk *walk = arg;
    if (error) {
        walk_fail_error(walk, error);
        return;
    }
    const PGresult *row = reply->results[0];
    const char *phase = PQgetvalue(row, 0, 0);
    walk->refused = index_row_int(row, 0, 3);
    snprintf(walk->first_refused, sizeof walk->first_refused, "%.299s", PQgetvalue(row, 0, 4));
    if (!walk->target->engine) { // the step is done already
        if (strcmp(phase, "done") == 0)
            walk_done(walk);
        else
            step_end(walk, strcmp(phase, "waiting") == 0 ? WAITING_MS : 0);
        return;
    }
    int64_t mark = index_row_int(row, 0, 1);
    if (mark != walk->mark)
        walk->offset = 0;
    walk->mark = mark;
    free(walk->after_key);
    walk->after_key = index_row_text(row, 0, 2);
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++)
        if (strcmp(phases[i].phase, phase) == 0) {
            phases[i].step(walk);
            return;
        }
    step_end(walk, WAITING_MS);
}

static void walk_open(struct index_walk *walk) {
    char id[16], seq[24], limit[16];
    snprintf(id, sizeof id, "%d", walk->queue->subscription_id);
    snprintf(seq, sizeof seq, "%" PRId64, walk->item->delivery->event_seq);
    snprintf(limit, sizeof limit, "%d", INDEX_WALK_ROWS);
    const char *values[] = {id, seq, walk->item->table, limit};
    if (walk->target->engine)
        db_query(walk->sink->conn, &sql_index_walk_open, 3, values, INDEX_DEADLINE_MS, on_open, walk);
    else
        db_query(walk->sink->conn, &sql_index_walk_step, 4, values, INDEX_DEADLINE_MS, on_open, walk);
}

struct index_walk *index_walk_start(struct index_queue *queue, struct index_item *item,
                                    void (*on_end)(struct index_queue *queue)) {
    struct index_walk *walk = memory_alloc(sizeof *walk);
    *walk = (struct index_walk){.queue = queue,
                                .sink = queue->sink,
                                .target = index_target_ref(item->delivery->subscription->sink_state),
                                .item = item,
                                .on_end = on_end,
                                .started_ms = clock_ms()};
    step_end(walk, 0);
    return walk;
}
