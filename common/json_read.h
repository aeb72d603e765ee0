// json_read: a JSON text from a stranger (a token, an answer), read strictly by RFC 8259 and RFC 7493 (I-JSON): one
// value and nothing after it, UTF-8, no NUL, no lone surrogate, and no member twice in one object, since two readers of
// such a text may disagree about what it says. Numbers stay as they were written: nothing is rounded or clamped.
#pragma once
#include "common/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_TEXT_MAX_BYTES = 1 << 20, JSON_DEPTH_MAX = 32, JSON_MEMBERS_MAX = 256 };

enum json_kind { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json_value {
    enum json_kind kind;
    const char *name; // of a member
    const char *text; // STRING: decoded; NUMBER: as written; else NULL
    size_t count;     // ARRAY, OBJECT
    const struct json_value *first;
    const struct json_value *next; // within the array or object
};

struct json_document;

// NULL (ERROR_PROTOCOL: what is wrong, and at which byte; never a part of the text) when it is not such a text or goes
// beyond a limit above. returns owned.
struct json_document *json_read(const char *bytes, size_t length, struct error *ret_error);
void json_free(struct json_document *document);                           // NULL is allowed
const struct json_value *json_root(const struct json_document *document); // view, as everything below it
// NULL when value is NULL, is not an object, or has no such member.
const struct json_value *json_member(const struct json_value *value, const char *name);
// The same, as text; NULL too when it is not a string.
const char *json_member_text(const struct json_value *value, const char *name);
bool json_is(const struct json_value *value, enum json_kind kind); // false for NULL
// A number written without fraction and exponent that fits.
bool json_integer(const struct json_value *value, int64_t *ret_number);
