#include "common/stream_message.h"
#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char magic[] = "rowbell-stream 1 ";

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
    buffer_format(buffer, "%s%" PRId64 " %" PRId64 " %d\n", magic, prev, first, count);
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

bool stream_message_read(char *bytes, size_t length, void (*each)(void *arg, const struct stream_entry *entry),
                         void *arg) {
    struct reader reader = {bytes, bytes + length};
    size_t magic_length = sizeof magic - 1;
    if (length < magic_length || memcmp(bytes, magic, magic_length) != 0)
        return false;
    reader.at += magic_length;
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

void stream_channel(char *ret_channel, size_t size, const char *installation, int stream_id) {
    int length = snprintf(ret_channel, size, "rowbell:%s:stream:%d", installation, stream_id);
    assert(length > 0 && (size_t)length < size);
}
