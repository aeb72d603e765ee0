// One call goes
//
//   send --> (resolving) --> transferring --> done
//     \__________\_______________\__________> failed (from the deferred timer)
//
// The happy path on a warm connection is: resolver_peek knows the address, libcurl writes the request from its timer,
// reads the answer from the poll callback, and the call goes back to the free list with its easy handle. The failure
// modes are: the URL or a header is refused; the name does not resolve; no address is allowed; the deadline passes in
// any of the phases; libcurl reports an error; the client closes. libcurl is never entered from its own callbacks:
// these only store a result (common/curl_loop.c).
#include "common/http_client.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "common/curl_loop.h"
#include "common/http_target.h"
#include "common/memory.h"
#include "common/plain_text.h"
#include "common/resolver.h"
#include <arpa/inet.h>
#include <assert.h>
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <utlist.h>

enum {
    MAX_RESPONSE_HEADER_BYTES = 16384,
    MAX_RESPONSE_BODY_BYTES = 65536,
    RESPONSE_HEAD_BYTES = 4096,
    DEFAULT_MAX_CONNECTIONS = 1024,
    // Node's servers close what idled for 5 s, and a request that crosses that close on the wire is lost: idle
    // connections go before they do.
    IDLE_CONNECTION_MAX_S = 3,
    CONNECTION_MAX_S = 300, // so that a changed address is followed
    PIN_LIFETIME_S = 300,   // longer than any deadline
};

struct call {
    struct http_client *client;
    struct call *prev, *next; // in client->active
    struct call *next_free;
    struct call *next_failed;
    CURL *easy;
    uv_timer_t dns_timer; // the deadline while the name is looked up; libcurl has its own
    http_done *done;
    void *arg;
    uint64_t started_ns;
    double transfer_offset_ms; // from started_ns to libcurl's start
    unsigned deadline_ms, connect_ms;
    bool resolving;    // the resolver will still call back
    bool transferring; // in the multi handle
    bool finished;     // done was called

    struct http_target target;
    bool has_target, target_allows_http; // target is that of the URL in text: the next call often has the same
    struct buffer text;                  // URL and headers, each with its NUL
    struct buffer body;
    struct curl_slist headers[HTTP_CALL_MAX_HEADERS + 1];
    struct buffer pin;
    struct buffer dotted_pin;
    struct curl_slist pins[2];

    unsigned requests;       // that libcurl was about to write
    double connected_ms;     // from libcurl's start to a TCP connection, as seen by its watch; -1
    const char *egress_rule; // what opening a socket was denied for
    size_t header_bytes, body_bytes;
    bool header_cut, body_cut; // a limit was passed, and the rest was not read
    bool has_retry_after, has_delivery_control;
    char retry_after[128];
    char delivery_control[64];
    char response_head[RESPONSE_HEAD_BYTES + 1];
    struct buffer answer; // the whole body, when the caller asked for it
    size_t answer_max_bytes;
    bool get;
    bool has_own_tls; // the handle keeps what an earlier call set
    char curl_error[CURL_ERROR_SIZE];
    struct http_outcome outcome;
};

struct http_client {
    uv_loop_t *loop;
    struct curl_loop *curl;
    CURLU *url;
    struct resolver *resolver;
    const struct egress_policy *egress;
    char *user_agent;
    char *ca_file;
    char *ca_path;       // the system's, as libcurl was built
    uv_timer_t deferred; // calls that failed before they began, and closing
    struct call *active; // until done was called and the resolver let go
    struct call *free_calls;
    struct call *failed;
    size_t in_flight;
    size_t handles; // not closed yet: ours of libuv, and the curl_loop
    bool closing, cancelled, torn_down;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

static double ms_since(uint64_t started_ns) {
    return (double)(clock_ns() - started_ns) / 1e6;
}

// ---- finishing a call

static void on_deferred(uv_timer_t *timer);

static void call_release(struct call *call) {
    struct http_client *client = call->client;
    DL_DELETE(client->active, call);
    call->next_free = client->free_calls;
    client->free_calls = call;
    if (client->closing)
        uv_timer_start(&client->deferred, on_deferred, 0, 0);
}

static void call_finish(struct call *call) {
    struct http_client *client = call->client;
    struct http_outcome *outcome = &call->outcome;
    outcome->total_ms = ms_since(call->started_ns);
    outcome->retry_after = call->has_retry_after ? call->retry_after : NULL;
    outcome->delivery_control = call->has_delivery_control ? call->delivery_control : NULL;
    plain_text_make(call->response_head,
                    call->body_bytes < RESPONSE_HEAD_BYTES ? call->body_bytes : RESPONSE_HEAD_BYTES);
    outcome->response_head = call->response_head;
    outcome->answer = call->answer_max_bytes ? buffer_cstr(&call->answer) : NULL;
    outcome->answer_length = call->answer.length;
    call->finished = true;
    client->in_flight--;
    call->done(call->arg, outcome);
    if (!call->resolving)
        call_release(call);
}

// Finishes it in a later turn; for failures that are known inside http_client_send.
static void call_fail(struct call *call, enum http_failure failure, const char *text) {
    call->outcome.failure = failure;
    snprintf(call->outcome.error, sizeof call->outcome.error, "%s", text);
    LL_APPEND2(call->client->failed, call, next_failed);
    uv_timer_start(&call->client->deferred, on_deferred, 0, 0);
}

// ---- what libcurl tells about one transfer

static const struct curl_failure {
    CURLcode code;
    enum http_failure failure;
} curl_failures[] = {
    {CURLE_OK, HTTP_OK},
    {CURLE_URL_MALFORMAT, HTTP_REFUSED},
    {CURLE_COULDNT_RESOLVE_HOST, HTTP_DNS},
    {CURLE_COULDNT_CONNECT, HTTP_CONNECT},
    {CURLE_INTERFACE_FAILED, HTTP_CONNECT},
    {CURLE_SEND_ERROR, HTTP_CONNECT},
    {CURLE_RECV_ERROR, HTTP_CONNECT},
    {CURLE_GOT_NOTHING, HTTP_CONNECT},
    {CURLE_ABORTED_BY_CALLBACK, HTTP_CONNECT}, // on_request: the kept connection was dead
    {CURLE_OPERATION_TIMEDOUT, HTTP_TIMEOUT},
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
    return HTTP_BAD_ANSWER;
}

static double info_ms(const struct call *call, CURLINFO info) {
    curl_off_t us = 0;
    curl_easy_getinfo(call->easy, info, &us);
    return (double)us / 1e3;
}

static void read_timings(struct call *call) {
    struct http_outcome *outcome = &call->outcome;
    double named = info_ms(call, CURLINFO_NAMELOOKUP_TIME_T);
    double connected = info_ms(call, CURLINFO_CONNECT_TIME_T);
    double secured = info_ms(call, CURLINFO_APPCONNECT_TIME_T);
    double first_byte = info_ms(call, CURLINFO_STARTTRANSFER_TIME_T);
    long new_connections = 0;
    curl_easy_getinfo(call->easy, CURLINFO_NUM_CONNECTS, &new_connections);
    bool reused = call->requests > 0 && new_connections == 0;
    if (reused)
        outcome->connect_ms = outcome->tls_ms = 0;
    if (connected == 0 && call->connected_ms > 0)
        connected = call->connected_ms;
    if (!reused && connected > 0)
        outcome->connect_ms = connected > named ? connected - named : 0;
    if (!reused && secured > 0)
        outcome->tls_ms = secured > connected ? secured - connected : 0;
    if (first_byte > 0 && call->header_bytes > 0)
        outcome->first_byte_ms = call->transfer_offset_ms + first_byte;
}

static void read_peer(struct call *call) {
    char *address = NULL;
    long port = 0;
    curl_easy_getinfo(call->easy, CURLINFO_PRIMARY_IP, &address);
    curl_easy_getinfo(call->easy, CURLINFO_PRIMARY_PORT, &port);
    if (address && *address)
        snprintf(call->outcome.peer, sizeof call->outcome.peer, strchr(address, ':') ? "[%s]:%ld" : "%s:%ld", address,
                 port);
}

// libcurl has one code for both of its deadlines. Which one it was decides the class.
static void explain_timeout(struct call *call) {
    struct http_outcome *outcome = &call->outcome;
    bool whole = ms_since(call->started_ns) + 2 >= call->deadline_ms;
    const char *phase = call->header_bytes > 0     ? "while the answer was read"
                        : call->requests > 0       ? "waiting for an answer"
                        : outcome->connect_ms >= 0 ? "in the TLS handshake"
                                                   : "connecting";
    if (!whole && call->requests == 0)
        outcome->failure = outcome->connect_ms >= 0 ? HTTP_TLS : HTTP_CONNECT;
    snprintf(outcome->error, sizeof outcome->error, "no result after %u ms, %s",
             whole ? call->deadline_ms : call->connect_ms, phase);
}

static void on_transfer_end(void *easy_private, CURLcode code) {
    struct call *call = easy_private;
    struct http_outcome *outcome = &call->outcome;
    long status = 0;
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    outcome->status = (int)status;
    read_timings(call);
    read_peer(call);

    outcome->failure = curl_failure_of(code);
    if (outcome->failure == HTTP_CONNECT && call->header_bytes > 0)
        outcome->failure = HTTP_BAD_ANSWER; // it broke off
    const char *text = call->curl_error[0] ? call->curl_error : curl_easy_strerror(code);
    if (call->egress_rule && call->requests == 0 && outcome->failure != HTTP_OK) {
        outcome->failure = HTTP_EGRESS_DENIED;
        snprintf(outcome->error, sizeof outcome->error, "%.100s: its address is %s, which deliveries may not reach",
                 call->target.host, call->egress_rule);
    } else if (call->header_cut) {
        outcome->failure = HTTP_BAD_ANSWER;
        snprintf(outcome->error, sizeof outcome->error, "the answer has more than %d bytes of headers",
                 MAX_RESPONSE_HEADER_BYTES);
    } else if (call->body_cut) {
        outcome->failure = HTTP_OK; // the status is the answer; the rest was not read
    } else if (call->requests > 1) {
        outcome->failure = HTTP_CONNECT;
        snprintf(outcome->error, sizeof outcome->error, "the connection was closed before an answer");
    } else if (outcome->failure == HTTP_TIMEOUT) {
        explain_timeout(call);
    } else if (outcome->failure != HTTP_OK) {
        snprintf(outcome->error, sizeof outcome->error, "%s", text);
    }
}

static void on_transfer_finished(void *easy_private) {
    struct call *call = easy_private;
    call->transferring = false;
    call_finish(call);
}

// ---- libcurl's callbacks for one transfer

// libcurl writes a request again by itself when a kept connection turns out to be dead. The receiver may have handled
// the first, so that would be a second attempt which nobody recorded.
static int on_request(void *arg, char *peer_ip, char *local_ip, int peer_port, int local_port) {
    struct call *call = arg;
    (void)peer_ip, (void)local_ip, (void)peer_port, (void)local_port;
    return ++call->requests > 1 ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
}

static void keep_header(const char *line, size_t length, const char *name, char *ret_value, size_t size,
                        bool *ret_has) {
    size_t name_length = strlen(name);
    if (*ret_has || length <= name_length || line[name_length] != ':' || strncasecmp(line, name, name_length) != 0)
        return;
    const char *value = line + name_length + 1;
    const char *end = line + length;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (unsigned char)end[-1] <= ' ')
        end--;
    if ((size_t)(end - value) >= size) // too long to be one that we know
        return;
    memcpy(ret_value, value, (size_t)(end - value));
    ret_value[end - value] = '\0';
    *ret_has = true;
}

static size_t on_header(char *line, size_t size, size_t count, void *arg) {
    struct call *call = arg;
    size_t length = size * count;
    call->header_bytes += length;
    call->header_cut = call->header_bytes > MAX_RESPONSE_HEADER_BYTES;
    if (call->header_cut)
        return 0; // libcurl ends the transfer
    if (length > 5 && strncmp(line, "HTTP/", 5) == 0)
        call->has_retry_after = call->has_delivery_control = false; // what came so far was a 1xx
    keep_header(line, length, "retry-after", call->retry_after, sizeof call->retry_after, &call->has_retry_after);
    keep_header(line, length, "webhook-delivery", call->delivery_control, sizeof call->delivery_control,
                &call->has_delivery_control);
    return length;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *arg) {
    struct call *call = arg;
    size_t length = size * count;
    if (call->body_bytes < RESPONSE_HEAD_BYTES) {
        size_t room = RESPONSE_HEAD_BYTES - call->body_bytes;
        memcpy(call->response_head + call->body_bytes, bytes, length < room ? length : room);
    }
    call->body_bytes += length;
    size_t most = call->answer_max_bytes ? call->answer_max_bytes : MAX_RESPONSE_BODY_BYTES;
    call->body_cut = call->body_bytes > most;
    if (call->answer_max_bytes && !call->body_cut)
        buffer_append(&call->answer, bytes, length);
    return call->body_cut ? 0 : length;
}

static void on_connected(void *arg) {
    struct call *call = arg;
    call->connected_ms = ms_since(call->started_ns) - call->transfer_offset_ms;
}

// The second judgement, on the address that is really connected to.
static curl_socket_t on_open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address) {
    struct call *call = arg;
    const char *rule = NULL;
    if (purpose != CURLSOCKTYPE_IPCXN || !egress_allows(call->client->egress, &address->addr, &rule)) {
        call->egress_rule = rule ? rule : "not a peer";
        return CURL_SOCKET_BAD;
    }
    return curl_loop_open_socket(call->client->curl, address, on_connected, call);
}

// ---- starting a call

static struct call *call_new(struct http_client *client) {
    struct call *call = memory_alloc(sizeof *call);
    call->client = client;
    uv_timer_init(client->loop, &call->dns_timer);
    call->dns_timer.data = call;
    client->handles++;

    CURL *easy = curl_easy_init();
    assert(easy);
    call->easy = easy;
    curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->curl_error);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_HTTP09_ALLOWED, 0L);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, client->user_agent);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (client->ca_file)
        curl_easy_setopt(easy, CURLOPT_CAINFO, client->ca_file);
    char *ca_path = NULL;
    if (!client->ca_path && curl_easy_getinfo(easy, CURLINFO_CAPATH, &ca_path) == CURLE_OK)
        client->ca_path = memory_copy_text(ca_path);
    curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, (long)IDLE_CONNECTION_MAX_S);
    curl_easy_setopt(easy, CURLOPT_MAXLIFETIME_CONN, (long)CONNECTION_MAX_S);
    curl_easy_setopt(easy, CURLOPT_DNS_CACHE_TIMEOUT, (long)PIN_LIFETIME_S);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_open_socket);
    curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, call);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, curl_loop_close_socket);
    curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, client->curl); // outlives the call: the connection does
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_request);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, call);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, call);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
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

    call->resolving = call->transferring = call->finished = false;
    call->requests = 0;
    call->connected_ms = -1;
    call->egress_rule = NULL;
    call->header_bytes = call->body_bytes = 0;
    call->header_cut = call->body_cut = false;
    call->has_retry_after = call->has_delivery_control = false;
    call->curl_error[0] = '\0';
    call->outcome =
        (struct http_outcome){.dns_ms = -1, .connect_ms = -1, .tls_ms = -1, .first_byte_ms = -1, .total_ms = -1};
    return call;
}

static bool call_set_target(struct call *call, const struct http_call *spec, struct error *ret_error) {
    if (call->has_target && call->target_allows_http == spec->allow_http &&
        strcmp(buffer_cstr(&call->text), spec->url) == 0)
        return true;
    call->has_target = http_target_parse(call->client->url, spec->url, spec->allow_http, &call->target, ret_error);
    call->target_allows_http = spec->allow_http;
    return call->has_target;
}

// Copies what the caller may free when http_client_send returns. The nodes of the header list point into call->text.
static bool call_copy(struct call *call, const struct http_call *spec, struct error *ret_error) {
    buffer_clear(&call->text);
    buffer_clear(&call->body);
    buffer_append(&call->body, spec->body, spec->body_length);
    buffer_append(&call->text, spec->url, strlen(spec->url) + 1);
    size_t offsets[HTTP_CALL_MAX_HEADERS];
    size_t count = 0;
    for (; spec->headers && spec->headers[count]; count++) {
        const char *header = spec->headers[count];
        if (count == HTTP_CALL_MAX_HEADERS)
            return error_set(ret_error, ERROR_USAGE, "more than %d headers", HTTP_CALL_MAX_HEADERS);
        if (header[strcspn(header, "\r\n")] != '\0')
            return error_set(ret_error, ERROR_USAGE, "a header with a line break");
        offsets[count] = call->text.length;
        buffer_append(&call->text, header, strlen(header) + 1);
    }
    // The first node switches off "Expect: 100-continue", which costs a round trip.
    static char no_expect[] = "Expect:";
    call->headers[0] = (struct curl_slist){.data = no_expect, .next = count > 0 ? &call->headers[1] : NULL};
    for (size_t i = 0; i < count; i++)
        call->headers[i + 1] = (struct curl_slist){.data = call->text.bytes + offsets[i],
                                                   .next = i + 1 < count ? &call->headers[i + 2] : NULL};
    return true;
}

static void set_blob(CURL *easy, CURLoption option, const char *text) {
    struct curl_blob blob = {.data = (void *)text, .len = text ? strlen(text) : 0, .flags = CURL_BLOB_COPY};
    CURLcode code = curl_easy_setopt(easy, option, text ? &blob : NULL);
    assert(code == CURLE_OK); // else a setting would be left out silently
}

// A handle is used again by calls with other settings. libcurl shares connections only between equal ones.
static void call_set_tls(struct call *call, const struct http_call *spec) {
    CURL *easy = call->easy;
    if (!spec->ca_pem && !spec->certificate_pem && !call->has_own_tls)
        return;
    set_blob(easy, CURLOPT_CAINFO_BLOB, spec->ca_pem);
    set_blob(easy, CURLOPT_SSLCERT_BLOB, spec->certificate_pem);
    set_blob(easy, CURLOPT_SSLKEY_BLOB, spec->key_pem);
    // Trusted besides them otherwise: the system's directory.
    curl_easy_setopt(easy, CURLOPT_CAPATH, spec->ca_pem ? NULL : call->client->ca_path);
    call->has_own_tls = spec->ca_pem || spec->certificate_pem;
}

static void pin_write(struct buffer *pin, const char *host, const struct call *call,
                      const struct resolver_answer *answer) {
    buffer_clear(pin);
    buffer_format(pin, "+%s:%s:", host, call->target.port);
    for (size_t i = 0; i < answer->count; i++) {
        const struct sockaddr_storage *address = &answer->addresses[i];
        char text[INET6_ADDRSTRLEN];
        bool v6 = address->ss_family == AF_INET6;
        const void *bytes = v6 ? (const void *)&((const struct sockaddr_in6 *)address)->sin6_addr
                               : (const void *)&((const struct sockaddr_in *)address)->sin_addr;
        inet_ntop(address->ss_family, bytes, text, sizeof text);
        buffer_format(pin, v6 ? "%s[%s]" : "%s%s", i == 0 ? "" : ",", text);
    }
}

// The addresses are known: keeps those allowed, pins them, and hands the transfer to libcurl.
static void call_transfer(struct call *call, struct resolver_answer *answer) {
    struct http_client *client = call->client;
    const char *rule = NULL;
    size_t allowed = 0;
    for (size_t i = 0; i < answer->count; i++)
        if (egress_allows(client->egress, (const struct sockaddr *)&answer->addresses[i], &rule))
            answer->addresses[allowed++] = answer->addresses[i];
    answer->count = allowed;
    if (allowed == 0) {
        char text[256];
        snprintf(text, sizeof text, "%.100s: its address is %s, which deliveries may not reach", call->target.host,
                 rule);
        call_fail(call, HTTP_EGRESS_DENIED, text);
        return;
    }
    call->transfer_offset_ms = ms_since(call->started_ns);
    double left_ms = (double)call->deadline_ms - call->transfer_offset_ms;
    if (left_ms < 1) {
        call_fail(call, HTTP_TIMEOUT, "no result in time, resolving the name");
        return;
    }

    if (!call->target.literal) {
        pin_write(&call->pin, call->target.host, call, answer);
        call->pins[0] = (struct curl_slist){.data = call->pin.bytes};
    }
    if (call->target.dotted[0]) {
        pin_write(&call->dotted_pin, call->target.dotted, call, answer);
        call->pins[1] = (struct curl_slist){.data = call->dotted_pin.bytes};
        call->pins[0].next = &call->pins[1];
    }
    CURL *easy = call->easy;
    curl_easy_setopt(easy, CURLOPT_URL, call->text.bytes);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, call->headers);
    if (call->get) {
        curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L);
    } else {
        curl_easy_setopt(easy, CURLOPT_POST, 1L);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, buffer_cstr(&call->body));
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body.length);
    }
    curl_easy_setopt(easy, CURLOPT_RESOLVE, call->target.literal ? NULL : call->pins);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)left_ms + 1);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)call->connect_ms);
    call->transferring = true;
    curl_loop_add(client->curl, easy);
}

static void on_resolved(void *arg, const struct resolver_answer *answer, const struct error *error) {
    struct call *call = arg;
    call->resolving = false;
    if (call->finished) { // its deadline passed, or the client closes
        call_release(call);
        return;
    }
    uv_timer_stop(&call->dns_timer);
    call->outcome.dns_ms = ms_since(call->started_ns);
    if (answer) {
        struct resolver_answer copy = *answer;
        call_transfer(call, &copy);
    } else {
        call_fail(call, HTTP_DNS, error->text);
    }
}

static void on_dns_deadline(uv_timer_t *timer) {
    struct call *call = timer->data;
    call->outcome.failure = HTTP_TIMEOUT;
    snprintf(call->outcome.error, sizeof call->outcome.error, "no result after %u ms, resolving %.100s",
             call->deadline_ms, call->target.host);
    call_finish(call);
}

void http_client_send(struct http_client *client, const struct http_call *spec, http_done *done, void *arg) {
    assert(!client->closing);
    struct call *call = call_take(client);
    call->done = done;
    call->arg = arg;
    call->started_ns = clock_ns();
    call->deadline_ms = spec->deadline_ms;
    call->connect_ms = spec->connect_ms;
    call->get = spec->get;
    call_set_tls(call, spec);
    call->answer_max_bytes = spec->answer_max_bytes;
    buffer_clear(&call->answer);
    struct error error;
    struct resolver_answer answer;
    if (!call_set_target(call, spec, &error) || !call_copy(call, spec, &error)) {
        call_fail(call, HTTP_REFUSED, error.text);
    } else if (resolver_peek(client->resolver, call->target.host, &answer)) {
        call->outcome.dns_ms = 0;
        call_transfer(call, &answer);
    } else {
        call->resolving = true;
        uv_timer_start(&call->dns_timer, on_dns_deadline, call->deadline_ms, 0);
        resolver_lookup(client->resolver, call->target.host, on_resolved, call);
    }
}

size_t http_client_in_flight(const struct http_client *client) {
    return client->in_flight;
}

uint64_t http_client_connections_opened(const struct http_client *client) {
    return curl_loop_connections_opened(client->curl);
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
        buffer_free(&call->text);
        buffer_free(&call->body);
        buffer_free(&call->answer);
        buffer_free(&call->pin);
        buffer_free(&call->dotted_pin);
        free(call);
    }
    free(client->user_agent);
    free(client->ca_file);
    free(client->ca_path);
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
        if (call->finished)
            continue;
        if (call->transferring)
            curl_loop_remove(client->curl, call->easy);
        call->transferring = false;
        uv_timer_stop(&call->dns_timer);
        call->outcome.failure = HTTP_CANCELLED;
        snprintf(call->outcome.error, sizeof call->outcome.error, "the process is closing");
        call_finish(call);
    }
    resolver_close(client->resolver); // lets go of those that were resolving
}

static void tear_down(struct http_client *client) {
    client->torn_down = true;
    for (struct call *call = client->free_calls; call; call = call->next_free) {
        curl_easy_cleanup(call->easy);
        uv_close((uv_handle_t *)&call->dns_timer, on_call_timer_closed);
    }
    curl_loop_close(client->curl, on_handle_closed, client);
    curl_url_cleanup(client->url);
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
    client->ca_file = memory_copy_text(options->ca_file);
    client->resolver = resolver_new(loop);
    client->url = curl_url();
    client->curl = curl_loop_new(
        loop, &(struct curl_loop_options){
                  .max_connections = options->max_connections > 0 ? options->max_connections : DEFAULT_MAX_CONNECTIONS,
                  .read = on_transfer_end,
                  .finished = on_transfer_finished,
              });
    assert(client->url);
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
    uv_timer_start(&client->deferred, on_deferred, 0, 0);
}
