// index_bulk: OpenSearch and Elasticsearch by _bulk. Each item has the event's seq as its external version, so an older
// write that comes later is a conflict, and a conflict is success.
// Elasticsearch reference: "Bulk API", "Index API: external versioning", "Delete by query API".
#include "common/memory.h"
#include "dispatcher/index_target.h"
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ID_MOST_BYTES = 512 };

static const char *name_fault(const char *index) {
    size_t length = strlen(index);
    if (length == 0 || length > 255)
        return "1 to 255 bytes";
    if (strspn(index, "abcdefghijklmnopqrstuvwxyz0123456789._-") != length || strchr("._-", index[0]))
        return "small letters, digits, . _ -, and a letter or digit first";
    return NULL;
}

static bool id_allowed(const char *key) {
    size_t length = strlen(key);
    return length > 0 && length <= ID_MOST_BYTES;
}

static void write_item(const struct index_target *target, const struct index_document *document, struct buffer *body) {
    struct buffer text = {0};
    buffer_format(body, "{\"%s\":{\"_index\":", document->body ? "index" : "delete");
    index_target_name(target, document->name, &text);
    buffer_json_string(body, text.bytes, text.length);
    buffer_clear(&text);
    index_document_id(document->key, id_allowed, &text);
    buffer_text(body, ",\"_id\":");
    buffer_json_string(body, text.bytes, text.length);
    buffer_format(body, ",\"version\":%" PRId64 ",\"version_type\":\"external_gte\"}}\n", document->version);
    buffer_free(&text);
    if (!document->body)
        return;
    char more[48];
    snprintf(more, sizeof more, ",\"rowbell_seq\":%" PRId64, document->version);
    index_document_write(document, more, body);
    buffer_char(body, '\n');
}

static size_t build(const struct index_target *target, const struct index_document *documents, size_t count,
                    struct index_request *request) {
    buffer_text(&request->path, "/_bulk?filter_path=items.*.status,items.*.error.type,items.*.error.reason");
    request->content_type = "content-type: application/x-ndjson";
    size_t taken = 0;
    while (taken < count && (taken == 0 || request->body.length < INDEX_REQUEST_BYTES))
        write_item(target, &documents[taken++], &request->body);
    return taken;
}

static const char *text_of(struct json_object *object, const char *key) {
    struct json_object *value;
    return object && json_object_object_get_ex(object, key, &value) ? json_object_get_string(value) : NULL;
}

static bool judge_item(struct index_document *document, struct json_object *item) {
    struct json_object *result = NULL, *status_value = NULL, *error = NULL;
    if (!json_object_is_type(item, json_type_object))
        return false;
    json_object_object_foreach(item, action, value) {
        if (strcmp(action, document->body ? "index" : "delete") == 0)
            result = value;
    }
    if (!result || !json_object_object_get_ex(result, "status", &status_value))
        return false;
    int status = json_object_get_int(status_value);
    json_object_object_get_ex(result, "error", &error);
    const char *type = text_of(error, "type"), *reason = text_of(error, "reason");
    char problem[400];
    snprintf(problem, sizeof problem, "the target says %d %.80s: %.280s", status, type ? type : "",
             reason ? reason : "");
    bool no_index = type && strcmp(type, "index_not_found_exception") == 0;
    if ((status >= 200 && status < 300) || status == 409 || (status == 404 && !document->body))
        index_document_judge(document, FATE_DONE, NULL);
    else if (status == 429 || status >= 500 || status == 401 || status == 403 || no_index)
        index_document_judge(document, FATE_RETRY, problem);
    else
        index_document_judge(document, FATE_REJECTED, problem);
    return true;
}

static enum index_judgement judge(struct index_document *documents, size_t count, const char *answer, int64_t *ret_task,
                                  char **ret_problem) {
    struct json_object *root = json_tokener_parse(answer), *items = NULL;
    bool good = json_object_is_type(root, json_type_object) && json_object_object_get_ex(root, "items", &items) &&
                json_object_is_type(items, json_type_array) && json_object_array_length(items) == count;
    for (size_t i = 0; good && i < count; i++)
        good = judge_item(&documents[i], json_object_array_get_idx(items, i));
    json_object_put(root);
    if (good)
        return JUDGED_DONE;
    *ret_problem = memory_copy_text("the target's answer is not that of a bulk request");
    return JUDGED_FAILED;
}

static void build_refresh(const struct index_target *target, const char *name, struct index_request *request) {
    buffer_char(&request->path, '/');
    index_target_name(target, name, &request->path);
    buffer_text(&request->path, "/_refresh");
    request->content_type = "content-type: application/json";
}

static void build_sweep(const struct index_target *target, const char *name, int64_t mark,
                        struct index_request *request) {
    buffer_char(&request->path, '/');
    index_target_name(target, name, &request->path);
    buffer_format(&request->path, "/_delete_by_query?conflicts=proceed&refresh=true&max_docs=%d",
                  INDEX_SWEEP_DOCUMENTS);
    buffer_format(&request->body, "{\"query\":{\"range\":{\"rowbell_seq\":{\"lt\":%" PRId64 "}}}}", mark);
    request->content_type = "content-type: application/json";
}

static bool judge_sweep(const char *answer, bool *ret_more) {
    struct json_object *root = json_tokener_parse(answer), *total = NULL, *failures = NULL;
    bool good = json_object_is_type(root, json_type_object) && json_object_object_get_ex(root, "total", &total) &&
                (!json_object_object_get_ex(root, "failures", &failures) ||
                 (json_object_is_type(failures, json_type_array) && json_object_array_length(failures) == 0));
    *ret_more = good && json_object_get_int64(total) >= INDEX_SWEEP_DOCUMENTS;
    json_object_put(root);
    return good;
}

const struct index_engine index_bulk = {
    .name_fault = name_fault,
    .build = build,
    .judge = judge,
    .build_refresh = build_refresh,
    .build_sweep = build_sweep,
    .judge_sweep = judge_sweep,
};
