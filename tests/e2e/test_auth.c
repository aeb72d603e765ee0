// Who sees what, with the real gateway (DESIGN 8, G7): each way to authenticate, what it fails to, and that nobody ever
// receives, live or by replay, what is not theirs.
#include "common/buffer.h"
#include "common/clock.h"
#include "tests/support/fixture.h"
#include "tests/support/gateway.h"
#include <arpa/inet.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SOON_MS = 10000 };

#define SECRET "a secret of forty characters, not fewer!"

// ---- the log ----

static PGconn *db;

static void fresh_database(void) {
    fixture_database();
    db = fixture_connect();
    sql_run(db, "update rowbell.installation set id = replace(gen_random_uuid()::text, '-', '')");
}

// Appends count entries of this scope (an SQL expression) with the keys <prefix>0, ...; tells the gateways when `tell`.
static int64_t append_rows(const char *scope, const char *table, const char *prefix, int count, bool tell) {
    char sql[1500];
    snprintf(sql, sizeof sql,
             "with newest as (select max(position) as p from rowbell.stream_log where stream_id = 1),"
             " batch as (select p, greatest(p + 1, (extract(epoch from clock_timestamp()) * 1000000)::bigint) as f"
             "             from newest)"
             " insert into rowbell.stream_log (stream_id, position, prev, event_seq, scope, name, key, op)"
             " select 1, f + i, case when i = 0 then p else f + i - 1 end, i, %s, '%s', '%s' || i, 'update'"
             "   from batch, generate_series(0, %d - 1) as i order by i",
             scope, table, prefix, count);
    sql_run(db, sql);
    if (tell) {
        sql_run(db, "select pg_notify('rowbell_stream', (select max(position)::text from rowbell.stream_log))");
    }
    return sql_int(db, "select max(position) from rowbell.stream_log where stream_id = 1");
}

static int64_t append(const char *scope, const char *table, const char *prefix, int count) {
    return append_rows(scope, table, prefix, count, true);
}

// ---- the gateway ----

// It logs all that it ever logs: no secret may be among that.
static struct gateway gateway_told_all(const char *const *extra) {
    const char *arguments[40] = {"--log-level", "debug"};
    for (size_t i = 0; extra[i]; i++) {
        arguments[2 + i] = extra[i];
    }
    return gateway_start(arguments);
}

static void wait_gateway(const struct gateway *gateway) {
    uint64_t end = clock_ms() + 4 * SOON_MS; // for 50,000 entries and sanitizers
    double newest = (double)sql_int(db, "select max(position) from rowbell.stream_log where stream_id = 1");
    while (gateway_metric(gateway, "rowbell_stream_position") != newest) {
        ck_assert_msg(clock_ms() < end, "the gateway does not reach the log's end");
    }
}

static struct sse_client *open_as(const struct gateway *gateway, const char *target, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static struct sse_client *open_as(const struct gateway *gateway, const char *target, const char *format, ...) {
    char *headers = malloc(100000);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(headers, 100000, format, arguments);
    va_end(arguments);
    struct sse_client *client = sse_open(gateway->port, target, headers);
    free(headers);
    return client;
}

static int status_of(struct sse_client *client) {
    return atoi(sse_wait(client, "\r\n\r\n", SOON_MS) + strlen("HTTP/1.1 "));
}

static bool is_closed(void *client) {
    return sse_closed(client);
}

static void wait_closed(struct sse_client *client, unsigned deadline_ms) {
    wait_for(is_closed, client, deadline_ms, "the end of the stream");
}

static bool has(struct sse_client *client, const char *text) {
    return strstr(sse_bytes(client), text) != NULL;
}

// "Come again": 200, the stream's type, a retry, the end.
static void check_come_again(struct sse_client *client) {
    ck_assert_int_eq(status_of(client), 200);
    wait_closed(client, SOON_MS);
    ck_assert(has(client, "Content-Type: text/event-stream"));
    const char *body = strstr(sse_bytes(client), "\r\n\r\n") + 4;
    ck_assert_msg(strncmp(body, "retry: ", 7) == 0 && strcmp(strchr(body, '\n'), "\n\n") == 0, "%s", body);
}

// A client that sees only its own: the foreign event is before the own one, so once that is there the other had its
// time.
static void check_sees_only(const struct gateway *gateway, struct sse_client *client, const char *own,
                            const char *foreign) {
    char quoted[100];
    char key[40];
    static int round;
    ck_assert_int_eq(status_of(client), 200);
    sse_wait(client, ": rowbell\n\n", SOON_MS);
    snprintf(key, sizeof key, "own-%d-", ++round);
    snprintf(quoted, sizeof quoted, "'%s'", foreign);
    int64_t filtered = append(quoted, "posts", "foreign-", 1);
    snprintf(quoted, sizeof quoted, "'%s'", own);
    append(quoted, "posts", key, 1);
    sse_wait(client, key, SOON_MS);
    ck_assert(!has(client, "foreign-"));
    char id[40];
    snprintf(id, sizeof id, "id: %" PRId64 "\n", filtered);
    ck_assert(!has(client, id)); // nor its position
    (void)gateway;
}

// ---- tokens ----

static void append_base64url(struct buffer *buffer, const unsigned char *bytes, size_t length) {
    unsigned char text[4096];
    ck_assert_uint_lt(length, 3000);
    EVP_EncodeBlock(text, bytes, (int)length);
    for (unsigned char *c = text; *c != '\0' && *c != '='; c++) {
        buffer_char(buffer, *c == '+' ? '-' : *c == '/' ? '_' : (char)*c);
    }
}

static void append_part(struct buffer *buffer, const char *json) {
    append_base64url(buffer, (const unsigned char *)json, strlen(json));
}

static int64_t now_s(void) {
    return clock_wall_us() / 1000000;
}

// In one of a few buffers that are used in turn.
static const char *token_hs256(const char *scopes_json, int64_t lasts_s) {
    static struct buffer tokens[8];
    static unsigned turn;
    struct buffer *token = &tokens[turn++ % 8];
    char claims[1000];
    unsigned char digest[32];
    unsigned length = 0;
    snprintf(claims, sizeof claims, "{\"scopes\":%s,\"exp\":%" PRId64 "}", scopes_json, now_s() + lasts_s);
    buffer_clear(token);
    append_part(token, "{\"alg\":\"HS256\"}");
    buffer_char(token, '.');
    append_part(token, claims);
    HMAC(EVP_sha256(), SECRET, (int)strlen(SECRET), (const unsigned char *)token->bytes, token->length, digest,
         &length);
    buffer_char(token, '.');
    append_base64url(token, digest, length);
    return token->bytes;
}

static void append_jwk(struct buffer *jwks, const char *kid, EVP_PKEY *key) {
    unsigned char raw[32];
    size_t length = sizeof raw;
    ck_assert_int_eq(EVP_PKEY_get_raw_public_key(key, raw, &length), 1);
    buffer_format(jwks, "%s{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"%s\",\"x\":\"",
                  jwks->length > 0 ? "," : "{\"keys\":[", kid);
    append_base64url(jwks, raw, length);
    buffer_text(jwks, "\"}");
}

static const char *token_eddsa(EVP_PKEY *key, const char *kid, const char *scopes_json) {
    static struct buffer token;
    char text[500];
    unsigned char signature[64];
    size_t length = sizeof signature;
    buffer_clear(&token);
    snprintf(text, sizeof text, "{\"alg\":\"EdDSA\",\"kid\":\"%s\"}", kid);
    append_part(&token, text);
    buffer_char(&token, '.');
    snprintf(text, sizeof text, "{\"scopes\":%s,\"exp\":%" PRId64 "}", scopes_json, now_s() + 600);
    append_part(&token, text);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    ck_assert_int_eq(EVP_DigestSignInit(context, NULL, NULL, NULL, key), 1);
    ck_assert_int_eq(EVP_DigestSign(context, signature, &length, (const unsigned char *)token.bytes, token.length), 1);
    EVP_MD_CTX_free(context);
    buffer_char(&token, '.');
    append_base64url(&token, signature, length);
    return token.bytes;
}

// ---- an application ----

// Answers every request in its thread with what it was last told; keeps the last request's head.
static struct {
    int listener;
    int port;
    pthread_t thread;
    pthread_mutex_t lock;
    int status; // 0: nothing is answered, the connection stays open
    char body[8192];
    char request[32768];
    atomic_int count;
} app = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void app_answer(int status, const char *body) {
    pthread_mutex_lock(&app.lock);
    app.status = status;
    snprintf(app.body, sizeof app.body, "%s", body);
    pthread_mutex_unlock(&app.lock);
}

static void *app_serve(void *arg) {
    for (;;) {
        int fd = accept(app.listener, NULL, NULL);
        if (fd < 0) {
            return NULL;
        }
        char request[sizeof app.request];
        size_t length = 0;
        ssize_t got;
        do {
            got = recv(fd, request + length, sizeof request - 1 - length, 0);
            length += got > 0 ? (size_t)got : 0;
            request[length] = '\0';
        } while (got > 0 && !strstr(request, "\r\n\r\n"));
        pthread_mutex_lock(&app.lock);
        memcpy(app.request, request, length + 1);
        char *answer = NULL;
        int size = asprintf(&answer,
                            "HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                            "Connection: close\r\n\r\n%s",
                            app.status, strlen(app.body), app.body);
        bool silent = app.status == 0;
        pthread_mutex_unlock(&app.lock);
        atomic_fetch_add(&app.count, 1);
        if (!silent) {
            send(fd, answer, (size_t)size, MSG_NOSIGNAL);
            close(fd);
        }
        free(answer);
    }
}

static void app_listen(void) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)app.port)};
    socklen_t size = sizeof address;
    int yes = 1;
    app.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(app.listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    ck_assert_int_eq(bind(app.listener, (struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(listen(app.listener, 100), 0);
    getsockname(app.listener, (struct sockaddr *)&address, &size);
    app.port = ntohs(address.sin_port);
    ck_assert_int_eq(pthread_create(&app.thread, NULL, app_serve, NULL), 0);
}

static const char *app_start(const char *path) {
    static char url[100];
    app.port = 0;
    app_listen();
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", app.port, path);
    return url;
}

static void app_stop(void) {
    shutdown(app.listener, SHUT_RDWR);
    pthread_join(app.thread, NULL);
    close(app.listener);
}

// ---- jwt ----

static struct gateway jwt_gateway(const char *const *extra) {
    const char *arguments[30] = {"--auth", "jwt", "--jwt-secret", SECRET};
    for (size_t i = 0; extra && extra[i]; i++) {
        arguments[4 + i] = extra[i];
    }
    fresh_database();
    return gateway_told_all(arguments);
}

START_TEST(a_token_admits_to_its_scopes_wherever_it_is) {
    struct gateway gateway = jwt_gateway(WITH("--jwt-cookie", "session"));
    const char *token = token_hs256("[\"acme\"]", 600);
    char target[2000];
    check_sees_only(&gateway, open_as(&gateway, "/events", "Authorization: Bearer %s\r\n", token), "acme", "globex");
    check_sees_only(&gateway, open_as(&gateway, "/events", "Authorization: bearer  %s\r\n", token), "acme", "globex");
    check_sees_only(&gateway, open_as(&gateway, "/events", "Cookie: a=b; session=%s; c=d\r\n", token), "acme",
                    "globex");
    check_sees_only(&gateway, open_as(&gateway, "/events", "Cookie: a=b\r\nCookie: session=%s\r\n", token), "acme",
                    "globex");
    snprintf(target, sizeof target, "/events?ticket=%s", token);
    check_sees_only(&gateway, open_as(&gateway, target, "Authorization: Basic YTpi\r\n"), "acme", "globex");
    // Nothing of it is in the log, which tells all there is to tell.
    sse_bytes(open_as(&gateway, target, "X: y\r\n"));
    daemon_signal(gateway.daemon, SIGTERM);
    daemon_wait_exit(gateway.daemon, SOON_MS);
    ck_assert_ptr_null(strstr(gateway.daemon->log, strrchr(token, '.')));
    ck_assert_ptr_null(strstr(gateway.daemon->log, "ticket="));
    ck_assert_ptr_null(strstr(gateway.daemon->log, SECRET));
}
END_TEST

START_TEST(whoever_has_no_good_token_gets_401) {
    struct gateway gateway = jwt_gateway(NULL);
    const char *good = token_hs256("[\"acme\"]", 600);
    char target[2000];
    struct sse_client *client = open_as(&gateway, "/events", "X: y\r\n");
    ck_assert_int_eq(status_of(client), 401);
    ck_assert(has(client, "WWW-Authenticate: Bearer"));
    ck_assert(has(client, "Cache-Control: no-store"));
    ck_assert_int_eq(status_of(open_as(&gateway, "/events", "Authorization: Bearer \r\n")), 401);
    ck_assert_int_eq(status_of(open_as(&gateway, "/events", "Authorization: Bearer x.y.z\r\n")), 401);
    ck_assert_int_eq(status_of(open_as(&gateway, "/events", "Authorization: Bearer %sA\r\n", good)), 401);
    client = open_as(&gateway, "/events", "Authorization: Bearer %s\r\n", token_hs256("[\"acme\"]", -60));
    ck_assert_int_eq(status_of(client), 401);
    sse_wait(client, "expired", SOON_MS);
    // A bad one is not made good by another that lies beside it.
    ck_assert_int_eq(
        status_of(open_as(&gateway, "/events", "Authorization: Bearer x\r\nCookie: rowbell_token=%s\r\n", good)), 401);
    snprintf(target, sizeof target, "/events?ticket=x");
    ck_assert_int_eq(status_of(open_as(&gateway, target, "Cookie: rowbell_token=%s\r\n", good)), 401);
    ck_assert_int_eq(status_of(open_as(&gateway, "/events", "Cookie: rowbell_token=x; rowbell_token=%s\r\n", good)),
                     401);
    ck_assert_int_eq(
        status_of(open_as(&gateway, "/events", "Authorization: Bearer %s\r\nAuthorization: Bearer %s\r\n", good, good)),
        401);
    snprintf(target, sizeof target, "/events?ticket=%s&ticket=%s", good, good);
    ck_assert_int_eq(status_of(open_as(&gateway, target, "X: y\r\n")), 400);
    ck_assert(gateway_metric(&gateway, "rowbell_auth_total{verdict=\"refused\"}") >= 9);
}
END_TEST

START_TEST(no_scopes_no_events) {
    struct gateway gateway = jwt_gateway(WITH("--unscoped", "deliver"));
    struct sse_client *nothing = open_as(&gateway, "/events", "Authorization: Bearer %s\r\n", token_hs256("[]", 600));
    struct sse_client *star = open_as(&gateway, "/events", "Authorization: Bearer %s\r\n", token_hs256("\"*\"", 600));
    struct sse_client *acme =
        open_as(&gateway, "/events", "Authorization: Bearer %s\r\n", token_hs256("\"acme\"", 600));
    ck_assert_int_eq(status_of(nothing), 200);
    ck_assert_int_eq(status_of(star), 200);
    sse_wait(acme, ": rowbell\n\n", SOON_MS);
    append("'*'", "posts", "everyone-", 1);
    append("null", "posts", "unscoped-", 1);
    append("'acme'", "posts", "acme-", 1);
    sse_wait(acme, "acme-0", SOON_MS);
    ck_assert(has(acme, "everyone-0") && has(acme, "unscoped-0"));
    ck_assert(!has(nothing, "event: change") && !has(star, "event: change"));
}
END_TEST

START_TEST(events_without_a_scope_go_to_nobody) {
    struct gateway gateway = jwt_gateway(WITH("--allow-all-scopes"));
    struct sse_client *acme =
        open_as(&gateway, "/events", "Authorization: Bearer %s\r\n", token_hs256("\"acme\"", 600));
    struct sse_client *all = open_as(&gateway, "/events", "Authorization: Bearer %s\r\n", token_hs256("\"*\"", 600));
    sse_wait(acme, ": rowbell\n\n", SOON_MS);
    sse_wait(all, ": rowbell\n\n", SOON_MS);
    append("null", "posts", "unscoped-", 1);
    append("'globex'", "posts", "globex-", 1);
    append("'*'", "posts", "everyone-", 1);
    sse_wait(acme, "everyone-0", SOON_MS);
    sse_wait(all, "everyone-0", SOON_MS);
    ck_assert(!has(acme, "unscoped-") && !has(acme, "globex-"));
    ck_assert(!has(all, "unscoped-") && has(all, "globex-0"));
}
END_TEST

START_TEST(a_long_scope_is_known_by_its_digest_everywhere) {
    struct gateway gateway = jwt_gateway(NULL);
    char scope[301];
    char json[310];
    memset(scope, 's', 300);
    scope[300] = '\0';
    snprintf(json, sizeof json, "\"%s\"", scope);
    struct sse_client *client = open_as(&gateway, "/events", "Authorization: Bearer %s\r\n", token_hs256(json, 600));
    sse_wait(client, ": rowbell\n\n", SOON_MS);
    append("rowbell.scope_of(repeat('s', 300))", "posts", "long-", 1); // as capture stores it
    sse_wait(client, "long-0", SOON_MS);
}
END_TEST

// Field failure 7.
START_TEST(an_expired_credential_ends_the_stream_and_is_401_afterwards) {
    struct gateway gateway = jwt_gateway(WITH("--jwt-leeway", "0s", "--retry", "100ms"));
    const char *token = token_hs256("[\"acme\"]", 2);
    struct sse_client *lasting =
        open_as(&gateway, "/events", "Authorization: Bearer %s\r\n", token_hs256("[\"acme\"]", 600));
    struct sse_client *client = open_as(&gateway, "/events", "Authorization: Bearer %s\r\n", token);
    ck_assert_int_eq(status_of(client), 200);
    int64_t seen = append("'acme'", "posts", "before-", 1);
    sse_wait(client, "before-0", SOON_MS);
    wait_closed(client, 5000);
    ck_assert(!sse_closed(lasting));
    append("'acme'", "posts", "after-", 1);
    ck_assert_int_eq(status_of(open_as(&gateway, "/events",
                                       "Last-Event-ID: %" PRId64 "\r\nAuthorization: Bearer %s\r\n", seen, token)),
                     401);
    // With a new one it goes on where it was.
    client = open_as(&gateway, "/events", "Last-Event-ID: %" PRId64 "\r\nAuthorization: Bearer %s\r\n", seen,
                     token_hs256("[\"acme\"]", 600));
    sse_wait(client, "after-0", SOON_MS);
    ck_assert(gateway_metric(&gateway, "rowbell_stream_disconnects_total{reason=\"grant_ended\"}") == 1);
}
END_TEST

START_TEST(a_stream_has_a_greatest_age) {
    struct gateway gateway = jwt_gateway(WITH("--auth-max-age", "1s"));
    struct sse_client *client =
        open_as(&gateway, "/events", "Authorization: Bearer %s\r\n", token_hs256("[\"acme\"]", 600));
    ck_assert_int_eq(status_of(client), 200);
    wait_closed(client, 5000);
    ck_assert_int_eq(
        status_of(open_as(&gateway, "/events", "Authorization: Bearer %s\r\n", token_hs256("[\"acme\"]", 600))), 200);
}
END_TEST

START_TEST(rotated_keys_are_followed) {
    EVP_PKEY *first = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    EVP_PKEY *second = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    struct buffer jwks = {0};
    append_jwk(&jwks, "first", first);
    buffer_text(&jwks, "]}");
    fresh_database();
    const char *url = app_start("/jwks");
    app_answer(200, jwks.bytes);
    struct gateway gateway = gateway_told_all(WITH("--auth", "jwt", "--jwt-jwks", url));
    check_sees_only(
        &gateway,
        open_as(&gateway, "/events", "Authorization: Bearer %s\r\n", token_eddsa(first, "first", "[\"acme\"]")), "acme",
        "globex");
    ck_assert_int_eq(atomic_load(&app.count), 1);
    // Rotated: the first token of the new key makes the gateway look.
    buffer_clear(&jwks);
    append_jwk(&jwks, "second", second);
    buffer_text(&jwks, "]}");
    app_answer(200, jwks.bytes);
    check_sees_only(
        &gateway,
        open_as(&gateway, "/events", "Authorization: Bearer %s\r\n", token_eddsa(second, "second", "[\"acme\"]")),
        "acme", "globex");
    ck_assert_int_eq(atomic_load(&app.count), 2);
    // The old one is gone with its key; kids that nobody knows cost one reading, however many they are.
    struct sse_client *clients[30];
    for (int i = 0; i < 30; i++) {
        char kid[20];
        snprintf(kid, sizeof kid, "kid-%d", i);
        clients[i] = open_as(&gateway, "/events", "Authorization: Bearer %s\r\n",
                             token_eddsa(i == 0 ? first : second, i == 0 ? "first" : kid, "[\"acme\"]"));
    }
    for (int i = 0; i < 30; i++) {
        ck_assert_int_eq(status_of(clients[i]), 401);
    }
    ck_assert_int_le(atomic_load(&app.count), 4);
    // The server is down: known keys work, and what cannot be known is told to come again.
    app_stop();
    ck_assert_int_eq(status_of(open_as(&gateway, "/events", "Authorization: Bearer %s\r\n",
                                       token_eddsa(second, "second", "[\"acme\"]"))),
                     200);
    check_come_again(
        open_as(&gateway, "/events", "Authorization: Bearer %s\r\n", token_eddsa(first, "third", "[\"acme\"]")));
    buffer_free(&jwks);
    EVP_PKEY_free(first);
    EVP_PKEY_free(second);
}
END_TEST

START_TEST(a_set_that_is_not_there_at_the_start_admits_nobody) {
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    struct buffer jwks = {0};
    append_jwk(&jwks, "k", key);
    buffer_text(&jwks, "]}");
    fresh_database();
    const char *url = app_start("/jwks");
    app_answer(500, "");
    struct gateway gateway = gateway_told_all(WITH("--auth", "jwt", "--jwt-jwks", url));
    daemon_wait_log(gateway.daemon, "jwks_unavailable", SOON_MS);
    check_come_again(open_as(&gateway, "/events", "Authorization: Bearer %s\r\n", token_eddsa(key, "k", "[\"acme\"]")));
    app_answer(200, jwks.bytes);
    struct sse_client *client =
        open_as(&gateway, "/events", "Authorization: Bearer %s\r\n", token_eddsa(key, "k", "[\"acme\"]"));
    sse_wait(client, ": rowbell\n\n", 2 * SOON_MS);
    app_stop();
    buffer_free(&jwks);
    EVP_PKEY_free(key);
}
END_TEST

// ---- callout ----

static struct gateway callout_gateway(const char *const *extra) {
    const char *arguments[30] = {
        "--auth", "callout", "--callout-url", app_start("/rowbell/auth?x=1"), "--callout-timeout", "500ms"};
    for (size_t i = 0; extra && extra[i]; i++) {
        arguments[6 + i] = extra[i];
    }
    fresh_database();
    return gateway_told_all(arguments);
}

START_TEST(the_application_admits) {
    struct gateway gateway = callout_gateway(NULL);
    app_answer(200, "{\"scopes\":[\"acme\",\"*\"],\"tables\":[\"posts\",\"tags\"],\"expires_in\":300,\"more\":{}}");
    struct sse_client *client =
        open_as(&gateway, "/events?table=posts&table=users",
                "Cookie: sid=1\r\nCookie: t=2\r\nAuthorization: Token abc\r\nX-Other: secret\r\n");
    check_sees_only(&gateway, client, "acme", "globex");
    ck_assert_ptr_nonnull(strstr(app.request, "GET /rowbell/auth?x=1 HTTP/1.1\r\n"));
    ck_assert_msg(strcasestr(app.request, "\r\ncookie: sid=1; t=2\r\n") != NULL, "%s", app.request);
    ck_assert_ptr_nonnull(strcasestr(app.request, "\r\nauthorization: Token abc\r\n"));
    ck_assert_ptr_null(strcasestr(app.request, "x-other"));
    append("'acme'", "users", "users-", 1); // asked for, not allowed
    append("'acme'", "tags", "tags-", 1);   // allowed, not asked for
    append("'acme'", "posts", "posts-", 1);
    sse_wait(client, "posts-0", SOON_MS);
    ck_assert(!has(client, "users-") && !has(client, "tags-"));
    ck_assert_int_eq(atomic_load(&app.count), 1); // one request a connection
    app_answer(200, "{\"scopes\":\"acme\",\"tables\":[]}");
    client = open_as(&gateway, "/events", "X: y\r\n");
    sse_wait(client, ": rowbell\n\n", SOON_MS);
    struct sse_client *other;
    app_answer(200, "{\"scopes\":\"acme\"}");
    other = open_as(&gateway, "/events", "X: y\r\n");
    sse_wait(other, ": rowbell\n\n", SOON_MS);
    append("'acme'", "posts", "again-", 1);
    sse_wait(other, "again-0", SOON_MS);
    ck_assert(!has(client, "event: change")); // no table
    app_stop();
}
END_TEST

START_TEST(the_application_refuses_or_fails) {
    struct gateway gateway = callout_gateway(NULL);
    app_answer(401, "{\"scopes\":[\"acme\"]}");
    ck_assert_int_eq(status_of(open_as(&gateway, "/events", "X: y\r\n")), 401);
    app_answer(403, "");
    ck_assert_int_eq(status_of(open_as(&gateway, "/events", "X: y\r\n")), 403);
    static const struct {
        int status;
        const char *body;
    } failures[] = {
        {500, "{\"scopes\":[\"acme\"]}"},
        {302, ""},
        {204, ""},
        {404, ""},
        {200, ""},
        {200, "[]"},
        {200, "true"},
        {200, "{\"scopes\":[\"acme\"]"},
        {200, "{\"scopes\":{\"acme\":true}}"},
        {200, "{\"scopes\":[\"acme\"],\"scopes\":[\"globex\"]}"},
        {200, "{\"scopes\":[\"acme\"],\"tables\":\"posts\"}"},
        {200, "{\"scopes\":[\"acme\"],\"tables\":[1]}"},
        {200, "{\"scopes\":[\"acme\"],\"expires_in\":0}"},
        {200, "{\"scopes\":[\"acme\"],\"expires_in\":-1}"},
        {200, "{\"scopes\":[\"acme\"],\"expires_in\":\"300\"}"},
        {0, ""}, // no answer
    };
    for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++) {
        app_answer(failures[i].status, failures[i].body);
        check_come_again(open_as(&gateway, "/events", "Authorization: Bearer kept-secret\r\n"));
    }
    app_stop();
    check_come_again(open_as(&gateway, "/events", "Cookie: kept-secret\r\n")); // nobody listens
    app_listen();
    app_answer(200, "{\"scopes\":[\"acme\"]}");
    check_sees_only(&gateway, open_as(&gateway, "/events", "X: y\r\n"), "acme", "globex");
    app_stop();
    daemon_signal(gateway.daemon, SIGTERM);
    daemon_wait_exit(gateway.daemon, SOON_MS);
    ck_assert_ptr_null(strstr(gateway.daemon->log, "kept-secret"));
}
END_TEST

START_TEST(what_the_application_admits_ends) {
    struct gateway gateway = callout_gateway(NULL);
    app_answer(200, "{\"scopes\":[\"acme\"],\"expires_in\":1}");
    struct sse_client *client = open_as(&gateway, "/events", "X: y\r\n");
    ck_assert_int_eq(status_of(client), 200);
    wait_closed(client, 5000);
    ck_assert(has(client, "retry: "));
    app_answer(401, "");
    ck_assert_int_eq(status_of(open_as(&gateway, "/events", "Last-Event-ID: 1\r\n")), 401);
    app_stop();
}
END_TEST

START_TEST(a_gateway_ends_in_time_while_the_application_is_silent) {
    struct gateway gateway = callout_gateway(WITH("--callout-timeout", "60s"));
    app_answer(0, "");
    struct sse_client *client = open_as(&gateway, "/events", "X: y\r\n");
    uint64_t end = clock_ms() + SOON_MS;
    while (atomic_load(&app.count) == 0) {
        ck_assert_uint_lt(clock_ms(), end);
    }
    daemon_signal(gateway.daemon, SIGTERM);
    ck_assert_int_eq(daemon_wait_exit(gateway.daemon, 5000), 0);
    check_come_again(client);
    app_stop();
}
END_TEST

// ---- header ----

START_TEST(a_proxy_s_header_is_believed) {
    fresh_database();
    struct gateway gateway =
        gateway_told_all(WITH("--auth", "header", "--trusted-peer", "127.0.0.1/32", "--trusted-peer", "10.0.0.0/8"));
    check_sees_only(&gateway, open_as(&gateway, "/events", "X-Rowbell-Scopes: acme, initech\r\n"), "acme", "globex");
    check_sees_only(&gateway, open_as(&gateway, "/events", "x-rowbell-scopes: acme, initech\r\n"), "initech", "globex");
    check_sees_only(&gateway, open_as(&gateway, "/events", "X-Rowbell-Scopes: a%%2Cb%%C3%%A9\r\n"), "a,b\u00e9", "a");
    ck_assert_int_eq(status_of(open_as(&gateway, "/events", "X: y\r\n")), 401);
    ck_assert_int_eq(status_of(open_as(&gateway, "/events", "X-Rowbell-Scopes: acme\r\nX-Rowbell-Scopes: globex\r\n")),
                     403);
    static const char *const bad[] = {"a%", "a%4", "a%zz", "%00", "%ff", "a%2"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_int_eq(status_of(open_as(&gateway, "/events", "X-Rowbell-Scopes: acme,%s\r\n", bad[i])), 403);
    }
    struct sse_client *nothing = open_as(&gateway, "/events", "X-Rowbell-Scopes: *, ,\r\n");
    struct sse_client *acme = open_as(&gateway, "/events", "X-Rowbell-Scopes: acme\r\n");
    sse_wait(nothing, ": rowbell\n\n", SOON_MS);
    sse_wait(acme, ": rowbell\n\n", SOON_MS);
    append("'*'", "posts", "everyone-", 1);
    append("'acme'", "posts", "last-", 1);
    sse_wait(acme, "last-0", SOON_MS);
    ck_assert(!has(nothing, "event: change"));
}
END_TEST

START_TEST(a_foreign_peer_s_header_is_not) {
    fresh_database();
    struct gateway gateway = gateway_told_all(WITH("--auth", "header", "--trusted-peer", "127.0.0.2/32"));
    struct sse_client *client =
        open_as(&gateway, "/events", "X-Rowbell-Scopes: acme\r\nX-Forwarded-For: 127.0.0.2\r\n");
    ck_assert_int_eq(status_of(client), 403);
    ck_assert_int_eq(status_of(open_as(&gateway, "/events", "X: y\r\n")), 403);
}
END_TEST

// ---- replay ----

START_TEST(a_quiet_tenant_is_replayed_its_few) {
    fresh_database();
    // The ring holds next to nothing, so that the log answers.
    struct gateway gateway =
        gateway_told_all(WITH("--auth", "header", "--trusted-peer", "127.0.0.1", "--ring", "4", "--max-replay", "50"));
    int64_t start = append("'acme'", "posts", "first-", 1);
    append("'globex'", "posts", "globex-", 5000);
    append("'acme'", "posts", "acme-", 20);
    append("null", "posts", "unscoped-", 500);
    append("'*'", "posts", "everyone-", 3);
    append("'globex'", "posts", "more-", 5000);
    wait_gateway(&gateway);
    struct sse_client *client =
        open_as(&gateway, "/events", "X-Rowbell-Scopes: acme\r\nLast-Event-ID: %" PRId64 "\r\n", start);
    sse_wait(client, "everyone-2", SOON_MS);
    ck_assert(has(client, "acme-0\"") && has(client, "acme-19\"") && has(client, "everyone-0\""));
    ck_assert(!has(client, "globex-") && !has(client, "unscoped-") && !has(client, "more-") && !has(client, "first-"));
    ck_assert(!has(client, "event: reset"));
    // A table in another case: none of its rows.
    client =
        open_as(&gateway, "/events?table=Posts", "X-Rowbell-Scopes: acme\r\nLast-Event-ID: %" PRId64 "\r\n", start);
    sse_wait(client, ": rowbell\n\n", SOON_MS);
    // A busy one is reset, and so is one whose scopes together have too many.
    client = open_as(&gateway, "/events", "X-Rowbell-Scopes: globex\r\nLast-Event-ID: %" PRId64 "\r\n", start);
    sse_wait(client, "replay_limit", SOON_MS);
    ck_assert(!has(client, "event: change"));
    append("'a'", "posts", "a-", 30);
    append("'b'", "posts", "b-", 30);
    append("'a'", "tags", "tags-", 4);
    append("'globex'", "posts", "rest-", 10);
    wait_gateway(&gateway);
    client = open_as(&gateway, "/events", "X-Rowbell-Scopes: a,b\r\nLast-Event-ID: %" PRId64 "\r\n", start);
    sse_wait(client, "replay_limit", SOON_MS);
    client = open_as(&gateway, "/events?table=tags", "X-Rowbell-Scopes: a,b\r\nLast-Event-ID: %" PRId64 "\r\n", start);
    sse_wait(client, "tags-3", SOON_MS);
    ck_assert(!has(client, "event: reset") && !has(client, "\"a-"));
    // In order.
    const char *bytes = strstr(sse_bytes(client), "tags-0");
    for (int i = 1; i < 4; i++) {
        char key[10];
        snprintf(key, sizeof key, "tags-%d", i);
        ck_assert_ptr_nonnull(bytes = strstr(bytes, key));
    }
}
END_TEST

START_TEST(replay_looks_at_a_bounded_number_of_rows) {
    fresh_database();
    struct gateway gateway = gateway_told_all(WITH("--auth", "header", "--trusted-peer", "127.0.0.1", "--ring", "4"));
    int64_t start = append("'acme'", "posts", "first-", 1);
    append("'acme'", "posts", "many-", 50000);
    append("'acme'", "tags", "tag-", 1);
    append("'globex'", "posts", "rest-", 10);
    wait_gateway(&gateway);
    struct sse_client *client =
        open_as(&gateway, "/events?table=tags", "X-Rowbell-Scopes: acme\r\nLast-Event-ID: %" PRId64 "\r\n", start);
    sse_wait(client, "replay_limit", 2 * SOON_MS);
    sql_run(db, "delete from rowbell.stream_log where key = 'many-0'");
    client = open_as(&gateway, "/events?table=tags", "X-Rowbell-Scopes: acme\r\nLast-Event-ID: %" PRId64 "\r\n", start);
    sse_wait(client, "tag-0", 2 * SOON_MS);
}
END_TEST

// ---- G7 ----

enum { TENANTS = 8, READERS = 16, ROUNDS = 30 };

struct reader {
    struct sse_client *client;
    unsigned scopes; // bits
    bool deliver;
    int64_t last;
    int64_t joined; // everything after this position is owed
    int table;      // -1: all
    char *got;      // what earlier connections received
};

static const char *const tables[] = {"posts", "tags"};

static void reader_open(const struct gateway *gateway, struct reader *reader) {
    char scopes[200] = "";
    char target[100];
    for (int t = 0; t < TENANTS; t++) {
        if (reader->scopes >> t & 1) {
            snprintf(scopes + strlen(scopes), sizeof scopes - strlen(scopes), "t%d,", t);
        }
    }
    snprintf(target, sizeof target, reader->table < 0 ? "/events" : "/events?table=%s", tables[reader->table & 1]);
    reader->client =
        open_as(gateway, target, "X-Rowbell-Scopes: %s\r\nLast-Event-ID: %" PRId64 "\r\n", scopes, reader->last);
    ck_assert_int_eq(status_of(reader->client), 200);
}

// Keeps what came, and where it stopped.
static void reader_close(struct reader *reader) {
    const char *bytes = sse_bytes(reader->client);
    const char *end = bytes;
    for (const char *at = bytes; (at = strstr(at, "\n\n")) != NULL; at += 2) {
        end = at + 2; // a partial frame is discarded
    }
    ck_assert_ptr_null(strstr(bytes, "event: reset"));
    for (const char *at = bytes; (at = strstr(at, "\nid: ")) != NULL && at < end; at++) {
        reader->last = strtoll(at + 5, NULL, 10);
    }
    size_t before = strlen(reader->got);
    reader->got = realloc(reader->got, before + (size_t)(end - bytes) + 1);
    memcpy(reader->got + before, bytes, (size_t)(end - bytes));
    reader->got[before + (size_t)(end - bytes)] = '\0';
    sse_close(reader->client);
    reader->client = NULL;
}

// Random tenants write, random readers come and go at where they stopped, with a ring so small that most of what they
// missed comes from the log. At the end each has got exactly what it may see, once, and no position of anything else.
START_TEST(nobody_ever_sees_anothers_events) {
    unsigned seed = (unsigned)_i + 1;
    bool deliver = _i % 2 == 1;
    fresh_database();
    struct gateway gateway =
        gateway_told_all(WITH("--auth", "header", "--trusted-peer", "127.0.0.1", "--ring", _i < 2 ? "16" : "16384",
                              "--unscoped", deliver ? "deliver" : "drop"));
    struct reader readers[READERS] = {0};
    int64_t begin = append("'t0'", "posts", "begin-", 1);
    for (int r = 0; r < READERS; r++) {
        readers[r] = (struct reader){.last = begin, .table = rand_r(&seed) % 4, .got = strdup("")};
        readers[r].table = readers[r].table > 1 ? -1 : readers[r].table;
        // About a quarter of them; the first reader has none.
        unsigned some = (unsigned)rand_r(&seed);
        readers[r].scopes = r == 0 ? 0 : some & (some >> TENANTS) & ((1u << TENANTS) - 1);
        reader_open(&gateway, &readers[r]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        int tenant = rand_r(&seed) % (TENANTS + 2);
        char scope[20];
        char prefix[40];
        snprintf(scope, sizeof scope, tenant == TENANTS ? "'*'" : tenant == TENANTS + 1 ? "null" : "'t%d'", tenant);
        snprintf(prefix, sizeof prefix, "r%d-of%d-", round, tenant);
        append_rows(scope, tables[rand_r(&seed) % 2], prefix, 1 + rand_r(&seed) % 12, rand_r(&seed) % 4 != 0);
        int r = rand_r(&seed) % READERS;
        if (readers[r].client) {
            reader_close(&readers[r]);
        } else {
            reader_open(&gateway, &readers[r]);
        }
    }
    append("'*'", "posts", "end-", 1);
    append("'*'", "tags", "end-", 1);
    wait_gateway(&gateway);
    for (int r = 0; r < READERS; r++) {
        if (!readers[r].client) {
            reader_open(&gateway, &readers[r]);
        }
        bool anything = readers[r].scopes != 0;
        if (anything) {
            sse_wait(readers[r].client, "\"end-0\"", SOON_MS);
            if (readers[r].table < 0) {
                sse_wait(readers[r].client, "{\"table\":\"tags\",\"key\":\"end-0\"", SOON_MS);
            }
        }
        reader_close(&readers[r]);
        // The expected list, by the database.
        char sql[1200];
        struct buffer got = {0};
        snprintf(sql, sizeof sql,
                 "select coalesce(string_agg(position::text, ' ' order by position), '') from rowbell.stream_log"
                 " where position > %" PRId64 " and %s and (%s or name = '%s')"
                 "   and (scope = '*' or (scope is null and %s)"
                 "        or (scope ~ '^t[0-9]$' and (%u >> substr(scope, 2)::int) & 1 = 1))",
                 begin, anything ? "true" : "false", readers[r].table < 0 ? "true" : "false",
                 tables[readers[r].table & 1], deliver ? "true" : "false", readers[r].scopes);
        for (const char *at = readers[r].got; (at = strstr(at, "event: change\nid: ")) != NULL; at++) {
            buffer_format(&got, "%s%" PRId64, got.length > 0 ? " " : "", (int64_t)strtoll(at + 18, NULL, 10));
        }
        ck_assert_msg(strcmp(buffer_cstr(&got), sql_text(db, sql)) == 0, "seed %d reader %d scopes %x table %d\n%s\n%s",
                      _i, r, readers[r].scopes, readers[r].table, buffer_cstr(&got), sql_text(db, sql));
        buffer_free(&got);
        free(readers[r].got);
    }
}
END_TEST

// ---- configuration ----

START_TEST(unsafe_configurations_are_refused) {
    static const struct {
        const char *arguments[8];
        const char *part;
    } rows[] = {
        {{"--auth", "jwt"}, "--jwt-secret"},
        {{"--auth", "jwt", "--jwt-secret", "short"}, "32 bytes"},
        {{"--auth", "jwt", "--jwt-secret", SECRET, "--jwt-key", "x"}, "one of"},
        {{"--auth", "jwt", "--jwt-key", "/does/not/exist"}, "No such file"},
        {{"--auth", "jwt", "--jwt-jwks", "/does/not/exist"}, "No such file"},
        {{"--auth", "jwt", "--jwt-jwks", "https://u:p@x/"}, "--jwt-jwks"},
        {{"--auth", "callout"}, "--callout-url"},
        {{"--auth", "callout", "--callout-url", "ftp://x"}, "--callout-url"},
        {{"--auth", "header"}, "--trusted-peer"},
        {{"--auth", "header", "--trusted-peer", "10.0.0.1/8"}, "--trusted-peer"},
        {{"--auth", "header", "--trusted-peer", "10.0.0.0/8", "--scopes-header", "a b"}, "--scopes-header"},
        {{"--auth", "everybody"}, "none|jwt|callout|header"},
        {{"--auth", "none", "--listen", "0.0.0.0:0"}, "--allow-anonymous"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *out;
        const char *error;
        const char *arguments[12] = {"--database-url", "postgres://nobody@127.0.0.1:1/none"};
        memcpy(arguments + 2, rows[i].arguments, sizeof rows[i].arguments);
        ck_assert_msg(program_run("rowbell-gateway", arguments, &out, &error) == 2, "%s: %s", rows[i].arguments[1],
                      error);
        ck_assert_msg(strstr(error, rows[i].part) != NULL, "%s: %s", rows[i].arguments[1], error);
        ck_assert_msg(strstr(error, "u:p@") == NULL && strstr(error, SECRET) == NULL, "%s", error);
    }
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *jwt = suite_case(suite, "jwt", 60);
    tcase_add_test(jwt, a_token_admits_to_its_scopes_wherever_it_is);
    tcase_add_test(jwt, whoever_has_no_good_token_gets_401);
    tcase_add_test(jwt, no_scopes_no_events);
    tcase_add_test(jwt, events_without_a_scope_go_to_nobody);
    tcase_add_test(jwt, a_long_scope_is_known_by_its_digest_everywhere);
    tcase_add_test(jwt, an_expired_credential_ends_the_stream_and_is_401_afterwards);
    tcase_add_test(jwt, a_stream_has_a_greatest_age);
    tcase_add_test(jwt, rotated_keys_are_followed);
    tcase_add_test(jwt, a_set_that_is_not_there_at_the_start_admits_nobody);
    TCase *callout = suite_case(suite, "callout", 60);
    tcase_add_test(callout, the_application_admits);
    tcase_add_test(callout, the_application_refuses_or_fails);
    tcase_add_test(callout, what_the_application_admits_ends);
    tcase_add_test(callout, a_gateway_ends_in_time_while_the_application_is_silent);
    TCase *header = suite_case(suite, "header", 60);
    tcase_add_test(header, a_proxy_s_header_is_believed);
    tcase_add_test(header, a_foreign_peer_s_header_is_not);
    TCase *replay = suite_case(suite, "replay", 60);
    tcase_add_test(replay, a_quiet_tenant_is_replayed_its_few);
    tcase_add_test(replay, replay_looks_at_a_bounded_number_of_rows);
    TCase *isolation = suite_case(suite, "isolation", 60);
    tcase_add_loop_test(isolation, nobody_ever_sees_anothers_events, 0, 4);
    TCase *configuration = suite_case(suite, "configuration", 30);
    tcase_add_test(configuration, unsafe_configurations_are_refused);
}

int main(void) {
    return suite_main("auth", add_tests);
}
