// buffer: growing bytes. Invariant: bytes[length] is a NUL that is not counted, so .bytes is also a C string once
// anything was appended (before that bytes is NULL; buffer_text gives "").
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buffer {
    char *bytes;
    size_t length;
    size_t capacity;
};

void buffer_append(struct buffer *buffer, const void *bytes, size_t length);
void buffer_text(struct buffer *buffer, const char *text);
void buffer_char(struct buffer *buffer, char c);
void buffer_int(struct buffer *buffer, int64_t value); // decimal
void buffer_format(struct buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
// A JSON string with its quotes; bytes that are not valid UTF-8 become U+FFFD. RFC 8259, section 7.
void buffer_json_string(struct buffer *buffer, const char *text, size_t length);
void buffer_consume(struct buffer *buffer, size_t length); // drops the first bytes
void buffer_clear(struct buffer *buffer);                  // keeps the memory
void buffer_free(struct buffer *buffer);                   // gives it back; the buffer is empty and usable again
const char *buffer_cstr(const struct buffer *buffer);      // view, "" when empty
bool utf8_is_valid(const char *text, size_t length);       // RFC 3629: no surrogates, nothing overlong
