#include "common/admin_endpoint.h"

#include <stdlib.h>
#include <string.h>

#include "common/buffer.h"
#include "common/http_server.h"
#include "common/memory.h"
#include "common/metrics.h"

enum { ADMIN_MAX_CONNECTIONS = 64 };

struct admin_endpoint {
    struct http_server *server;
    const char *not_ready; // NULL: ready
    void (*on_scrape)(void *arg);
    void *scrape_arg;
};

static const char text_type[] = "text/plain; charset=utf-8";
// An answer of this moment: no cache may repeat it.
static const char no_store[] = "Cache-Control: no-store\r\n";

static void respond_text(struct http_exchange *exchange, int status, const char *text) {
    struct buffer body = {0};
    buffer_format(&body, "%s\n", text);
    http_exchange_respond(exchange, status, text_type, no_store, body.bytes, body.length);
    buffer_free(&body);
}

static void handle_health(struct admin_endpoint *admin, struct http_exchange *exchange) {
    respond_text(exchange, 200, "ok"); // who reads this sees that the loop turns
}

static void handle_ready(struct admin_endpoint *admin, struct http_exchange *exchange) {
    bool ready = admin->not_ready == NULL;
    respond_text(exchange, ready ? 200 : 503, ready ? "ready" : admin->not_ready);
}

static void handle_metrics(struct admin_endpoint *admin, struct http_exchange *exchange) {
    struct buffer body = {0};
    if (admin->on_scrape != NULL)
        admin->on_scrape(admin->scrape_arg);
    metrics_write(&body);
    http_exchange_respond(exchange, 200, "text/plain; version=0.0.4; charset=utf-8", no_store, buffer_cstr(&body),
                          body.length);
    buffer_free(&body);
}

static const struct {
    const char *path;
    void (*handle)(struct admin_endpoint *admin, struct http_exchange *exchange);
} routes[] = {
    {"/healthz", handle_health},
    {"/readyz", handle_ready},
    {"/metrics", handle_metrics},
};

static void handle(void *arg, struct http_exchange *exchange, const struct http_request *request) {
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (strcmp(routes[i].path, request->path) != 0)
            continue;
        if (strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0)
            routes[i].handle(arg, exchange);
        else
            http_exchange_respond(exchange, 405, text_type, "Allow: GET, HEAD\r\n", "method not allowed\n", 19);
        return;
    }
    respond_text(exchange, 404, "not found; here are /healthz, /readyz and /metrics");
}

struct admin_endpoint *admin_endpoint_new(uv_loop_t *loop, const char *listen, struct error *ret_error) {
    struct admin_endpoint *admin = memory_alloc(sizeof *admin);
    struct http_server_options options = {
        .listen = listen,
        .max_connections = ADMIN_MAX_CONNECTIONS,
        .arg = admin,
        .handle = handle,
    };
    admin->not_ready = "starting";
    admin->server = http_server_new(loop, &options, ret_error);
    if (admin->server == NULL) {
        free(admin);
        return NULL;
    }
    return admin;
}

const char *admin_endpoint_address(const struct admin_endpoint *admin) {
    return admin == NULL ? "" : http_server_address(admin->server);
}

void admin_endpoint_set_ready(struct admin_endpoint *admin, const char *reason) {
    if (admin != NULL)
        admin->not_ready = reason;
}

void admin_endpoint_on_scrape(struct admin_endpoint *admin, void (*on_scrape)(void *arg), void *arg) {
    if (admin == NULL)
        return;
    admin->on_scrape = on_scrape;
    admin->scrape_arg = arg;
}

void admin_endpoint_close(struct admin_endpoint *admin) {
    if (admin != NULL)
        http_server_close(admin->server, free, admin);
}
