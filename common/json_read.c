// One pass over the text. Values and decoded strings go into one block that is made beforehand: there are at most as
// many values as commas and opening brackets, plus one, and decoding never makes a string longer.
#include "common/json_read.h"
#include "common/buffer.h"
#include "common/memory.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct json_document {
    const struct json_value *root;
    struct json_value *values; // the next free one
    char *text;                // likewise
    // Parsing.
    const char *start;
    const char *at;
    const char *end;
    unsigned depth;
    struct error *error;
};

static bool fail(struct json_document *document, const char *what) {
    return error_set(document->error, ERROR_PROTOCOL, "not JSON: %s at byte %zu", what,
                     (size_t)(document->at - document->start));
}

static void skip_space(struct json_document *document) {
    while (document->at < document->end && strchr(" \t\r\n", *document->at) && *document->at != '\0') {
        document->at++;
    }
}

static bool next_is(const struct json_document *document, char c) {
    return document->at < document->end && *document->at == c;
}

static bool take(struct json_document *document, char c) {
    if (!next_is(document, c)) {
        return false;
    }
    document->at++;
    return true;
}

// ---- strings ----

static bool read_hex4(struct json_document *document, unsigned *ret_unit) {
    *ret_unit = 0;
    for (int i = 0; i < 4; i++, document->at++) {
        static const char digits[] = "0123456789abcdef";
        const char *digit = NULL;
        if (document->at < document->end && *document->at != '\0') {
            digit = strchr(digits, *document->at >= 'A' && *document->at <= 'F' ? *document->at | 0x20 : *document->at);
        }
        if (!digit) {
            return fail(document, "a bad \\u escape");
        }
        *ret_unit = *ret_unit << 4 | (unsigned)(digit - digits);
    }
    return true;
}

static void put_utf8(struct json_document *document, unsigned code) {
    if (code < 0x80) {
        *document->text++ = (char)code;
        return;
    }
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned first[] = {0, 0xC0, 0xE0, 0xF0};
    *document->text++ = (char)(first[more] | code >> (6 * more));
    while (more-- > 0) {
        *document->text++ = (char)(0x80 | (code >> (6 * more) & 0x3F));
    }
}

static bool read_unicode_escape(struct json_document *document) {
    unsigned code;
    if (!read_hex4(document, &code)) {
        return false;
    }
    if (code >= 0xD800 && code < 0xDC00) {
        unsigned low;
        if (!take(document, '\\') || !take(document, 'u')) {
            return fail(document, "a lone surrogate");
        }
        if (!read_hex4(document, &low)) {
            return false;
        }
        if (low < 0xDC00 || low > 0xDFFF) {
            return fail(document, "a lone surrogate");
        }
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code < 0xE000) {
        return fail(document, "a lone surrogate");
    }
    if (code == 0) {
        return fail(document, "a NUL in a string");
    }
    put_utf8(document, code);
    return true;
}

static bool read_escape(struct json_document *document) {
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    if (take(document, 'u')) {
        return read_unicode_escape(document);
    }
    const char *known = document->at < document->end && *document->at != '\0' ? strchr(from, *document->at) : NULL;
    if (!known) {
        return fail(document, "an unknown escape");
    }
    document->at++;
    *document->text++ = to[known - from];
    return true;
}

static bool read_string(struct json_document *document, const char **ret_text) {
    if (!take(document, '"')) {
        return fail(document, "no string");
    }
    *ret_text = document->text;
    while (!take(document, '"')) {
        if (document->at == document->end) {
            return fail(document, "an unfinished string");
        }
        if ((unsigned char)*document->at < 0x20) {
            return fail(document, "a control character in a string");
        }
        if (!take(document, '\\')) {
            *document->text++ = *document->at++;
        } else if (!read_escape(document)) {
            return false;
        }
    }
    *document->text++ = '\0';
    return true;
}

// ---- values ----

static bool read_value(struct json_document *document, struct json_value *value);

static size_t read_digits(struct json_document *document) {
    const char *start = document->at;
    while (document->at < document->end && *document->at >= '0' && *document->at <= '9') {
        *document->text++ = *document->at++;
    }
    return (size_t)(document->at - start);
}

static bool copy_one_of(struct json_document *document, const char *characters) {
    if (document->at == document->end || *document->at == '\0' || !strchr(characters, *document->at)) {
        return false;
    }
    *document->text++ = *document->at++;
    return true;
}

static bool read_number(struct json_document *document, struct json_value *value) {
    value->kind = JSON_NUMBER;
    value->text = document->text;
    copy_one_of(document, "-");
    bool zero = next_is(document, '0');
    size_t digits = read_digits(document);
    if (digits == 0 || (zero && digits > 1)) {
        return fail(document, "a bad number");
    }
    if (copy_one_of(document, ".") && read_digits(document) == 0) {
        return fail(document, "a bad number");
    }
    if (copy_one_of(document, "eE")) {
        copy_one_of(document, "+-");
        if (read_digits(document) == 0) {
            return fail(document, "a bad number");
        }
    }
    *document->text++ = '\0';
    return true;
}

static struct json_value *append_value(struct json_document *document, struct json_value *parent,
                                       struct json_value *last) {
    struct json_value *value = document->values++;
    if (last) {
        last->next = value;
    } else {
        parent->first = value;
    }
    parent->count++;
    return value;
}

static bool read_array(struct json_document *document, struct json_value *array) {
    struct json_value *last = NULL;
    array->kind = JSON_ARRAY;
    skip_space(document);
    if (take(document, ']')) {
        return true;
    }
    do {
        last = append_value(document, array, last);
        if (!read_value(document, last)) {
            return false;
        }
    } while (take(document, ','));
    return take(document, ']') || fail(document, "no , and no ]");
}

static bool read_object(struct json_document *document, struct json_value *object) {
    struct json_value *last = NULL;
    object->kind = JSON_OBJECT;
    skip_space(document);
    if (take(document, '}')) {
        return true;
    }
    do {
        const char *name = NULL;
        skip_space(document);
        if (!read_string(document, &name)) {
            return false;
        }
        if (json_member(object, name)) {
            return fail(document, "a member that is there twice");
        }
        if (object->count == JSON_MEMBERS_MAX) {
            return fail(document, "too many members");
        }
        skip_space(document);
        if (!take(document, ':')) {
            return fail(document, "no :");
        }
        last = append_value(document, object, last);
        last->name = name;
        if (!read_value(document, last)) {
            return false;
        }
    } while (take(document, ','));
    return take(document, '}') || fail(document, "no , and no }");
}

static bool read_word(struct json_document *document, struct json_value *value) {
    static const struct {
        const char *word;
        enum json_kind kind;
    } words[] = {{"null", JSON_NULL}, {"false", JSON_FALSE}, {"true", JSON_TRUE}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t length = strlen(words[i].word);
        if ((size_t)(document->end - document->at) >= length && memcmp(document->at, words[i].word, length) == 0) {
            document->at += length;
            value->kind = words[i].kind;
            return true;
        }
    }
    return fail(document, "no value");
}

static bool read_bare_value(struct json_document *document, struct json_value *value) {
    if (next_is(document, '"')) {
        value->kind = JSON_STRING;
        return read_string(document, &value->text);
    }
    if (document->at < document->end && (*document->at == '-' || (*document->at >= '0' && *document->at <= '9'))) {
        return read_number(document, value);
    }
    if (!next_is(document, '[') && !next_is(document, '{')) {
        return read_word(document, value);
    }
    if (document->depth == JSON_DEPTH_MAX) {
        return fail(document, "too deep");
    }
    document->depth++;
    bool read = take(document, '[') ? read_array(document, value) : (document->at++, read_object(document, value));
    document->depth--;
    return read;
}

static bool read_value(struct json_document *document, struct json_value *value) {
    skip_space(document);
    if (!read_bare_value(document, value)) {
        return false;
    }
    skip_space(document);
    return true;
}

struct json_document *json_read(const char *bytes, size_t length, struct error *ret_error) {
    if (length > JSON_TEXT_MAX_BYTES) {
        error_set(ret_error, ERROR_PROTOCOL, "not JSON: more than %d bytes", JSON_TEXT_MAX_BYTES);
        return NULL;
    }
    if (!utf8_is_valid(bytes, length)) {
        error_set(ret_error, ERROR_PROTOCOL, "not JSON: not UTF-8");
        return NULL;
    }
    size_t most_values = 1;
    for (size_t i = 0; i < length; i++) {
        most_values += bytes[i] == ',' || bytes[i] == '[' || bytes[i] == '{';
    }
    // A string's quotes and a number's delimiter make room for its NUL; a number that is the whole text has none.
    struct json_document *document =
        memory_alloc(sizeof *document + most_values * sizeof *document->values + length + 1);
    struct json_value *root = (struct json_value *)(document + 1);
    document->values = root + 1;
    document->text = (char *)(root + most_values);
    document->root = root;
    document->start = document->at = bytes;
    document->end = bytes + length;
    document->error = ret_error;
    bool read = read_value(document, root);
    if (read && document->at != document->end) {
        read = fail(document, "something after the value");
    }
    document->error = NULL;
    if (!read) {
        json_free(document);
        return NULL;
    }
    return document;
}

void json_free(struct json_document *document) {
    free(document);
}

const struct json_value *json_root(const struct json_document *document) {
    return document->root;
}

const struct json_value *json_member(const struct json_value *value, const char *name) {
    if (!json_is(value, JSON_OBJECT)) {
        return NULL;
    }
    for (const struct json_value *member = value->first; member; member = member->next) {
        if (strcmp(member->name, name) == 0) {
            return member;
        }
    }
    return NULL;
}

const char *json_member_text(const struct json_value *value, const char *name) {
    const struct json_value *member = json_member(value, name);
    return json_is(member, JSON_STRING) ? member->text : NULL;
}

bool json_is(const struct json_value *value, enum json_kind kind) {
    return value && value->kind == kind;
}

bool json_integer(const struct json_value *value, int64_t *ret_number) {
    if (!json_is(value, JSON_NUMBER) || strpbrk(value->text, ".eE")) {
        return false;
    }
    errno = 0;
    *ret_number = strtoll(value->text, NULL, 10);
    return errno == 0;
}
