#include "common/stream_message.h"
#include <assert.h>
#include <inttypes.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char magic[] = "rowbell-stream 2 ";
enum { SIGNATURE_BYTES = 16, SIGNATURE_DIGITS = 2 * SIGNATURE_BYTES, KEY_ID_DIGITS = 10 };
// What is written before it is signed: the first line, always of one length.
enum { FIRST_LINE_BYTES = sizeof magic - 1 + KEY_ID_DIGITS + 1 + SIGNATURE_DIGITS + 1 };

// What is escaped, and the letter behind the backslash (PostgreSQL docs, COPY, text format).
static const struct {
    char byte;
    char letter;
} escapes[] = {{'\\', '\\'}, {'\t', 't'}, {'\n', 'n'}, {'\r', 'r'}};
enum { ESCAPES = sizeof escapes / sizeof escapes[0] };

void stream_message_begin(struct buffer *buffer, int64_t prev, int64_t first, int count) {
    assert(count > 0 && count <= STREAM_MESSAGE_MAX_ENTRIES);
    assert(prev >= 0 && prev < first && first <= INT64_MAX - count);
    buffer_clear(buffer);
    buffer_format(buffer, "%s%0*d %0*d\n", magic, KEY_ID_DIGITS, 0, SIGNATURE_DIGITS, 0);
    buffer_format(buffer, "%" PRId64 " %" PRId64 " %d\n", prev, first, count);
}

static void write_field(struct buffer *buffer, const char *text, char end) {
    if (text == NULL)
        buffer_text(buffer, "\\N");
    while (text != NULL && *text != '\0') {
        size_t plain = strcspn(text, "\\\t\n\r");
        buffer_append(buffer, text, plain);
        text += plain;
        for (size_t i = 0; *text != '\0' && i < ESCAPES; i++) {
            if (*text != escapes[i].byte)
                continue;
            buffer_char(buffer, '\\');
            buffer_char(buffer, escapes[i].letter);
            text++;
            break;
        }
    }
    buffer_char(buffer, end);
}

void stream_message_entry(struct buffer *buffer, const struct stream_entry *entry) {
    assert(entry->name != NULL && entry->op != NULL);
    write_field(buffer, entry->scope, '\t');
    write_field(buffer, entry->name, '\t');
    write_field(buffer, entry->key, '\t');
    write_field(buffer, entry->op, '\n');
}

// ---- the signature

static int hex_value(char digit) {
    static const char digits[] = "0123456789abcdef";
    const char *found = digit != '\0' ? strchr(digits, digit) : NULL;
    return found ? (int)(found - digits) : -1;
}

static bool read_hex(const char *text, size_t count, unsigned char *ret_bytes) {
    for (size_t i = 0; i < count; i++) {
        int high = hex_value(text[2 * i]);
        int low = high >= 0 ? hex_value(text[2 * i + 1]) : -1;
        if (low < 0)
            return false;
        ret_bytes[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

void stream_keys_add(struct stream_keys *keys, const char *id, const char *hex) {
    struct stream_key key = {.id = atoi(id)};
    if (keys->count < STREAM_KEYS_MAX && key.id > 0 && strlen(hex) == 2 * STREAM_KEY_BYTES &&
        read_hex(hex, STREAM_KEY_BYTES, key.bytes))
        keys->keys[keys->count++] = key;
    OPENSSL_cleanse(&key, sizeof key);
}

void stream_keys_clear(struct stream_keys *keys) {
    OPENSSL_cleanse(keys, sizeof *keys);
}

static void signature_of(const struct stream_key *key, const char *channel, const char *bytes, size_t length,
                         unsigned char ret_signature[SIGNATURE_BYTES]) {
    static EVP_MAC_CTX *mac; // made once: to find the algorithm costs more than to use it
    unsigned char digest[EVP_MAX_MD_SIZE];
    size_t size = 0;
    if (!mac) {
        EVP_MAC *algorithm = EVP_MAC_fetch(NULL, "HMAC", NULL);
        mac = EVP_MAC_CTX_new(algorithm);
        EVP_MAC_free(algorithm);
    }
    OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char[]){"SHA256"}, 0),
                               OSSL_PARAM_construct_end()};
    bool signed_ = mac && EVP_MAC_init(mac, key->bytes, sizeof key->bytes, parameters) &&
                   EVP_MAC_update(mac, (const unsigned char *)"rowbell-stream 2\n", sizeof "rowbell-stream 2\n" - 1) &&
                   EVP_MAC_update(mac, (const unsigned char *)channel, strlen(channel)) &&
                   EVP_MAC_update(mac, (const unsigned char *)"\n", 1) &&
                   EVP_MAC_update(mac, (const unsigned char *)bytes, length) &&
                   EVP_MAC_final(mac, digest, &size, sizeof digest) && size >= SIGNATURE_BYTES;
    if (!signed_)
        abort(); // OpenSSL has no HMAC, or no memory
    memcpy(ret_signature, digest, SIGNATURE_BYTES);
}

bool stream_message_sign(struct buffer *buffer, const struct stream_key *key, const char *channel) {
    unsigned char signature[SIGNATURE_BYTES];
    char line[FIRST_LINE_BYTES + 1];
    assert(buffer->length > FIRST_LINE_BYTES && key->id > 0);
    if (buffer->length > STREAM_MESSAGE_MAX_BYTES)
        return false;
    signature_of(key, channel, buffer->bytes + FIRST_LINE_BYTES, buffer->length - FIRST_LINE_BYTES, signature);
    int at = snprintf(line, sizeof line, "%s%0*d ", magic, KEY_ID_DIGITS, key->id);
    for (size_t i = 0; i < sizeof signature; i++)
        at += snprintf(line + at, sizeof line - (size_t)at, "%02x", signature[i]);
    memcpy(buffer->bytes, line, FIRST_LINE_BYTES - 1);
    return true;
}

static enum stream_message_fault check_signature(const char *bytes, size_t length, const struct stream_keys *keys,
                                                 const char *channel) {
    unsigned char given[SIGNATURE_BYTES], due[SIGNATURE_BYTES];
    const char *id = bytes + sizeof magic - 1;
    if (length > STREAM_MESSAGE_MAX_BYTES)
        return STREAM_MESSAGE_TOO_LONG;
    if (length < sizeof magic - 1 || memcmp(bytes, magic, sizeof magic - 1) != 0)
        return STREAM_MESSAGE_VERSION;
    if (length < FIRST_LINE_BYTES || bytes[FIRST_LINE_BYTES - 1] != '\n' || id[KEY_ID_DIGITS] != ' ' ||
        !read_hex(id + KEY_ID_DIGITS + 1, sizeof given, given))
        return STREAM_MESSAGE_SIGNATURE;
    for (int i = 0; i < keys->count; i++) {
        char written[KEY_ID_DIGITS + 1];
        snprintf(written, sizeof written, "%0*d", KEY_ID_DIGITS, keys->keys[i].id);
        if (memcmp(written, id, KEY_ID_DIGITS) != 0)
            continue;
        signature_of(&keys->keys[i], channel, bytes + FIRST_LINE_BYTES, length - FIRST_LINE_BYTES, due);
        return CRYPTO_memcmp(given, due, sizeof due) == 0 ? STREAM_MESSAGE_GOOD : STREAM_MESSAGE_SIGNATURE;
    }
    return STREAM_MESSAGE_KEY;
}

const char *stream_message_fault_name(enum stream_message_fault fault) {
    static const char *const names[] = {
        [STREAM_MESSAGE_GOOD] = "good", [STREAM_MESSAGE_TOO_LONG] = "too_long",   [STREAM_MESSAGE_VERSION] = "version",
        [STREAM_MESSAGE_KEY] = "key",   [STREAM_MESSAGE_SIGNATURE] = "signature", [STREAM_MESSAGE_DAMAGED] = "damaged"};
    return names[fault];
}

// ---- reading

// What is still unread.
struct reader {
    char *at;
    const char *end;
};

// A plain decimal number and the byte behind it.
static bool read_number(struct reader *reader, char end, int64_t *ret_number) {
    int64_t number = 0;
    const char *start = reader->at;
    while (reader->at < reader->end && *reader->at >= '0' && *reader->at <= '9') {
        if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, *reader->at - '0', &number))
            return false;
        reader->at++;
    }
    if (reader->at == start || reader->at == reader->end || *reader->at != end)
        return false;
    reader->at++;
    *ret_number = number;
    return true;
}

static bool unescape(char letter, char *ret_byte) {
    for (size_t i = 0; i < ESCAPES; i++) {
        if (letter == escapes[i].letter) {
            *ret_byte = escapes[i].byte;
            return true;
        }
    }
    return false;
}

// Undoes the escapes where they stand (the text only gets shorter) and puts a NUL in the place of `end`.
static bool read_field(struct reader *reader, char end, const char **ret_text) {
    char *start = reader->at;
    char *out = start;
    if (reader->end - start >= 3 && memcmp(start, "\\N", 2) == 0 && start[2] == end) {
        reader->at += 3;
        *ret_text = NULL;
        return true;
    }
    while (reader->at < reader->end) {
        char byte = *reader->at++;
        if (byte == end) {
            *out = '\0';
            *ret_text = start;
            return true;
        }
        if (byte == '\t' || byte == '\n' || byte == '\0')
            return false;
        if (byte == '\\' && (reader->at == reader->end || !unescape(*reader->at++, &byte)))
            return false;
        *out++ = byte;
    }
    return false;
}

static bool is_op(const char *text) {
    return text != NULL && (strcmp(text, "create") == 0 || strcmp(text, "update") == 0 || strcmp(text, "delete") == 0);
}

static bool read_body(struct reader reader, void (*each)(void *arg, const struct stream_entry *entry), void *arg) {
    int64_t prev;
    int64_t first;
    int64_t count;
    if (!read_number(&reader, ' ', &prev) || !read_number(&reader, ' ', &first) || !read_number(&reader, '\n', &count))
        return false;
    if (prev >= first || count == 0 || count > STREAM_MESSAGE_MAX_ENTRIES || first > INT64_MAX - count)
        return false;
    for (int64_t i = 0; i < count; i++) {
        struct stream_entry entry = {.position = first + i, .prev = i == 0 ? prev : first + i - 1};
        if (!read_field(&reader, '\t', &entry.scope) || !read_field(&reader, '\t', &entry.name) ||
            !read_field(&reader, '\t', &entry.key) || !read_field(&reader, '\n', &entry.op))
            return false;
        if (entry.name == NULL || !is_op(entry.op))
            return false;
        each(arg, &entry);
    }
    return reader.at == reader.end;
}

enum stream_message_fault stream_message_read(char *bytes, size_t length, const struct stream_keys *keys,
                                              const char *channel,
                                              void (*each)(void *arg, const struct stream_entry *entry), void *arg) {
    enum stream_message_fault fault = check_signature(bytes, length, keys, channel);
    if (fault != STREAM_MESSAGE_GOOD)
        return fault;
    struct reader reader = {bytes + FIRST_LINE_BYTES, bytes + length};
    return read_body(reader, each, arg) ? STREAM_MESSAGE_GOOD : STREAM_MESSAGE_DAMAGED;
}

void stream_channel(char *ret_channel, size_t size, const char *installation, int stream_id) {
    int length = snprintf(ret_channel, size, "rowbell:%s:stream:%d", installation, stream_id);
    assert(length > 0 && (size_t)length < size);
}
