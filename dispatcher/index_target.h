// index_target: where an index subscription's documents go, and what search engines have in common.
//
// An engine (index_bulk.c, index_meilisearch.c) only builds requests and judges answers; index_write.c sends them.
#pragma once
#include "common/buffer.h"
#include "common/error.h"
#include "common/http_client.h"
#include "common/seal.h"
#include "dispatcher/sink.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    INDEX_REQUEST_BYTES = 4 << 20, // a body is closed once it has so many
    INDEX_ANSWER_BYTES = 8 << 20,
    INDEX_SWEEP_DOCUMENTS = 5000, // removed by one request
};

enum document_fate { FATE_OPEN, FATE_DONE, FATE_RETRY, FATE_REJECTED };

// What a target shall hold for one row. All texts are owned.
struct index_document {
    char *name, *key;
    char *scope;     // NULL: none
    char *body;      // a JSON object; NULL: there shall be no document
    int64_t version; // a seq: every change up to it is in the body
    enum document_fate fate;
    char *problem; // with FATE_RETRY and FATE_REJECTED
};
void index_document_clear(struct index_document *document);
void index_document_judge(struct index_document *document, enum document_fate fate, const char *problem);

struct index_request {
    bool get;
    const char *content_type;
    struct buffer path; // begins with /
    struct buffer body;
};

enum index_judgement {
    JUDGED_DONE,   // each document has its fate
    JUDGED_TASK,   // accepted: ask again for *ret_task
    JUDGED_SPLIT,  // something in it was refused: send halves, a single document is rejected with *ret_problem
    JUDGED_FAILED, // not now; *ret_problem says why
};

struct index_target;

struct index_engine {
    // It has no versions: one write at a time, in the order of reading.
    bool serial;
    // What cannot be the name of an index; NULL: it is fine. Static.
    const char *(*name_fault)(const char *index);
    // Writes a request for the first documents; returns how many it took, at least 1.
    size_t (*build)(const struct index_target *target, const struct index_document *documents, size_t count,
                    struct index_request *request);
    // Judges an answer of status 2xx. *ret_problem is owned by the caller when set.
    enum index_judgement (*judge)(struct index_document *documents, size_t count, const char *answer, int64_t *ret_task,
                                  char **ret_problem);
    void (*build_task)(int64_t task, struct index_request *request); // NULL: answers are final
    enum index_judgement (*judge_task)(struct index_document *documents, size_t count, const char *answer,
                                       int64_t *ret_task, char **ret_problem);
    // How documents that no row renewed are removed. Either by a query, in steps of INDEX_SWEEP_DOCUMENTS ...
    void (*build_refresh)(const struct index_target *target, const char *name, struct index_request *request);
    void (*build_sweep)(const struct index_target *target, const char *name, int64_t mark,
                        struct index_request *request);
    bool (*judge_sweep)(const char *answer, bool *ret_more);
    // ... or by looking at all of them: keys are owned by the caller.
    void (*build_list)(const struct index_target *target, const char *name, int64_t offset, int limit,
                       struct index_request *request);
    bool (*judge_list)(const char *answer, char ***ret_keys, size_t *ret_count);
};
extern const struct index_engine index_bulk;        // OpenSearch and Elasticsearch
extern const struct index_engine index_meilisearch; // 1.2 and newer

// One reading of a subscription's settings. engine NULL: rowbell.search.
struct index_queue;
struct index_target {
    int uses;
    struct index_queue *queue; // the sink's
    const struct index_engine *engine;
    char *url;           // without a slash at its end
    char *index;         // "{table}" stands for the table
    char *authorization; // header line; NULL: none
    bool allow_http;
};
// NULL: ret_error says why. The keys open a sealed authorization.
struct index_target *index_target_new(const struct subscription *subscription, const struct seal_keys *keys,
                                      struct error *ret_error);
struct index_target *index_target_ref(struct index_target *target);
void index_target_unref(struct index_target *target);                                              // NULL is allowed
void index_target_name(const struct index_target *target, const char *table, struct buffer *name); // appends

// The id of a document: the key itself where `allowed` holds for it, else a digest. Appends.
void index_document_id(const char *key, bool (*allowed)(const char *key), struct buffer *id);
// The document with its address: the columns of the row and rowbell_key, rowbell_scope, and more (",\"x\":1") at its
// end.
void index_document_write(const struct index_document *document, const char *more, struct buffer *json);

void index_request_clear(struct index_request *request); // keeps the memory
void index_request_free(struct index_request *request);
