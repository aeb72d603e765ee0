#include "common/seal.h"
#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_BYTES = 32,
    KEY_BASE64_BYTES = 44,
    NONCE_BYTES = 12,
    TAG_BYTES = 16,
    SEALED_MAX_BYTES = NONCE_BYTES + SEAL_TEXT_MAX_BYTES + TAG_BYTES,
};

static const char plain[] = "plain:";
static const char sealed[] = "sealed:2:";
static const char unbound[] = "sealed:1:"; // as long

static bool starts_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

// ---- keys

static void key_name(struct seal_key *key) {
    static const char purpose[] = "rowbell key id";
    unsigned char input[sizeof purpose + KEY_BYTES], digest[SHA256_DIGEST_LENGTH];
    memcpy(input, purpose, sizeof purpose);
    memcpy(input + sizeof purpose, key->bytes, KEY_BYTES);
    SHA256(input, sizeof input, digest);
    OPENSSL_cleanse(input, sizeof input);
    for (int i = 0; i < (SEAL_KEY_ID_BYTES - 1) / 2; i++)
        snprintf(key->id + 2 * i, 3, "%02x", digest[i]);
}

static bool key_read(struct seal_key *key, const char *text, size_t length) {
    unsigned char bytes[KEY_BASE64_BYTES / 4 * 3], again[KEY_BASE64_BYTES + 1];
    bool good = length == KEY_BASE64_BYTES && EVP_DecodeBlock(bytes, (const unsigned char *)text, (int)length) > 0 &&
                EVP_EncodeBlock(again, bytes, KEY_BYTES) == KEY_BASE64_BYTES && memcmp(again, text, length) == 0;
    if (good) {
        memcpy(key->bytes, bytes, KEY_BYTES);
        key_name(key);
    }
    OPENSSL_cleanse(bytes, sizeof bytes);
    OPENSSL_cleanse(again, sizeof again);
    return good;
}

bool seal_keys_init(struct seal_keys *keys, const char *text, struct error *ret_error) {
    *keys = (struct seal_keys){0};
    while (text && *text) {
        size_t length = strcspn(text, ",");
        if (keys->count == SEAL_KEYS_MAX)
            return error_set(ret_error, ERROR_USAGE, "ROWBELL_SECRET_KEY: more than %d keys", SEAL_KEYS_MAX);
        if (!key_read(&keys->keys[keys->count], text, length))
            return error_set(
                ret_error, ERROR_USAGE,
                "ROWBELL_SECRET_KEY: key %d is not the base64 of 32 bytes; openssl rand -base64 32 makes one",
                keys->count + 1);
        keys->count++;
        text += length;
        if (*text == ',' && *++text == '\0')
            return error_set(ret_error, ERROR_USAGE, "ROWBELL_SECRET_KEY: ends with a comma");
    }
    return true;
}

void seal_keys_close(struct seal_keys *keys) {
    OPENSSL_cleanse(keys, sizeof *keys);
}

// ---- AES-256-GCM

// What is authenticated besides the text: the head of the form and its place, each with its NUL, so that no two are
// alike.
static void place_append(struct buffer *head, struct seal_place place) {
    buffer_char(head, '\0');
    buffer_append(head, place.id, strlen(place.id) + 1);
    buffer_append(head, place.purpose, strlen(place.purpose) + 1);
}

static void gcm_seal(const struct seal_key *key, const struct buffer *head, const char *text, size_t length,
                     unsigned char *ret_bytes) {
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    unsigned char *cipher = ret_bytes + NONCE_BYTES;
    int written = 0;
    int done = RAND_bytes(ret_bytes, NONCE_BYTES) == 1 &&
               EVP_EncryptInit_ex2(context, EVP_aes_256_gcm(), key->bytes, ret_bytes, NULL) &&
               EVP_EncryptUpdate(context, NULL, &written, (const unsigned char *)head->bytes, (int)head->length) &&
               EVP_EncryptUpdate(context, cipher, &written, (const unsigned char *)text, (int)length) &&
               EVP_EncryptFinal_ex(context, cipher + written, &written) &&
               EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, TAG_BYTES, cipher + length);
    assert(done);
    EVP_CIPHER_CTX_free(context);
}

static bool gcm_open(const struct seal_key *key, const struct buffer *head, unsigned char *bytes, size_t text_length,
                     unsigned char *ret_text) {
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    const unsigned char *cipher = bytes + NONCE_BYTES;
    int written = 0;
    bool done = EVP_DecryptInit_ex2(context, EVP_aes_256_gcm(), key->bytes, bytes, NULL) &&
                EVP_DecryptUpdate(context, NULL, &written, (const unsigned char *)head->bytes, (int)head->length) &&
                EVP_DecryptUpdate(context, ret_text, &written, cipher, (int)text_length) &&
                EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_SET_TAG, TAG_BYTES, bytes + NONCE_BYTES + text_length) &&
                EVP_DecryptFinal_ex(context, ret_text + written, &written) == 1;
    EVP_CIPHER_CTX_free(context);
    return done;
}

// ---- forms

const char *seal_split(const char *stored, int64_t *ret_end_s) {
    *ret_end_s = INT64_MAX;
    if (!starts_with(stored, "until="))
        return stored;
    const char *digits = stored + 6;
    size_t length = strspn(digits, "0123456789");
    if (length == 0 || length > 15 || digits[length] != ';')
        return stored;
    *ret_end_s = strtoll(digits, NULL, 10);
    return digits + length + 1;
}

void seal_text(const struct seal_keys *keys, struct seal_place place, const char *text, struct buffer *ret_form) {
    size_t length = strlen(text);
    assert(keys->count > 0 && length <= SEAL_TEXT_MAX_BYTES && place.id && *place.id);
    struct buffer head = {0};
    buffer_format(&head, "%s%s:", sealed, keys->keys[0].id);
    buffer_text(ret_form, head.bytes);
    place_append(&head, place);
    unsigned char bytes[SEALED_MAX_BYTES];
    char base64[SEALED_MAX_BYTES / 3 * 4 + 5];
    gcm_seal(&keys->keys[0], &head, text, length, bytes);
    EVP_EncodeBlock((unsigned char *)base64, bytes, (int)(NONCE_BYTES + length + TAG_BYTES));
    buffer_text(ret_form, base64);
    buffer_free(&head);
}

static const struct seal_key *key_find(const struct seal_keys *keys, const char *id, size_t length) {
    for (int i = 0; i < keys->count; i++)
        if (strlen(keys->keys[i].id) == length && memcmp(keys->keys[i].id, id, length) == 0)
            return &keys->keys[i];
    return NULL;
}

bool seal_open(const struct seal_keys *keys, struct seal_place place, const char *form, struct buffer *ret_text,
               struct error *ret_error) {
    if (starts_with(form, plain)) {
        buffer_text(ret_text, form + strlen(plain));
        return true;
    }
    bool bound = starts_with(form, sealed);
    if (!bound && !starts_with(form, unbound))
        return error_set(ret_error, ERROR_USAGE, "secret: stored in a form that is not known (plain:, sealed:2:)");
    if (bound && (!place.id || !*place.id))
        return error_set(ret_error, ERROR_USAGE, "secret: it is sealed for a subscription, which has no seal_id here");
    const char *id = form + strlen(sealed);
    size_t id_length = strcspn(id, ":");
    if (id_length != SEAL_KEY_ID_BYTES - 1 || strspn(id, "0123456789abcdef") != id_length || id[id_length] != ':')
        return error_set(ret_error, ERROR_USAGE, "secret: its sealed form has no key id");
    if (keys->count == 0)
        return error_set(ret_error, ERROR_KEY,
                         "secret: it is sealed under key %.16s, and ROWBELL_SECRET_KEY is not set here", id);
    const struct seal_key *key = key_find(keys, id, id_length);
    if (!key)
        return error_set(ret_error, ERROR_KEY, "secret: it is sealed under key %.16s, which ROWBELL_SECRET_KEY lacks",
                         id);

    const char *base64 = id + id_length + 1;
    size_t length = strlen(base64);
    unsigned char bytes[SEALED_MAX_BYTES + 3], text[SEAL_TEXT_MAX_BYTES + TAG_BYTES];
    if (length % 4 != 0 || length / 4 * 3 > sizeof bytes || length / 4 * 3 < NONCE_BYTES + TAG_BYTES ||
        EVP_DecodeBlock(bytes, (const unsigned char *)base64, (int)length) < 0)
        return error_set(ret_error, ERROR_USAGE, "secret: its sealed form is damaged");
    size_t decoded = length / 4 * 3 - (base64[length - 1] == '=') - (base64[length - 2] == '=');
    if (decoded < NONCE_BYTES + TAG_BYTES || decoded > SEALED_MAX_BYTES)
        return error_set(ret_error, ERROR_USAGE, "secret: its sealed form is damaged");
    // One text for one form: the unused bits of its end are zero, and nothing stands around it.
    char again[SEALED_MAX_BYTES / 3 * 4 + 5];
    if (EVP_EncodeBlock((unsigned char *)again, bytes, (int)decoded) != (int)length ||
        memcmp(again, base64, length) != 0)
        return error_set(ret_error, ERROR_USAGE, "secret: its sealed form is damaged");
    size_t text_length = decoded - NONCE_BYTES - TAG_BYTES;
    struct buffer head = {0};
    buffer_append(&head, form, (size_t)(base64 - form));
    if (bound)
        place_append(&head, place);
    bool good = gcm_open(key, &head, bytes, text_length, text);
    buffer_free(&head);
    if (good)
        buffer_append(ret_text, text, text_length);
    OPENSSL_cleanse(text, sizeof text);
    return good ||
           error_set(ret_error, ERROR_USAGE,
                     "secret: what was sealed under key %.16s was changed, or sealed for another subscription or use",
                     id);
}

bool seal_is_current(const struct seal_keys *keys, const char *form) {
    return keys->count > 0 && starts_with(form, sealed) && starts_with(form + strlen(sealed), keys->keys[0].id) &&
           form[strlen(sealed) + SEAL_KEY_ID_BYTES - 1] == ':';
}
