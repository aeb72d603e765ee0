#include "common/db_batch.h"
#include "common/memory.h"
#include <stdlib.h>
#include <string.h>

#define NO_VALUE SIZE_MAX // a parameter that is NULL

// ---- building

struct db_batch *db_batch_begin(struct db_conn *conn) {
    struct db_batch *batch = memory_alloc(sizeof(*batch));
    batch->conn = conn;
    return batch;
}

void db_batch_add(struct db_batch *batch, const struct db_statement *statement, int value_count,
                  const char *const *values) {
    batch->steps = memory_resize(batch->steps, (size_t)batch->step_count + 1, sizeof(*batch->steps));
    batch->steps[batch->step_count++] =
        (struct db_batch_step){.statement = statement, .first_value = batch->value_count, .value_count = value_count};
    if (value_count == 0)
        return;
    size_t count = batch->value_count + (size_t)value_count;
    batch->value_offsets = memory_resize(batch->value_offsets, count, sizeof(*batch->value_offsets));
    for (int i = 0; i < value_count; i++) {
        batch->value_offsets[batch->value_count++] = values[i] ? batch->values.length : NO_VALUE;
        if (values[i])
            buffer_append(&batch->values, values[i], strlen(values[i]) + 1);
    }
}

// ---- writing

struct db_prepared *db_prepared_find(struct db_prepared_set *set, const struct db_statement *statement) {
    for (size_t i = 0; i < set->count; i++) {
        if (set->items[i].statement == statement)
            return &set->items[i];
    }
    return NULL;
}

static struct db_prepared *prepared_get(struct db_prepared_set *set, const struct db_statement *statement) {
    struct db_prepared *prepared = db_prepared_find(set, statement);
    if (prepared)
        return prepared;
    set->items = memory_resize(set->items, set->count + 1, sizeof(*set->items));
    prepared = &set->items[set->count++];
    *prepared = (struct db_prepared){.statement = statement};
    return prepared;
}

static bool prepares_write(struct db_batch *batch, PGconn *pg, struct db_prepared_set *set) {
    for (int i = 0; i < batch->step_count; i++) {
        const struct db_statement *statement = batch->steps[i].statement;
        struct db_prepared *prepared = statement->name ? prepared_get(set, statement) : NULL;
        if (!prepared || prepared->ready)
            continue;
        if (!PQsendPrepare(pg, statement->name, statement->sql, 0, NULL))
            return false;
        prepared->ready = true;
        prepared->error.code = ERROR_NONE;
        batch->prepares = memory_resize(batch->prepares, (size_t)batch->prepare_count + 1, sizeof(*batch->prepares));
        batch->prepares[batch->prepare_count++] = statement;
    }
    batch->preparing = batch->prepare_count > 0;
    return !batch->preparing || PQpipelineSync(pg);
}

static bool step_write(const struct db_batch *batch, const struct db_batch_step *step, PGconn *pg, bool prepared,
                       const char **values) {
    for (int i = 0; i < step->value_count; i++) {
        size_t offset = batch->value_offsets[step->first_value + (size_t)i];
        values[i] = offset == NO_VALUE ? NULL : batch->values.bytes + offset;
    }
    const struct db_statement *statement = step->statement;
    if (prepared && statement->name)
        return PQsendQueryPrepared(pg, statement->name, step->value_count, values, NULL, NULL, 0);
    return PQsendQueryParams(pg, statement->sql, step->value_count, NULL, values, NULL, NULL, 0);
}

bool db_batch_write(struct db_batch *batch, PGconn *pg, struct db_prepared_set *prepared, const char *settings_sql) {
    batch->results = memory_alloc((size_t)(batch->step_count ? batch->step_count : 1) * sizeof(*batch->results));
    batch->prepared_epoch = prepared->epoch;
    if (!settings_sql && !prepares_write(batch, pg, prepared))
        return false;
    batch->settings_awaited = settings_sql && !batch->internal;
    if (batch->settings_awaited && !PQsendQueryParams(pg, settings_sql, 0, NULL, NULL, NULL, NULL, 0))
        return false;
    int most = 1;
    for (int i = 0; i < batch->step_count; i++)
        most = batch->steps[i].value_count > most ? batch->steps[i].value_count : most;
    const char **values = memory_alloc((size_t)most * sizeof(*values));
    bool written = true;
    for (int i = 0; written && i < batch->step_count; i++)
        written = step_write(batch, &batch->steps[i], pg, !settings_sql, values);
    free(values);
    return written && PQpipelineSync(pg);
}

// ---- ending

void db_batch_free_values(struct db_batch *batch) {
    buffer_free(&batch->values);
    free(batch->value_offsets);
    batch->value_offsets = NULL;
}

void db_batch_free(struct db_batch *batch) {
    for (int i = 0; i < batch->result_count; i++)
        PQclear(batch->results[i]);
    db_batch_free_values(batch);
    free(batch->results);
    free(batch->prepares);
    free(batch->steps);
    free(batch);
}

void db_batch_finish(struct db_batch *batch) {
    if (batch->done) {
        struct db_reply reply = {.results = (const PGresult *const *)batch->results, .count = batch->result_count};
        bool failed = batch->error.code != ERROR_NONE;
        batch->done(batch->arg, failed ? NULL : &reply, failed ? &batch->error : NULL);
    }
    db_batch_free(batch);
}

void db_batch_list_append(struct db_batch_list *list, struct db_batch *batch) {
    batch->next = NULL;
    if (list->last)
        list->last->next = batch;
    else
        list->first = batch;
    list->last = batch;
}

struct db_batch *db_batch_list_take_first(struct db_batch_list *list) {
    struct db_batch *batch = list->first;
    if (batch) {
        list->first = batch->next;
        if (!list->first)
            list->last = NULL;
    }
    return batch;
}
