// The happy path is: resolve the name, redisAsyncConnect, AUTH, SELECT and SUBSCRIBE (or PING) in one go; the answer to
// the last of them is on_up. When nothing arrives for a while a PING goes out, and when that is not answered either the
// link is dead.
//
// The failure modes are: the name, the connect, a refused command, a closed or silent link, the owner's reset. All end
// in conn_drop. hiredis frees its context itself after a failed connect callback and after the disconnect callback; in
// every other case conn_drop does. An abandoned context has data NULL, so that what it still reports is ignored.
#include "common/redis_conn.h"
#include "common/backoff.h"
#include "common/clock.h"
#include "common/db_url.h"
#include "common/log.h"
#include "common/memory.h"
#include "common/redis_guard.h"
#include "common/redis_tls.h"
#include "common/resolver.h"
#include <assert.h>
#include <curl/curl.h>
#include <hiredis/async.h>
#include <hiredis/hiredis.h>
#include <netdb.h>
#include <openssl/crypto.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONNECT_TIMEOUT_MS = 5000, // name, connect, AUTH, SELECT and SUBSCRIBE together
    SUBSCRIBER_PING_MS = 1000, // without a byte
    PUBLISHER_PING_MS = 2000,
    DEAD_MS = 3000,
    BACKOFF_FIRST_MS = 100,
    BACKOFF_MOST_MS = 5000,
    STEADY_MS = 5000,
    UNANSWERED_MOST = 1000, // publishes; more means that Redis does not keep up, and the log is there
    DEFAULT_PORT = 6379,
};

//   waiting --timer--> resolving --address--> connecting --answers--> up
//      ^                   |                      |                    |
//      +-------------------+------conn_drop-------+--------------------+
//   any --redis_conn_close--> closing
enum conn_state { STATE_WAITING, STATE_RESOLVING, STATE_CONNECTING, STATE_UP, STATE_CLOSING };

struct redis_address {
    char *user; // each NULL when absent
    char *password;
    char *host;
    int port;
    char *database;
    bool tls;
};

// The adapter: what hiredis calls ev.data. Outlives the context until libuv has let go of the socket.
struct watch {
    uv_poll_t poll;
    redisAsyncContext *context; // NULL: freed
    struct redis_guard guard;
    struct redis_conn *conn; // used only while context->data is set
    int wanted;
    int events; // what the poll is started for; 0: stopped
};

struct redis_conn {
    uv_loop_t *loop;
    struct redis_conn_options options; // url is not kept, channel and ca_file are owned
    bool url_good;
    struct error url_error;
    struct redis_address address;
    enum conn_state state;
    struct resolver *resolver;
    struct resolver_wait *wait;
    redisAsyncContext *context;
    uv_timer_t timer; // waiting: the backoff; until up: the connect timeout; up: silence
    uv_idle_t soon;   // delivers on_down outside of any call
    int open_handles;
    struct backoff backoff;
    unsigned attempts;
    unsigned unanswered;
    struct ssl_st *tls; // the context's; NULL: none
    bool sent_wrong;    // the context that is going got what the guard refused
    uint64_t read_ms;   // when the last byte came
    uint64_t pinged_ms; // 0: no PING since then
    uint64_t up_since_ms;
    bool down_owed;
    bool down_told; // in this outage
    struct error down_error;
    void (*on_closed)(void *arg);
    void *closed_arg;
};

static void conn_start(struct redis_conn *conn);
static void conn_drop(struct redis_conn *conn, const struct error *why);

// ---- the URL

static void address_free(struct redis_address *address) {
    if (address->password)
        OPENSSL_cleanse(address->password, strlen(address->password));
    free(address->user);
    free(address->password);
    free(address->host);
    free(address->database);
    *address = (struct redis_address){0};
}

static char *url_part(CURLU *handle, CURLUPart part, unsigned flags) {
    char *value = NULL;
    if (curl_url_get(handle, part, &value, flags) != CURLUE_OK || !value)
        return NULL;
    char *copy = *value ? memory_copy_text(value) : NULL;
    curl_free(value);
    return copy;
}

static bool address_complete(struct redis_address *address, const char *scheme, const char *path, bool extra) {
    address->tls = scheme && strcmp(scheme, "rediss") == 0;
    if (!scheme || (!address->tls && strcmp(scheme, "redis") != 0) || !address->host || extra)
        return false;
    if (address->user && !address->password)
        return false;
    const char *database = path && *path == '/' ? path + 1 : "";
    if (database[strspn(database, "0123456789")] != '\0')
        return false;
    if (*database)
        address->database = memory_copy_text(database);
    size_t length = strlen(address->host);
    if (*address->host == '[' && length > 2) { // an IPv6 address
        memmove(address->host, address->host + 1, length - 2);
        address->host[length - 2] = '\0';
    }
    return true;
}

// The text never quotes the URL, which may hold a password.
static bool address_read(struct redis_address *address, const char *url, struct error *ret_error) {
    *address = (struct redis_address){.port = DEFAULT_PORT};
    CURLU *handle = curl_url();
    assert(handle);
    bool good = url && curl_url_set(handle, CURLUPART_URL, url, CURLU_NON_SUPPORT_SCHEME) == CURLUE_OK;
    if (good) {
        char *scheme = url_part(handle, CURLUPART_SCHEME, 0);
        char *path = url_part(handle, CURLUPART_PATH, 0);
        char *port = url_part(handle, CURLUPART_PORT, 0);
        char *query = url_part(handle, CURLUPART_QUERY, 0);
        char *fragment = url_part(handle, CURLUPART_FRAGMENT, 0);
        address->user = url_part(handle, CURLUPART_USER, CURLU_URLDECODE);
        address->password = url_part(handle, CURLUPART_PASSWORD, CURLU_URLDECODE);
        address->host = url_part(handle, CURLUPART_HOST, 0);
        if (port)
            address->port = atoi(port); // libcurl has checked it
        good = address_complete(address, scheme, path, query || fragment);
        free(scheme);
        free(path);
        free(port);
        free(query);
        free(fragment);
    }
    curl_url_cleanup(handle);
    if (good && (!address->tls || redis_tls_is_possible(ret_error)))
        return true;
    bool tls = good;
    char names[200];
    url_strange_parameters(url ? url : "", NULL, NULL, names, sizeof names);
    address_free(address);
    if (tls)
        return false;
    if (*names)
        return error_set(ret_error, ERROR_USAGE,
                         "the Redis URL has parameters, and Rowbell takes none: remove %s (certificates: --redis-ca)",
                         names);
    return error_set(
        ret_error, ERROR_USAGE,
        "the Redis URL is malformed: expected redis://[user:password@]host[:port][/database] or rediss:// (TLS), with "
        "special characters of user and password percent-encoded");
}

bool redis_url_check(const char *url, struct error *ret_error) {
    struct redis_address address;
    if (!address_read(&address, url, ret_error))
        return false;
    address_free(&address);
    return true;
}

// ---- the adapter between hiredis and libuv

static void read_more(struct watch *watch) {
    struct error error;
    if (redis_guard_may_read(&watch->guard)) {
        redisAsyncHandleRead(watch->context);
    } else if (watch->context->data) {
        error_set(&error, ERROR_PROTOCOL, "Redis sends more than %d bytes at once", REDIS_REPLY_MAX_BYTES);
        conn_drop(watch->conn, &error);
    }
}

static void on_poll(uv_poll_t *poll, int status, int events) {
    struct watch *watch = (struct watch *)poll;
    if (status < 0) {
        // A socket error: libuv has stopped the handle, hiredis finds out the reason by trying.
        watch->events = 0;
        events = UV_READABLE | UV_WRITABLE;
    } else if (events & UV_READABLE && watch->context && watch->context->data) {
        watch->conn->read_ms = clock_ms();
        watch->conn->pinged_ms = 0;
    }
    if (events & UV_WRITABLE && watch->context)
        redisAsyncHandleWrite(watch->context);
    if (events & UV_READABLE && watch->context)
        read_more(watch);
    if (watch->context && watch->events == 0 && watch->wanted) {
        watch->events = watch->wanted;
        uv_poll_start(&watch->poll, watch->events, on_poll);
    }
}

static void watch_want(struct watch *watch, int wanted) {
    watch->wanted = wanted;
    if (watch->events == wanted)
        return;
    watch->events = wanted;
    if (wanted)
        uv_poll_start(&watch->poll, wanted, on_poll);
    else
        uv_poll_stop(&watch->poll);
}

static void add_read(void *arg) {
    struct watch *watch = arg;
    watch_want(watch, watch->wanted | UV_READABLE);
}

static void del_read(void *arg) {
    struct watch *watch = arg;
    watch_want(watch, watch->wanted & ~UV_READABLE);
}

static void add_write(void *arg) {
    struct watch *watch = arg;
    watch_want(watch, watch->wanted | UV_WRITABLE);
}

static void del_write(void *arg) {
    struct watch *watch = arg;
    watch_want(watch, watch->wanted & ~UV_WRITABLE);
}

static void on_watch_closed(uv_handle_t *handle) {
    free(handle);
}

// hiredis closes the socket right after this.
static void clean_up(void *arg) {
    struct watch *watch = arg;
    if (watch->context->data)
        watch->conn->sent_wrong = watch->guard.refused;
    watch->context->ev.data = NULL;
    watch->context = NULL;
    uv_poll_stop(&watch->poll);
    uv_close((uv_handle_t *)watch, on_watch_closed);
}

static int context_attach(struct redis_conn *conn, redisAsyncContext *context) {
    struct watch *watch = memory_alloc(sizeof(*watch));
    int status = uv_poll_init(conn->loop, &watch->poll, context->c.fd);
    if (status < 0) {
        free(watch);
        return status;
    }
    watch->context = context;
    watch->conn = conn;
    redis_guard_attach(&watch->guard, context, conn->options.channel);
    context->ev.data = watch;
    context->ev.addRead = add_read;
    context->ev.delRead = del_read;
    context->ev.addWrite = add_write;
    context->ev.delWrite = del_write;
    context->ev.cleanup = clean_up;
    return 0;
}

// ---- commands

static bool command_send(struct redis_conn *conn, redisCallbackFn *callback, int count, const char *const *words) {
    size_t lengths[4];
    const char *copy[4];
    assert(count <= 4);
    for (int i = 0; i < count; i++) {
        copy[i] = words[i];
        lengths[i] = strlen(words[i]);
    }
    return redisAsyncCommandArgv(conn->context, callback, NULL, count, copy, lengths) == REDIS_OK;
}

// Not by redisAsyncCommand: a subscribed context would keep a callback for each PING for ever (hiredis 0.14).
static void ping_send(struct redis_conn *conn) {
    if (redisAppendCommand(&conn->context->c, "PING") == REDIS_OK)
        add_write(conn->context->ev.data);
}

static void on_pong(redisAsyncContext *context, void *reply, void *arg) {
    // The bytes were what mattered.
}

static void timer_start(struct redis_conn *conn, uint64_t in_ms);

// Silence: a PING, and after DEAD_MS without a byte the link is given up. Counted from the PING, so that a process that
// was stopped for a while asks first.
static void silence_check(struct redis_conn *conn) {
    uint64_t now = clock_ms();
    uint64_t ping_ms = conn->options.channel ? SUBSCRIBER_PING_MS : PUBLISHER_PING_MS;
    uint64_t silent_ms = now - conn->read_ms;
    if (conn->pinged_ms && now - conn->pinged_ms >= DEAD_MS - ping_ms) {
        struct error error;
        error_set(&error, ERROR_TIMEOUT, "no answer from Redis to a PING within %d ms", (int)(DEAD_MS - ping_ms));
        conn_drop(conn, &error);
        return;
    }
    if (!conn->pinged_ms && silent_ms >= ping_ms) {
        conn->pinged_ms = now;
        if (conn->options.channel)
            ping_send(conn);
        else
            command_send(conn, on_pong, 1, (const char *const[]){"PING"});
    }
    timer_start(conn, conn->pinged_ms ? DEAD_MS - ping_ms - (now - conn->pinged_ms) : ping_ms - silent_ms);
}

static void on_timer(uv_timer_t *timer) {
    struct redis_conn *conn = timer->data;
    struct error error;
    switch (conn->state) {
    case STATE_WAITING:
        conn_start(conn);
        break;
    case STATE_UP:
        silence_check(conn);
        break;
    default:
        error_set(&error, ERROR_TIMEOUT, "no answer from Redis within %d ms", CONNECT_TIMEOUT_MS);
        conn_drop(conn, &error);
    }
}

static void timer_start(struct redis_conn *conn, uint64_t in_ms) {
    uv_timer_start(&conn->timer, on_timer, in_ms, 0);
}

// ---- connecting

static bool text_has_prefix(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

// The word that Redis starts an error with, such as NOAUTH. The rest may quote what we sent, a password included.
static const char *error_word(const char *text, char ret_word[24]) {
    size_t length = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    bool word = length > 0 && length < 24 && (text[length] == ' ' || text[length] == '\0');
    snprintf(ret_word, 24, "%.*s", word ? (int)length : 23, word ? text : "an error");
    return ret_word;
}

static void context_error(const redisAsyncContext *context, struct error *ret_error) {
    int code = context->c.err ? context->c.err : context->err;
    const char *text = context->c.err ? context->c.errstr : context->errstr;
    const struct redis_conn *conn = context->data;
    bool refused = text && (text_has_prefix(text, "NOAUTH") || text_has_prefix(text, "NOPERM"));
    char word[24];
    const char *problem = conn ? redis_tls_problem(conn->tls) : NULL;
    if (problem) {
        error_set(ret_error, ERROR_CONNECT, "TLS: certificate verify failed: %s", problem);
        return;
    }
    if (conn && conn->sent_wrong)
        text = "Redis sent what nobody asked for";
    else if (code == REDIS_ERR_OTHER && text && *text)
        text = error_word(text, word);
    error_set(ret_error, refused ? ERROR_AUTH : ERROR_CONNECT, "%s",
              text && *text ? text : "Redis closed the connection");
}

static void conn_is_up(struct redis_conn *conn) {
    conn->state = STATE_UP;
    conn->up_since_ms = conn->read_ms = clock_ms();
    conn->pinged_ms = 0;
    conn->down_told = false;
    silence_check(conn);
    log_info("redis_connected", LOG_TEXT("role", conn->options.channel ? "subscriber" : "publisher"));
    if (conn->options.on_up)
        conn->options.on_up(conn->options.arg);
}

static void refused(struct redis_conn *conn, const char *command, const redisReply *reply) {
    struct error error;
    char word[24];
    bool login = strcmp(command, "AUTH") == 0 || text_has_prefix(reply->str, "NO");
    error_set(&error, login ? ERROR_AUTH : ERROR_CONNECT, "Redis refuses %s: %s", command,
              error_word(reply->str, word));
    conn_drop(conn, &error);
}

// True when the reply is one that the connection in ac->data may go on with.
static struct redis_conn *reply_owner(redisAsyncContext *context, const redisReply *reply, const char *command) {
    struct redis_conn *conn = context->data;
    if (!conn || !reply)
        return NULL;
    if (reply->type != REDIS_REPLY_ERROR)
        return conn;
    refused(conn, command, reply);
    return NULL;
}

static void on_auth(redisAsyncContext *context, void *reply, void *arg) {
    reply_owner(context, reply, "AUTH");
}

static void on_select(redisAsyncContext *context, void *reply, void *arg) {
    reply_owner(context, reply, "SELECT");
}

static void on_first_pong(redisAsyncContext *context, void *reply, void *arg) {
    struct redis_conn *conn = reply_owner(context, reply, "PING");
    if (conn)
        conn_is_up(conn);
}

static void on_subscription(redisAsyncContext *context, void *argument, void *arg) {
    redisReply *reply = argument;
    struct redis_conn *conn = reply_owner(context, reply, "SUBSCRIBE");
    if (!conn || reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 || !reply->element[0]->str)
        return;
    const redisReply *payload = reply->element[2];
    if (strcmp(reply->element[0]->str, "subscribe") == 0 && conn->state == STATE_CONNECTING)
        conn_is_up(conn);
    else if (strcmp(reply->element[0]->str, "message") == 0 && payload->str && conn->options.on_message)
        conn->options.on_message(conn->options.arg, payload->str, payload->len);
}

static void on_connected(const redisAsyncContext *context, int status) {
    struct redis_conn *conn = context->data;
    if (!conn || status == REDIS_OK)
        return;
    struct error error;
    context_error(context, &error);
    conn->context = NULL; // hiredis frees it
    conn_drop(conn, &error);
}

static void on_disconnected(const redisAsyncContext *context, int status) {
    struct redis_conn *conn = context->data;
    if (!conn)
        return;
    struct error error;
    context_error(context, &error);
    conn->context = NULL; // hiredis frees it
    conn_drop(conn, &error);
}

static bool greeting_send(struct redis_conn *conn) {
    const struct redis_address *address = &conn->address;
    bool sent = true;
    if (address->password && address->user)
        sent = command_send(conn, on_auth, 3, (const char *const[]){"AUTH", address->user, address->password});
    else if (address->password)
        sent = command_send(conn, on_auth, 2, (const char *const[]){"AUTH", address->password});
    if (sent && address->database)
        sent = command_send(conn, on_select, 2, (const char *const[]){"SELECT", address->database});
    if (sent && conn->options.channel)
        return command_send(conn, on_subscription, 2, (const char *const[]){"SUBSCRIBE", conn->options.channel});
    return sent && command_send(conn, on_first_pong, 1, (const char *const[]){"PING"});
}

static void conn_open(struct redis_conn *conn, const char *ip) {
    struct error error;
    conn->state = STATE_CONNECTING;
    redisAsyncContext *context = redisAsyncConnect(ip, conn->address.port);
    if (!context || context->err) {
        error_set(&error, ERROR_CONNECT, "%s", context ? context->errstr : "hiredis has no memory");
        if (context)
            redisAsyncFree(context);
        conn_drop(conn, &error);
        return;
    }
    int status = context_attach(conn, context);
    if (status < 0) {
        redisAsyncFree(context);
        error_set(&error, ERROR_IO, "watch the socket of Redis: %s", uv_strerror(status));
        conn_drop(conn, &error);
        return;
    }
    context->data = conn;
    conn->context = context;
    conn->unanswered = 0;
    conn->sent_wrong = false;
    conn->tls = NULL;
    if (conn->address.tls && !redis_tls_start(context, conn->address.host, conn->options.ca_file, &conn->tls, &error)) {
        conn_drop(conn, &error);
        return;
    }
    redisAsyncSetDisconnectCallback(context, on_disconnected);
    redisAsyncSetConnectCallback(context, on_connected); // adds the write event that reports the connect
    if (!greeting_send(conn)) {
        error_set(&error, ERROR_CONNECT, "hiredis has no memory");
        conn_drop(conn, &error);
    }
}

static void on_looked_up(void *arg, const struct resolver_answer *answer, const struct error *error) {
    struct redis_conn *conn = arg;
    conn->wait = NULL;
    if (!answer) {
        conn_drop(conn, error);
        return;
    }
    // Each try takes the next address.
    const union resolver_address *address = &answer->addresses[conn->attempts++ % answer->count];
    char ip[NI_MAXHOST];
    socklen_t size = address->any.sa_family == AF_INET6 ? sizeof address->v6 : sizeof address->v4;
    if (getnameinfo(&address->any, size, ip, sizeof(ip), NULL, 0, NI_NUMERICHOST) == 0) {
        conn_open(conn, ip);
        return;
    }
    struct error unreadable;
    error_set(&unreadable, ERROR_CONNECT, "the address of %s cannot be written", conn->address.host);
    conn_drop(conn, &unreadable);
}

static void conn_start(struct redis_conn *conn) {
    conn->state = STATE_RESOLVING;
    timer_start(conn, CONNECT_TIMEOUT_MS);
    if (conn->url_good)
        conn->wait = resolver_lookup(conn->resolver, conn->address.host, true, on_looked_up, conn);
    else
        conn_drop(conn, &conn->url_error);
}

// ---- losing and closing

static void conn_disconnect(struct redis_conn *conn) {
    uv_timer_stop(&conn->timer);
    resolver_cancel(conn->wait);
    conn->wait = NULL;
    if (conn->context) {
        // From inside a reply's callback hiredis frees it afterwards.
        redisAsyncContext *context = conn->context;
        conn->context = NULL;
        context->data = NULL;
        conn->tls = NULL;
        redisAsyncFree(context);
    }
}

static void on_handle_closed(uv_handle_t *handle) {
    struct redis_conn *conn = handle->data;
    if (--conn->open_handles > 0)
        return;
    void (*on_closed)(void *) = conn->on_closed;
    void *arg = conn->closed_arg;
    resolver_release(conn->resolver);
    address_free(&conn->address);
    free((char *)conn->options.channel);
    free((char *)conn->options.ca_file);
    free(conn);
    if (on_closed)
        on_closed(arg);
}

static void on_soon(uv_idle_t *soon) {
    struct redis_conn *conn = soon->data;
    uv_idle_stop(soon);
    if (conn->down_owed && conn->options.on_down) {
        conn->down_owed = false;
        conn->options.on_down(conn->options.arg, &conn->down_error);
    }
}

static void conn_drop(struct redis_conn *conn, const struct error *why) {
    struct error error = *why;
    if (conn->state == STATE_WAITING || conn->state == STATE_CLOSING)
        return;
    if (conn->state == STATE_UP && clock_ms() - conn->up_since_ms >= STEADY_MS)
        backoff_reset(&conn->backoff);
    if (error.code != ERROR_USAGE)
        error_wrap(&error, "%s", conn->state == STATE_UP ? "the connection to Redis was lost" : "connect to Redis");
    conn->state = STATE_WAITING;
    conn_disconnect(conn);
    uint64_t retry_ms = backoff_next_ms(&conn->backoff);
    log_write(conn->down_told ? LOG_DEBUG : LOG_WARN, "redis_disconnected",
              LOG_FIELDS(LOG_TEXT("role", conn->options.channel ? "subscriber" : "publisher"),
                         LOG_TEXT("reason", error.text), LOG_INT("retry_ms", retry_ms)));
    if (!conn->down_told) {
        conn->down_told = true;
        conn->down_owed = true;
        conn->down_error = error;
        uv_idle_start(&conn->soon, on_soon);
    }
    timer_start(conn, retry_ms);
}

void redis_conn_reset(struct redis_conn *conn, const char *reason) {
    struct error error;
    error_set(&error, ERROR_CONNECT, "reset: %s", reason);
    conn_drop(conn, &error);
}

void redis_conn_close(struct redis_conn *conn, void (*on_closed)(void *arg), void *arg) {
    if (!conn) {
        if (on_closed)
            on_closed(arg);
        return;
    }
    assert(conn->state != STATE_CLOSING);
    conn->state = STATE_CLOSING;
    conn->on_closed = on_closed;
    conn->closed_arg = arg;
    conn_disconnect(conn);
    uv_close((uv_handle_t *)&conn->timer, on_handle_closed);
    uv_close((uv_handle_t *)&conn->soon, on_handle_closed);
}

// ---- a new one, and its use

struct redis_conn *redis_conn_new(uv_loop_t *loop, const struct redis_conn_options *options) {
    struct redis_conn *conn = memory_alloc(sizeof(*conn));
    conn->loop = loop;
    conn->options = *options;
    conn->options.url = NULL;
    conn->options.channel = memory_copy_text(options->channel);
    conn->resolver = resolver_get(loop);
    conn->options.ca_file = memory_copy_text(options->ca_file);
    conn->url_good = address_read(&conn->address, options->url, &conn->url_error);
    conn->backoff = (struct backoff){.first_ms = BACKOFF_FIRST_MS, .most_ms = BACKOFF_MOST_MS};
    uv_timer_init(loop, &conn->timer);
    uv_idle_init(loop, &conn->soon);
    conn->timer.data = conn->soon.data = conn;
    conn->open_handles = 2;
    conn_start(conn);
    return conn;
}

bool redis_conn_is_up(const struct redis_conn *conn) {
    return conn->state == STATE_UP;
}

static void on_published(redisAsyncContext *context, void *reply, void *arg) {
    struct redis_conn *conn = context->data;
    if (conn && reply)
        conn->unanswered--;
    if (conn && reply && ((redisReply *)reply)->type == REDIS_REPLY_ERROR)
        refused(conn, "PUBLISH", reply);
}

bool redis_conn_publish(struct redis_conn *conn, const char *channel, const char *bytes, size_t length) {
    if (conn->state != STATE_UP || conn->unanswered >= UNANSWERED_MOST)
        return false;
    const char *words[] = {"PUBLISH", channel, bytes};
    const size_t lengths[] = {7, strlen(channel), length};
    if (redisAsyncCommandArgv(conn->context, on_published, NULL, 3, words, lengths) != REDIS_OK)
        return false;
    conn->unanswered++;
    return true;
}
