#include "dispatcher/index_target.h"
#include "common/memory.h"
#include <json-c/json.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *target;
    const struct index_engine *engine;
} engines[] = {
    {"postgres", NULL},
    {"opensearch", &index_bulk},
    {"elasticsearch", &index_bulk},
    {"meilisearch", &index_meilisearch},
};

void index_document_clear(struct index_document *document) {
    free(document->name);
    free(document->key);
    free(document->scope);
    free(document->body);
    free(document->problem);
    *document = (struct index_document){0};
}

void index_document_judge(struct index_document *document, enum document_fate fate, const char *problem) {
    document->fate = fate;
    free(document->problem);
    document->problem = memory_copy_text(problem);
}

static const char *text_setting(struct json_object *settings, const char *key) {
    struct json_object *value;
    return json_object_object_get_ex(settings, key, &value) && json_object_is_type(value, json_type_string)
               ? json_object_get_string(value)
               : NULL;
}

static bool read_engine(struct index_target *target, const char *name, struct error *ret_error) {
    for (size_t i = 0; name && i < sizeof engines / sizeof *engines; i++)
        if (strcmp(engines[i].target, name) == 0) {
            target->engine = engines[i].engine;
            return true;
        }
    return error_set(ret_error, ERROR_USAGE,
                     "target: %.60s is none of postgres, opensearch, elasticsearch, meilisearch", name ? name : "null");
}

static bool read_secret(struct index_target *target, const struct subscription *subscription,
                        const struct seal_keys *keys, struct error *ret_error) {
    if (subscription->secret_count == 0)
        return true;
    int64_t end_s; // of signatures only
    struct buffer line = {0};
    buffer_text(&line, "authorization: ");
    struct seal_place place = {.id = subscription->seal_id, .purpose = SEAL_AUTHORIZATION};
    bool good = seal_open(keys, place, seal_split(subscription->secrets[0], &end_s), &line, ret_error);
    target->authorization = line.bytes;
    return good || error_wrap(ret_error, "authorization");
}

static bool read_settings(struct index_target *target, struct json_object *settings,
                          const struct subscription *subscription, const struct seal_keys *keys,
                          struct error *ret_error) {
    if (!json_object_is_type(settings, json_type_object))
        return error_set(ret_error, ERROR_USAGE, "settings: not a JSON object");
    if (!read_engine(target, text_setting(settings, "target"), ret_error))
        return false;
    if (!target->engine)
        return true;
    struct json_object *allow_http;
    target->allow_http = json_object_object_get_ex(settings, "allow_http", &allow_http) &&
                         json_object_is_type(allow_http, json_type_boolean) && json_object_get_boolean(allow_http);
    const char *url = text_setting(settings, "url"), *index = text_setting(settings, "index");
    if (!url)
        return error_set(ret_error, ERROR_USAGE, "url: missing");
    target->url = memory_copy_text(url);
    for (size_t length = strlen(target->url); length > 0 && target->url[length - 1] == '/'; length--)
        target->url[length - 1] = '\0';
    target->index = memory_copy_text(index ? index : "{table}");
    return http_url_check(target->url, target->allow_http, ret_error) &&
           read_secret(target, subscription, keys, ret_error);
}

struct index_target *index_target_new(const struct subscription *subscription, const struct seal_keys *keys,
                                      struct error *ret_error) {
    struct index_target *target = memory_alloc(sizeof *target);
    target->uses = 1;
    struct json_object *settings = json_tokener_parse(subscription->settings ? subscription->settings : "");
    bool good = read_settings(target, settings, subscription, keys, ret_error);
    json_object_put(settings);
    if (good)
        return target;
    index_target_unref(target);
    return NULL;
}

struct index_target *index_target_ref(struct index_target *target) {
    target->uses++;
    return target;
}

void index_target_unref(struct index_target *target) {
    if (!target || --target->uses > 0)
        return;
    if (target->authorization)
        explicit_bzero(target->authorization, strlen(target->authorization));
    free(target->authorization);
    free(target->url);
    free(target->index);
    free(target);
}

void index_target_name(const struct index_target *target, const char *table, struct buffer *name) {
    static const char placeholder[] = "{table}";
    const char *rest = target->index;
    for (const char *at; (at = strstr(rest, placeholder)) != NULL; rest = at + sizeof placeholder - 1) {
        buffer_append(name, rest, (size_t)(at - rest));
        buffer_text(name, table);
    }
    buffer_text(name, rest);
}

void index_document_id(const char *key, bool (*allowed)(const char *key), struct buffer *id) {
    // What looks like a digest is made one as well, so that no key can take another's place.
    if (strncmp(key, "sha256-", 7) != 0 && allowed(key)) {
        buffer_text(id, key);
        return;
    }
    unsigned char digest[SHA256_DIGEST_LENGTH];
    SHA256((const unsigned char *)key, strlen(key), digest);
    buffer_text(id, "sha256-");
    for (size_t i = 0; i < sizeof digest; i++)
        buffer_format(id, "%02x", digest[i]);
}

void index_document_write(const struct index_document *document, const char *more, struct buffer *json) {
    size_t length = strlen(document->body) - 1; // without the closing brace
    buffer_append(json, document->body, length);
    buffer_text(json, length > 1 ? ",\"rowbell_key\":" : "\"rowbell_key\":");
    buffer_json_string(json, document->key, strlen(document->key));
    buffer_text(json, ",\"rowbell_scope\":");
    if (document->scope)
        buffer_json_string(json, document->scope, strlen(document->scope));
    else
        buffer_text(json, "null");
    buffer_text(json, more);
    buffer_char(json, '}');
}

void index_request_clear(struct index_request *request) {
    request->get = false;
    request->content_type = NULL;
    buffer_clear(&request->path);
    buffer_clear(&request->body);
}

void index_request_free(struct index_request *request) {
    buffer_free(&request->path);
    buffer_free(&request->body);
}
