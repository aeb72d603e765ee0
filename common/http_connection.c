// One connection goes
//
//   connecting --> in use <--> idle --> closed
//        \___________\____________________^
//
// libcurl does the first step and, for TLS, reads and writes (which ties its handle to the connection); a plain socket
// is taken from it when it is connected. The failure modes are: no address may be reached, or none answers in time; the
// handshake fails; the peer closes, in use (the user reads that) or while it idles (seen here at once, since an idle
// connection is watched for reading).
#include "common/http_connection.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "common/curl_loop.h"
#include "common/memory.h"
#include <arpa/inet.h>
#include <assert.h>
#include <curl/curl.h>
#include <errno.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <uthash.h>
#include <utlist.h>

enum {
    // Node's servers close what idled for 5 s, and a request that crosses that close on the wire is lost: idle
    // connections go before they do.
    IDLE_MAX_MS = 3000,
    LIFETIME_MS = 300000, // so that a changed address is followed
    PIN_LIFETIME_S = 300, // longer than any deadline
};

// Where connections lead, while there are any.
struct origin {
    UT_hash_handle hh;
    struct http_connection *idle; // the newest first
    size_t connections;
    char key[];
};

struct http_connection {
    struct http_pool *pool;
    struct origin *origin;
    void *user;                                      // NULL: it idles
    struct http_connection *next_idle, *prev_idle;   // in origin
    struct http_connection *next_newer, *prev_newer; // in pool->idle
    CURL *easy;                                      // while connecting, and with TLS
    struct curl_watch *watch;                        // once connected
    uint64_t began_ns, opened_ms, idle_since_ms;
    struct http_connection_facts facts;
    const char *egress_rule; // what opening a socket was denied for
    bool secure;
    struct buffer pin;
    struct curl_slist pins;
    char curl_error[CURL_ERROR_SIZE];
};

struct http_pool {
    struct curl_loop *curl;
    struct http_pool_options options;
    char *ca_file;
    char *ca_path; // the system's, as libcurl was built
    struct origin *origins;
    struct http_connection *idle; // of all origins, the oldest first
    size_t connections;
    CURL **free_easies; // they know TLS sessions
    size_t free_easy_count, easy_count;
    uv_timer_t idle_timer;
    size_t handles; // not closed yet: the timer and the curl_loop
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

static double ms_since(uint64_t began_ns) {
    return (double)(clock_ns() - began_ns) / 1e6;
}

// ---- libcurl's handles

static int set_pem(CURL *easy, CURLoption option, const char *text) {
    struct curl_blob blob = {.data = (void *)text, .len = text ? strlen(text) : 0, .flags = CURL_BLOB_COPY};
    return curl_easy_setopt(easy, option, text ? &blob : NULL);
}

// Many servers close without TLS's goodbye. OpenSSL 3 calls that an error, libcurl hands it on or not, by its version;
// here it is the end of the stream. Whether the answer is whole is seen by its framing. An answer that has none ends
// where the stream does, and what counts of it is the status.
static CURLcode set_end_of_stream(CURL *easy, void *context, void *arg) {
    SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
    return CURLE_OK;
}

static CURL *easy_new(struct http_pool *pool) {
    CURL *easy = curl_easy_init();
    assert(easy);
    curl_easy_setopt(easy, CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(easy, CURLOPT_SSL_CTX_FUNCTION, set_end_of_stream);
    if (pool->ca_file)
        curl_easy_setopt(easy, CURLOPT_CAINFO, pool->ca_file);
    char *ca_path = NULL;
    if (!pool->ca_path && curl_easy_getinfo(easy, CURLINFO_CAPATH, &ca_path) == CURLE_OK)
        pool->ca_path = memory_copy_text(ca_path);
    curl_easy_setopt(easy, CURLOPT_DNS_CACHE_TIMEOUT, (long)PIN_LIFETIME_S);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, curl_loop_close_socket);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, pool->curl);
    pool->free_easies = memory_resize(pool->free_easies, ++pool->easy_count, sizeof(CURL *)); // room for all
    return easy;
}

static CURL *easy_take(struct http_pool *pool) {
    return pool->free_easy_count > 0 ? pool->free_easies[--pool->free_easy_count] : easy_new(pool);
}

// Ends what libcurl has of the connection.
static void easy_release(struct http_connection *connection) {
    struct http_pool *pool = connection->pool;
    if (!connection->easy)
        return;
    curl_loop_remove(pool->curl, connection->easy);
    curl_easy_setopt(connection->easy, CURLOPT_ERRORBUFFER, (char *)NULL);
    pool->free_easies[pool->free_easy_count++] = connection->easy;
    connection->easy = NULL;
}

// ---- origins

// Those who show or trust other certificates have connections of their own.
static void origin_key(const struct http_connect *to, char *ret_key, size_t size) {
    int length = snprintf(ret_key, size, "%s", to->target->origin);
    if (!to->ca_pem && !to->certificate_pem && !to->key_pem)
        return;
    const char *const texts[] = {to->ca_pem, to->certificate_pem, to->key_pem};
    unsigned char digest[EVP_MAX_MD_SIZE];
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool good = context && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1;
    for (size_t i = 0; i < 3; i++) // each with its NUL, so that none runs into the next
        good = good && EVP_DigestUpdate(context, texts[i] ? texts[i] : "", (texts[i] ? strlen(texts[i]) : 0) + 1) == 1;
    good = good && EVP_DigestFinal_ex(context, digest, NULL) == 1;
    assert(good); // else connections would be shared that must not be
    EVP_MD_CTX_free(context);
    for (size_t i = 0; i < 32; i++)
        length += snprintf(ret_key + length, size - (size_t)length, i == 0 ? " %02x" : "%02x", digest[i]);
}

static struct origin *origin_find(struct http_pool *pool, const struct http_connect *to, bool make) {
    char key[sizeof to->target->origin + 80];
    origin_key(to, key, sizeof key);
    struct origin *origin;
    HASH_FIND_STR(pool->origins, key, origin);
    if (!origin && make) {
        origin = memory_alloc(sizeof *origin + strlen(key) + 1);
        memcpy(origin->key, key, strlen(key) + 1);
        HASH_ADD_STR(pool->origins, key, origin);
    }
    return origin;
}

// ---- the end of a connection

static void leave_idle(struct http_connection *connection) {
    DL_DELETE2(connection->origin->idle, connection, prev_idle, next_idle);
    DL_DELETE2(connection->pool->idle, connection, prev_newer, next_newer);
}

static void connection_close(struct http_connection *connection) {
    struct http_pool *pool = connection->pool;
    struct origin *origin = connection->origin;
    easy_release(connection);
    if (connection->watch)
        curl_watch_close(connection->watch);
    buffer_free(&connection->pin);
    free(connection);
    pool->connections--;
    if (--origin->connections == 0) {
        HASH_DEL(pool->origins, origin);
        free(origin);
    }
}

static void on_idle_timer(uv_timer_t *timer) {
    struct http_pool *pool = timer->data;
    uint64_t now = clock_ms();
    while (pool->idle && now >= pool->idle->idle_since_ms + IDLE_MAX_MS) {
        struct http_connection *connection = pool->idle;
        leave_idle(connection);
        connection_close(connection);
    }
    if (pool->idle)
        uv_timer_start(timer, on_idle_timer, pool->idle->idle_since_ms + IDLE_MAX_MS - now, 0);
}

void http_connection_release(struct http_connection *connection, bool keep) {
    struct http_pool *pool = connection->pool;
    connection->user = NULL;
    uint64_t now = clock_ms();
    if (!keep || pool->connections > pool->options.max_connections || now >= connection->opened_ms + LIFETIME_MS) {
        connection_close(connection);
        return;
    }
    connection->idle_since_ms = now;
    DL_PREPEND2(connection->origin->idle, connection, prev_idle, next_idle);
    DL_APPEND2(pool->idle, connection, prev_newer, next_newer);
    if (!uv_is_active((uv_handle_t *)&pool->idle_timer))
        uv_timer_start(&pool->idle_timer, on_idle_timer, IDLE_MAX_MS, 0);
}

// ---- reading and writing

// What libcurl says of a send or a read.
static ptrdiff_t judge_curl(struct http_connection *connection, CURLcode code, size_t count, const char **ret_error) {
    if (code == CURLE_AGAIN)
        return 0;
    if (code == CURLE_OK && count > 0)
        return (ptrdiff_t)count;
    *ret_error = code == CURLE_OK ? "" : connection->curl_error[0] ? connection->curl_error : curl_easy_strerror(code);
    return -1;
}

static ptrdiff_t judge_socket(ssize_t count, const char **ret_error) {
    if (count > 0)
        return count;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return 0;
    *ret_error = count == 0 || errno == ECONNRESET || errno == EPIPE ? "" : strerror(errno);
    return -1;
}

ptrdiff_t http_connection_send(struct http_connection *connection, const void *bytes, size_t length,
                               const char **ret_error) {
    if (!connection->easy)
        return judge_socket(send(curl_watch_socket(connection->watch), bytes, length, MSG_NOSIGNAL), ret_error);
    size_t count = 0;
    CURLcode code = curl_easy_send(connection->easy, bytes, length, &count);
    return judge_curl(connection, code, count, ret_error);
}

ptrdiff_t http_connection_read(struct http_connection *connection, void *bytes, size_t length, const char **ret_error) {
    if (!connection->easy)
        return judge_socket(recv(curl_watch_socket(connection->watch), bytes, length, 0), ret_error);
    size_t count = 0;
    CURLcode code = curl_easy_recv(connection->easy, bytes, length, &count);
    return judge_curl(connection, code, count, ret_error);
}

// A write in a renegotiation waits for what the peer says; the socket may be written to all the while.
static bool waits_for_peer(const struct http_connection *connection) {
    struct curl_tlssessioninfo *tls = NULL;
    return connection->easy && curl_easy_getinfo(connection->easy, CURLINFO_TLS_SSL_PTR, &tls) == CURLE_OK &&
           tls->backend == CURLSSLBACKEND_OPENSSL && tls->internals && SSL_want_read((SSL *)tls->internals);
}

void http_connection_want_write(struct http_connection *connection, bool want) {
    bool writable = want && !waits_for_peer(connection);
    curl_watch_want(connection->watch, UV_READABLE | (writable ? UV_WRITABLE : 0));
}

// An idle connection has nothing to say but goodbye, or a TLS record that is not for us.
static bool is_quiet(struct http_connection *connection) {
    char byte;
    const char *error;
    if (recv(curl_watch_socket(connection->watch), &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN)
        return true;
    return connection->secure && http_connection_read(connection, &byte, 1, &error) == 0;
}

static void on_event(void *arg, int events) {
    struct http_connection *connection = arg;
    if (connection->user) {
        connection->pool->options.ready(connection->user, events);
    } else if (!is_quiet(connection)) {
        leave_idle(connection);
        connection_close(connection);
    }
}

// ---- connecting

static const struct curl_failure {
    CURLcode code;
    enum http_failure failure;
} curl_failures[] = {
    {CURLE_OK, HTTP_OK},
    {CURLE_URL_MALFORMAT, HTTP_REFUSED},
    {CURLE_COULDNT_RESOLVE_HOST, HTTP_DNS},
    {CURLE_SSL_CONNECT_ERROR, HTTP_TLS},
    {CURLE_PEER_FAILED_VERIFICATION, HTTP_TLS},
    {CURLE_SSL_CERTPROBLEM, HTTP_TLS},
    {CURLE_SSL_CIPHER, HTTP_TLS},
    {CURLE_SSL_CACERT_BADFILE, HTTP_TLS},
    {CURLE_SSL_ISSUER_ERROR, HTTP_TLS},
    {CURLE_SSL_CRL_BADFILE, HTTP_TLS},
    {CURLE_SSL_INVALIDCERTSTATUS, HTTP_TLS},
    {CURLE_SSL_CLIENTCERT, HTTP_TLS},
    {CURLE_SSL_ENGINE_INITFAILED, HTTP_TLS},
};

static enum http_failure curl_failure_of(CURLcode code) {
    for (size_t i = 0; i < sizeof curl_failures / sizeof *curl_failures; i++)
        if (curl_failures[i].code == code)
            return curl_failures[i].failure;
    return HTTP_CONNECT;
}

static void on_tcp(void *arg) {
    struct http_connection *connection = arg;
    connection->facts.tcp_stands = true;
    connection->facts.connect_ms = ms_since(connection->began_ns);
}

// The second judgement, on the address that is really connected to.
static curl_socket_t on_open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address) {
    struct http_connection *connection = arg;
    const char *rule = NULL;
    if (purpose != CURLSOCKTYPE_IPCXN || !egress_allows(connection->pool->options.egress, &address->addr, &rule)) {
        connection->egress_rule = rule ? rule : "not a peer";
        return CURL_SOCKET_BAD;
    }
    return curl_loop_open_socket(connection->pool->curl, connection->easy, address, on_tcp, connection);
}

static void read_peer(struct http_connection *connection) {
    char *address = NULL;
    long port = 0;
    curl_easy_getinfo(connection->easy, CURLINFO_PRIMARY_IP, &address);
    curl_easy_getinfo(connection->easy, CURLINFO_PRIMARY_PORT, &port);
    if (address && *address)
        snprintf(connection->facts.peer, sizeof connection->facts.peer, strchr(address, ':') ? "[%s]:%ld" : "%s:%ld",
                 address, port);
}

static void on_connected(void *easy_private, CURLcode code) {
    struct http_connection *connection = easy_private;
    struct http_connection_facts *facts = &connection->facts;
    double took_ms = ms_since(connection->began_ns);
    read_peer(connection);
    facts->failure = curl_failure_of(code);
    if (code == CURLE_OK && !facts->tcp_stands)
        on_tcp(connection);
    curl_socket_t fd = CURL_SOCKET_BAD;
    if (code == CURLE_OK)
        curl_easy_getinfo(connection->easy, CURLINFO_ACTIVESOCKET, &fd);
    if (fd != CURL_SOCKET_BAD) {
        if (connection->secure)
            facts->tls_ms = took_ms - facts->connect_ms;
        connection->watch = curl_loop_take(connection->pool->curl, fd, on_event, connection);
        curl_watch_want(connection->watch, UV_READABLE);
        connection->opened_ms = clock_ms();
        facts->open = true;
        if (!connection->secure)
            easy_release(connection);
    } else if (code == CURLE_OK) { // another handle's start, in the same entry of libcurl, found that its peer is gone
        facts->failure = HTTP_CONNECT;
        snprintf(facts->error, sizeof facts->error, "the connection was closed as soon as it stood");
    } else if (connection->egress_rule && !facts->tcp_stands) {
        facts->failure = HTTP_EGRESS_DENIED;
        snprintf(facts->error, sizeof facts->error, "its address is %s, which deliveries may not reach",
                 connection->egress_rule);
    } else if (code == CURLE_OPERATION_TIMEDOUT) {
        facts->failure = facts->tcp_stands ? HTTP_TLS : HTTP_CONNECT;
        snprintf(facts->error, sizeof facts->error, "no result after %.0f ms, %s", took_ms,
                 facts->tcp_stands ? "in the TLS handshake" : "connecting");
    } else {
        snprintf(facts->error, sizeof facts->error, "%s",
                 connection->curl_error[0] ? connection->curl_error : curl_easy_strerror(code));
    }
    connection->pool->options.opened(connection->user);
}

// What was judged is what is connected to: libcurl looks nothing up.
static void set_pins(struct http_connection *connection, const struct http_connect *to) {
    struct buffer *pin = &connection->pin;
    if (to->target->literal) {
        curl_easy_setopt(connection->easy, CURLOPT_RESOLVE, (struct curl_slist *)NULL);
        return;
    }
    buffer_format(pin, "+%s:%s:", to->target->host, to->target->port);
    for (size_t i = 0; i < to->addresses->count; i++) {
        const union resolver_address *address = &to->addresses->addresses[i];
        char text[INET6_ADDRSTRLEN];
        bool v6 = address->any.sa_family == AF_INET6;
        inet_ntop(address->any.sa_family, v6 ? (const void *)&address->v6.sin6_addr : &address->v4.sin_addr, text,
                  sizeof text);
        buffer_format(pin, v6 ? "%s[%s]" : "%s%s", i == 0 ? "" : ",", text);
    }
    connection->pins.data = pin->bytes;
    curl_easy_setopt(connection->easy, CURLOPT_RESOLVE, &connection->pins);
}

// A handle is used again for other settings.
static void set_tls(CURL *easy, const struct http_pool *pool, const struct http_connect *to) {
    int failed = set_pem(easy, CURLOPT_CAINFO_BLOB, to->ca_pem);
    failed |= set_pem(easy, CURLOPT_SSLCERT_BLOB, to->certificate_pem);
    failed |= set_pem(easy, CURLOPT_SSLKEY_BLOB, to->key_pem);
    // Trusted besides them otherwise: the system's directory.
    failed |= curl_easy_setopt(easy, CURLOPT_CAPATH, to->ca_pem ? NULL : pool->ca_path);
    assert(!failed); // else a setting would be left out silently
}

struct http_connection *http_pool_connect(struct http_pool *pool, const struct http_connect *to, void *user) {
    if (pool->connections >= pool->options.max_connections && pool->idle) {
        struct http_connection *oldest = pool->idle;
        leave_idle(oldest);
        connection_close(oldest);
    }
    struct http_connection *connection = memory_alloc(sizeof *connection);
    connection->pool = pool;
    connection->user = user;
    connection->origin = origin_find(pool, to, true);
    connection->origin->connections++;
    pool->connections++;
    connection->secure = to->target->secure;
    connection->facts.connect_ms = connection->facts.tls_ms = -1;
    connection->began_ns = clock_ns();

    CURL *easy = connection->easy = easy_take(pool);
    curl_easy_setopt(easy, CURLOPT_URL, to->target->origin);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, connection);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, connection->curl_error);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_open_socket);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, connection);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)to->connect_ms);
    set_pins(connection, to);
    set_tls(easy, pool, to);
    curl_loop_add(pool->curl, easy);
    return connection;
}

struct http_connection *http_pool_take(struct http_pool *pool, const struct http_connect *to, void *user) {
    struct origin *origin = origin_find(pool, to, false);
    uint64_t now = clock_ms();
    for (struct http_connection *connection; origin && (connection = origin->idle);) {
        leave_idle(connection);
        if (now < connection->idle_since_ms + IDLE_MAX_MS && now < connection->opened_ms + LIFETIME_MS &&
            is_quiet(connection)) {
            connection->user = user;
            connection->facts.connect_ms = connection->facts.tls_ms = 0;
            return connection;
        }
        if (origin->connections == 1)
            origin = NULL; // it goes with its last connection
        connection_close(connection);
    }
    return NULL;
}

const struct http_connection_facts *http_connection_facts(const struct http_connection *connection) {
    return &connection->facts;
}

uint64_t http_pool_connections_opened(const struct http_pool *pool) {
    return curl_loop_connections_opened(pool->curl);
}

// ---- the pool's life

struct http_pool *http_pool_new(uv_loop_t *loop, const struct http_pool_options *options) {
    struct http_pool *pool = memory_alloc(sizeof *pool);
    pool->options = *options;
    pool->ca_file = memory_copy_text(options->ca_file);
    pool->curl = curl_loop_new(loop, on_connected);
    uv_timer_init(loop, &pool->idle_timer);
    pool->idle_timer.data = pool;
    pool->handles = 2;
    return pool;
}

static void on_handle_closed(void *arg) {
    struct http_pool *pool = arg;
    if (--pool->handles > 0)
        return;
    void (*on_closed)(void *) = pool->on_closed;
    void *on_closed_arg = pool->on_closed_arg;
    free(pool->free_easies);
    free(pool->ca_file);
    free(pool->ca_path);
    free(pool);
    on_closed(on_closed_arg);
}

static void on_timer_closed(uv_handle_t *handle) {
    on_handle_closed(handle->data);
}

void http_pool_close(struct http_pool *pool, void (*on_closed)(void *arg), void *arg) {
    pool->on_closed = on_closed;
    pool->on_closed_arg = arg;
    while (pool->idle) {
        struct http_connection *connection = pool->idle;
        leave_idle(connection);
        connection_close(connection);
    }
    assert(pool->connections == 0);
    for (size_t i = 0; i < pool->free_easy_count; i++)
        curl_easy_cleanup(pool->free_easies[i]);
    curl_loop_close(pool->curl, on_handle_closed, pool);
    uv_close((uv_handle_t *)&pool->idle_timer, on_timer_closed);
}
