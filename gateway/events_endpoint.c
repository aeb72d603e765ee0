#include "gateway/events_endpoint.h"
#include "common/backoff.h"
#include "common/log.h"
#include "common/memory.h"
#include "gateway/allowed_host.h"
#include "gateway/cors.h"
#include "gateway/frame.h"
#include "gateway/metrics.h"
#include "gateway/parameter_name.h"
#include "gateway/resume.h"
#include "gateway/static_files.h"
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// Requests that wait for their auth, in all and of one address: each holds its parser, 20 KiB.
enum { WAITING_MOST = 2048, WAITING_OF_ONE_MOST = 256 };

static const char text_plain[] = "text/plain; charset=utf-8";
// no-transform: a proxy that compresses would also buffer. X-Accel-Buffering: nginx passes each event on at once.
static const char stream_headers[] = "\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                                     "Cache-Control: no-store, no-transform\r\nX-Accel-Buffering: no\r\n";

// ---- Accept ----

static const char *skip_space(const char *text) {
    return text + strspn(text, " \t");
}

// Whether the parameters of one media range (up to ',' or the end) give it a weight of zero.
static bool weight_is_zero(const char *parameters, size_t length) {
    for (size_t i = 0; i + 2 < length; i++) {
        if (parameters[i] != ';') {
            continue;
        }
        const char *name = skip_space(parameters + i + 1);
        if ((name[0] == 'q' || name[0] == 'Q') && name[1] == '=') {
            size_t digits = strspn(name + 2, "0.");
            char after = name[2 + digits];
            return digits > 0 && !(after >= '1' && after <= '9');
        }
    }
    return false;
}

// 0: does not name the type, 1: by */*, 2: by type/*, 3: exactly.
static int range_precision(const char *range, size_t length, const char *type, const char *subtype) {
    size_t type_length = strlen(type);
    size_t subtype_length = strlen(subtype);
    if (length == 3 && memcmp(range, "*/*", 3) == 0) {
        return 1;
    }
    if (length < type_length + 2 || strncasecmp(range, type, type_length) != 0 || range[type_length] != '/') {
        return 0;
    }
    const char *rest = range + type_length + 1;
    size_t rest_length = length - type_length - 1;
    if (rest_length == 1 && rest[0] == '*') {
        return 2;
    }
    return rest_length == subtype_length && strncasecmp(rest, subtype, subtype_length) == 0 ? 3 : 0;
}

bool accept_allows(const char *accept, const char *type, const char *subtype) {
    if (!accept || *skip_space(accept) == '\0') {
        return true;
    }
    int best = 0; // the most precise range decides
    bool allowed = false;
    while (*accept != '\0') {
        const char *range = skip_space(accept);
        size_t length = strcspn(range, " \t;,");
        const char *parameters = range + length;
        size_t parameters_length = strcspn(parameters, ",");
        int precision = range_precision(range, length, type, subtype);
        if (precision > best) {
            best = precision;
            allowed = !weight_is_zero(parameters, parameters_length);
        }
        accept = parameters + parameters_length;
        accept += *accept == ',';
    }
    return allowed;
}

// ---- answers ----

static void respond_text(struct events_endpoint *endpoint, struct http_exchange *exchange,
                         const struct http_request *request, int status, const char *extra_headers, const char *text) {
    struct buffer headers = {0};
    buffer_text(&headers, "Cache-Control: no-store\r\n");
    if (extra_headers) {
        buffer_text(&headers, extra_headers);
    }
    cors_append_headers(&endpoint->config->cors_origins, http_request_header(request, "origin"), false, &headers);
    http_exchange_respond(exchange, status, text_plain, headers.bytes, text, strlen(text));
    buffer_free(&headers);
}

static void append_stream_head(const struct events_endpoint *endpoint, const struct http_request *request,
                               struct buffer *head) {
    buffer_text(head, "HTTP/1.1 200 OK\r\nDate: ");
    buffer_text(head, http_date_now());
    buffer_text(head, stream_headers);
    cors_append_headers(&endpoint->config->cors_origins, http_request_header(request, "origin"), false, head);
    // No length and no chunks: the stream ends with the connection.
    buffer_text(head, "Connection: close\r\n\r\n");
}

static void on_socket_closed(uv_handle_t *handle) {
    free(handle);
}

// The stream's head and no more than `body`. Not http_exchange_respond, which would say how long the body of a GET is.
static void write_and_close(const struct events_endpoint *endpoint, struct http_exchange *exchange,
                            const struct http_request *request, const struct buffer *body) {
    struct buffer text = {0};
    append_stream_head(endpoint, request, &text);
    buffer_append(&text, body->bytes, body->length);
    uv_tcp_t *socket = http_exchange_take(exchange);
    uv_buf_t buf = uv_buf_init(text.bytes, (unsigned)text.length);
    // A new connection's send buffer is empty; if it fails all the same, the client comes back by itself.
    uv_try_write((uv_stream_t *)socket, &buf, 1);
    uv_close((uv_handle_t *)socket, on_socket_closed);
    buffer_free(&text);
}

// 200, a time to come back, the end.
static void refuse(const struct events_endpoint *endpoint, struct http_exchange *exchange,
                   const struct http_request *request, const char *reason) {
    struct buffer body = {0};
    metric_add(METRIC_STREAM_OPENED, "refused", NULL, 1);
    metric_add(METRIC_STREAM_REFUSED, reason, NULL, 1);
    if (strcmp(request->method, "HEAD") != 0) {
        frame_append_retry(&body, jitter_ms((uint64_t)endpoint->config->retry_ms, 0.5));
    }
    write_and_close(endpoint, exchange, request, &body);
    buffer_free(&body);
}

// ---- GET /events ----

struct events_query {
    struct table_filter *tables; // owned
    struct resume_ask ask;       // the newest that a parameter shows
    char *ticket;                // owned, NULL if absent; of --auth jwt
    bool ping;
    char problem[300]; // "" while there is none
};

static bool take_table(struct events_query *query, const char *value) {
    if (value[0] == '\0') {
        snprintf(query->problem, sizeof query->problem, "query parameter table is empty");
        return false;
    }
    table_filter_add(&query->tables, value);
    return true;
}

static bool take_last_event_id(struct events_query *query, const char *value) {
    // A polyfill adds where it is to the URL that it was given, which may say where it began.
    query->ask = resume_ask_newer(query->ask, resume_ask_parse(value));
    return true;
}

static bool take_ticket(struct events_query *query, const char *value) {
    if (query->ticket) {
        snprintf(query->problem, sizeof query->problem, "query parameter ticket is given twice");
        return false;
    }
    query->ticket = memory_copy_text(value);
    return true;
}

static bool take_ping(struct events_query *query, const char *value) {
    if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0) {
        snprintf(query->problem, sizeof query->problem, "query parameter ping takes 0 or 1");
        return false;
    }
    query->ping = value[0] == '1';
    return true;
}

static const struct {
    const char *name;
    bool (*take)(struct events_query *query, const char *value);
    bool any_spelling; // lastEventId, Last-Event-ID: polyfills let people choose
} parameters[] = {
    {"table", take_table, false},
    {"last_event_id", take_last_event_id, true},
    {"evs_last_event_id", take_last_event_id, true}, // of the npm package eventsource-polyfill
    {"ping", take_ping, false},
    {"ticket", take_ticket, false},
};

static const struct {
    const char *name, *advice;
} filters[] = {
    {"table", "the filter is table=NAME"},
    {"scope", "scopes are what the credential grants, not a parameter"},
};

static bool on_parameter(void *arg, const char *name, const char *value) {
    struct events_query *query = arg;
    for (size_t i = 0; i < sizeof parameters / sizeof parameters[0]; i++) {
        if (parameters[i].any_spelling ? parameter_name_same(name, parameters[i].name)
                                       : strcmp(name, parameters[i].name) == 0) {
            return parameters[i].take(query, value);
        }
    }
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
        if (parameter_name_near(name, filters[i].name)) {
            struct buffer quoted = {0};
            buffer_json_string(&quoted, name, strnlen(name, 100));
            snprintf(query->problem, sizeof query->problem, "query parameter %.200s is none of ours: %s", quoted.bytes,
                     filters[i].advice);
            buffer_free(&quoted);
            return false;
        }
    }
    return true; // another tool's
}

static void query_free(struct events_query *query) {
    table_filter_free(query->tables);
    if (query->ticket) {
        OPENSSL_cleanse(query->ticket, strlen(query->ticket));
    }
    free(query->ticket);
}

// NULL, or why no stream can be opened now.
static const char *find_obstacle(const struct events_endpoint *endpoint) {
    if (!endpoint->open) {
        return "not_ready";
    }
    return subscribers_count(endpoint->subscribers) < (size_t)endpoint->config->max_connections ? NULL : "full";
}

static struct client_address client_of(const struct events_endpoint *endpoint, const struct http_exchange *exchange,
                                       const struct http_request *request) {
    return client_address_of(http_exchange_peer(exchange), endpoint->proxies, endpoint->config->forwarded_header,
                             request);
}

static void respond_refused(struct events_endpoint *endpoint, struct http_exchange *exchange,
                            const struct http_request *request, const struct auth_answer *answer) {
    char text[200];
    log_debug("stream_refused", LOG_INT("status", answer->status), LOG_TEXT("problem", answer->problem));
    snprintf(text, sizeof text, "%s\n", answer->problem);
    respond_text(endpoint, exchange, request, answer->status,
                 answer->status == 401 ? "WWW-Authenticate: Bearer realm=\"rowbell\"\r\n" : NULL, text);
}

// Frees what the answer grants. The query stays the caller's.
static void events_answered(struct events_endpoint *endpoint, struct http_exchange *exchange,
                            const struct http_request *request, struct events_query *query,
                            struct auth_answer *answer) {
    static struct buffer head; // kept for its memory
    struct client_address client = client_of(endpoint, exchange, request);
    struct admission_ticket ticket;
    const char *obstacle = answer->verdict == AUTH_UNAVAILABLE ? "auth" : find_obstacle(endpoint);
    bool refused = answer->verdict == AUTH_REFUSED, is_head = strcmp(request->method, "HEAD") == 0;
    buffer_clear(&head);
    bool taken = !refused && !obstacle && !is_head &&
                 admission_take(endpoint->admission, &answer->grant, &client, &ticket, &obstacle);
    if (refused) {
        respond_refused(endpoint, exchange, request, answer);
    } else if (obstacle) {
        refuse(endpoint, exchange, request, obstacle);
    } else if (!taken) {
        write_and_close(endpoint, exchange, request, &head);
    } else {
        // The first connection of a browser cannot send the header, hence the parameter; on reconnects the header is
        // newer.
        const char *header = http_request_header(request, "last-event-id");
        struct resume_ask ask = header && header[0] != '\0' ? resume_ask_parse(header) : query->ask;
        table_filter_narrow(&query->tables, answer->grant.tables);
        append_stream_head(endpoint, request, &head);
        subscriber_open(endpoint->subscribers, http_exchange_take(exchange), &head, &ask, &answer->grant, query->tables,
                        query->ping, &ticket);
        query->tables = NULL;
    }
    grant_free(&answer->grant);
}

// A request that waits for its auth.
struct waiting {
    struct events_endpoint *endpoint;
    struct http_exchange *exchange;
    const struct http_request *request; // valid as long as the exchange is not answered
    struct events_query query;
    struct admission_ticket ticket;
};

static void on_auth(void *arg, struct auth_answer *answer) {
    struct waiting *waiting = arg;
    waiting->endpoint->waiting_count--;
    admission_give_back(waiting->endpoint->admission, &waiting->ticket);
    events_answered(waiting->endpoint, waiting->exchange, waiting->request, &waiting->query, answer);
    query_free(&waiting->query);
    free(waiting);
}

static void events_get(struct events_endpoint *endpoint, struct http_exchange *exchange,
                       const struct http_request *request) {
    struct events_query query = {0};
    struct auth_answer answer;
    const char *obstacle = find_obstacle(endpoint);
    if (!http_query_each(request->query, on_parameter, &query)) {
        char text[sizeof query.problem + 2];
        snprintf(text, sizeof text, "%s\n", query.problem[0] ? query.problem : "malformed query string");
        respond_text(endpoint, exchange, request, 400, NULL, text);
    } else if (!accept_allows(http_request_header(request, "accept"), "text", "event-stream")) {
        respond_text(endpoint, exchange, request, 406, NULL, "this is a stream of text/event-stream\n");
    } else if (obstacle || endpoint->waiting_count == WAITING_MOST) {
        // Before anybody is asked: an application must not pay for our overload.
        refuse(endpoint, exchange, request, obstacle ? obstacle : "asking");
    } else {
        struct client_address client = client_of(endpoint, exchange, request);
        struct waiting *waiting = memory_alloc(sizeof *waiting);
        *waiting = (struct waiting){.endpoint = endpoint, .exchange = exchange, .request = request, .query = query};
        if (!admission_ask(endpoint->admission, &client, WAITING_OF_ONE_MOST, &waiting->ticket)) {
            free(waiting);
            refuse(endpoint, exchange, request, "asking");
            query_free(&query);
            return;
        }
        if (!auth_check(endpoint->auth, exchange, request, query.ticket, &answer, on_auth, waiting)) {
            endpoint->waiting_count++;
            return; // on_auth frees
        }
        admission_give_back(endpoint->admission, &waiting->ticket);
        free(waiting);
        events_answered(endpoint, exchange, request, &query, &answer);
    }
    query_free(&query);
}

static void answer_options(struct events_endpoint *endpoint, struct http_exchange *exchange,
                           const struct http_request *request) {
    struct buffer headers = {0};
    buffer_text(&headers, "Allow: GET, HEAD, OPTIONS\r\n");
    cors_append_headers(&endpoint->config->cors_origins, http_request_header(request, "origin"), true, &headers);
    http_exchange_respond(exchange, 204, NULL, headers.bytes, "", 0);
    buffer_free(&headers);
}

// ---- files ----

static void file_get(struct events_endpoint *endpoint, struct http_exchange *exchange,
                     const struct http_request *request, const struct static_file *file) {
    struct buffer headers = {0};
    buffer_text(&headers, "Cache-Control: no-cache\r\nX-Content-Type-Options: nosniff\r\n");
    if (file->demo) {
        buffer_text(&headers, "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "
                              "img-src data:; "
                              "connect-src 'self'; base-uri 'none'; frame-ancestors 'none'\r\n");
    }
    cors_append_headers(&endpoint->config->cors_origins, http_request_header(request, "origin"), false, &headers);
    http_exchange_respond(exchange, 200, file->content_type, headers.bytes, file->file->bytes, file->file->length);
    buffer_free(&headers);
}

void events_endpoint_handle(void *arg, struct http_exchange *exchange, const struct http_request *request) {
    struct events_endpoint *endpoint = arg;
    const struct static_file *file = static_file_find(request->path, endpoint->config->demo);
    bool is_events = strcmp(request->path, "/events") == 0;
    bool is_receipt = receipts_endpoint_matches(request->path);
    if (auth_is_open(endpoint->auth) &&
        !allowed_host(&endpoint->config->allow_hosts, http_request_header(request, "host"))) {
        respond_text(
            endpoint, exchange, request, 403, NULL,
            "this Host is not one of the gateway's: with --auth none it is localhost, an IP address, or a name "
            "that --allow-host gives\n");
    } else if (!is_events && !is_receipt && !file) {
        respond_text(endpoint, exchange, request, 404, NULL, "nothing here; the stream is at /events\n");
    } else if (strcmp(request->method, "OPTIONS") == 0) {
        answer_options(endpoint, exchange, request);
    } else if (strcmp(request->method, "GET") != 0 && strcmp(request->method, "HEAD") != 0) {
        respond_text(endpoint, exchange, request, 405, "Allow: GET, HEAD, OPTIONS\r\n", "only GET, HEAD and OPTIONS\n");
    } else if (is_events) {
        events_get(endpoint, exchange, request);
    } else if (is_receipt) {
        receipts_endpoint_get(endpoint->receipts, exchange, request);
    } else {
        file_get(endpoint, exchange, request, file);
    }
}
