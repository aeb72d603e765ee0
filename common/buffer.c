#include "common/buffer.h"
#include "common/memory.h"
#include <assert.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Room for `length` more bytes and the NUL.
static void reserve(struct buffer *buffer, size_t length) {
    assert(length < SIZE_MAX / 4 && buffer->length < SIZE_MAX / 4);
    size_t needed = buffer->length + length + 1;
    if (needed <= buffer->capacity)
        return;
    size_t capacity = buffer->capacity < 64 ? 64 : buffer->capacity * 2;
    if (capacity < needed)
        capacity = needed;
    buffer->bytes = memory_resize(buffer->bytes, capacity, 1);
    buffer->capacity = capacity;
}

void buffer_append(struct buffer *buffer, const void *bytes, size_t length) {
    reserve(buffer, length);
    if (length > 0)
        memcpy(buffer->bytes + buffer->length, bytes, length);
    buffer->length += length;
    buffer->bytes[buffer->length] = '\0';
}

void buffer_text(struct buffer *buffer, const char *text) {
    buffer_append(buffer, text, strlen(text));
}

void buffer_char(struct buffer *buffer, char c) {
    reserve(buffer, 1);
    buffer->bytes[buffer->length++] = c;
    buffer->bytes[buffer->length] = '\0';
}

void buffer_int(struct buffer *buffer, int64_t value) {
    char digits[21]; // of the lowest number, with its sign
    char *first = digits + sizeof digits;
    uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do
        *--first = (char)('0' + left % 10);
    while ((left /= 10) > 0);
    if (value < 0)
        *--first = '-';
    buffer_append(buffer, first, (size_t)(digits + sizeof digits - first));
}

// Written where there is room already, and once more if there was too little.
void buffer_format(struct buffer *buffer, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    va_list again;
    va_copy(again, arguments);
    reserve(buffer, 0);
    size_t room = buffer->capacity - buffer->length;
    int length = vsnprintf(buffer->bytes + buffer->length, room, format, arguments);
    va_end(arguments);
    assert(length >= 0);
    if ((size_t)length >= room) {
        reserve(buffer, (size_t)length);
        vsnprintf(buffer->bytes + buffer->length, (size_t)length + 1, format, again);
    }
    va_end(again);
    buffer->length += (size_t)length;
}

// The rows of RFC 3629, section 4 (UTF8-octets): the first byte, and what the second may be; any later one is 80..BF.
static const struct utf8_row {
    unsigned char first_low, first_high, second_low, second_high, length;
} utf8_rows[] = {
    {0x00, 0x7F, 0x00, 0x00, 1}, {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
    {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3},
    {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4},
};

// The length of the character at the start of bytes; *ret_valid false: of the damaged part that one U+FFFD stands for
// (Unicode 15, section 3.9: the longest start of a character, at least one byte).
static size_t utf8_next(const unsigned char *bytes, size_t length, bool *ret_valid) {
    *ret_valid = false;
    for (size_t row = 0; row < sizeof utf8_rows / sizeof utf8_rows[0]; row++) {
        const struct utf8_row *r = &utf8_rows[row];
        if (bytes[0] < r->first_low || bytes[0] > r->first_high)
            continue;
        for (size_t i = 1; i < r->length; i++) {
            unsigned char low = i == 1 ? r->second_low : 0x80;
            unsigned char high = i == 1 ? r->second_high : 0xBF;
            if (i >= length || bytes[i] < low || bytes[i] > high)
                return i;
        }
        *ret_valid = true;
        return r->length;
    }
    return 1;
}

bool utf8_is_valid(const char *text, size_t length) {
    bool valid = true;
    for (size_t i = 0; i < length && valid;)
        i += utf8_next((const unsigned char *)text + i, length - i, &valid);
    return valid;
}

static void json_ascii(struct buffer *buffer, unsigned char c) {
    static const char escapes[0x80] = {
        ['"'] = '"', ['\\'] = '\\', ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    if (escapes[c] != 0) {
        buffer_char(buffer, '\\');
        buffer_char(buffer, escapes[c]);
    } else {
        buffer_format(buffer, "\\u%04x", c);
    }
}

static bool json_plain(unsigned char c) {
    return c >= ' ' && c < 0x80 && c != '"' && c != '\\';
}

void buffer_json_string(struct buffer *buffer, const char *text, size_t length) {
    const unsigned char *bytes = (const unsigned char *)text;
    buffer_char(buffer, '"');
    for (size_t i = 0; i < length;) {
        size_t run = i;
        while (run < length && json_plain(bytes[run]))
            run++;
        if (run > i) {
            buffer_append(buffer, bytes + i, run - i);
            i = run;
            continue;
        }
        if (bytes[i] < 0x80) {
            json_ascii(buffer, bytes[i++]);
            continue;
        }
        bool valid;
        size_t step = utf8_next(bytes + i, length - i, &valid);
        if (valid)
            buffer_append(buffer, bytes + i, step);
        else
            buffer_text(buffer, "\xEF\xBF\xBD");
        i += step;
    }
    buffer_char(buffer, '"');
}

void buffer_consume(struct buffer *buffer, size_t length) {
    assert(length <= buffer->length);
    if (length == 0)
        return;
    buffer->length -= length;
    memmove(buffer->bytes, buffer->bytes + length, buffer->length + 1);
}

void buffer_clear(struct buffer *buffer) {
    buffer->length = 0;
    if (buffer->bytes != NULL)
        buffer->bytes[0] = '\0';
}

void buffer_free(struct buffer *buffer) {
    free(buffer->bytes);
    *buffer = (struct buffer){0};
}

const char *buffer_cstr(const struct buffer *buffer) {
    return buffer->bytes != NULL ? buffer->bytes : "";
}
