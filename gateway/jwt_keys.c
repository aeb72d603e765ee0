#include "gateway/jwt_keys.h"
#include "common/json_read.h"
#include "common/memory.h"
#include <openssl/bio.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <string.h>

enum {
    BIG_NUMBER_MAX_BYTES = JWT_RSA_MAX_BITS / 8,
    EXPONENT_MAX_BYTES = 8,
    P256_BYTES = 32,
    ED25519_BYTES = 32,
    KID_MAX_BYTES = 512,
};

// ---- base64url ----

static int base64url_value(char c) {
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    return c == '-' ? 62 : c == '_' ? 63 : -1;
}

bool base64url_decode(const char *text, size_t length, unsigned char *ret_bytes, size_t *ret_length) {
    unsigned bits = 0;
    unsigned count = 0; // of bits
    size_t written = 0;
    if (length % 4 == 1) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        int value = base64url_value(text[i]);
        if (value < 0) {
            return false;
        }
        bits = (bits << 6 | (unsigned)value) & 0xFFFFFF;
        count += 6;
        if (count >= 8) {
            count -= 8;
            ret_bytes[written++] = (unsigned char)(bits >> count);
        }
    }
    *ret_length = written;
    return (bits & ((1u << count) - 1)) == 0;
}

// ---- the set ----

static void key_free(struct jwt_key *key) {
    free(key->kid);
    EVP_PKEY_free(key->public_key);
    if (key->secret) {
        OPENSSL_cleanse(key->secret, key->secret_length);
    }
    free(key->secret);
    *key = (struct jwt_key){0};
}

void jwt_keys_free(struct jwt_keys *keys) {
    for (size_t i = 0; i < keys->count; i++) {
        key_free(&keys->keys[i]);
    }
    free(keys->keys);
    *keys = (struct jwt_keys){0};
}

// Takes the key.
static void keys_add(struct jwt_keys *keys, const struct jwt_key *key) {
    keys->keys = memory_resize(keys->keys, keys->count + 1, sizeof *keys->keys);
    keys->keys[keys->count++] = *key;
}

static bool check_secret(size_t length, struct error *ret_error) {
    if (length >= JWT_SECRET_MIN_BYTES) {
        return true;
    }
    return error_set(ret_error, ERROR_USAGE, "a secret for HS256 needs at least %d bytes, this one has %zu",
                     JWT_SECRET_MIN_BYTES, length);
}

bool jwt_keys_from_secret(struct jwt_keys *keys, const char *secret, struct error *ret_error) {
    size_t length = strlen(secret);
    if (!check_secret(length, ret_error)) {
        return false;
    }
    keys_add(keys, &(struct jwt_key){.algorithm = JWT_HS256,
                                     .secret = (unsigned char *)memory_copy_text(secret),
                                     .secret_length = length});
    return true;
}

// The algorithm that goes with a public key; false when there is none or the key is weak.
static bool algorithm_of(EVP_PKEY *public_key, enum jwt_algorithm *ret_algorithm, struct error *ret_error) {
    char group[64] = "";
    if (EVP_PKEY_is_a(public_key, "RSA")) {
        int bits = EVP_PKEY_get_bits(public_key);
        *ret_algorithm = JWT_RS256;
        if (bits >= JWT_RSA_MIN_BITS && bits <= JWT_RSA_MAX_BITS) {
            return true;
        }
        return error_set(ret_error, ERROR_USAGE, "an RSA key needs %d to %d bits, this one has %d", JWT_RSA_MIN_BITS,
                         JWT_RSA_MAX_BITS, bits);
    }
    if (EVP_PKEY_is_a(public_key, "ED25519")) {
        *ret_algorithm = JWT_EDDSA;
        return true;
    }
    if (EVP_PKEY_is_a(public_key, "EC") &&
        EVP_PKEY_get_utf8_string_param(public_key, OSSL_PKEY_PARAM_GROUP_NAME, group, sizeof group, NULL) == 1 &&
        (strcmp(group, "prime256v1") == 0 || strcmp(group, "P-256") == 0)) {
        *ret_algorithm = JWT_ES256;
        return true;
    }
    return error_set(ret_error, ERROR_USAGE, "not a key for RS256 (RSA), ES256 (P-256) or EdDSA (Ed25519)");
}

// ---- PEM ----

static const struct {
    const char *label;
    bool is_private;
} pem_blocks[] = {
    {"PUBLIC KEY", false},     {"RSA PUBLIC KEY", false}, {"CERTIFICATE", false},          {"PRIVATE KEY", true},
    {"RSA PRIVATE KEY", true}, {"EC PRIVATE KEY", true},  {"ENCRYPTED PRIVATE KEY", true},
};

static EVP_PKEY *public_key_of(const char *label, const unsigned char *der, long length) {
    if (strcmp(label, "PUBLIC KEY") == 0) {
        return d2i_PUBKEY(NULL, &der, length);
    }
    if (strcmp(label, "RSA PUBLIC KEY") == 0) {
        return d2i_PublicKey(EVP_PKEY_RSA, NULL, &der, length);
    }
    X509 *certificate = d2i_X509(NULL, &der, length);
    EVP_PKEY *public_key = certificate ? X509_get_pubkey(certificate) : NULL;
    X509_free(certificate);
    return public_key;
}

static bool add_pem_block(struct jwt_keys *keys, const char *label, const unsigned char *der, long length,
                          struct error *ret_error) {
    for (size_t i = 0; i < sizeof pem_blocks / sizeof pem_blocks[0]; i++) {
        if (strcmp(pem_blocks[i].label, label) != 0) {
            continue;
        }
        if (pem_blocks[i].is_private) {
            return error_set(ret_error, ERROR_USAGE, "%s: only the public half belongs here", label);
        }
        struct jwt_key key = {.public_key = public_key_of(label, der, length)};
        if (!key.public_key) {
            return error_set(ret_error, ERROR_USAGE, "%s: damaged", label);
        }
        if (!algorithm_of(key.public_key, &key.algorithm, ret_error)) {
            key_free(&key);
            return error_wrap(ret_error, "%s", label);
        }
        keys_add(keys, &key);
        return true;
    }
    return true; // parameters, say
}

bool jwt_keys_from_pem(struct jwt_keys *keys, const char *pem, size_t length, struct error *ret_error) {
    BIO *bio = BIO_new_mem_buf(pem, (int)length);
    char *label = NULL;
    char *header = NULL;
    unsigned char *der = NULL;
    long der_length;
    bool read = true;
    while (read && PEM_read_bio(bio, &label, &header, &der, &der_length) == 1) {
        read = keys->count < JWT_KEYS_MAX ? add_pem_block(keys, label, der, der_length, ret_error)
                                          : error_set(ret_error, ERROR_USAGE, "more than %d keys", JWT_KEYS_MAX);
        OPENSSL_free(label);
        OPENSSL_free(header);
        OPENSSL_clear_free(der, (size_t)der_length);
    }
    // The text's end is "no start line". Anything else is a block that cannot be read, and might be a private key.
    bool ended = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    ERR_clear_error();
    BIO_free(bio);
    if (read && !ended) {
        read = error_set(ret_error, ERROR_USAGE, "a block of it is damaged");
    }
    if (read && keys->count == 0) {
        read = error_set(ret_error, ERROR_USAGE, "no PUBLIC KEY and no CERTIFICATE in it");
    }
    if (!read) {
        jwt_keys_free(keys);
    }
    return read;
}

// ---- JWK ----

// A base64url member of 1 to most bytes. ret_bytes has most + 2 bytes.
static bool member_bytes(const struct json_value *jwk, const char *name, size_t most, unsigned char *ret_bytes,
                         size_t *ret_length) {
    const char *text = json_member_text(jwk, name);
    return text && strlen(text) <= (most * 4 + 2) / 3 && base64url_decode(text, strlen(text), ret_bytes, ret_length) &&
           *ret_length > 0;
}

static EVP_PKEY *key_from_parameters(const char *type, OSSL_PARAM_BLD *builder) {
    EVP_PKEY *public_key = NULL;
    OSSL_PARAM *parameters = OSSL_PARAM_BLD_to_param(builder);
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    if (parameters && context && EVP_PKEY_fromdata_init(context) == 1 &&
        EVP_PKEY_fromdata(context, &public_key, EVP_PKEY_PUBLIC_KEY, parameters) != 1) {
        public_key = NULL;
    }
    EVP_PKEY_CTX_free(context);
    OSSL_PARAM_free(parameters);
    return public_key;
}

static bool read_rsa(const struct json_value *jwk, struct jwt_key *key) {
    unsigned char n_bytes[BIG_NUMBER_MAX_BYTES + 2];
    unsigned char e_bytes[EXPONENT_MAX_BYTES + 2];
    size_t n_length;
    size_t e_length;
    if (!member_bytes(jwk, "n", BIG_NUMBER_MAX_BYTES, n_bytes, &n_length) ||
        !member_bytes(jwk, "e", EXPONENT_MAX_BYTES, e_bytes, &e_length)) {
        return false;
    }
    BIGNUM *n = BN_bin2bn(n_bytes, (int)n_length, NULL);
    BIGNUM *e = BN_bin2bn(e_bytes, (int)e_length, NULL);
    OSSL_PARAM_BLD *builder = OSSL_PARAM_BLD_new();
    if (BN_is_odd(n) && BN_is_odd(e) && !BN_is_one(e) && OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_N, n) &&
        OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_E, e)) {
        key->public_key = key_from_parameters("RSA", builder);
    }
    OSSL_PARAM_BLD_free(builder);
    BN_free(n);
    BN_free(e);
    return key->public_key != NULL;
}

static bool read_p256(const struct json_value *jwk, struct jwt_key *key) {
    unsigned char point[1 + 2 * (P256_BYTES + 2)];
    size_t x_length;
    size_t y_length;
    point[0] = POINT_CONVERSION_UNCOMPRESSED;
    // RFC 7518, 6.2.1.2: x and y have the full length, with leading zeros.
    if (!member_bytes(jwk, "x", P256_BYTES, point + 1, &x_length) || x_length != P256_BYTES ||
        !member_bytes(jwk, "y", P256_BYTES, point + 1 + P256_BYTES, &y_length) || y_length != P256_BYTES) {
        return false;
    }
    OSSL_PARAM_BLD *builder = OSSL_PARAM_BLD_new();
    if (OSSL_PARAM_BLD_push_utf8_string(builder, OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) &&
        OSSL_PARAM_BLD_push_octet_string(builder, OSSL_PKEY_PARAM_PUB_KEY, point, 1 + 2 * P256_BYTES)) {
        key->public_key = key_from_parameters("EC", builder);
    }
    OSSL_PARAM_BLD_free(builder);
    return key->public_key != NULL; // a point that is not on the curve is none to OpenSSL
}

static bool read_ed25519(const struct json_value *jwk, struct jwt_key *key) {
    unsigned char x[ED25519_BYTES + 2];
    size_t length;
    if (!member_bytes(jwk, "x", ED25519_BYTES, x, &length) || length != ED25519_BYTES) {
        return false;
    }
    key->public_key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, x, length);
    return key->public_key != NULL;
}

static bool read_secret(const struct json_value *jwk, struct jwt_key *key) {
    const char *text = json_member_text(jwk, "k");
    if (!text) {
        return false;
    }
    key->secret = memory_alloc(strlen(text) + 1);
    return base64url_decode(text, strlen(text), key->secret, &key->secret_length);
}

static const struct jwk_kind {
    const char *kty;
    const char *crv;      // NULL: it has none
    const char *names[2]; // what `alg` may say, if it is there
    enum jwt_algorithm algorithm;
    bool (*read)(const struct json_value *jwk, struct jwt_key *key);
} jwk_kinds[] = {
    {"RSA", NULL, {"RS256", NULL}, JWT_RS256, read_rsa},
    {"EC", "P-256", {"ES256", NULL}, JWT_ES256, read_p256},
    {"OKP", "Ed25519", {"EdDSA", "Ed25519"}, JWT_EDDSA, read_ed25519}, // RFC 8037; RFC 9864
    {"oct", NULL, {"HS256", NULL}, JWT_HS256, read_secret},
};

static bool names_algorithm(const struct jwk_kind *kind, const char *name) {
    return strcmp(kind->names[0], name) == 0 || (kind->names[1] && strcmp(kind->names[1], name) == 0);
}

// NULL: a key for something else.
static const struct jwk_kind *kind_of(const struct json_value *jwk) {
    const char *kty = json_member_text(jwk, "kty");
    const char *crv = json_member_text(jwk, "crv");
    const struct json_value *algorithm = json_member(jwk, "alg");
    for (size_t i = 0; kty && i < sizeof jwk_kinds / sizeof jwk_kinds[0]; i++) {
        const struct jwk_kind *kind = &jwk_kinds[i];
        if (strcmp(kind->kty, kty) == 0 && (!kind->crv || (crv && strcmp(kind->crv, crv) == 0)) &&
            (!algorithm || (algorithm->text && names_algorithm(kind, algorithm->text)))) {
            return kind;
        }
    }
    return NULL;
}

// RFC 7517, 4.2 and 4.3.
static bool is_for_verification(const struct json_value *jwk) {
    const struct json_value *use = json_member(jwk, "use");
    const struct json_value *operations = json_member(jwk, "key_ops");
    if (use && !(json_is(use, JSON_STRING) && strcmp(use->text, "sig") == 0)) {
        return false;
    }
    if (!operations) {
        return true;
    }
    for (const struct json_value *operation = operations->first; operation; operation = operation->next) {
        if (json_is(operation, JSON_STRING) && strcmp(operation->text, "verify") == 0) {
            return true;
        }
    }
    return false;
}

// False when it is damaged or weak.
static bool read_jwk(const struct jwk_kind *kind, const struct json_value *jwk, struct jwt_key *key) {
    struct error error;
    enum jwt_algorithm algorithm = kind->algorithm;
    const char *kid = json_member_text(jwk, "kid");
    key->algorithm = kind->algorithm;
    if (!kind->read(jwk, key) || (kid && strlen(kid) > KID_MAX_BYTES)) {
        return false;
    }
    key->kid = memory_copy_text(kid);
    return key->public_key ? algorithm_of(key->public_key, &algorithm, &error) && algorithm == kind->algorithm
                           : check_secret(key->secret_length, &error);
}

static void add_jwk(struct jwt_keys *keys, const struct json_value *jwk, bool secrets) {
    const struct jwk_kind *kind = kind_of(jwk);
    struct jwt_key key = {0};
    if (!kind || !is_for_verification(jwk) || (kind->algorithm == JWT_HS256 && !secrets)) {
        return;
    }
    if (keys->count < JWT_KEYS_MAX && read_jwk(kind, jwk, &key)) {
        keys_add(keys, &key);
        return;
    }
    ERR_clear_error();
    key_free(&key);
    keys->unusable++;
}

bool jwt_keys_from_jwks(struct jwt_keys *keys, const char *json, size_t length, bool secrets, struct error *ret_error) {
    struct json_document *document = json_read(json, length, ret_error);
    if (!document) {
        ret_error->code = ERROR_USAGE;
        return false;
    }
    const struct json_value *array = json_member(json_root(document), "keys");
    bool read = json_is(array, JSON_ARRAY) || error_set(ret_error, ERROR_USAGE, "not a JWK Set: no array `keys`");
    keys->named = true;
    for (const struct json_value *jwk = read ? array->first : NULL; jwk; jwk = jwk->next) {
        add_jwk(keys, jwk, secrets);
    }
    if (read && keys->count == 0) {
        read = error_set(ret_error, ERROR_USAGE, "no usable key for RS256, ES256, EdDSA%s in it (%zu damaged or weak)",
                         secrets ? " or HS256" : "", keys->unusable);
    }
    json_free(document);
    if (!read) {
        jwt_keys_free(keys);
    }
    return read;
}
