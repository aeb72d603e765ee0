#include "common/webhook_signature.h"
#include "common/memory.h"
#include <assert.h>
#include <inttypes.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_SECRETS = 8,
    MAX_SECRET_BYTES = 512,
    HMAC_KEY_MIN_BYTES = 24, // Standard Webhooks: between 24 and 64 bytes
    HMAC_KEY_MAX_BYTES = 64,
    ED25519_SEED_BYTES = 32,
    ED25519_PAIR_BYTES = 64, // seed, then public key
    MAX_SIGNATURE_BYTES = 64,
};

struct scheme;

// One secret, ready to sign: one of the two is set.
struct key {
    const struct scheme *scheme;
    EVP_MAC_CTX *hmac;
    EVP_PKEY *ed25519;
    int64_t end_s; // INT64_MAX: never
};

enum { SIGNS_ID = 1, SIGNS_TIMESTAMP = 2 }; // besides the body

struct style {
    const char *name;
    const char *header;
    const char *opening; // what stands before the timestamp, which a comma ends; NULL: no timestamp
    char separator;      // between signatures; 0: there is room for one
    unsigned signs;
};

static const struct style styles[] = {
    {"standard", "webhook-signature", NULL, ' ', SIGNS_ID | SIGNS_TIMESTAMP},
    {"timestamp", "webhook-signature", "t=", ',', SIGNS_TIMESTAMP},
    {"body", "x-hub-signature-256", NULL, 0, 0},
};

static bool read_hmac_base64(struct key *key, const char *secret, struct error *ret_error);
static bool read_hmac_text(struct key *key, const char *secret, struct error *ret_error);
static bool read_ed25519(struct key *key, const char *secret, struct error *ret_error);
static size_t sign_hmac(const struct key *key, const struct buffer *content, unsigned char *ret_signature);
static size_t sign_ed25519(const struct key *key, const struct buffer *content, unsigned char *ret_signature);
static void write_base64(struct buffer *value, const unsigned char *bytes, size_t length);
static void write_hex(struct buffer *value, const unsigned char *bytes, size_t length);

// How a secret signs within a style: the first row whose prefix the secret has.
static const struct scheme {
    const char *style;
    const char *secret_prefix; // is not part of what `read` gets
    const char *tag;           // before each signature
    bool (*read)(struct key *key, const char *secret, struct error *ret_error);
    size_t (*sign)(const struct key *key, const struct buffer *content, unsigned char *ret_signature);
    void (*write)(struct buffer *value, const unsigned char *bytes, size_t length);
} schemes[] = {
    {"standard", "whsec_", "v1,", read_hmac_base64, sign_hmac, write_base64},
    {"standard", "whsk_", "v1a,", read_ed25519, sign_ed25519, write_base64},
    {"timestamp", "", "v1=", read_hmac_text, sign_hmac, write_hex},
    {"body", "", "sha256=", read_hmac_text, sign_hmac, write_hex},
};

struct webhook_signer {
    const struct style *style;
    struct key keys[MAX_SECRETS];
    size_t key_count;
    struct buffer content; // kept between signatures for its memory
};

// ---- secrets

// Padded standard base64 in its one canonical form. Returns the length, 0 when it is not that or does not fit.
static size_t decode_base64(const char *text, unsigned char *ret_bytes, size_t size) {
    size_t length = strlen(text);
    if (length == 0 || length % 4 != 0 || length / 4 * 3 > size + 2)
        return 0;
    unsigned char bytes[MAX_SECRET_BYTES];
    if (length / 4 * 3 > sizeof bytes || EVP_DecodeBlock(bytes, (const unsigned char *)text, (int)length) < 0)
        return 0;
    size_t decoded = length / 4 * 3 - (text[length - 1] == '=') - (text[length - 2] == '=');
    char again[MAX_SECRET_BYTES * 4 / 3 + 4];
    EVP_EncodeBlock((unsigned char *)again, bytes, (int)decoded);
    bool canonical = strcmp(again, text) == 0 && decoded <= size;
    if (canonical)
        memcpy(ret_bytes, bytes, decoded);
    OPENSSL_cleanse(bytes, sizeof bytes);
    OPENSSL_cleanse(again, sizeof again);
    return canonical ? decoded : 0;
}

static void hmac_key(struct key *key, const unsigned char *bytes, size_t length) {
    static EVP_MAC *hmac; // for the life of the process
    if (!hmac)
        hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    key->hmac = EVP_MAC_CTX_new(hmac);
    char digest[] = "SHA256";
    OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                           OSSL_PARAM_construct_end()};
    int done = EVP_MAC_init(key->hmac, bytes, length, params);
    assert(done == 1);
}

static bool read_hmac_base64(struct key *key, const char *secret, struct error *ret_error) {
    unsigned char bytes[HMAC_KEY_MAX_BYTES];
    size_t length = decode_base64(secret, bytes, sizeof bytes);
    if (length < HMAC_KEY_MIN_BYTES)
        return error_set(ret_error, ERROR_USAGE, "secret: whsec_ must be followed by the base64 of %d to %d bytes",
                         HMAC_KEY_MIN_BYTES, HMAC_KEY_MAX_BYTES);
    hmac_key(key, bytes, length);
    OPENSSL_cleanse(bytes, sizeof bytes);
    return true;
}

static bool read_hmac_text(struct key *key, const char *secret, struct error *ret_error) {
    if (*secret == '\0')
        return error_set(ret_error, ERROR_USAGE, "secret: empty");
    hmac_key(key, (const unsigned char *)secret, strlen(secret));
    return true;
}

static bool read_ed25519(struct key *key, const char *secret, struct error *ret_error) {
    unsigned char bytes[ED25519_PAIR_BYTES];
    size_t length = decode_base64(secret, bytes, sizeof bytes);
    if (length != ED25519_SEED_BYTES && length != ED25519_PAIR_BYTES)
        return error_set(
            ret_error, ERROR_USAGE,
            "secret: whsk_ must be followed by the base64 of a 32-byte seed, or of the seed and its public key");
    key->ed25519 = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, bytes, ED25519_SEED_BYTES);
    assert(key->ed25519);
    unsigned char public_key[32];
    size_t public_length = sizeof public_key;
    EVP_PKEY_get_raw_public_key(key->ed25519, public_key, &public_length);
    bool matches =
        length == ED25519_SEED_BYTES || memcmp(bytes + ED25519_SEED_BYTES, public_key, sizeof public_key) == 0;
    OPENSSL_cleanse(bytes, sizeof bytes);
    return matches || error_set(ret_error, ERROR_USAGE, "secret: the public part of whsk_ does not belong to its seed");
}

// ---- signatures

static size_t sign_hmac(const struct key *key, const struct buffer *content, unsigned char *ret_signature) {
    size_t length = 0;
    int done = EVP_MAC_init(key->hmac, NULL, 0, NULL) && // the key of before
               EVP_MAC_update(key->hmac, (const unsigned char *)buffer_cstr(content), content->length) &&
               EVP_MAC_final(key->hmac, ret_signature, &length, MAX_SIGNATURE_BYTES);
    assert(done);
    return length;
}

static size_t sign_ed25519(const struct key *key, const struct buffer *content, unsigned char *ret_signature) {
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    size_t length = MAX_SIGNATURE_BYTES;
    int done =
        EVP_DigestSignInit(context, NULL, NULL, NULL, key->ed25519) &&
        EVP_DigestSign(context, ret_signature, &length, (const unsigned char *)buffer_cstr(content), content->length);
    assert(done);
    EVP_MD_CTX_free(context);
    return length;
}

static void write_base64(struct buffer *value, const unsigned char *bytes, size_t length) {
    char text[MAX_SIGNATURE_BYTES * 4 / 3 + 8];
    EVP_EncodeBlock((unsigned char *)text, bytes, (int)length);
    buffer_text(value, text);
}

static void write_hex(struct buffer *value, const unsigned char *bytes, size_t length) {
    for (size_t i = 0; i < length; i++) {
        buffer_char(value, "0123456789abcdef"[bytes[i] >> 4]);
        buffer_char(value, "0123456789abcdef"[bytes[i] & 15]);
    }
}

// ---- the signer

static const struct style *style_find(const char *name) {
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++)
        if (strcmp(styles[i].name, name) == 0)
            return &styles[i];
    return NULL;
}

static bool key_read(struct key *key, const char *style, const char *secret, struct error *ret_error) {
    if (strlen(secret) > MAX_SECRET_BYTES)
        return error_set(ret_error, ERROR_USAGE, "secret: longer than %d bytes", MAX_SECRET_BYTES);
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        size_t prefix = strlen(schemes[i].secret_prefix);
        if (strcmp(schemes[i].style, style) == 0 && strncmp(secret, schemes[i].secret_prefix, prefix) == 0) {
            key->scheme = &schemes[i];
            return schemes[i].read(key, secret + prefix, ret_error);
        }
    }
    return error_set(ret_error, ERROR_USAGE, "secret: must begin with whsec_ (HMAC) or whsk_ (Ed25519)");
}

struct webhook_signer *webhook_signer_new(const char *style, const char *const *secrets, int secret_count,
                                          struct error *ret_error) {
    struct webhook_signer *signer = memory_alloc(sizeof *signer);
    signer->style = style_find(style);
    if (!signer->style) {
        error_set(ret_error, ERROR_USAGE, "signature: %.40s is none of standard, timestamp, body", style);
        goto fail;
    }
    if (secret_count < 1 || secret_count > MAX_SECRETS) {
        error_set(ret_error, ERROR_USAGE, "secret: %d of them; 1 to %d can sign", secret_count, MAX_SECRETS);
        goto fail;
    }
    int count = signer->style->separator ? secret_count : 1;
    while (signer->key_count < (size_t)count) {
        struct key *key = &signer->keys[signer->key_count++];
        key->end_s = INT64_MAX;
        if (!key_read(key, style, secrets[signer->key_count - 1], ret_error))
            goto fail;
    }
    return signer;
fail:
    webhook_signer_free(signer);
    return NULL;
}

void webhook_signer_free(struct webhook_signer *signer) {
    if (!signer)
        return;
    for (size_t i = 0; i < signer->key_count; i++) {
        EVP_MAC_CTX_free(signer->keys[i].hmac);
        EVP_PKEY_free(signer->keys[i].ed25519);
    }
    buffer_free(&signer->content);
    free(signer);
}

void webhook_signer_end(struct webhook_signer *signer, int index, int64_t end_s) {
    assert(index > 0);
    if ((size_t)index < signer->key_count)
        signer->keys[index].end_s = end_s;
}

const char *webhook_signer_header(const struct webhook_signer *signer) {
    return signer->style->header;
}

void webhook_signer_sign(struct webhook_signer *signer, const char *id, int64_t timestamp_s, const char *body,
                         size_t body_length, struct buffer *value) {
    const struct style *style = signer->style;
    struct buffer *content = &signer->content;
    buffer_clear(content);
    if (style->signs & SIGNS_ID) {
        buffer_text(content, id);
        buffer_char(content, '.');
    }
    if (style->signs & SIGNS_TIMESTAMP) {
        buffer_int(content, timestamp_s);
        buffer_char(content, '.');
    }
    buffer_append(content, body, body_length);

    if (style->opening)
        buffer_format(value, "%s%" PRId64 ",", style->opening, timestamp_s);
    for (size_t i = 0; i < signer->key_count; i++) {
        unsigned char signature[MAX_SIGNATURE_BYTES];
        const struct key *key = &signer->keys[i];
        if (key->end_s <= timestamp_s)
            continue;
        size_t length = key->scheme->sign(key, content, signature);
        if (i > 0)
            buffer_char(value, style->separator);
        buffer_text(value, key->scheme->tag);
        key->scheme->write(value, signature, length);
    }
}
