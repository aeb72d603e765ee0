#include "tests/integration/http_client/world.h"
#include "tests/support/loop.h"
#include <stdio.h>

uv_loop_t loop;
struct script_server server;
struct egress_policy egress;
struct http_client *client;

void start(const char *const *allowed, size_t count, const char *ca_file) {
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert(egress_policy_init(&egress, &(struct config_list){(const char **)allowed, count}, NULL));
    script_server_start(&server, &loop);
    server.script.answer = OK_EMPTY;
    client = http_client_new(
        &loop, &(struct http_client_options){.user_agent = "rowbell/test", .egress = &egress, .ca_file = ca_file});
}

void start_allowing_loopback(void) {
    static const char *const loopback[] = {"127.0.0.0/8"};
    start(loopback, 1, NULL);
}

void on_client_closed(void *arg) {
    *(bool *)arg = true;
}

static void close_listener(uv_handle_t *handle, void *arg) {
    (void)arg;
    if (handle == (uv_handle_t *)&server.listener && !uv_is_closing(handle))
        uv_close(handle, NULL);
}

void stop(void) {
    bool closed = false;
    http_client_close(client, on_client_closed, &closed);
    while (!closed)
        uv_run(&loop, UV_RUN_ONCE);
    uv_walk(&loop, close_listener, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    egress_policy_close(&egress);
}

static void copy_view(char *ret_text, size_t size, const char *view) {
    snprintf(ret_text, size, "%s", view ? view : "(none)");
}

void on_done(void *arg, const struct http_outcome *outcome) {
    struct result *result = arg;
    result->outcome = *outcome;
    copy_view(result->retry_after, sizeof result->retry_after, outcome->retry_after);
    copy_view(result->delivery_control, sizeof result->delivery_control, outcome->delivery_control);
    copy_view(result->response_head, sizeof result->response_head, outcome->response_head);
    result->calls++;
    uv_stop(&loop); // UV_RUN_ONCE would wait for another event after a timer's callback
}

const struct http_call usual = {.body = BODY,
                                .body_length = sizeof BODY - 1,
                                .deadline_ms = HANG_MS,
                                .connect_ms = HANG_MS / 2,
                                .allow_http = true};

void wait_done(const struct result *result) {
    while (result->calls == 0)
        uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(result->calls, 1);
}

struct result post(struct http_call call) {
    struct result result = {0};
    http_client_send(client, &call, on_done, &result);
    ck_assert_int_eq(result.calls, 0); // never from inside
    wait_done(&result);
    return result;
}

struct result post_within(struct http_call call, unsigned ms) {
    struct result result = {0};
    http_client_send(client, &call, on_done, &result);
    loop_turn_until(&loop, &result.calls, 1, ms, "the end of the call");
    return result;
}

const char *url_to(const char *host, const char *path) {
    static char url[512];
    snprintf(url, sizeof url, "http://%s:%d%s", host, server.port, path);
    return url;
}

struct result post_to(const char *url) {
    struct http_call call = usual;
    call.url = url;
    return post(call);
}

struct result post_script(struct script script) {
    server.script = script;
    return post_to(url_to("127.0.0.1", "/hook"));
}
