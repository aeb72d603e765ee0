// Tokens and keys made by npm jose, and by hand what jose would not make (tests/auth/make_vectors.mjs).
#include "common/buffer.h"
#include "gateway/jwt.h"
#include "tests/support/fixture.h"
#include "tests/unit/gateway/auth_tests.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum key_kind { SECRET, PEM, JWKS };
enum key_id {
#define NOW(s)
#define KEYS(name, kind, text) KEYS_##name,
#define VECTOR(name, keys, rules, verdict, scopes, token)
#include "tests/unit/gateway/jwt_vectors.def"
#undef KEYS
    KEYS_COUNT
};

static const struct {
    enum key_kind kind;
    const char *text;
} key_texts[] = {
#define KEYS(name, kind, text) {(kind), (text)},
#include "tests/unit/gateway/jwt_vectors.def"
#undef KEYS
#undef NOW
};

#define KEYS(name, kind, text)
#undef VECTOR
#define VECTOR(name, keys, rules, verdict, scopes, token)
#define NOW(s) enum { NOW_S = (s) };
#include "tests/unit/gateway/jwt_vectors.def"
#undef NOW
#undef VECTOR
#define NOW(s)

enum rules_id { PLAIN, PARTIES, EVERY, POINTER };
static const struct jwt_rules rules_of[] = {
    [PLAIN] = {.claim = "scopes", .leeway_ms = 5000},
    [PARTIES] = {.claim = "scopes", .leeway_ms = 5000, .audience = "stream", .issuer = "https://id.example"},
    [EVERY] = {.claim = "scopes", .leeway_ms = 5000, .every_scope = true},
    [POINTER] = {.claim = "/app/a~1b/tenant", .leeway_ms = 5000},
};

static const struct vector {
    const char *name;
    enum key_id keys;
    enum rules_id rules;
    enum jwt_verdict verdict;
    const char *scopes;
    const char *token;
} vectors[] = {
#define VECTOR(name, keys, rules, verdict, scopes, token) {#name, KEYS_##keys, rules, JWT_##verdict, scopes, token},
#include "tests/unit/gateway/jwt_vectors.def"
#undef VECTOR
};
enum { VECTORS = sizeof vectors / sizeof vectors[0] };

static struct jwt_keys read_keys(enum key_id id) {
    struct jwt_keys keys = {0};
    struct error error = {0};
    const char *text = key_texts[id].text;
    bool read = key_texts[id].kind == SECRET ? jwt_keys_from_secret(&keys, text, &error)
                : key_texts[id].kind == PEM  ? jwt_keys_from_pem(&keys, text, strlen(text), &error)
                                             : jwt_keys_from_jwks(&keys, text, strlen(text), true, &error);
    ck_assert_msg(read, "%s", error.text);
    return keys;
}

static void append_scopes(const struct grant *grant, struct buffer *text) {
    buffer_text(text, grant->every_scope ? "*" : "");
    const char *scope = grant->scopes;
    for (size_t i = 0; i < grant->count && !grant->every_scope; i++, scope += strlen(scope) + 1) {
        buffer_text(text, i > 0 ? "," : "");
        buffer_text(text, scope);
    }
}

START_TEST(tokens_of_another_implementation) {
    const struct vector *vector = &vectors[_i];
    struct jwt_keys keys = read_keys(vector->keys);
    struct grant grant = {0};
    struct buffer scopes = {0};
    int64_t end_ms = 0;
    const char *problem = NULL;
    enum jwt_verdict verdict =
        jwt_check(vector->token, &keys, &rules_of[vector->rules], (int64_t)NOW_S * 1000, &grant, &end_ms, &problem);
    ck_assert_msg(verdict == vector->verdict, "%s: %d instead of %d (%s)", vector->name, (int)verdict,
                  (int)vector->verdict, problem ? problem : "");
    ck_assert_msg((problem == NULL) == (verdict == JWT_VALID), "%s", vector->name);
    if (verdict == JWT_VALID) {
        append_scopes(&grant, &scopes);
        ck_assert_msg(strcmp(buffer_cstr(&scopes), vector->scopes) == 0, "%s: %s", vector->name, buffer_cstr(&scopes));
        ck_assert_int_gt(end_ms, (int64_t)NOW_S * 1000);
        ck_assert_int_le(end_ms, (int64_t)(NOW_S + 306) * 1000);
    }
    buffer_free(&scopes);
    grant_free(&grant);
    jwt_keys_free(&keys);
}
END_TEST

// Whatever is changed in a good token: nothing that differs in a byte is taken, for every way of signing.
START_TEST(no_changed_byte_is_taken) {
    static const char *const names[] = {"hs256", "rs256", "es256", "eddsa", "set_es256"};
    for (size_t i = 0; i < VECTORS; i++) {
        bool wanted = false;
        for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
            wanted |= strcmp(vectors[i].name, names[n]) == 0;
        }
        if (!wanted) {
            continue;
        }
        struct jwt_keys keys = read_keys(vectors[i].keys);
        char *token = strdup(vectors[i].token);
        for (char *c = token; *c != '\0'; c++) {
            char before = *c;
            struct grant grant = {0};
            int64_t end_ms;
            const char *problem;
            *c = before == 'A' ? 'B' : 'A';
            ck_assert_msg(jwt_check(token, &keys, &rules_of[PLAIN], (int64_t)NOW_S * 1000, &grant, &end_ms, &problem) !=
                              JWT_VALID,
                          "%s with byte %td changed", vectors[i].name, c - token);
            ck_assert_uint_eq(grant.count, 0); // a refused token leaves nothing behind
            *c = before;
        }
        free(token);
        jwt_keys_free(&keys);
    }
}
END_TEST

START_TEST(a_set_leaves_out_what_it_cannot_use) {
    struct jwt_keys keys = read_keys(KEYS_SET);
    ck_assert_uint_eq(keys.count, 4);    // rsa, ec, ed, oct
    ck_assert_uint_eq(keys.unusable, 3); // the short secret, the weak RSA key, the point off the curve
    ck_assert(keys.named);
    jwt_keys_free(&keys);
    struct error error;
    const char *text = key_texts[KEYS_SET].text;
    ck_assert(jwt_keys_from_jwks(&keys, text, strlen(text), false, &error));
    ck_assert_uint_eq(keys.count, 3); // no secret out of what a URL serves
    jwt_keys_free(&keys);
}
END_TEST

START_TEST(keys_that_are_refused) {
    static const struct {
        const char *text;
        bool (*read)(struct jwt_keys *keys, const char *text, size_t length, struct error *ret_error);
        const char *part;
    } rows[] = {
        {"", jwt_keys_from_pem, "no PUBLIC KEY"},
        {"not PEM", jwt_keys_from_pem, "no PUBLIC KEY"},
        {"-----BEGIN PUBLIC KEY-----\nMAA=\n-----END PUBLIC KEY-----\n", jwt_keys_from_pem, "damaged"},
        {"-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n", jwt_keys_from_pem, "public half"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct jwt_keys keys = {0};
        struct error error;
        ck_assert(!rows[i].read(&keys, rows[i].text, strlen(rows[i].text), &error));
        ck_assert_msg(strstr(error.text, rows[i].part) != NULL, "%s", error.text);
        ck_assert_ptr_null(keys.keys);
    }
    static const char *const sets[] = {"",
                                       "{}",
                                       "[]",
                                       "{\"keys\":{}}",
                                       "{\"keys\":[]}",
                                       "{\"keys\":[1,null,{}]}",
                                       "{\"keys\":[{\"kty\":\"RSA\",\"n\":\"AQAB\",\"e\":\"AQAB\"}]}",
                                       "{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"\"}]}"};
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        struct jwt_keys keys = {0};
        struct error error;
        ck_assert_msg(!jwt_keys_from_jwks(&keys, sets[i], strlen(sets[i]), true, &error), "%s", sets[i]);
        ck_assert_ptr_null(keys.keys);
    }
    struct jwt_keys keys = {0};
    struct error error;
    ck_assert(!jwt_keys_from_secret(&keys, "thirty-one bytes are too short!", &error));
    ck_assert_ptr_null(strstr(error.text, "thirty")); // the secret is not shown
}
END_TEST

START_TEST(base64url_is_read_strictly) {
    static const struct {
        const char *text;
        int length; // -1: refused
    } rows[] = {{"", 0},       {"A", -1},    {"AA", 1},    {"AB", -1},   {"AAA", 2},  {"AAB", -1},  {"AAAA", 3},
                {"AAAA=", -1}, {"AA==", -1}, {"AA+A", -1}, {"AA/A", -1}, {"_-_-", 3}, {"AA A", -1}, {"AA\nA", -1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        unsigned char bytes[8];
        size_t length = 0;
        bool read = base64url_decode(rows[i].text, strlen(rows[i].text), bytes, &length);
        ck_assert_msg(read == (rows[i].length >= 0), "%s", rows[i].text);
        ck_assert(!read || (int)length == rows[i].length);
    }
}
END_TEST

void jwt_tests(Suite *suite) {
    TCase *jwt = suite_case(suite, "jwt", 60);
    tcase_add_loop_test(jwt, tokens_of_another_implementation, 0, VECTORS);
    tcase_add_test(jwt, no_changed_byte_is_taken);
    tcase_add_test(jwt, a_set_leaves_out_what_it_cannot_use);
    tcase_add_test(jwt, keys_that_are_refused);
    tcase_add_test(jwt, base64url_is_read_strictly);
}
