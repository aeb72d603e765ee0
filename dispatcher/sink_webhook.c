#include "dispatcher/sink_webhook.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "common/http_client.h"
#include "common/memory.h"
#include "common/pem.h"
#include "common/seal.h"
#include "common/webhook_header.h"
#include "dispatcher/outcome.h"
#include "dispatcher/webhook_signature.h"
#include <inttypes.h>
#include <json-c/json.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    DEADLINE_MS = 20000,
    DEADLINE_MIN_MS = 100,
    CONNECT_MS = 5000,
    OWN_HEADERS = 4, // content type, id, timestamp, signature
};

_Static_assert(WEBHOOK_HEADERS_MAX + OWN_HEADERS <= HTTP_CALL_MAX_HEADERS, "a call must take all headers");

// What a subscription's settings and secrets came to.
struct endpoint {
    char *url;
    bool allow_http;
    unsigned deadline_ms;
    char *headers[WEBHOOK_HEADERS_MAX]; // "name: value"
    size_t header_count;
    struct status_policy statuses;
    char *ca, *client_certificate; // PEM; NULL
    struct buffer client_key;
    const struct seal_keys *keys; // borrows: the sink's
    struct webhook_signer *signer;
};

struct webhook {
    struct http_client *client;
    bool allow_http;
    struct seal_keys keys;
    struct send *free_sends;
    struct buffer body, headers; // kept between sends for their memory
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

struct send {
    struct webhook *webhook;
    sink_done *done;
    void *done_arg;
    struct status_policy statuses; // the endpoint may go while a send is in flight
    struct send *next_free;
};

// ---- settings

static bool read_url(struct endpoint *endpoint, struct json_object *value, struct error *ret_error) {
    endpoint->url = memory_copy_text(json_object_get_string(value));
    return true; // judged when allow_http is known
}

static bool read_allow_http(struct endpoint *endpoint, struct json_object *value, struct error *ret_error) {
    endpoint->allow_http = endpoint->allow_http || json_object_get_boolean(value);
    return true;
}

static bool read_deadline(struct endpoint *endpoint, struct json_object *value, struct error *ret_error) {
    int64_t ms = json_object_get_int64(value);
    if (ms < DEADLINE_MIN_MS || ms > DEADLINE_MS) // a longer one could outlast the lease
        return error_set(ret_error, ERROR_USAGE, "deadline_ms: must be %d to %d", DEADLINE_MIN_MS, DEADLINE_MS);
    endpoint->deadline_ms = (unsigned)ms;
    return true;
}

static bool read_headers(struct endpoint *endpoint, struct json_object *object, struct error *ret_error) {
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
        // libcurl's own way to send a header without a value; "name:" would remove it.
        if (text[strspn(text, " \t")] == '\0')
            buffer_format(&line, "%s;", name);
        else
            buffer_format(&line, "%s: %s", name, text);
        endpoint->headers[endpoint->header_count++] = line.bytes;
    }
    return true;
}

static bool read_statuses(struct endpoint *endpoint, struct json_object *object, struct error *ret_error) {
    return status_policy_read(&endpoint->statuses, object, ret_error);
}

static bool read_ca(struct endpoint *endpoint, struct json_object *value, struct error *ret_error) {
    endpoint->ca = memory_copy_text(json_object_get_string(value));
    return pem_certificates_check(endpoint->ca, "ca", ret_error);
}

static bool read_client_certificate(struct endpoint *endpoint, struct json_object *value, struct error *ret_error) {
    endpoint->client_certificate = memory_copy_text(json_object_get_string(value));
    return true; // judged with its key
}

static bool read_client_key(struct endpoint *endpoint, struct json_object *value, struct error *ret_error) {
    if (!seal_open(endpoint->keys, json_object_get_string(value), &endpoint->client_key, ret_error))
        return error_wrap(ret_error, "client_key");
    return true;
}

static const struct setting {
    const char *key;
    enum json_type type;
    const char *type_name;
    bool (*read)(struct endpoint *endpoint, struct json_object *value, struct error *ret_error);
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

static bool read_settings(struct endpoint *endpoint, struct json_object *object, struct error *ret_error) {
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
static bool read_secrets(struct endpoint *endpoint, const struct seal_keys *keys,
                         const struct subscription *subscription, const char *style, struct error *ret_error) {
    int count = subscription->secret_count;
    if (count < 1)
        return error_set(ret_error, ERROR_USAGE, "secret: the subscription has none to sign with");
    struct buffer *opened = memory_alloc((size_t)count * sizeof *opened);
    const char **secrets = memory_alloc((size_t)count * sizeof *secrets);
    int64_t *ends_s = memory_alloc((size_t)count * sizeof *ends_s);
    bool good = true;
    for (int i = 0; i < count && good; i++) {
        good = seal_open(keys, seal_split(subscription->secrets[i], &ends_s[i]), &opened[i], ret_error);
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

static void endpoint_free(struct endpoint *endpoint) {
    if (!endpoint)
        return;
    webhook_signer_free(endpoint->signer);
    for (size_t i = 0; i < endpoint->header_count; i++)
        free(endpoint->headers[i]);
    if (endpoint->client_key.bytes)
        explicit_bzero(endpoint->client_key.bytes, endpoint->client_key.length);
    buffer_free(&endpoint->client_key);
    free(endpoint->client_certificate);
    free(endpoint->ca);
    free(endpoint->url);
    free(endpoint);
}

static bool webhook_prepare(void *arg, struct subscription *subscription, struct error *ret_error) {
    const struct webhook *webhook = arg;
    struct endpoint *endpoint = memory_alloc(sizeof *endpoint);
    endpoint->allow_http = webhook->allow_http;
    endpoint->deadline_ms = DEADLINE_MS;
    endpoint->keys = &webhook->keys;

    struct json_object *object = json_tokener_parse(subscription->settings ? subscription->settings : "");
    struct json_object *style = NULL;
    if (json_object_is_type(object, json_type_object))
        json_object_object_get_ex(object, "signature", &style);
    bool good = read_settings(endpoint, object, ret_error) &&
                read_secrets(endpoint, &webhook->keys, subscription, style ? json_object_get_string(style) : "standard",
                             ret_error);
    json_object_put(object);
    if (!good) {
        endpoint_free(endpoint);
        endpoint = NULL;
    }
    subscription->sink_state = endpoint;
    return good;
}

static void webhook_forget(void *arg, struct subscription *subscription) {
    endpoint_free(subscription->sink_state); // sends in flight have their own copies
    subscription->sink_state = NULL;
}

// ---- sending

void webhook_body_write(struct buffer *body, const struct delivery *delivery) {
    buffer_text(body, "{\"id\":");
    buffer_json_string(body, delivery->event_id, strlen(delivery->event_id));
    buffer_text(body, ",\"type\":");
    buffer_json_string(body, delivery->type, strlen(delivery->type));
    buffer_text(body, ",\"timestamp\":");
    buffer_json_string(body, delivery->occurred_at, strlen(delivery->occurred_at));
    buffer_text(body, ",\"subject\":");
    if (delivery->subject)
        buffer_json_string(body, delivery->subject, strlen(delivery->subject));
    else
        buffer_text(body, "null");
    buffer_text(body, ",\"data\":");
    buffer_text(body, delivery->data);
    buffer_char(body, '}');
}

static void on_answer(void *arg, const struct http_outcome *http) {
    struct send *send = arg;
    struct attempt_outcome outcome = outcome_by_policy(http, &send->statuses, clock_wall_us() / 1000000);
    char text[64];
    if (!outcome.error && outcome.verdict != VERDICT_DELIVERED) {
        snprintf(text, sizeof text, "the receiver answered %d", http->status);
        outcome.error = text;
    }
    sink_done *done = send->done;
    void *done_arg = send->done_arg;
    send->next_free = send->webhook->free_sends;
    send->webhook->free_sends = send;
    done(done_arg, &outcome);
}

static struct send *send_take(struct webhook *webhook) {
    struct send *send = webhook->free_sends;
    if (send)
        webhook->free_sends = send->next_free;
    else
        send = memory_alloc(sizeof *send);
    send->webhook = webhook;
    send->statuses.count = 0;
    return send;
}

// Writes our headers, one after the other with their NULs, into webhook->headers, and lists them and the custom ones.
static void list_headers(struct webhook *webhook, const struct endpoint *endpoint, const char *event_id, int64_t now_s,
                         const char **ret_list) {
    struct buffer *headers = &webhook->headers;
    size_t offsets[OWN_HEADERS];
    buffer_clear(headers);
    offsets[0] = headers->length;
    buffer_text(headers, "content-type: application/json");
    buffer_char(headers, '\0');
    offsets[1] = headers->length;
    buffer_format(headers, "webhook-id: %s%c", event_id, '\0');
    offsets[2] = headers->length;
    buffer_format(headers, "webhook-timestamp: %" PRId64 "%c", now_s, '\0');
    offsets[3] = headers->length;
    buffer_format(headers, "%s: ", webhook_signer_header(endpoint->signer));
    webhook_signer_sign(endpoint->signer, event_id, now_s, buffer_cstr(&webhook->body), webhook->body.length, headers);

    size_t count = 0;
    for (; count < OWN_HEADERS; count++)
        ret_list[count] = headers->bytes + offsets[count];
    for (size_t i = 0; i < endpoint->header_count; i++)
        ret_list[count++] = endpoint->headers[i];
    ret_list[count] = NULL;
}

static void webhook_send(void *arg, const struct delivery *delivery, sink_done *done, void *done_arg) {
    struct webhook *webhook = arg;
    const struct endpoint *endpoint = delivery->subscription->sink_state;
    struct send *send = send_take(webhook);
    send->done = done;
    send->done_arg = done_arg;

    struct http_call call = {.url = "", .deadline_ms = DEADLINE_MS, .connect_ms = CONNECT_MS};
    const char *headers[HTTP_CALL_MAX_HEADERS + 1];
    buffer_clear(&webhook->body);
    if (endpoint) { // else prepare failed, and the empty URL is refused
        webhook_body_write(&webhook->body, delivery);
        list_headers(webhook, endpoint, delivery->event_id, clock_wall_us() / 1000000, headers);
        call.url = endpoint->url;
        call.headers = headers;
        call.deadline_ms = endpoint->deadline_ms;
        call.allow_http = endpoint->allow_http;
        call.ca_pem = endpoint->ca;
        call.certificate_pem = endpoint->client_certificate;
        call.key_pem = endpoint->client_certificate ? endpoint->client_key.bytes : NULL;
        send->statuses = endpoint->statuses;
    }
    call.body = buffer_cstr(&webhook->body);
    call.body_length = webhook->body.length;
    http_client_send(webhook->client, &call, on_answer, send);
}

// ---- life

static void on_client_closed(void *arg) {
    struct webhook *webhook = arg;
    void (*on_closed)(void *) = webhook->on_closed;
    void *on_closed_arg = webhook->on_closed_arg;
    while (webhook->free_sends) {
        struct send *send = webhook->free_sends;
        webhook->free_sends = send->next_free;
        free(send);
    }
    buffer_free(&webhook->body);
    buffer_free(&webhook->headers);
    seal_keys_close(&webhook->keys);
    free(webhook);
    if (on_closed)
        on_closed(on_closed_arg);
}

static void webhook_close(void *arg, void (*on_closed)(void *closed_arg), void *closed_arg) {
    struct webhook *webhook = arg;
    webhook->on_closed = on_closed;
    webhook->on_closed_arg = closed_arg;
    http_client_close(webhook->client, on_client_closed, webhook);
}

bool sink_webhook_init(struct sink *ret_sink, uv_loop_t *loop, const struct sink_webhook_options *options,
                       struct error *ret_error) {
    struct webhook *webhook = memory_alloc(sizeof *webhook);
    webhook->allow_http = options->allow_http;
    if (!seal_keys_init(&webhook->keys, options->secret_key, ret_error)) {
        free(webhook);
        return false;
    }
    webhook->client = http_client_new(loop, &(struct http_client_options){
                                                .user_agent = "rowbell/" ROWBELL_VERSION,
                                                .egress = options->egress,
                                                .max_connections = options->max_connections,
                                                .ca_file = options->ca_file,
                                            });
    *ret_sink = (struct sink){
        .kind = "webhook",
        .deadline_ms = DEADLINE_MS,
        .arg = webhook,
        .prepare = webhook_prepare,
        .forget = webhook_forget,
        .send = webhook_send,
        .close = webhook_close,
    };
    return true;
}
