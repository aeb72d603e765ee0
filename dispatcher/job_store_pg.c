// The happy path: calls become batches on one pipelined connection and answers come back in order. The failure modes
// are those of db_conn: every call in flight is answered with an error, and on_down says that the shards are gone.
#include "dispatcher/job_store_pg.h"
#include "common/backoff.h"
#include "common/clock.h"
#include "common/db_conn.h"
#include "common/event_id.h"
#include "common/memory.h"
#include "dispatcher/job_hints.h"
#include "dispatcher/pg_array.h"
#include "dispatcher/sql.h"
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEADLINE_MS = 10000,
    KEEPALIVE_MS = 3000,
    IDLE_SESSION_MS = 10000, // a process that is stopped this long loses its shards
    PROMOTE_LIMIT = 500,
    HOLD_LIMIT = 500, // the literal in job_hold.sql
    FINISH_ARRAYS = 20,
    DELIVERED_ARRAYS = 13,
};

static const char application_name[] = "rowbell-dispatcher";

struct job_store_pg {
    struct job_store port;
    struct db_conn *conn;
    struct job_store_pg_options options;
    char lock_offset[16];   // as a parameter
    char owner[24];         // as a parameter
    struct job_hints hints; // NOTIFY rowbell_jobs
};

// A call in flight: whom to answer, and where the parts of a round are among the results.
struct call {
    struct job_store_pg *store;
    void *done_arg;
    union {
        job_round_done *round;
        changes_done *changes;
        promoted_done *promoted;
        survey_done *survey;
        shards_done *shards;
        leases_done *leases;
        held_done *held;
        held_found_done *held_found;
        released_done *released;
    } done;
    int finish_at, renew_at, claim_at; // -1: not part of this round
    int finishes, claims;              // statements from finish_at and claim_at on
    int64_t sent_us;                   // clock_ns, in microseconds
};

static struct call *call_new(struct job_store_pg *store, void *done_arg) {
    struct call *call = memory_alloc(sizeof *call);
    *call = (struct call){.store = store,
                          .done_arg = done_arg,
                          .finish_at = -1,
                          .renew_at = -1,
                          .claim_at = -1,
                          .sent_us = (int64_t)(clock_ns() / 1000)};
    return call;
}

static const char *cell(const PGresult *result, int row, int column) {
    return PQgetisnull(result, row, column) ? NULL : PQgetvalue(result, row, column);
}
static int64_t cell_int(const PGresult *result, int row, int column) {
    return strtoll(PQgetvalue(result, row, column), NULL, 10);
}

// job_mode's answer says what time it is there.
static void time_told(const struct call *call, const PGresult *mode) {
    const struct job_store_pg_options *options = &call->store->options;
    if (options->on_time)
        options->on_time(options->arg, call->sent_us, cell_int(mode, 0, PQnfields(mode) - 1));
}

// One statement on the job tables, behind job_mode: its result is the second.
static void send_job_query(struct job_store_pg *store, const struct db_statement *statement, int value_count,
                           const char *const *values, db_done *done, void *arg) {
    struct db_batch *batch = db_batch_begin(store->conn);
    db_batch_add(batch, &sql_job_mode, 0, NULL);
    db_batch_add(batch, statement, value_count, values);
    db_batch_send(batch, DEADLINE_MS, done, arg);
}

// ---- Rounds

// Delivered, and nothing follows from it: the usual end.
static bool end_is_plain(const struct job_end *end) {
    return strcmp(end->fate, "delivered") == 0 && strcmp(end->class, "delivered") == 0 && !end->error &&
           !end->pause_ms && !end->subject;
}

// The ends that are plain, or the others. False: there is none.
static bool add_finish(struct db_batch *batch, const struct job_round *round, bool plain) {
    struct buffer arrays[FINISH_ARRAYS] = {0};
    const int array_count = plain ? DELIVERED_ARRAYS : FINISH_ARRAYS;
    size_t count = 0;
    for (int i = 0; i < array_count; i++)
        pg_array_begin(&arrays[i]);
    uint64_t now = clock_ms();
    for (size_t i = 0; i < round->end_count; i++) {
        const struct job_end *end = round->ends[i];
        if (end_is_plain(end) != plain)
            continue;
        count++;
        struct buffer *to = arrays;
        pg_array_int(to++, end->ref.subscription_id);
        pg_array_int(to++, end->ref.event_seq);
        pg_array_int(to++, end->ref.token);
        pg_array_int(to++, end->attempt);
        pg_array_int(to++, (int64_t)(now - end->started_ms));
        pg_array_number(to++, end->dns_ms);
        pg_array_number(to++, end->connect_ms);
        pg_array_number(to++, end->tls_ms);
        pg_array_number(to++, end->first_byte_ms);
        pg_array_number(to++, end->total_ms);
        if (end->status > 0)
            pg_array_int(to++, end->status);
        else
            pg_array_null(to++);
        pg_array_text(to++, end->peer);
        pg_array_text(to++, end->response_head);
        if (!plain) {
            pg_array_text(to++, end->fate);
            pg_array_int(to++, (int64_t)end->delay_ms);
            pg_array_text(to++, end->class);
            pg_array_text(to++, end->error);
            pg_array_int(to++, (int64_t)end->pause_ms);
            pg_array_text(to++, end->subject);
            pg_array_int(to++, end->uncounts);
        }
        assert(to == arrays + array_count);
    }
    const char *values[FINISH_ARRAYS];
    for (int i = 0; i < array_count; i++)
        values[i] = pg_array_end(&arrays[i]);
    if (count)
        db_batch_add(batch, plain ? &sql_job_finish_delivered : &sql_job_finish, array_count, values);
    for (int i = 0; i < array_count; i++)
        buffer_free(&arrays[i]);
    return count > 0;
}

static void add_refs(struct db_batch *batch, const struct db_statement *statement, const struct job_ref *refs,
                     size_t count, const char *last) {
    struct buffer ids = {0}, seqs = {0}, tokens = {0};
    pg_array_begin(&ids);
    pg_array_begin(&seqs);
    pg_array_begin(&tokens);
    for (size_t i = 0; i < count; i++) {
        pg_array_int(&ids, refs[i].subscription_id);
        pg_array_int(&seqs, refs[i].event_seq);
        pg_array_int(&tokens, refs[i].token);
    }
    const char *values[] = {pg_array_end(&ids), pg_array_end(&seqs), pg_array_end(&tokens), last};
    db_batch_add(batch, statement, last ? 4 : 3, values);
    buffer_free(&ids);
    buffer_free(&seqs);
    buffer_free(&tokens);
}

// What has to follow the ends: the next jobs of subjects, alerts. Returns how many statements were added.
static int add_consequences(struct db_batch *batch, const struct job_round *round) {
    struct buffer ids = {0}, subjects = {0}, poisoned = {0}, seqs = {0}, attempts = {0};
    pg_array_begin(&ids);
    pg_array_begin(&subjects);
    pg_array_begin(&poisoned);
    pg_array_begin(&seqs);
    pg_array_begin(&attempts);
    int passed_count = 0, poisoned_count = 0;
    for (size_t i = 0; i < round->end_count; i++) {
        const struct job_end *end = round->ends[i];
        bool passed = strcmp(end->fate, "delivered") == 0 || strcmp(end->fate, "cancelled") == 0;
        if (end->subject && passed) {
            pg_array_int(&ids, end->ref.subscription_id);
            pg_array_text(&subjects, end->subject);
            passed_count++;
        } else if (strcmp(end->fate, "poisoned") == 0) {
            pg_array_int(&poisoned, end->ref.subscription_id);
            pg_array_int(&seqs, end->ref.event_seq);
            pg_array_int(&attempts, end->attempt);
            poisoned_count++;
        }
    }
    if (passed_count)
        db_batch_add(batch, &sql_job_unblock, 2, (const char *[]){pg_array_end(&ids), pg_array_end(&subjects)});
    if (poisoned_count)
        db_batch_add(batch, &sql_job_poisoned, 3,
                     (const char *[]){pg_array_end(&poisoned), pg_array_end(&seqs), pg_array_end(&attempts)});
    buffer_free(&ids);
    buffer_free(&subjects);
    buffer_free(&poisoned);
    buffer_free(&seqs);
    buffer_free(&attempts);
    return (passed_count > 0) + (poisoned_count > 0);
}

// The claims of ordered subscriptions, or of the others. False: there is none.
static bool add_claim(struct db_batch *batch, const struct job_round *round, bool ordered) {
    enum { ARRAYS = 5 };
    struct buffer arrays[ARRAYS] = {0};
    size_t count = 0;
    for (int i = 0; i < ARRAYS; i++)
        pg_array_begin(&arrays[i]);
    for (size_t i = 0; i < round->claim_count; i++) {
        const struct job_claim *claim = &round->claims[i];
        if (claim->ordered != ordered)
            continue;
        pg_array_int(&arrays[0], claim->subscription_id);
        pg_array_int(&arrays[1], claim->slots);
        pg_array_int(&arrays[2], claim->lease_ms);
        pg_array_int(&arrays[3], claim->lowest);
        pg_array_int(&arrays[4], claim->highest);
        count++;
    }
    char token[32], bytes[32], grace[32];
    snprintf(token, sizeof token, "%" PRId64, round->token);
    snprintf(bytes, sizeof bytes, "%d", JOB_ROUND_BYTES);
    snprintf(grace, sizeof grace, "%" PRIu64, round->throttle_grace_ms);
    const char *values[ARRAYS + 3] = {[ARRAYS] = token, bytes, grace};
    for (int i = 0; i < ARRAYS; i++)
        values[i] = pg_array_end(&arrays[i]);
    if (count)
        db_batch_add(batch, ordered ? &sql_job_claim_ordered : &sql_job_claim, ARRAYS + 3, values);
    for (int i = 0; i < ARRAYS; i++)
        buffer_free(&arrays[i]);
    return count > 0;
}

// From `statements` results, one after the other.
static struct job_ref *read_refs(const PGresult *const *results, int statements, size_t *ret_count) {
    size_t rows = 0, count = 0;
    for (int i = 0; i < statements; i++)
        rows += (size_t)PQntuples(results[i]);
    struct job_ref *refs = memory_alloc(sizeof *refs * (rows + 1));
    for (int i = 0; i < statements; i++) {
        bool tokens = PQnfields(results[i]) > 2;
        for (int row = 0; row < PQntuples(results[i]); row++)
            refs[count++] = (struct job_ref){.subscription_id = (int)cell_int(results[i], row, 0),
                                             .event_seq = cell_int(results[i], row, 1),
                                             .token = tokens ? cell_int(results[i], row, 2) : 0};
    }
    *ret_count = rows;
    return refs;
}

// What the claim's rows give as numbers and columns, as texts; offsets first, since the buffer moves while it grows.
struct claim_texts {
    struct buffer bytes;
    size_t *offsets; // id, time and data of each job
};

// A row change's data, as capture's subject and type tell it: {"table","key","op"}.
static void write_data(struct buffer *to, const char *type, const char *op, const char *key, const char *data) {
    if (!op) {
        buffer_text(to, data ? data : "{}");
        return;
    }
    buffer_text(to, "{\"table\":");
    buffer_json_string(to, type, strlen(type) - strlen(op) - 1);
    buffer_text(to, ",\"key\":");
    buffer_json_string(to, key ? key : "", key ? strlen(key) : 0);
    buffer_format(to, ",\"op\":\"%s\"}", op);
}

static size_t read_claimed(const PGresult *result, struct claimed_job *jobs, struct claim_texts *texts, size_t first) {
    enum { OCCURRED = 6, TYPE, SUBJECT, OP, KEY, DATA, TOO_LARGE, THROTTLED_LONG };
    int rows = PQntuples(result);
    for (int i = 0; i < rows; i++) {
        struct claimed_job *job = &jobs[first + (size_t)i];
        *job = (struct claimed_job){.subscription_id = (int)cell_int(result, i, 0),
                                    .event_seq = cell_int(result, i, 1),
                                    .attempt = (int)cell_int(result, i, 2),
                                    .uncounted = (int)cell_int(result, i, 3),
                                    .lost = (int)cell_int(result, i, 4),
                                    .lost_alone = (int)cell_int(result, i, 5),
                                    .too_large = cell(result, i, TOO_LARGE) ? cell_int(result, i, TOO_LARGE) : 0,
                                    .throttled_long = PQgetvalue(result, i, THROTTLED_LONG)[0] == 't',
                                    .type = cell(result, i, TYPE),
                                    .subject = cell(result, i, SUBJECT)};
        if (!job->type)
            continue;
        char id[EVENT_ID_BYTES], time[EVENT_TIME_BYTES];
        event_id_write(id, cell_int(result, i, OCCURRED), job->event_seq);
        event_time_write(time, cell_int(result, i, OCCURRED));
        size_t *offset = texts->offsets + 3 * (first + (size_t)i);
        offset[0] = texts->bytes.length;
        buffer_format(&texts->bytes, "%s%c", id, '\0');
        offset[1] = texts->bytes.length;
        buffer_format(&texts->bytes, "%s%c", time, '\0');
        offset[2] = texts->bytes.length;
        write_data(&texts->bytes, job->type, cell(result, i, OP), cell(result, i, KEY), cell(result, i, DATA));
        buffer_char(&texts->bytes, '\0');
    }
    return (size_t)rows;
}

// From one claim statement, or two.
static struct claimed_job *read_claims(const struct call *call, const struct db_reply *reply, struct claim_texts *texts,
                                       size_t *ret_count) {
    size_t rows = 0, count = 0;
    for (int i = 0; i < call->claims; i++)
        rows += (size_t)PQntuples(reply->results[call->claim_at + i]);
    struct claimed_job *jobs = memory_alloc(sizeof *jobs * (rows + 1));
    texts->offsets = memory_alloc(sizeof *texts->offsets * 3 * (rows + 1));
    for (int i = 0; i < call->claims; i++)
        count += read_claimed(reply->results[call->claim_at + i], jobs, texts, count);
    for (size_t i = 0; i < count; i++) {
        if (!jobs[i].type)
            continue;
        jobs[i].event_id = texts->bytes.bytes + texts->offsets[3 * i];
        jobs[i].occurred_at = texts->bytes.bytes + texts->offsets[3 * i + 1];
        jobs[i].data = texts->bytes.bytes + texts->offsets[3 * i + 2];
    }
    *ret_count = count;
    return jobs;
}

static void round_answered(void *arg, const struct db_reply *reply, const struct error *error) {
    struct call *call = arg;
    struct job_round_result result = {0};
    struct job_ref *ended = NULL, *renewed = NULL;
    struct claimed_job *claimed = NULL;
    struct claim_texts texts = {0};
    if (reply) {
        time_told(call, reply->results[0]); // before the jobs are sent
        if (call->finish_at >= 0)
            result.ended = ended = read_refs(&reply->results[call->finish_at], call->finishes, &result.ended_count);
        if (call->renew_at >= 0)
            result.renewed = renewed = read_refs(&reply->results[call->renew_at], 1, &result.renewed_count);
        if (call->claim_at >= 0)
            result.claimed = claimed = read_claims(call, reply, &texts, &result.claimed_count);
    }
    call->done.round(call->done_arg, reply ? &result : NULL, error);
    free(ended);
    free(renewed);
    free(claimed);
    buffer_free(&texts.bytes);
    free(texts.offsets);
    free(call);
}

static void store_round(void *arg, const struct job_round *round, job_round_done *done, void *done_arg) {
    struct job_store_pg *store = arg;
    struct call *call = call_new(store, done_arg);
    call->done.round = done;
    char lease[32];
    snprintf(lease, sizeof lease, "%u", round->lease_ms);
    struct db_batch *batch = db_batch_begin(store->conn);
    int at = 0;
    db_batch_add(batch, &sql_job_mode, 0, NULL);
    at++;
    if (round->end_count) {
        call->finish_at = at;
        call->finishes = add_finish(batch, round, false);
        call->finishes += add_finish(batch, round, true); // last: with a success in the round an endpoint is well
        at += call->finishes + add_consequences(batch, round);
    }
    if (round->return_count) {
        add_refs(batch, &sql_job_return, round->returns, round->return_count, NULL);
        at++;
    }
    if (round->renewal_count) {
        add_refs(batch, &sql_job_renew, round->renewals, round->renewal_count, lease);
        call->renew_at = at++;
    }
    if (round->disable_count) {
        struct buffer ids = {0};
        pg_array_begin(&ids);
        for (size_t i = 0; i < round->disable_count; i++)
            pg_array_int(&ids, round->disables[i]);
        db_batch_add(batch, &sql_subscription_disable, 1, (const char *[]){pg_array_end(&ids)});
        buffer_free(&ids);
        at++;
    }
    if (round->claim_count) {
        call->claim_at = at;
        call->claims = add_claim(batch, round, false) + add_claim(batch, round, true);
    }
    db_batch_send(batch, DEADLINE_MS, round_answered, call);
}

// ---- Subscriptions

static void changes_answered(void *arg, const struct db_reply *reply, const struct error *error) {
    struct call *call = arg;
    size_t count = 0;
    struct subscription_change *changes = NULL;
    if (reply) {
        const PGresult *result = reply->results[0];
        count = (size_t)PQntuples(result);
        changes = memory_alloc(sizeof *changes * (count + 1));
        for (int i = 0; i < (int)count; i++)
            changes[i] = (struct subscription_change){.id = (int)cell_int(result, i, 0),
                                                      .name = cell(result, i, 1),
                                                      .kind = cell(result, i, 2),
                                                      .state = cell(result, i, 3),
                                                      .ordered = PQgetvalue(result, i, 4)[0] == 't',
                                                      .settings = cell(result, i, 5),
                                                      .secrets = cell(result, i, 6),
                                                      .version = cell(result, i, 7),
                                                      .pause_ms = (uint64_t)cell_int(result, i, 8),
                                                      .failing_ms = cell_int(result, i, 9),
                                                      .idle_ms = cell_int(result, i, 10),
                                                      .seal_id = cell(result, i, 11)};
    }
    call->done.changes(call->done_arg, changes, count, error);
    free(changes);
    free(call);
}

static void store_changes(void *arg, const struct subscription_known *known, size_t count, changes_done *done,
                          void *done_arg) {
    struct job_store_pg *store = arg;
    struct call *call = call_new(store, done_arg);
    call->done.changes = done;
    struct buffer ids = {0}, versions = {0};
    pg_array_begin(&ids);
    pg_array_begin(&versions);
    for (size_t i = 0; i < count; i++) {
        pg_array_int(&ids, known[i].id);
        pg_array_text(&versions, known[i].version);
    }
    char kinds[32];
    snprintf(kinds, sizeof kinds, "{%s}", store->options.kind);
    const char *values[] = {pg_array_end(&ids), pg_array_end(&versions), kinds};
    db_query(store->conn, &sql_subscription_changes, 3, values, DEADLINE_MS, changes_answered, call);
    buffer_free(&ids);
    buffer_free(&versions);
}

// ---- Moves between the tables

struct id_list {
    int ids[PROMOTE_LIMIT];
    size_t count;
};

static void collect_id(void *arg, int value) {
    struct id_list *list = arg;
    if (list->count < PROMOTE_LIMIT)
        list->ids[list->count++] = value;
}

static void promote_answered(void *arg, const struct db_reply *reply, const struct error *error) {
    struct call *call = arg;
    struct id_list list = {.count = 0};
    bool more = false;
    int64_t next_due_ms = -1;
    if (reply) {
        time_told(call, reply->results[0]);
        const PGresult *result = reply->results[1];
        more = cell_int(result, 0, 0) >= PROMOTE_LIMIT;
        pg_array_each_int(PQgetvalue(result, 0, 1), collect_id, &list);
        if (cell(result, 0, 3))
            next_due_ms = cell_int(result, 0, 3) > 0 ? cell_int(result, 0, 3) : 0;
    }
    call->done.promoted(call->done_arg, list.ids, list.count, more, next_due_ms, error);
    free(call);
}

static void store_promote(void *arg, promoted_done *done, void *done_arg) {
    struct job_store_pg *store = arg;
    struct call *call = call_new(store, done_arg);
    call->done.promoted = done;
    char most[16];
    snprintf(most, sizeof most, "%d", PROMOTE_LIMIT);
    send_job_query(store, &sql_job_promote, 1, (const char *[]){most}, promote_answered, call);
}

static void hold_answered(void *arg, const struct db_reply *reply, const struct error *error) {
    struct call *call = arg;
    call->done.held(call->done_arg, reply && cell_int(reply->results[1], 0, 0) >= HOLD_LIMIT, error);
    free(call);
}

static void write_ids(struct buffer *array, const int *ids, size_t count) {
    pg_array_begin(array);
    for (size_t i = 0; i < count; i++)
        pg_array_int(array, ids[i]);
    pg_array_end(array);
}

static void store_hold(void *arg, const int *subscription_ids, size_t count, held_done *done, void *done_arg) {
    struct job_store_pg *store = arg;
    struct call *call = call_new(store, done_arg);
    call->done.held = done;
    struct buffer ids = {0};
    write_ids(&ids, subscription_ids, count);
    const char *values[] = {buffer_cstr(&ids)};
    struct db_batch *batch = db_batch_begin(store->conn);
    db_batch_add(batch, &sql_job_mode, 0, NULL);
    db_batch_add(batch, &sql_job_hold, 1, values);
    db_batch_add(batch, &sql_job_hold_waiting, 1, values);
    db_batch_send(batch, DEADLINE_MS, hold_answered, call);
    buffer_free(&ids);
}

static void held_found(void *arg, const struct db_reply *reply, const struct error *error) {
    struct call *call = arg;
    size_t count = reply ? (size_t)PQntuples(reply->results[1]) : 0;
    int *ids = memory_alloc(sizeof *ids * (count + 1));
    for (size_t i = 0; i < count; i++)
        ids[i] = (int)cell_int(reply->results[1], (int)i, 0);
    call->done.held_found(call->done_arg, ids, count, error);
    free(ids);
    free(call);
}

static void store_held(void *arg, held_found_done *done, void *done_arg) {
    struct job_store_pg *store = arg;
    struct call *call = call_new(store, done_arg);
    call->done.held_found = done;
    send_job_query(store, &sql_held_survey, 0, NULL, held_found, call);
}

static void released(void *arg, const struct db_reply *reply, const struct error *error) {
    struct call *call = arg;
    size_t count = reply ? (size_t)PQntuples(reply->results[1]) : 0;
    struct job_release *releases = memory_alloc(sizeof *releases * (count + 1));
    for (size_t i = 0; i < count; i++)
        releases[i] = (struct job_release){.subscription_id = (int)cell_int(reply->results[1], (int)i, 0),
                                           .count = (int)cell_int(reply->results[1], (int)i, 1)};
    call->done.released(call->done_arg, releases, count, error);
    free(releases);
    free(call);
}

static void store_release_held(void *arg, const struct job_release *releases, size_t count, released_done *done,
                               void *done_arg) {
    struct job_store_pg *store = arg;
    struct call *call = call_new(store, done_arg);
    call->done.released = done;
    struct buffer ids = {0}, counts = {0};
    pg_array_begin(&ids);
    pg_array_begin(&counts);
    for (size_t i = 0; i < count; i++) {
        pg_array_int(&ids, releases[i].subscription_id);
        pg_array_int(&counts, releases[i].count);
    }
    send_job_query(store, &sql_job_release, 2, (const char *[]){pg_array_end(&ids), pg_array_end(&counts)}, released,
                   call);
    buffer_free(&ids);
    buffer_free(&counts);
}

// ---- Shards

static void survey_answered(void *arg, const struct db_reply *reply, const struct error *error) {
    struct call *call = arg;
    int dispatchers = reply ? (int)cell_int(reply->results[0], 0, 0) : 0;
    uint64_t held = reply ? (uint64_t)cell_int(reply->results[0], 0, 1) : 0;
    call->done.survey(call->done_arg, dispatchers, held, error);
    free(call);
}

static void store_survey(void *arg, survey_done *done, void *done_arg) {
    struct job_store_pg *store = arg;
    struct call *call = call_new(store, done_arg);
    call->done.survey = done;
    db_query(store->conn, &sql_shard_survey, 1, (const char *[]){store->lock_offset}, DEADLINE_MS, survey_answered,
             call);
}

static void shards_answered(void *arg, const struct db_reply *reply, const struct error *error) {
    struct call *call = arg;
    uint64_t shards = 0;
    for (int i = 0; reply && i < PQntuples(reply->results[0]); i++)
        if (PQgetvalue(reply->results[0], i, 1)[0] == 't')
            shards |= shard_bit((int)cell_int(reply->results[0], i, 0));
    call->done.shards(call->done_arg, shards, error);
    free(call);
}

static void send_shards(struct job_store_pg *store, const struct db_statement *statement, uint64_t shards,
                        shards_done *done, void *done_arg) {
    struct call *call = call_new(store, done_arg);
    call->done.shards = done;
    struct buffer ids = {0};
    pg_array_begin(&ids);
    for (int shard = 0; shard < SHARD_COUNT; shard++)
        if (shards & shard_bit(shard))
            pg_array_int(&ids, shard);
    const char *values[] = {pg_array_end(&ids), store->lock_offset};
    db_query(store->conn, statement, 2, values, DEADLINE_MS, shards_answered, call);
    buffer_free(&ids);
}

static void store_take(void *arg, uint64_t shards, shards_done *done, void *done_arg) {
    send_shards(arg, &sql_shard_take, shards, done, done_arg);
}

static void store_release(void *arg, uint64_t shards, shards_done *done, void *done_arg) {
    send_shards(arg, &sql_shard_release, shards, done, done_arg);
}

static void leases_answered(void *arg, const struct db_reply *reply, const struct error *error) {
    struct call *call = arg;
    size_t count = reply ? (size_t)PQntuples(reply->results[1]) : 0;
    struct lease_count *counts = memory_alloc(sizeof *counts * (count + 1));
    for (size_t i = 0; i < count; i++)
        counts[i] = (struct lease_count){.subscription_id = (int)cell_int(reply->results[1], (int)i, 0),
                                         .leases = (int)cell_int(reply->results[1], (int)i, 1),
                                         .owner = cell_int(reply->results[1], (int)i, 2),
                                         .present = PQgetvalue(reply->results[1], (int)i, 3)[0] == 't'};
    call->done.leases(call->done_arg, counts, count, error);
    free(counts);
    free(call);
}

static void store_leases(void *arg, const int *subscription_ids, size_t count, leases_done *done, void *done_arg) {
    struct job_store_pg *store = arg;
    struct call *call = call_new(store, done_arg);
    call->done.leases = done;
    struct buffer ids = {0};
    write_ids(&ids, subscription_ids, count);
    const char *values[] = {buffer_cstr(&ids), store->owner};
    send_job_query(store, &sql_lease_survey, 2, values, leases_answered, call);
    buffer_free(&ids);
}

static void store_cut(void *arg, const struct lease_count *leases, size_t count) {
    struct job_store_pg *store = arg;
    struct buffer ids = {0}, owners = {0};
    pg_array_begin(&ids);
    pg_array_begin(&owners);
    for (size_t i = 0; i < count; i++) {
        pg_array_int(&ids, leases[i].subscription_id);
        pg_array_int(&owners, leases[i].owner);
    }
    send_job_query(store, &sql_lease_cut, 2, (const char *[]){pg_array_end(&ids), pg_array_end(&owners)}, NULL, NULL);
    buffer_free(&ids);
    buffer_free(&owners);
}

// ---- The connection

void job_store_pg_name_session(struct job_store_pg *store, const char *addition) {
    if (!store->conn || !db_conn_is_up(store->conn))
        return;
    struct buffer name = {0};
    buffer_format(&name, "%s%s", application_name, addition);
    db_query(store->conn, &sql_session_name, 1, (const char *[]){buffer_cstr(&name)}, DEADLINE_MS, NULL, NULL);
    buffer_free(&name);
}

static bool store_is_up(void *arg) {
    return db_conn_is_up(((struct job_store_pg *)arg)->conn);
}

static uint64_t store_answered_ms(void *arg) {
    return db_conn_answered_ms(((struct job_store_pg *)arg)->conn);
}

static void joined(void *arg, const struct db_reply *reply, const struct error *error) {
    struct job_store_pg *store = arg;
    if (!error)
        store->options.on_up(store->options.arg);
}

static void conn_up(void *arg, struct db_conn *conn) {
    struct job_store_pg *store = arg;
    store->conn = conn; // may come before db_conn_new has returned
    db_query(conn, &sql_shard_join, 2, (const char *[]){store->lock_offset, store->owner}, DEADLINE_MS, joined, arg);
}

static void conn_down(void *arg, struct db_conn *conn, const struct error *error, bool first) {
    struct job_store_pg *store = arg;
    store->conn = conn;
    store->options.on_down(store->options.arg, error, first);
}

static void conn_notify(void *arg, const char *channel, const char *payload) {
    struct job_store_pg *store = arg;
    job_hints_take(&store->hints, payload);
}

struct job_store_pg *job_store_pg_new(uv_loop_t *loop, const struct job_store_pg_options *options) {
    static const char *const channels[] = {"rowbell_jobs", NULL};
    struct job_store_pg *store = memory_alloc(sizeof *store);
    store->options = *options;
    job_hints_init(&store->hints, loop, options->kind, options->on_jobs, options->arg);
    snprintf(store->lock_offset, sizeof store->lock_offset, "%d", options->lock_offset);
    int64_t owner = (int64_t)(random_unit() * (double)((int64_t)1 << 39)); // so that tokens stay positive
    snprintf(store->owner, sizeof store->owner, "%" PRId64, owner);
    store->port = (struct job_store){.arg = store,
                                     .owner = owner,
                                     .is_up = store_is_up,
                                     .answered_ms = store_answered_ms,
                                     .round = store_round,
                                     .changes = store_changes,
                                     .promote = store_promote,
                                     .hold = store_hold,
                                     .survey = store_survey,
                                     .take = store_take,
                                     .release = store_release,
                                     .leases = store_leases,
                                     .cut = store_cut,
                                     .held = store_held,
                                     .release_held = store_release_held};
    store->conn = db_conn_new(loop, &(struct db_conn_options){.url = options->url,
                                                              .direct_url = options->direct_url,
                                                              .session = true,
                                                              .writes = true,
                                                              .strict = options->once,
                                                              .application_name = application_name,
                                                              .idle_session_timeout_ms = IDLE_SESSION_MS,
                                                              .keepalive_ms = KEEPALIVE_MS,
                                                              .channels = channels,
                                                              .arg = store,
                                                              .on_up = conn_up,
                                                              .on_down = conn_down,
                                                              .on_notify = conn_notify});
    return store;
}

const struct job_store *job_store_pg_port(struct job_store_pg *store) {
    return &store->port;
}

struct closing {
    struct job_store_pg *store;
    void (*on_closed)(void *arg);
    void *arg;
};

static void hints_closed(void *arg) {
    struct closing *closing = arg;
    free(closing->store);
    if (closing->on_closed)
        closing->on_closed(closing->arg);
    free(closing);
}

static void conn_closed(void *arg) {
    struct closing *closing = arg;
    if (closing->store)
        job_hints_close(&closing->store->hints, hints_closed, closing);
    else
        hints_closed(closing);
}

void job_store_pg_close(struct job_store_pg *store, void (*on_closed)(void *arg), void *arg) {
    struct closing *closing = memory_alloc(sizeof *closing);
    *closing = (struct closing){.store = store, .on_closed = on_closed, .arg = arg};
    if (store)
        job_hints_stop(&store->hints);
    db_conn_close(store ? store->conn : NULL, conn_closed, closing);
}
