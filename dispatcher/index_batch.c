// The happy path: one statement reads the rows (or, for rowbell.search, reads and writes them), one request writes the
// documents. The failure modes: the statement fails for some events of a table, which are then asked for in halves
// until the one that is bad is alone; the target refuses single documents; the target or the database is away, and all
// are tried again.
#include "dispatcher/index_batch.h"
#include "common/clock.h"
#include "common/memory.h"
#include "dispatcher/index_write.h"
#include "dispatcher/pg_array.h"
#include "dispatcher/sql.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RANGES_MOST = 64,
};

// In the place of a SQLSTATE: enough was read for now, so the job is given back.
static const char POSTPONED[] = "later";

struct range {
    size_t first, count;
};

struct batch {
    struct index_queue *queue;
    struct index_target *target;
    void (*on_end)(struct index_queue *queue);
    struct index_item **items; // NULL once answered
    size_t count;
    struct range ranges[RANGES_MOST];
    size_t range_count;
    struct range asked;
    struct index_document *documents;
    size_t document_count;
    uint64_t started_ms;
    int64_t moment;
};

static void read_next(struct batch *batch);

static void answer(struct batch *batch, size_t index, enum verdict verdict, enum attempt_class class, const char *error,
                   const struct attempt_outcome *whole) {
    struct index_item *item = batch->items[index];
    batch->items[index] = NULL;
    struct attempt_outcome outcome = {.dns_ms = -1, .connect_ms = -1, .tls_ms = -1, .first_byte_ms = -1};
    if (whole)
        outcome = *whole;
    outcome.verdict = verdict;
    outcome.class = class;
    outcome.error = error;
    outcome.total_ms = (double)(clock_ms() - batch->started_ms);
    if (verdict != VERDICT_RETRY)
        outcome.pause_endpoint = false;
    index_item_done(batch->queue->sink, item, &outcome);
}

static void batch_end(struct batch *batch) {
    struct index_queue *queue = batch->queue;
    for (size_t i = 0; i < batch->count; i++)
        assert(!batch->items[i]);
    for (size_t i = 0; i < batch->document_count; i++)
        index_document_clear(&batch->documents[i]);
    free(batch->documents);
    free(batch->items);
    index_target_unref(batch->target);
    void (*on_end)(struct index_queue *) = batch->on_end;
    free(batch);
    on_end(queue);
}

// Everything that has no answer yet is tried again.
static void fail_rest(struct batch *batch, struct index_outcome *outcome) {
    index_queue_note(batch->queue, &outcome->outcome);
    for (size_t i = 0; i < batch->count; i++)
        if (batch->items[i])
            answer(batch, i, outcome->outcome.verdict, outcome->outcome.class, outcome->error, &outcome->outcome);
    index_outcome_clear(outcome);
    batch_end(batch);
}

// ---- Writing to a search engine

static int compare_documents(const void *a, const void *b) {
    const struct index_document *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    if (order == 0 && !x->body != !y->body)
        return x->body ? 1 : -1;
    if (order == 0)
        order = strcmp(x->key, y->key);
    return order;
}

static void on_written(void *arg, const struct index_outcome *whole) {
    static const struct {
        enum verdict verdict;
        enum attempt_class class;
    } ends[] = {
        [FATE_DONE] = {VERDICT_DELIVERED, CLASS_DELIVERED},
        [FATE_RETRY] = {VERDICT_RETRY, CLASS_HTTP_5XX},
        [FATE_REJECTED] = {VERDICT_REJECTED, CLASS_REJECTED},
    };
    struct batch *batch = arg;
    struct attempt_outcome outcome = whole->outcome;
    index_queue_note(batch->queue, &outcome);
    for (size_t i = 0; i < batch->count; i++) {
        if (!batch->items[i])
            continue;
        const struct index_document *document = &batch->documents[batch->items[i]->document];
        enum attempt_class class = ends[document->fate].class;
        if (document->fate == FATE_RETRY && whole->outcome.verdict != VERDICT_DELIVERED)
            class = whole->outcome.class;
        answer(batch, i, ends[document->fate].verdict, class, document->problem, &outcome);
    }
    batch_end(batch);
}

struct found {
    struct index_document document;
    size_t item;
};

static int compare_found(const void *a, const void *b) {
    const struct found *x = a, *y = b;
    int order = compare_documents(&x->document, &y->document);
    if (order == 0 && x->document.version != y->document.version)
        order = x->document.version > y->document.version ? -1 : 1;
    return order;
}

// Several events of one row make one document, with the latest as its version.
static void merge_documents(struct batch *batch) {
    struct found *found = memory_alloc(sizeof *found * (batch->document_count + 1));
    size_t count = 0;
    for (size_t i = 0; i < batch->count; i++)
        if (batch->items[i])
            found[count++] = (struct found){batch->documents[batch->items[i]->document], i};
    assert(count == batch->document_count);
    qsort(found, count, sizeof *found, compare_found);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || compare_documents(&batch->documents[kept - 1], &found[i].document) != 0)
            batch->documents[kept++] = found[i].document;
        else
            index_document_clear(&found[i].document);
        batch->items[found[i].item]->document = kept - 1;
    }
    batch->document_count = kept;
    free(found);
}

static void write_documents(struct batch *batch) {
    if (batch->document_count == 0) {
        batch_end(batch);
        return;
    }
    merge_documents(batch);
    index_write_start(batch->queue->sink, batch->target, batch->documents, batch->document_count,
                      batch->target->engine->serial ? batch->moment : INDEX_ANY_MOMENT, on_written, batch);
}

// ---- Reading

static struct index_item *find_item(const struct batch *batch, int64_t seq, size_t *ret_index) {
    for (size_t i = batch->asked.first; i < batch->asked.first + batch->asked.count; i++)
        if (batch->items[i] && batch->items[i]->delivery->event_seq == seq) {
            *ret_index = i;
            return batch->items[i];
        }
    return NULL;
}

// Class 42 of SQLSTATEs: a right, a column or a table is missing, which people can change.
static bool may_heal(const char *state) {
    return strncmp(state, "42", 2) == 0;
}

// A data fault hits all events of its table in a statement: the bad one is among them.
static bool is_shared(const char *state) {
    return !may_heal(state) && strcmp(state, "55000") != 0 && strcmp(state, POSTPONED) != 0;
}

static void push(struct batch *batch, size_t first, size_t count) {
    assert(batch->range_count < RANGES_MOST);
    if (count > 0)
        batch->ranges[batch->range_count++] = (struct range){first, count};
}

static void take_problem(struct batch *batch, int64_t seq, const char *state, const char *problem, bool alone) {
    size_t at;
    struct index_item *item = find_item(batch, seq, &at);
    if (!item)
        return;
    if (strcmp(state, POSTPONED) == 0)
        answer(batch, at, VERDICT_RETRY, CLASS_LOST, NULL, &(struct attempt_outcome){.unsent = true});
    else if (is_shared(state) && !alone)
        item->ask_again = true;
    else
        answer(batch, at, may_heal(state) ? VERDICT_RETRY : VERDICT_REJECTED, CLASS_REJECTED, problem, NULL);
}

static void take_problems(struct batch *batch, const PGresult *rows, int state_column) {
    int shared = 0, count = PQntuples(rows);
    for (int row = 0; row < count; row++)
        shared += !PQgetisnull(rows, row, state_column) && is_shared(PQgetvalue(rows, row, state_column));
    for (int row = 0; row < count; row++)
        if (!PQgetisnull(rows, row, state_column))
            take_problem(batch, index_row_int(rows, row, 0), PQgetvalue(rows, row, state_column),
                         PQgetvalue(rows, row, state_column + 1), shared == 1);
}

// Those that are asked for again go to the front of their range, and from there into two ranges.
static void ask_again(struct batch *batch) {
    size_t first = batch->asked.first, bad = 0;
    for (size_t i = first; i < first + batch->asked.count; i++) {
        struct index_item *item = batch->items[i];
        if (!item || !item->ask_again)
            continue;
        item->ask_again = false;
        batch->items[i] = batch->items[first + bad];
        batch->items[first + bad++] = item;
    }
    push(batch, first + bad / 2, bad - bad / 2);
    push(batch, first, bad / 2);
}

static void take_document(struct batch *batch, const PGresult *rows, int row) {
    size_t at;
    struct index_item *item = find_item(batch, index_row_int(rows, row, 0), &at);
    if (!item)
        return;
    item->document = batch->document_count;
    item->has_document = true;
    batch->documents[batch->document_count++] = (struct index_document){.name = index_row_text(rows, row, 1),
                                                                        .key = index_row_text(rows, row, 2),
                                                                        .scope = index_row_text(rows, row, 3),
                                                                        .body = index_row_text(rows, row, 4),
                                                                        .version = item->delivery->event_seq};
}

static void on_read(void *arg, const struct db_reply *reply, const struct error *error) {
    struct batch *batch = arg;
    if (error) {
        struct index_outcome outcome;
        index_outcome_of_error(&outcome, error);
        fail_rest(batch, &outcome);
        return;
    }
    const PGresult *rows = reply->results[0];
    bool to_engine = batch->target->engine != NULL;
    take_problems(batch, rows, to_engine ? 5 : 1);
    for (int row = 0; to_engine && row < PQntuples(rows); row++)
        if (PQgetisnull(rows, row, 5))
            take_document(batch, rows, row);
    for (size_t i = batch->asked.first; i < batch->asked.first + batch->asked.count; i++) {
        const struct index_item *item = batch->items[i];
        if (!item || item->ask_again || item->has_document)
            continue;
        if (to_engine)
            answer(batch, i, VERDICT_REJECTED, CLASS_REJECTED, "the event is not in rowbell.events any more", NULL);
        else
            answer(batch, i, VERDICT_DELIVERED, CLASS_DELIVERED, NULL, NULL);
    }
    ask_again(batch);
    read_next(batch);
}

static void read_next(struct batch *batch) {
    if (batch->range_count == 0) {
        if (batch->target->engine)
            write_documents(batch);
        else
            batch_end(batch);
        return;
    }
    batch->asked = batch->ranges[--batch->range_count];
    struct buffer seqs = {0};
    char id[16];
    snprintf(id, sizeof id, "%d", batch->queue->subscription_id);
    pg_array_begin(&seqs);
    for (size_t i = batch->asked.first; i < batch->asked.first + batch->asked.count; i++)
        pg_array_int(&seqs, batch->items[i]->delivery->event_seq);
    const char *values[] = {id, pg_array_end(&seqs)};
    db_query(batch->queue->sink->conn, batch->target->engine ? &sql_index_read : &sql_index_write, 2, values,
             INDEX_DEADLINE_MS, on_read, batch);
    buffer_free(&seqs);
}

void index_batch_start(struct index_queue *queue, struct index_item *items, void (*on_end)(struct index_queue *queue)) {
    struct batch *batch = memory_alloc(sizeof *batch);
    *batch = (struct batch){.queue = queue,
                            .target = index_target_ref(items->delivery->subscription->sink_state),
                            .on_end = on_end,
                            .started_ms = clock_ms(),
                            .moment = index_moment(queue->sink)};
    for (const struct index_item *item = items; item; item = item->next)
        batch->count++;
    batch->items = memory_alloc(sizeof(struct index_item *) * (batch->count + 1));
    batch->documents = memory_alloc(sizeof *batch->documents * (batch->count + 1));
    size_t i = 0;
    for (struct index_item *item = items; item; item = item->next)
        batch->items[i++] = item;
    push(batch, 0, batch->count);
    read_next(batch);
}
