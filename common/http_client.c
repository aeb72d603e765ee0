// One call goes
//
//   send --> (resolving) --> (connecting) --> exchanging --> done
//     \__________\_______________\________________\_______> failed
//
// The happy path on a warm connection is: resolver_peek knows the address, the pool has a connection, the request is
// written at once, the answer comes with the next event, and the call goes back to the free list. The failure modes
// are: the URL or a header is refused; the name does not resolve; no address is allowed; the connection fails; the
// deadline passes in any of the phases; the peer closes or sends what is no answer; the client closes. A request is
// written once: a receiver may have handled one whose answer did not come.
#include "common/http_client.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "common/http_answer.h"
#include "common/http_connection.h"
#include "common/http_target.h"
#include "common/memory.h"
#include "common/plain_text.h"
#include "common/resolver.h"
#include <assert.h>
#include <curl/curl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <uthash.h>
#include <utlist.h>

enum {
    DEFAULT_MAX_CONNECTIONS = 1024,
    READ_BYTES = 65536,
    MAX_KNOWN_URLS = 2048,
};

// URLs that were parsed before. The oldest go first, once no call uses them.
struct known_url {
    UT_hash_handle hh;
    unsigned calls;
    struct http_target target;
    char text[];
};

struct call {
    struct http_client *client;
    struct call *prev, *next; // in client->active
    struct call *next_free;
    struct call *next_failed;
    uv_timer_t deadline;
    http_done *done;
    void *arg;
    uint64_t started_ns;
    unsigned deadline_ms, connect_ms;
    struct resolver_wait *wait; // for the address

    struct known_url *url;
    char *ca_pem, *certificate_pem, *key_pem; // owned; NULL
    struct buffer request;
    size_t sent;
    struct http_connection *connection; // NULL: none yet, or no more
    bool sending_failed;                // what the peer still says may be an answer
    struct http_answer answer;
    struct http_outcome outcome;
};

struct http_client {
    uv_loop_t *loop;
    struct http_pool *pool;
    struct known_url *known_urls;
    struct resolver *resolver;
    const struct egress_policy *egress;
    char *user_agent;
    uv_timer_t deferred; // calls that failed inside http_client_send, and closing
    struct call *active; // until done was called
    struct call *free_calls;
    struct call *failed;
    size_t in_flight;
    size_t handles; // not closed yet: ours of libuv, and the pool
    bool closing, cancelled, torn_down;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
    char bytes[READ_BYTES]; // that were read last
};

static double ms_since(uint64_t started_ns) {
    return (double)(clock_ns() - started_ns) / 1e6;
}

// ---- finishing a call

static void on_deferred(uv_timer_t *timer);

static void wake_deferred(struct http_client *client) {
    uv_timer_start(&client->deferred, on_deferred, 0, 0);
}

static void free_pem(char **text) {
    free(*text);
    *text = NULL;
}

static void call_release(struct call *call) {
    struct http_client *client = call->client;
    if (call->url)
        call->url->calls--;
    call->url = NULL;
    free_pem(&call->ca_pem);
    free_pem(&call->certificate_pem);
    free_pem(&call->key_pem);
    DL_DELETE(client->active, call);
    call->next_free = client->free_calls;
    client->free_calls = call;
    if (client->closing)
        wake_deferred(client);
}

static void call_finish(struct call *call) {
    struct http_client *client = call->client;
    struct http_outcome *outcome = &call->outcome;
    struct http_answer *answer = &call->answer;
    uv_timer_stop(&call->deadline);
    outcome->total_ms = ms_since(call->started_ns);
    outcome->status = answer->status;
    outcome->retry_after = answer->has_retry_after ? answer->retry_after : NULL;
    outcome->date = answer->has_date ? answer->date : NULL;
    outcome->delivery_control = answer->has_delivery_control ? answer->delivery_control : NULL;
    plain_text_make(answer->head,
                    answer->body_bytes < HTTP_ANSWER_HEAD_BYTES ? answer->body_bytes : HTTP_ANSWER_HEAD_BYTES);
    outcome->response_head = answer->head;
    outcome->answer = answer->whole_max_bytes ? buffer_cstr(&answer->body) : NULL;
    outcome->answer_length = answer->body.length;
    resolver_cancel(call->wait);
    call->wait = NULL;
    client->in_flight--;
    call->done(call->arg, outcome);
    call_release(call);
}

// Where the body is not asked for, the status is the answer: what goes wrong after it changes nothing.
__attribute__((format(printf, 3, 4))) static void set_failure(struct call *call, enum http_failure failure,
                                                              const char *format, ...) {
    if (call->answer.status != 0 && call->answer.whole_max_bytes == 0)
        return;
    call->outcome.failure = failure;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(call->outcome.error, sizeof call->outcome.error, format, arguments);
    va_end(arguments);
}

// Finishes it in a later turn, since it may be inside http_client_send.
static void finish_later(struct call *call) {
    uv_timer_stop(&call->deadline);
    LL_APPEND2(call->client->failed, call, next_failed);
    wake_deferred(call->client);
}

static void let_go(struct call *call, bool keep) {
    struct http_connection *connection = call->connection;
    call->connection = NULL;
    if (connection)
        http_connection_release(connection, keep);
}

// ---- the exchange

static void copy_facts(struct call *call) {
    const struct http_connection_facts *facts = http_connection_facts(call->connection);
    call->outcome.connect_ms = facts->connect_ms;
    call->outcome.tls_ms = facts->tls_ms;
    memcpy(call->outcome.peer, facts->peer, sizeof facts->peer);
}

// After a failure to send, what the peer says decides: it may have answered before it closed.
static void send_more(struct call *call) {
    const char *error;
    size_t left = call->request.length - call->sent;
    ptrdiff_t count = http_connection_send(call->connection, call->request.bytes + call->sent, left, &error);
    if (count > 0)
        call->sent += (size_t)count;
    call->sending_failed = count < 0;
    http_connection_want_write(call->connection, count >= 0 && (size_t)count < left);
}

static void exchange_begin(struct call *call) {
    copy_facts(call);
    call->sent = 0;
    call->sending_failed = false;
    send_more(call);
}

// The peer closed the connection, or it broke.
static void broke_off(struct call *call, const char *text) {
    struct http_answer *answer = &call->answer;
    if (answer->header_bytes == 0)
        set_failure(call, HTTP_CONNECT, "%s", *text ? text : "the connection was closed before an answer");
    else if (*text || http_answer_end(answer) == HTTP_ANSWER_BAD)
        set_failure(call, HTTP_BAD_ANSWER, "%s", *text ? text : answer->reason);
}

// False: there is nothing more to read now.
static bool read_more(struct call *call) {
    struct http_client *client = call->client;
    const char *text;
    ptrdiff_t count = http_connection_read(call->connection, client->bytes, sizeof client->bytes, &text);
    if (count == 0)
        return false;
    bool keep = false;
    if (count < 0) {
        broke_off(call, text);
    } else {
        if (call->outcome.first_byte_ms < 0)
            call->outcome.first_byte_ms = ms_since(call->started_ns);
        enum http_answer_state state = http_answer_read(&call->answer, client->bytes, (size_t)count);
        if (state == HTTP_ANSWER_MORE)
            return true;
        if (state == HTTP_ANSWER_BAD)
            set_failure(call, HTTP_BAD_ANSWER, "%s", call->answer.reason);
        keep = state == HTTP_ANSWER_DONE && call->answer.keep_alive && call->sent == call->request.length;
    }
    let_go(call, keep);
    call_finish(call);
    return false;
}

static void on_ready(void *user, int events) {
    struct call *call = user;
    if (!call->sending_failed && call->sent < call->request.length)
        send_more(call);
    if (events & UV_READABLE || call->sending_failed)
        while (read_more(call))
            ;
}

static void on_opened(void *user) {
    struct call *call = user;
    const struct http_connection_facts *facts = http_connection_facts(call->connection);
    if (facts->open) {
        exchange_begin(call);
        return;
    }
    copy_facts(call);
    if (facts->failure == HTTP_EGRESS_DENIED)
        set_failure(call, facts->failure, "%.100s: %.120s", call->url->target.host, facts->error);
    else
        set_failure(call, facts->failure, "%s", facts->error);
    let_go(call, false);
    call_finish(call);
}

static void on_deadline(uv_timer_t *timer) {
    struct call *call = timer->data;
    if (!call->connection) {
        set_failure(call, HTTP_DNS, "dns timeout: %.100s: no address after %u ms", call->url->target.host,
                    call->deadline_ms);
    } else {
        const struct http_connection_facts *facts = http_connection_facts(call->connection);
        const char *phase = call->answer.header_bytes > 0 ? "while the answer was read"
                            : facts->open                 ? "waiting for an answer"
                            : facts->tcp_stands           ? "in the TLS handshake"
                                                          : "connecting";
        copy_facts(call);
        set_failure(call, HTTP_TIMEOUT, "no result after %u ms, %s", call->deadline_ms, phase);
        let_go(call, false);
    }
    call_finish(call);
}

// ---- starting a call

static struct call *call_new(struct http_client *client) {
    struct call *call = memory_alloc(sizeof *call);
    call->client = client;
    uv_timer_init(client->loop, &call->deadline);
    call->deadline.data = call;
    client->handles++;
    return call;
}

static struct call *call_take(struct http_client *client) {
    struct call *call = client->free_calls;
    if (call)
        client->free_calls = call->next_free;
    else
        call = call_new(client);
    DL_APPEND(client->active, call);
    client->in_flight++;
    call->outcome.failure = HTTP_OK;
    call->outcome.dns_ms = call->outcome.connect_ms = call->outcome.tls_ms = call->outcome.first_byte_ms = -1;
    call->outcome.peer[0] = call->outcome.error[0] = '\0';
    return call;
}

static void forget_oldest_url(struct http_client *client) {
    struct known_url *url;
    struct known_url *next;
    HASH_ITER(hh, client->known_urls, url, next) {
        if (url->calls > 0)
            continue;
        HASH_DEL(client->known_urls, url);
        free(url);
        return;
    }
}

static bool call_set_url(struct call *call, const struct http_call *spec, struct error *ret_error) {
    struct http_client *client = call->client;
    struct known_url *url;
    HASH_FIND_STR(client->known_urls, spec->url, url);
    if (!url || (!url->target.secure && !spec->allow_http)) {
        struct http_target target;
        if (!http_target_parse(spec->url, spec->allow_http, &target, ret_error))
            return false;
        if (HASH_COUNT(client->known_urls) >= MAX_KNOWN_URLS)
            forget_oldest_url(client);
        url = memory_alloc(sizeof *url + strlen(spec->url) + 1);
        url->target = target;
        memcpy(url->text, spec->url, strlen(spec->url) + 1);
        HASH_ADD_STR(client->known_urls, text, url);
    }
    call->url = url;
    url->calls++;
    return true;
}

static bool is_header(const char *line, const char *name) {
    size_t length = strlen(name);
    return strncasecmp(line, name, length) == 0 && line[length] == ':';
}

// The whole request, in one piece.
static bool call_write(struct call *call, const struct http_call *spec, struct error *ret_error) {
    const struct http_target *target = &call->url->target;
    struct buffer *out = &call->request;
    bool has_agent = false;
    bool has_accept = false;
    for (size_t i = 0; spec->headers && spec->headers[i]; i++) {
        const char *header = spec->headers[i];
        if (i == HTTP_CALL_MAX_HEADERS)
            return error_set(ret_error, ERROR_USAGE, "more than %d headers", HTTP_CALL_MAX_HEADERS);
        if (header[strcspn(header, "\r\n")] != '\0')
            return error_set(ret_error, ERROR_USAGE, "a header with a line break");
        has_agent = has_agent || is_header(header, "user-agent");
        has_accept = has_accept || is_header(header, "accept");
    }
    buffer_clear(out);
    buffer_text(out, spec->get ? "GET " : "POST ");
    buffer_text(out, target->resource);
    buffer_text(out, " HTTP/1.1\r\nHost: ");
    buffer_text(out, target->authority);
    if (!has_agent) {
        buffer_text(out, "\r\nUser-Agent: ");
        buffer_text(out, call->client->user_agent);
    }
    if (!has_accept)
        buffer_text(out, "\r\nAccept: */*");
    for (size_t i = 0; spec->headers && spec->headers[i]; i++) {
        buffer_text(out, "\r\n");
        buffer_text(out, spec->headers[i]);
    }
    if (!spec->get) {
        buffer_text(out, "\r\nContent-Length: ");
        buffer_int(out, (int64_t)spec->body_length);
    }
    buffer_text(out, "\r\n\r\n");
    if (!spec->get)
        buffer_append(out, spec->body, spec->body_length);
    return true;
}

// The addresses are known: keeps those allowed, and goes there.
static void call_begin(struct call *call, struct resolver_answer *answer) {
    struct http_client *client = call->client;
    const char *rule = NULL;
    size_t allowed = 0;
    for (size_t i = 0; i < answer->count; i++)
        if (egress_allows(client->egress, &answer->addresses[i].any, &rule))
            answer->addresses[allowed++] = answer->addresses[i];
    answer->count = allowed;
    if (allowed == 0) {
        set_failure(call, HTTP_EGRESS_DENIED, "%.100s: its address is %s, which deliveries may not reach",
                    call->url->target.host, rule);
        finish_later(call);
        return;
    }
    struct http_connect to = {
        .target = &call->url->target,
        .addresses = answer,
        .ca_pem = call->ca_pem,
        .certificate_pem = call->certificate_pem,
        .key_pem = call->key_pem,
        .connect_ms = call->connect_ms,
    };
    call->connection = http_pool_take(client->pool, &to, call);
    if (call->connection)
        exchange_begin(call);
    else
        call->connection = http_pool_connect(client->pool, &to, call);
}

static void on_resolved(void *arg, const struct resolver_answer *answer, const struct error *error) {
    struct call *call = arg;
    call->wait = NULL;
    call->outcome.dns_ms = ms_since(call->started_ns);
    if (answer) {
        struct resolver_answer copy = *answer;
        call_begin(call, &copy);
    } else {
        set_failure(call, HTTP_DNS, "%s", error->text);
        finish_later(call);
    }
}

void http_client_send(struct http_client *client, const struct http_call *spec, http_done *done, void *arg) {
    assert(!client->closing);
    struct call *call = call_take(client);
    call->done = done;
    call->arg = arg;
    call->started_ns = clock_ns();
    call->deadline_ms = spec->deadline_ms;
    call->connect_ms = spec->connect_ms;
    call->ca_pem = memory_copy_text(spec->ca_pem);
    call->certificate_pem = memory_copy_text(spec->certificate_pem);
    call->key_pem = memory_copy_text(spec->key_pem);
    http_answer_start(&call->answer, spec->answer_max_bytes);
    struct error error;
    struct resolver_answer answer;
    if (!call_set_url(call, spec, &error) || !call_write(call, spec, &error)) {
        set_failure(call, HTTP_REFUSED, "%s", error.text);
        finish_later(call);
        return;
    }
    uv_update_time(client->loop); // else the deadline would count from the start of this turn
    uv_timer_start(&call->deadline, on_deadline, call->deadline_ms, 0);
    if (resolver_peek(client->resolver, call->url->target.host, &answer)) {
        call->outcome.dns_ms = 0;
        call_begin(call, &answer);
    } else {
        call->wait = resolver_lookup(client->resolver, call->url->target.host, false, on_resolved, call);
    }
}

unsigned http_client_wait_ms(struct http_client *client, const char *url) {
    struct http_target target;
    struct known_url *known;
    HASH_FIND_STR(client->known_urls, url, known);
    if (!known && !http_target_parse(url, true, &target, NULL))
        return 0; // the call says why
    return resolver_wait_ms(client->resolver, known ? known->target.host : target.host);
}

size_t http_client_in_flight(const struct http_client *client) {
    return client->in_flight;
}

uint64_t http_client_connections_opened(const struct http_client *client) {
    return http_pool_connections_opened(client->pool);
}

// ---- the client's life

static void on_handle_closed(void *arg) {
    struct http_client *client = arg;
    if (--client->handles > 0 || !client->torn_down)
        return;
    void (*on_closed)(void *) = client->on_closed;
    void *on_closed_arg = client->on_closed_arg;
    while (client->free_calls) {
        struct call *call = client->free_calls;
        client->free_calls = call->next_free;
        buffer_free(&call->request);
        http_answer_close(&call->answer);
        free(call);
    }
    struct known_url *url;
    struct known_url *next;
    HASH_ITER(hh, client->known_urls, url, next) {
        HASH_DEL(client->known_urls, url);
        free(url);
    }
    free(client->user_agent);
    free(client);
    if (on_closed)
        on_closed(on_closed_arg);
}

static void on_call_timer_closed(uv_handle_t *handle) {
    on_handle_closed(((struct call *)handle->data)->client);
}

static void on_client_timer_closed(uv_handle_t *handle) {
    on_handle_closed(handle->data);
}

static void cancel_calls(struct http_client *client) {
    client->cancelled = true;
    client->failed = NULL; // they are active too
    struct call *call;
    struct call *next;
    DL_FOREACH_SAFE(client->active, call, next) {
        let_go(call, false);
        set_failure(call, HTTP_CANCELLED, "the process is closing");
        call_finish(call);
    }
}

static void tear_down(struct http_client *client) {
    client->torn_down = true;
    for (struct call *call = client->free_calls; call; call = call->next_free)
        uv_close((uv_handle_t *)&call->deadline, on_call_timer_closed);
    http_pool_close(client->pool, on_handle_closed, client);
    resolver_release(client->resolver);
    uv_close((uv_handle_t *)&client->deferred, on_client_timer_closed);
}

static void on_deferred(uv_timer_t *timer) {
    struct http_client *client = timer->data;
    struct call *failed = client->failed; // only those of this turn: done may send again
    client->failed = NULL;
    struct call *next;
    for (struct call *call = failed; call; call = next) {
        next = call->next_failed;
        call_finish(call);
    }
    if (client->closing && !client->cancelled)
        cancel_calls(client);
    if (client->closing && !client->active && !client->torn_down)
        tear_down(client);
}

struct http_client *http_client_new(uv_loop_t *loop, const struct http_client_options *options) {
    static bool curl_ready;
    if (!curl_ready)
        curl_ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
    assert(curl_ready);

    struct http_client *client = memory_alloc(sizeof *client);
    client->loop = loop;
    client->egress = options->egress;
    client->user_agent = memory_copy_text(options->user_agent);
    client->resolver = resolver_get(loop);
    client->pool =
        http_pool_new(loop, &(struct http_pool_options){
                                .egress = options->egress,
                                .max_connections = options->max_connections > 0 ? (size_t)options->max_connections
                                                                                : DEFAULT_MAX_CONNECTIONS,
                                .ca_file = options->ca_file,
                                .opened = on_opened,
                                .ready = on_ready,
                            });
    uv_timer_init(loop, &client->deferred);
    client->deferred.data = client;
    client->handles = 2;
    return client;
}

void http_client_close(struct http_client *client, void (*on_closed)(void *arg), void *arg) {
    assert(!client->closing);
    client->closing = true;
    client->on_closed = on_closed;
    client->on_closed_arg = arg;
    wake_deferred(client);
}
