#include "dispatcher/index_write.h"
#include "common/clock.h"
#include "common/memory.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONNECT_MS = 5000,
    TASK_FIRST_MS = 10,
    TASK_MOST_MS = 500,
    TASK_DEADLINE_MS = 60000, // leases are renewed meanwhile
    RANGES_MOST = 64,         // halves of halves, and what a request left over
};

struct range {
    size_t first, count;
};

struct index_write {
    struct index_sink *sink;
    const struct index_target *target;
    struct index_document *documents;
    size_t count;
    struct range ranges[RANGES_MOST]; // what is to be sent, the last first
    size_t range_count;
    struct range sent; // what waits for an answer
    struct index_request request;
    int64_t task;
    uint64_t task_delay_ms, task_until_ms;
    int64_t moment;
    struct index_wait wait;
    struct index_outcome whole;
    index_write_done *done;
    void *arg;
};

static void write_next(struct index_write *write);

bool index_request_send(struct index_sink *sink, const struct index_target *target, const struct index_request *request,
                        http_done *done, void *arg) {
    if (sink->closing)
        return false;
    struct buffer url = {0};
    buffer_text(&url, target->url);
    buffer_append(&url, request->path.bytes, request->path.length);
    const char *headers[3] = {0};
    size_t count = 0;
    if (target->authorization)
        headers[count++] = target->authorization;
    if (request->content_type)
        headers[count++] = request->content_type;
    http_client_send(sink->http,
                     &(struct http_call){.url = url.bytes,
                                         .headers = headers,
                                         .body = buffer_cstr(&request->body),
                                         .body_length = request->body.length,
                                         .deadline_ms = INDEX_DEADLINE_MS,
                                         .connect_ms = CONNECT_MS,
                                         .allow_http = target->allow_http,
                                         .get = request->get,
                                         .answer_max_bytes = INDEX_ANSWER_BYTES},
                     done, arg);
    buffer_free(&url);
    return true;
}

static void write_end(struct index_write *write) {
    const char *problem = write->whole.outcome.verdict == VERDICT_DELIVERED ? NULL : write->whole.error;
    for (size_t i = 0; i < write->count; i++)
        if (write->documents[i].fate == FATE_OPEN)
            index_document_judge(&write->documents[i], FATE_RETRY, problem);
    write->done(write->arg, &write->whole);
    index_outcome_clear(&write->whole);
    index_request_free(&write->request);
    free(write);
}

static void push(struct index_write *write, size_t first, size_t count) {
    assert(write->range_count < RANGES_MOST);
    if (count > 0)
        write->ranges[write->range_count++] = (struct range){first, count};
}

static void split(struct index_write *write, const char *problem) {
    struct range sent = write->sent;
    if (sent.count == 1) {
        index_document_judge(&write->documents[sent.first], FATE_REJECTED, problem);
    } else {
        push(write, sent.first + sent.count / 2, sent.count - sent.count / 2);
        push(write, sent.first, sent.count / 2);
    }
    write_next(write);
}

static void write_send(struct index_write *write, http_done *done) {
    if (index_request_send(write->sink, write->target, &write->request, done, write))
        return;
    index_outcome_fail(&write->whole, CLASS_LOST, "the process is closing");
    write_end(write);
}

static void on_task_due(void *arg);

static void obey(struct index_write *write, enum index_judgement judgement, char *problem) {
    switch (judgement) {
    case JUDGED_DONE:
        write_next(write);
        break;
    case JUDGED_TASK:
        index_wait_start(write->sink, &write->wait, write->task_delay_ms, on_task_due, write);
        break;
    case JUDGED_SPLIT:
        split(write, problem);
        break;
    case JUDGED_FAILED:
        index_outcome_fail(&write->whole, CLASS_HTTP_5XX, problem);
        write_end(write);
        break;
    }
    free(problem);
}

static void on_task(void *arg, const struct http_outcome *http) {
    struct index_write *write = arg;
    index_outcome_of_answer(write->sink, &write->whole, http);
    if (write->whole.outcome.verdict != VERDICT_DELIVERED) {
        write_end(write);
        return;
    }
    char *problem = NULL;
    enum index_judgement judgement = write->target->engine->judge_task(
        write->documents + write->sent.first, write->sent.count, http->answer, &write->task, &problem);
    obey(write, judgement, problem);
}

static void on_task_due(void *arg) {
    struct index_write *write = arg;
    if (write->sink->closing || clock_ms() >= write->task_until_ms) {
        index_outcome_fail(&write->whole, write->sink->closing ? CLASS_LOST : CLASS_TIMEOUT,
                           "the target accepted the documents and did not process them in time");
        write_end(write);
        return;
    }
    write->task_delay_ms = write->task_delay_ms * 2 < TASK_MOST_MS ? write->task_delay_ms * 2 : TASK_MOST_MS;
    index_request_clear(&write->request);
    write->target->engine->build_task(write->task, &write->request);
    write_send(write, on_task);
}

static void on_answer(void *arg, const struct http_outcome *http) {
    struct index_write *write = arg;
    if (http->failure == HTTP_OK && http->status == 413) {
        split(write, "the target says 413: the document is too large for it");
        return;
    }
    if (http->failure == HTTP_OK && http->status == 400) {
        char text[400];
        snprintf(text, sizeof text, "the target says 400: %.300s", http->response_head ? http->response_head : "");
        split(write, text);
        return;
    }
    index_outcome_of_answer(write->sink, &write->whole, http);
    if (write->whole.outcome.verdict != VERDICT_DELIVERED) {
        write_end(write);
        return;
    }
    char *problem = NULL;
    write->task_delay_ms = TASK_FIRST_MS;
    write->task_until_ms = clock_ms() + TASK_DEADLINE_MS;
    enum index_judgement judgement = write->target->engine->judge(
        write->documents + write->sent.first, write->sent.count, http->answer, &write->task, &problem);
    obey(write, judgement, problem);
}

// Documents whose table cannot name an index are refused without asking.
static void refuse_names(struct index_write *write) {
    struct buffer name = {0};
    for (size_t i = 0; i < write->count; i++) {
        struct index_document *document = &write->documents[i];
        buffer_clear(&name);
        index_target_name(write->target, document->name, &name);
        const char *fault = write->target->engine->name_fault(name.bytes);
        char problem[500];
        if (!fault)
            continue;
        snprintf(problem, sizeof problem, "%.200s cannot name an index (%s): publish the table with another name",
                 name.bytes, fault);
        index_document_judge(document, FATE_REJECTED, problem);
    }
    buffer_free(&name);
}

static void write_next(struct index_write *write) {
    while (write->range_count > 0) {
        struct range range = write->ranges[--write->range_count];
        // Those that have their fate already are left out.
        while (range.count > 0 && write->documents[range.first].fate != FATE_OPEN) {
            range.first++;
            range.count--;
        }
        size_t open = 0;
        while (open < range.count && write->documents[range.first + open].fate == FATE_OPEN)
            open++;
        if (open == 0)
            continue;
        if (!index_moment_lasts(write->sink, write->moment)) {
            index_outcome_fail(&write->whole, CLASS_TIMEOUT,
                               "the process stood still or lost the database, and what it read may be old");
            write_end(write);
            return;
        }
        index_request_clear(&write->request);
        size_t taken =
            write->target->engine->build(write->target, write->documents + range.first, open, &write->request);
        push(write, range.first + taken, range.count - taken);
        write->sent = (struct range){range.first, taken};
        write_send(write, on_answer);
        return;
    }
    write_end(write);
}

static void on_started(void *arg) {
    struct index_write *write = arg;
    refuse_names(write);
    write_next(write);
}

void index_write_start(struct index_sink *sink, const struct index_target *target, struct index_document *documents,
                       size_t count, int64_t moment, index_write_done *done, void *arg) {
    struct index_write *write = memory_alloc(sizeof *write);
    *write = (struct index_write){.sink = sink,
                                  .target = target,
                                  .documents = documents,
                                  .count = count,
                                  .moment = moment,
                                  .done = done,
                                  .arg = arg};
    index_outcome_delivered(&write->whole);
    push(write, 0, count);
    index_wait_start(sink, &write->wait, 0, on_started, write);
}
