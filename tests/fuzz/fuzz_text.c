// Bytes of strangers on their way into other languages: PostgreSQL's array literals, JSON, a terminal. Read back, they
// are what they were.
#include "common/json_read.h"
#include "common/plain_text.h"
#include "dispatcher/pg_array.h"
#include "gateway/sql_array.h"
#include "tests/fuzz/fuzz.h"

// The one element of a literal, as PostgreSQL reads it (docs, 8.15.6).
static void require_element(const char *literal, const char *text) {
    require(literal[0] == '{' && literal[1] == '"');
    for (literal += 2; *literal != '"'; literal++, text++) {
        if (*literal == '\\')
            literal++;
        require(*literal != '\0' && *literal == *text);
    }
    require(*text == '\0' && strcmp(literal, "\"}") == 0);
}

static void check_json(const char *text, size_t length) {
    struct buffer json = {0};
    struct error error;
    buffer_json_string(&json, text, length);
    struct json_document *document = json_read(json.bytes, json.length, &error);
    bool whole = length < JSON_TEXT_MAX_BYTES / 8 && memchr(text, '\0', length) == NULL;
    require(!whole || document);
    if (document && utf8_is_valid(text, length))
        require(json_is(json_root(document), JSON_STRING) && strlen(json_root(document)->text) == length &&
                memcmp(json_root(document)->text, text, length) == 0);
    json_free(document);
    buffer_free(&json);
}

static void each_int(void *arg, int value) {
    ++*(int *)arg;
}

FUZZ_TARGET(text) {
    char *text = input_text(bytes, length), *exact = input_copy(bytes, length);
    struct buffer array = {0};
    int count = 0;
    pg_array_begin(&array);
    pg_array_text(&array, text);
    require_element(pg_array_end(&array), text);
    pg_array_each_int(text, each_int, &count);
    buffer_clear(&array);
    buffer_char(&array, '{');
    sql_array_append(&array, text);
    buffer_char(&array, '}');
    require_element(array.bytes, text);
    buffer_free(&array);
    check_json(exact, length);
    plain_text_make(text, length);
    require(strlen(text) == length && utf8_is_valid(text, length));
    for (const char *c = text; *c; c++)
        require(((unsigned char)*c >= ' ' && *c != 0x7f) || strchr("\t\r\n", *c));
    free(exact);
    free(text);
    return 0;
}
