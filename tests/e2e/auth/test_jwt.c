// --auth jwt: tokens, keys and their rotation.
#include "common/buffer.h"
#include "common/clock.h"
#include "tests/e2e/auth/world.h"
#include <inttypes.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    struct sse_client *lasting =
        open_as(&gateway, "/events", "Authorization: Bearer %s\r\n", token_hs256("[\"acme\"]", 600));
    struct sse_client *client;
    const char *token;
    int64_t seen;
    // Until one lasts for long enough to see an event, wherever this runs.
    for (int64_t lasts_s = 2;; lasts_s *= 2) {
        token = token_hs256("[\"acme\"]", lasts_s);
        client = open_as(&gateway, "/events", "Authorization: Bearer %s\r\n", token);
        if (status_of(client) != 200) {
            continue;
        }
        sse_wait(lasting, "\nid: ", SOON_MS);
        seen = append("'acme'", "posts", "before-", 1);
        wait_closed(client, HANG_MS);
        if (has(client, "before-0")) {
            break;
        }
    }
    ck_assert(!sse_closed(lasting));
    append("'acme'", "posts", "after-", 1);
    ck_assert_int_eq(status_of(open_as(&gateway, "/events",
                                       "Last-Event-ID: %" PRId64 "\r\nAuthorization: Bearer %s\r\n", seen, token)),
                     401);
    // With a new one it goes on where it was.
    client = open_as(&gateway, "/events", "Last-Event-ID: %" PRId64 "\r\nAuthorization: Bearer %s\r\n", seen,
                     token_hs256("[\"acme\"]", 600));
    sse_wait(client, "after-0", SOON_MS);
    ck_assert(gateway_metric(&gateway, "rowbell_stream_disconnects_total{reason=\"grant_ended\"}") >= 1);
}
END_TEST

START_TEST(a_stream_has_a_greatest_age) {
    struct gateway gateway = jwt_gateway(WITH("--auth-max-age", "1s"));
    struct sse_client *client =
        open_as(&gateway, "/events", "Authorization: Bearer %s\r\n", token_hs256("[\"acme\"]", 600));
    ck_assert_int_eq(status_of(client), 200);
    wait_closed(client, HANG_MS);
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
    // The old one is gone with its key; kids that nobody knows cost one reading in a while, however many they are.
    struct sse_client *clients[30];
    uint64_t began_ms = clock_ms();
    for (int i = 0; i < 30; i++) {
        char kid[20];
        snprintf(kid, sizeof kid, "kid-%d", i);
        clients[i] = open_as(&gateway, "/events", "Authorization: Bearer %s\r\n",
                             token_eddsa(i == 0 ? first : second, i == 0 ? "first" : kid, "[\"acme\"]"));
    }
    for (int i = 0; i < 30; i++) {
        ck_assert_int_eq(status_of(clients[i]), 401);
    }
    ck_assert_uint_le(atomic_load(&app.count), 4 + (clock_ms() - began_ms) / 5000); // at most one each five seconds
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

void jwt_tests(Suite *suite) {
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
}
