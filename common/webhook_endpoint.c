#include "common/webhook_endpoint.h"
#include "common/memory.h"
#include "common/pem.h"
#include <assert.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    DEADLINE_MIN_MS = 100,
    OWN_HEADERS = 4, // content type, id, timestamp, signature
};

_Static_assert(WEBHOOK_HEADERS_MAX + OWN_HEADERS <= HTTP_CALL_MAX_HEADERS, "a call must take all headers");

// ---- settings

static bool read_url(struct webhook_endpoint *endpoint, struct json_object *value, struct error *ret_error) {
    endpoint->url = memory_copy_text(json_object_get_string(value));
    return true; // judged when allow_http is known
}

static bool read_allow_http(struct webhook_endpoint *endpoint, struct json_object *value, struct error *ret_error) {
    endpoint->allow_http = endpoint->allow_http || json_object_get_boolean(value);
    return true;
}

static bool read_deadline(struct webhook_endpoint *endpoint, struct json_object *value, struct error *ret_error) {
    int64_t ms = json_object_get_int64(value);
    if (ms < DEADLINE_MIN_MS || ms > WEBHOOK_DEADLINE_MS) // a longer one could outlast the lease
        return error_set(ret_error, ERROR_USAGE, "deadline_ms: must be %d to %d", DEADLINE_MIN_MS, WEBHOOK_DEADLINE_MS);
    endpoint->deadline_ms = (unsigned)ms;
    return true;
}

static bool read_headers(struct webhook_endpoint *endpoint, struct json_object *object, struct error *ret_error) {
    json_object_object_foreach(object, name, value) {
        if (!json_object_is_type(value, json_type_string))
            return error_set(ret_error, ERROR_USAGE, "headers: the value of %.60s must be a text", name);
        const char *text = json_object_get_string(value);
        size_t length = (size_t)json_object_get_string_len(value);
        if (!webhook_header_check(name, text, length, ret_error))
            return error_wrap(ret_error, "headers");
        if (endpoint->header_count == WEBHOOK_HEADERS_MAX)
            return error_set(ret_error, ERROR_USAGE, "headers: at most %d", WEBHOOK_HEADERS_MAX);
        struct buffer line = {0};
        buffer_format(&line, text[strspn(text, " \t")] == '\0' ? "%s:" : "%s: %s", name, text);
        endpoint->headers[endpoint->header_count++] = line.bytes;
    }
    return true;
}

static bool read_statuses(struct webhook_endpoint *endpoint, struct json_object *object, struct error *ret_error) {
    return status_policy_read(&endpoint->statuses, object, ret_error);
}

static bool read_ca(struct webhook_endpoint *endpoint, struct json_object *value, struct error *ret_error) {
    endpoint->ca = memory_copy_text(json_object_get_string(value));
    return pem_certificates_check(endpoint->ca, "ca", ret_error);
}

static bool read_client_certificate(struct webhook_endpoint *endpoint, struct json_object *value,
                                    struct error *ret_error) {
    endpoint->client_certificate = memory_copy_text(json_object_get_string(value));
    return true; // judged with its key
}

static bool read_client_key(struct webhook_endpoint *endpoint, struct json_object *value, struct error *ret_error) {
    struct seal_place place = {.id = endpoint->seal_id, .purpose = SEAL_CLIENT_KEY};
    if (!seal_open(endpoint->keys, place, json_object_get_string(value), &endpoint->client_key, ret_error))
        return error_wrap(ret_error, "client_key");
    return true;
}

static const struct setting {
    const char *key;
    enum json_type type;
    const char *type_name;
    bool (*read)(struct webhook_endpoint *endpoint, struct json_object *value, struct error *ret_error);
} settings[] = {
    {"url", json_type_string, "a text", read_url},
    {"allow_http", json_type_boolean, "true or false", read_allow_http},
    {"deadline_ms", json_type_int, "a whole number", read_deadline},
    {"headers", json_type_object, "an object", read_headers},
    {"statuses", json_type_object, "an object", read_statuses},
    {"ca", json_type_string, "a text", read_ca},
    {"client_certificate", json_type_string, "a text", read_client_certificate},
    {"client_key", json_type_string, "a text", read_client_key},
};

static bool read_settings(struct webhook_endpoint *endpoint, struct json_object *object, struct error *ret_error) {
    if (!json_object_is_type(object, json_type_object))
        return error_set(ret_error, ERROR_USAGE, "settings: not a JSON object");
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        struct json_object *value;
        if (!json_object_object_get_ex(object, settings[i].key, &value) || !value)
            continue;
        if (!json_object_is_type(value, settings[i].type))
            return error_set(ret_error, ERROR_USAGE, "%s: must be %s", settings[i].key, settings[i].type_name);
        if (!settings[i].read(endpoint, value, ret_error))
            return false;
    }
    if (!endpoint->url)
        return error_set(ret_error, ERROR_USAGE, "url: missing");
    if (!http_url_check(endpoint->url, endpoint->allow_http, ret_error))
        return false;
    // What cannot be honoured is refused: a receiver may take an unproven client for a stranger, or for anybody.
    bool certified = endpoint->client_certificate != NULL, keyed = endpoint->client_key.length > 0;
    if (certified != keyed)
        return error_set(ret_error, ERROR_USAGE, "client_certificate and client_key need each other");
    if ((certified || endpoint->ca) && strncasecmp(endpoint->url, "https:", 6) != 0)
        return error_set(ret_error, ERROR_USAGE, "ca and client_certificate mean nothing without https");
    return !certified || pem_pair_check(endpoint->client_certificate, endpoint->client_key.bytes, ret_error);
}

// Opens the secrets, newest first, and makes the signer. Old ones sign until their time is over.
static bool read_secrets(struct webhook_endpoint *endpoint, char *const *stored, int count, const char *style,
                         struct error *ret_error) {
    if (count < 1)
        return error_set(ret_error, ERROR_USAGE, "secret: the subscription has none to sign with");
    struct buffer *opened = memory_alloc((size_t)count * sizeof *opened);
    const char **secrets = memory_alloc((size_t)count * sizeof *secrets);
    int64_t *ends_s = memory_alloc((size_t)count * sizeof *ends_s);
    bool good = true;
    struct seal_place place = {.id = endpoint->seal_id, .purpose = SEAL_SIGNING};
    for (int i = 0; i < count && good; i++) {
        good = seal_open(endpoint->keys, place, seal_split(stored[i], &ends_s[i]), &opened[i], ret_error);
        secrets[i] = buffer_cstr(&opened[i]);
    }
    if (good && ends_s[0] != INT64_MAX)
        good = error_set(ret_error, ERROR_USAGE, "secret: the newest one ends, and no other would sign then");
    if (good)
        endpoint->signer = webhook_signer_new(style, secrets, count, ret_error);
    for (int i = 1; i < count && endpoint->signer; i++)
        webhook_signer_end(endpoint->signer, i, ends_s[i]);
    for (int i = 0; i < count; i++) {
        if (opened[i].bytes)
            explicit_bzero(opened[i].bytes, opened[i].length);
        buffer_free(&opened[i]);
    }
    free(opened);
    free(secrets);
    free(ends_s);
    return good && endpoint->signer;
}

bool webhook_endpoint_init(struct webhook_endpoint *endpoint, const char *settings_text, char *const *secrets,
                           int secret_count, const char *seal_id, const struct seal_keys *keys, bool allow_http,
                           struct error *ret_error) {
    *endpoint = (struct webhook_endpoint){
        .allow_http = allow_http, .deadline_ms = WEBHOOK_DEADLINE_MS, .keys = keys, .seal_id = seal_id};
    struct json_object *object = json_tokener_parse(settings_text ? settings_text : "");
    struct json_object *style = NULL;
    if (json_object_is_type(object, json_type_object))
        json_object_object_get_ex(object, "signature", &style);
    bool good =
        read_settings(endpoint, object, ret_error) &&
        read_secrets(endpoint, secrets, secret_count, style ? json_object_get_string(style) : "standard", ret_error);
    json_object_put(object);
    endpoint->keys = NULL;
    endpoint->seal_id = NULL;
    return good;
}

void webhook_endpoint_close(struct webhook_endpoint *endpoint) {
    webhook_signer_free(endpoint->signer);
    for (size_t i = 0; i < endpoint->header_count; i++)
        free(endpoint->headers[i]);
    if (endpoint->client_key.bytes)
        explicit_bzero(endpoint->client_key.bytes, endpoint->client_key.length);
    buffer_free(&endpoint->client_key);
    free(endpoint->client_certificate);
    free(endpoint->ca);
    free(endpoint->url);
    *endpoint = (struct webhook_endpoint){0};
}

// ---- the request

void webhook_body_write(struct buffer *body, const struct webhook_event *event) {
    buffer_text(body, "{\"id\":");
    buffer_json_string(body, event->id, strlen(event->id));
    buffer_text(body, ",\"type\":");
    buffer_json_string(body, event->type, strlen(event->type));
    buffer_text(body, ",\"timestamp\":");
    buffer_json_string(body, event->timestamp, strlen(event->timestamp));
    buffer_text(body, ",\"subject\":");
    if (event->subject)
        buffer_json_string(body, event->subject, strlen(event->subject));
    else
        buffer_text(body, "null");
    buffer_text(body, ",\"data\":");
    buffer_text(body, event->data);
    buffer_char(body, '}');
}

// Our headers, one after the other with their NULs, then the custom ones.
static void list_headers(const struct webhook_endpoint *endpoint, const char *event_id, int64_t now_s,
                         const struct buffer *body, struct buffer *headers, const char **ret_list) {
    size_t offsets[OWN_HEADERS];
    buffer_clear(headers);
    offsets[0] = headers->length;
    buffer_text(headers, "content-type: application/json");
    buffer_char(headers, '\0');
    offsets[1] = headers->length;
    buffer_text(headers, "webhook-id: ");
    buffer_text(headers, event_id);
    buffer_char(headers, '\0');
    offsets[2] = headers->length;
    buffer_text(headers, "webhook-timestamp: ");
    buffer_int(headers, now_s);
    buffer_char(headers, '\0');
    offsets[3] = headers->length;
    buffer_text(headers, webhook_signer_header(endpoint->signer));
    buffer_text(headers, ": ");
    webhook_signer_sign(endpoint->signer, event_id, now_s, buffer_cstr(body), body->length, headers);

    size_t count = 0;
    for (; count < OWN_HEADERS; count++)
        ret_list[count] = headers->bytes + offsets[count];
    for (size_t i = 0; i < endpoint->header_count; i++)
        ret_list[count++] = endpoint->headers[i];
    ret_list[count] = NULL;
}

struct http_call webhook_endpoint_call(const struct webhook_endpoint *endpoint, const char *event_id, int64_t now_s,
                                       const struct buffer *body, struct buffer *headers,
                                       const char *list[HTTP_CALL_MAX_HEADERS + 1]) {
    list_headers(endpoint, event_id, now_s, body, headers, list);
    return (struct http_call){
        .url = endpoint->url,
        .headers = list,
        .body = buffer_cstr(body),
        .body_length = body->length,
        .deadline_ms = endpoint->deadline_ms,
        .connect_ms = WEBHOOK_CONNECT_MS,
        .allow_http = endpoint->allow_http,
        .ca_pem = endpoint->ca,
        .certificate_pem = endpoint->client_certificate,
        .key_pem = endpoint->client_certificate ? endpoint->client_key.bytes : NULL,
    };
}
