// index_meilisearch: Meilisearch by its documents API. Writes become tasks, which it runs in the order of their
// arrival; there are no versions, so one write is in flight at a time. A task is all or nothing: one that was refused
// for its documents is sent again in halves. Meilisearch API reference: "Documents", "Tasks", "Errors".
#include "common/memory.h"
#include "dispatcher/index_target.h"
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ID_MOST_BYTES = 400, NAME_MOST_BYTES = 400 };

static const char word_characters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";

static const char *name_fault(const char *index) {
    size_t length = strlen(index);
    return length > 0 && length <= NAME_MOST_BYTES && strspn(index, word_characters) == length
               ? NULL
               : "letters, digits, _ -, at most 400 bytes";
}

static bool id_allowed(const char *key) {
    size_t length = strlen(key);
    return length > 0 && length <= ID_MOST_BYTES && strspn(key, word_characters) == length;
}

static void write_path(const struct index_target *target, const char *name, const char *rest, struct buffer *path) {
    buffer_text(path, "/indexes/");
    index_target_name(target, name, path);
    buffer_text(path, rest);
}

// Documents of one index and one kind, from the front.
static size_t build(const struct index_target *target, const struct index_document *documents, size_t count,
                    struct index_request *request) {
    bool gone = !documents[0].body;
    size_t taken = 0;
    write_path(target, documents[0].name, gone ? "/documents/delete-batch" : "/documents?primaryKey=rowbell_id",
               &request->path);
    request->content_type = "content-type: application/json";
    struct buffer id = {0}, more = {0};
    while (taken < count && !documents[taken].body == gone && strcmp(documents[taken].name, documents[0].name) == 0 &&
           (taken == 0 || request->body.length < INDEX_REQUEST_BYTES)) {
        buffer_char(&request->body, taken == 0 ? '[' : ',');
        buffer_clear(&id);
        index_document_id(documents[taken].key, id_allowed, &id);
        buffer_clear(&more);
        buffer_text(&more, ",\"rowbell_id\":");
        buffer_json_string(&more, id.bytes, id.length);
        if (gone)
            buffer_json_string(&request->body, id.bytes, id.length);
        else
            index_document_write(&documents[taken], more.bytes, &request->body);
        taken++;
    }
    buffer_char(&request->body, ']');
    buffer_free(&id);
    buffer_free(&more);
    return taken;
}

static enum index_judgement failed(char **ret_problem, const char *text) {
    *ret_problem = memory_copy_text(text);
    return JUDGED_FAILED;
}

static enum index_judgement judge(struct index_document *documents, size_t count, const char *answer, int64_t *ret_task,
                                  char **ret_problem) {
    struct json_object *root = json_tokener_parse(answer), *task = NULL;
    bool good = json_object_is_type(root, json_type_object) && json_object_object_get_ex(root, "taskUid", &task) &&
                json_object_is_type(task, json_type_int);
    if (good)
        *ret_task = json_object_get_int64(task);
    json_object_put(root);
    return good ? JUDGED_TASK : failed(ret_problem, "the target's answer has no taskUid");
}

static void build_task(int64_t task, struct index_request *request) {
    buffer_format(&request->path, "/tasks/%" PRId64, task);
    request->get = true;
}

static const char *text_of(struct json_object *object, const char *key) {
    struct json_object *value;
    const char *text = object && json_object_object_get_ex(object, key, &value) ? json_object_get_string(value) : NULL;
    return text ? text : "";
}

static enum index_judgement judge_status(struct index_document *documents, size_t count, struct json_object *task,
                                         char **ret_problem) {
    const char *status = text_of(task, "status");
    struct json_object *error = NULL;
    json_object_object_get_ex(task, "error", &error);
    if (strcmp(status, "enqueued") == 0 || strcmp(status, "processing") == 0)
        return JUDGED_TASK;
    bool refused = strcmp(status, "failed") == 0 && strcmp(text_of(error, "type"), "invalid_request") == 0;
    // Nothing to delete where there is no index.
    bool nothing = refused && !documents[0].body && strcmp(text_of(error, "code"), "index_not_found") == 0;
    if (strcmp(status, "succeeded") == 0 || nothing) {
        for (size_t i = 0; i < count; i++)
            index_document_judge(&documents[i], FATE_DONE, NULL);
        return JUDGED_DONE;
    }
    char problem[400];
    snprintf(problem, sizeof problem, "the target's task is %.20s: %.60s: %.280s", status, text_of(error, "code"),
             text_of(error, "message"));
    *ret_problem = memory_copy_text(problem);
    return refused ? JUDGED_SPLIT : JUDGED_FAILED;
}

static enum index_judgement judge_task(struct index_document *documents, size_t count, const char *answer,
                                       int64_t *ret_task, char **ret_problem) {
    struct json_object *root = json_tokener_parse(answer);
    enum index_judgement judgement = json_object_is_type(root, json_type_object)
                                         ? judge_status(documents, count, root, ret_problem)
                                         : failed(ret_problem, "the target's answer is not a task");
    json_object_put(root);
    return judgement;
}

static void build_list(const struct index_target *target, const char *name, int64_t offset, int limit,
                       struct index_request *request) {
    write_path(target, name, "/documents/fetch", &request->path);
    request->content_type = "content-type: application/json";
    buffer_format(&request->body, "{\"offset\":%" PRId64 ",\"limit\":%d,\"fields\":[\"rowbell_key\"]}", offset, limit);
}

static bool judge_list(const char *answer, char ***ret_keys, size_t *ret_count) {
    struct json_object *root = json_tokener_parse(answer), *results = NULL;
    bool good = json_object_is_type(root, json_type_object) && json_object_object_get_ex(root, "results", &results) &&
                json_object_is_type(results, json_type_array);
    size_t count = good ? json_object_array_length(results) : 0;
    char **keys = memory_alloc(sizeof *keys * (count + 1));
    for (size_t i = 0; i < count; i++)
        keys[i] = memory_copy_text(text_of(json_object_array_get_idx(results, i), "rowbell_key"));
    json_object_put(root);
    *ret_keys = keys;
    *ret_count = count;
    return good;
}

const struct index_engine index_meilisearch = {
    .serial = true,
    .name_fault = name_fault,
    .build = build,
    .judge = judge,
    .build_task = build_task,
    .judge_task = judge_task,
    .build_list = build_list,
    .judge_list = judge_list,
};
