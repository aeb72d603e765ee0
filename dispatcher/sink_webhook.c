#include "dispatcher/sink_webhook.h"
#include "common/buffer.h"
#include "common/memory.h"
#include "common/webhook_endpoint.h"
#include "dispatcher/outcome.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct webhook {
    struct http_client *client;
    const struct database_clock *clock;
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

static bool webhook_prepare(void *arg, struct subscription *subscription, struct error *ret_error) {
    const struct webhook *webhook = arg;
    struct webhook_endpoint *endpoint = memory_alloc(sizeof *endpoint);
    bool good =
        webhook_endpoint_init(endpoint, subscription->settings, subscription->secrets, subscription->secret_count,
                              subscription->seal_id, &webhook->keys, webhook->allow_http, ret_error);
    if (!good) {
        webhook_endpoint_close(endpoint);
        free(endpoint);
        endpoint = NULL;
    }
    subscription->sink_state = endpoint;
    return good;
}

static void webhook_forget(void *arg, struct subscription *subscription) {
    struct webhook_endpoint *endpoint = subscription->sink_state; // sends in flight have their own copies
    if (endpoint)
        webhook_endpoint_close(endpoint);
    free(endpoint);
    subscription->sink_state = NULL;
}

static unsigned webhook_wait_ms(void *arg, const struct subscription *subscription) {
    const struct webhook *webhook = arg;
    const struct webhook_endpoint *endpoint = subscription->sink_state;
    return endpoint ? http_client_wait_ms(webhook->client, endpoint->url) : 0;
}

// ---- sending

static void on_answer(void *arg, const struct http_outcome *http) {
    struct send *send = arg;
    struct attempt_outcome outcome =
        outcome_by_policy(http, &send->statuses, database_clock_now_s(send->webhook->clock));
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

static void webhook_send(void *arg, const struct delivery *delivery, sink_done *done, void *done_arg) {
    struct webhook *webhook = arg;
    const struct webhook_endpoint *endpoint = delivery->subscription->sink_state;
    struct send *send = send_take(webhook);
    send->done = done;
    send->done_arg = done_arg;

    struct http_call call = {
        .url = "", .body = "", .deadline_ms = WEBHOOK_DEADLINE_MS, .connect_ms = WEBHOOK_CONNECT_MS};
    const char *headers[HTTP_CALL_MAX_HEADERS + 1];
    if (endpoint) { // else prepare failed, and the empty URL is refused
        buffer_clear(&webhook->body);
        webhook_body_write(&webhook->body, &(struct webhook_event){.id = delivery->event_id,
                                                                   .type = delivery->type,
                                                                   .timestamp = delivery->occurred_at,
                                                                   .subject = delivery->subject,
                                                                   .data = delivery->data});
        call = webhook_endpoint_call(endpoint, delivery->event_id, database_clock_now_s(webhook->clock), &webhook->body,
                                     &webhook->headers, headers);
        send->statuses = endpoint->statuses;
    }
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
    webhook->clock = options->clock;
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
        .deadline_ms = WEBHOOK_DEADLINE_MS,
        .arg = webhook,
        .prepare = webhook_prepare,
        .forget = webhook_forget,
        .wait_ms = webhook_wait_ms,
        .send = webhook_send,
        .close = webhook_close,
    };
    return true;
}
