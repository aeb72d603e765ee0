#include "gateway/jwt.h"
#include "common/json_read.h"
#include "common/memory.h"
#include <math.h>
#include <openssl/crypto.h>
#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>

enum {
    SIGNATURE_MAX_BYTES = JWT_RSA_MAX_BITS / 8,
    ES256_HALF_BYTES = 32,
    // Keys without a name of their own that one token is tried on.
    CANDIDATES_MAX = 8,
};

// Beyond the year 9999 in milliseconds: a number that is no date.
static const double latest_ms = 253402300800000.0;

struct token {
    const char *signed_part; // header and payload with the dot between them; view
    size_t signed_length;
    unsigned char signature[SIGNATURE_MAX_BYTES];
    size_t signature_length;
    struct json_document *header;
    struct json_document *payload;
};

// ---- parts ----

// A JSON object in base64url. NULL when it is not.
static struct json_document *decode_object(const char *text, size_t length) {
    size_t decoded;
    unsigned char *bytes = memory_alloc(length + 1);
    struct json_document *document = NULL;
    if (base64url_decode(text, length, bytes, &decoded)) {
        document = json_read((const char *)bytes, decoded, NULL);
    }
    free(bytes);
    if (document && !json_is(json_root(document), JSON_OBJECT)) {
        json_free(document);
        document = NULL;
    }
    return document;
}

static const char *token_split(const char *text, struct token *token) {
    size_t length = strnlen(text, JWT_MAX_BYTES + 1);
    if (length > JWT_MAX_BYTES) {
        return "the token is too long";
    }
    const char *payload = strchr(text, '.');
    const char *signature = payload ? strchr(payload + 1, '.') : NULL;
    if (!signature || strchr(signature + 1, '.')) {
        return "not a token of three parts";
    }
    size_t signature_text = strlen(signature + 1);
    if (signature_text > (SIGNATURE_MAX_BYTES * 4 + 2) / 3 ||
        !base64url_decode(signature + 1, signature_text, token->signature, &token->signature_length)) {
        return "the token's signature cannot be read";
    }
    token->signed_part = text;
    token->signed_length = (size_t)(signature - text);
    token->header = decode_object(text, (size_t)(payload - text));
    if (!token->header) {
        return "the token's header cannot be read";
    }
    token->payload = decode_object(payload + 1, (size_t)(signature - payload - 1));
    return token->payload ? NULL : "the token's payload cannot be read";
}

// ---- signatures ----

static bool verify_hmac(const struct token *token, const struct jwt_key *key) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned digest_length = 0;
    return HMAC(EVP_sha256(), key->secret, (int)key->secret_length, (const unsigned char *)token->signed_part,
                token->signed_length, digest, &digest_length) &&
           token->signature_length == digest_length && CRYPTO_memcmp(token->signature, digest, digest_length) == 0;
}

static bool verify_digest(const struct token *token, const struct jwt_key *key, const EVP_MD *digest,
                          const unsigned char *signature, size_t length) {
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool valid = context && EVP_DigestVerifyInit(context, NULL, digest, NULL, key->public_key) == 1 &&
                 EVP_DigestVerify(context, signature, length, (const unsigned char *)token->signed_part,
                                  token->signed_length) == 1;
    EVP_MD_CTX_free(context);
    ERR_clear_error();
    return valid;
}

static bool verify_rsa(const struct token *token, const struct jwt_key *key) {
    return verify_digest(token, key, EVP_sha256(), token->signature, token->signature_length);
}

static bool verify_ed25519(const struct token *token, const struct jwt_key *key) {
    return verify_digest(token, key, NULL, token->signature, token->signature_length);
}

// RFC 7518, 3.4: r and s, 32 bytes each. OpenSSL wants them in DER.
static bool verify_p256(const struct token *token, const struct jwt_key *key) {
    if (token->signature_length != 2 * ES256_HALF_BYTES) {
        return false;
    }
    ECDSA_SIG *pair = ECDSA_SIG_new();
    ECDSA_SIG_set0(pair, BN_bin2bn(token->signature, ES256_HALF_BYTES, NULL),
                   BN_bin2bn(token->signature + ES256_HALF_BYTES, ES256_HALF_BYTES, NULL));
    unsigned char *der = NULL;
    int length = i2d_ECDSA_SIG(pair, &der);
    bool valid = length > 0 && verify_digest(token, key, EVP_sha256(), der, (size_t)length);
    OPENSSL_free(der);
    ECDSA_SIG_free(pair);
    return valid;
}

static const struct {
    const char *name;
    enum jwt_algorithm algorithm;
} algorithm_names[] = {
    {"HS256", JWT_HS256}, {"RS256", JWT_RS256},   {"ES256", JWT_ES256},
    {"EdDSA", JWT_EDDSA}, {"Ed25519", JWT_EDDSA}, // RFC 9864
};

static bool (*const verify[])(const struct token *token, const struct jwt_key *key) = {
    [JWT_HS256] = verify_hmac,
    [JWT_RS256] = verify_rsa,
    [JWT_ES256] = verify_p256,
    [JWT_EDDSA] = verify_ed25519,
};

static bool find_algorithm(const char *name, enum jwt_algorithm *ret_algorithm) {
    for (size_t i = 0; name && i < sizeof algorithm_names / sizeof algorithm_names[0]; i++) {
        if (strcmp(algorithm_names[i].name, name) == 0) {
            *ret_algorithm = algorithm_names[i].algorithm;
            return true;
        }
    }
    return false;
}

static enum jwt_verdict check_signature(const struct token *token, const struct jwt_keys *keys,
                                        const char **ret_problem) {
    const struct json_value *header = json_root(token->header);
    const struct json_value *kid = json_member(header, "kid");
    enum jwt_algorithm algorithm;
    *ret_problem = "the token's algorithm is not one of HS256, RS256, ES256 and EdDSA";
    if (!find_algorithm(json_member_text(header, "alg"), &algorithm)) {
        return JWT_REFUSED;
    }
    // RFC 7515, 4.1.11: whoever does not understand what is critical must refuse.
    *ret_problem = "the token's header has extensions that must be understood, or a kid that is no text";
    if (json_member(header, "crit") || (kid && !json_is(kid, JSON_STRING))) {
        return JWT_REFUSED;
    }
    size_t named = 0;
    size_t tried = 0;
    for (size_t i = 0; i < keys->count && tried < CANDIDATES_MAX; i++) {
        const struct jwt_key *key = &keys->keys[i];
        if (keys->named && kid && !(key->kid && strcmp(key->kid, kid->text) == 0)) {
            continue;
        }
        named++;
        if (key->algorithm != algorithm) {
            continue;
        }
        tried++;
        if (verify[algorithm](token, key)) {
            return JWT_VALID;
        }
    }
    if (keys->named && (named == 0 || !kid)) {
        *ret_problem = "the token's key is not known";
        return JWT_UNKNOWN_KEY;
    }
    *ret_problem = tried == 0 ? "the token's algorithm is not that of the key" : "the token's signature is wrong";
    return JWT_REFUSED;
}

// ---- claims ----

// Seconds since 1970, possibly with a fraction (RFC 7519, 2: NumericDate).
static bool read_date_ms(const struct json_value *value, int64_t *ret_ms) {
    if (!json_is(value, JSON_NUMBER)) {
        return false;
    }
    double ms = strtod(value->text, NULL) * 1000;
    if (!isfinite(ms) || ms < -latest_ms) {
        return false;
    }
    *ret_ms = (int64_t)(ms > latest_ms ? latest_ms : ms);
    return true;
}

static bool names_audience(const struct json_value *aud, const char *audience) {
    if (json_is(aud, JSON_STRING)) {
        return strcmp(aud->text, audience) == 0;
    }
    for (const struct json_value *item = json_is(aud, JSON_ARRAY) ? aud->first : NULL; item; item = item->next) {
        if (json_is(item, JSON_STRING) && strcmp(item->text, audience) == 0) {
            return true;
        }
    }
    return false;
}

static const char *check_dates(const struct json_value *claims, const struct jwt_rules *rules, int64_t now_ms,
                               int64_t *ret_end_ms) {
    const struct json_value *nbf = json_member(claims, "nbf");
    int64_t exp_ms;
    int64_t nbf_ms;
    if (!read_date_ms(json_member(claims, "exp"), &exp_ms)) {
        return "the token has no exp";
    }
    *ret_end_ms = exp_ms + rules->leeway_ms;
    if (now_ms >= *ret_end_ms) {
        return "the token has expired";
    }
    if (nbf && !read_date_ms(nbf, &nbf_ms)) {
        return "the token's nbf is not a date";
    }
    return nbf && now_ms < nbf_ms - rules->leeway_ms ? "the token is not valid yet" : NULL;
}

static const char *check_parties(const struct json_value *claims, const struct jwt_rules *rules) {
    const struct json_value *aud = json_member(claims, "aud");
    const char *iss = json_member_text(claims, "iss");
    if (!rules->audience && aud) {
        return "the token has an aud, and --jwt-audience does not say which is ours";
    }
    if (rules->audience && !names_audience(aud, rules->audience)) {
        return "the token is for another audience";
    }
    return rules->issuer && !(iss && strcmp(iss, rules->issuer) == 0) ? "the token is from another issuer" : NULL;
}

// ---- scopes ----

// The next part of a JSON Pointer (RFC 6901), ~0 and ~1 undone in place. *pointer is behind it, or NULL at the end.
static const char *next_reference(char **pointer) {
    char *part = *pointer + 1;
    char *end = strchr(part, '/');
    *pointer = end;
    if (end) {
        *end = '\0';
    }
    char *out = part;
    for (const char *c = part; *c != '\0'; c++) {
        if (c[0] == '~' && (c[1] == '0' || c[1] == '1')) {
            *out++ = c[1] == '0' ? '~' : '/';
            c++;
        } else {
            *out++ = *c;
        }
    }
    *out = '\0';
    return part;
}

static const struct json_value *find_claim(const struct json_value *claims, const char *name) {
    if (name[0] != '/') {
        return json_member(claims, name);
    }
    char *copy = memory_copy_text(name);
    char *at = copy;
    const struct json_value *value = claims;
    while (at && value) {
        // next_reference puts a NUL where the next part's slash was.
        value = json_member(value, next_reference(&at));
    }
    free(copy);
    return value;
}

static const char *read_scopes(const struct json_value *claims, const struct jwt_rules *rules, struct grant *grant) {
    if (!grant_add_scopes(grant, find_claim(claims, rules->claim), rules->every_scope)) {
        return "the token's claim of scopes is neither a text nor a list of texts";
    }
    return grant->overflow ? "the token has too many scopes" : NULL;
}

// Subjects are named by their issuer (RFC 7519, 4.1.2). A token without one is its own.
static void set_subject(const struct json_value *claims, const char *token, struct grant *grant) {
    const char *sub = json_member_text(claims, "sub");
    const char *iss = json_member_text(claims, "iss");
    struct buffer kind = {0};
    buffer_format(&kind, "%s %s", sub ? "sub" : "token", sub && iss ? iss : "");
    grant_set_subject(grant, kind.bytes, sub ? sub : token);
    buffer_free(&kind);
}

enum jwt_verdict jwt_check(const char *text, const struct jwt_keys *keys, const struct jwt_rules *rules, int64_t now_ms,
                           struct grant *grant, int64_t *ret_end_ms, const char **ret_problem) {
    struct token token = {0};
    enum jwt_verdict verdict = JWT_REFUSED;
    *ret_problem = token_split(text, &token);
    if (!*ret_problem) {
        verdict = check_signature(&token, keys, ret_problem);
    }
    if (verdict == JWT_VALID) {
        const struct json_value *claims = json_root(token.payload);
        *ret_problem = check_dates(claims, rules, now_ms, ret_end_ms);
        if (!*ret_problem) {
            *ret_problem = check_parties(claims, rules);
        }
        if (!*ret_problem) {
            *ret_problem = read_scopes(claims, rules, grant);
        }
        verdict = *ret_problem ? JWT_REFUSED : JWT_VALID;
        set_subject(claims, text, grant);
    }
    json_free(token.header);
    json_free(token.payload);
    return verdict;
}
