#include "common/error.h"
#include <assert.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct code {
    const char *name;
    enum error_class class;
    int exit_status;
};

static const struct code codes[] = {
    [ERROR_NONE] = {"NONE", ERROR_CLASS_PERMANENT, 0},
#define ERROR_CODE(code, class, exit_status) [ERROR_##code] = {#code, ERROR_CLASS_##class, exit_status},
#include "common/errors.def"
#undef ERROR_CODE
};

static const struct code *find(enum error_code code) {
    assert((size_t)code < sizeof codes / sizeof codes[0]);
    return &codes[code];
}

// Makes one line of it: what libpq and servers say comes with newlines, and may hold anything.
static void flatten(char *text) {
    size_t length = strlen(text);
    // What vsnprintf cut in the middle of a UTF-8 character loses all of that character.
    if (length == sizeof(((struct error *)NULL)->text) - 1 && (text[length - 1] & 0x80)) {
        size_t start = length - 1;
        while (start > 0 && ((unsigned char)text[start] & 0xC0) == 0x80)
            start--;
        text[start] = '\0';
        length = start;
    }
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7F)
            text[i] = ' ';
    while (length > 0 && text[length - 1] == ' ')
        text[--length] = '\0';
}

bool error_set(struct error *ret_error, enum error_code code, const char *format, ...) {
    if (ret_error == NULL)
        return false;
    struct error error = {.code = code}; // apart, since an argument may be the old text
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error.text, sizeof error.text, format, arguments);
    va_end(arguments);
    flatten(error.text);
    *ret_error = error;
    return false;
}

bool error_wrap(struct error *error, const char *format, ...) {
    if (error == NULL)
        return false;
    char inner[sizeof error->text];
    memcpy(inner, error->text, sizeof inner);
    char context[sizeof error->text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(context, sizeof context, format, arguments);
    va_end(arguments);
    // Cut on purpose when both are long: the context, which says what was tried, stays.
    size_t used = 0;
    const char *const parts[] = {context, ": ", inner};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        size_t length = strnlen(parts[i], sizeof error->text - 1 - used);
        memcpy(error->text + used, parts[i], length);
        used += length;
    }
    error->text[used] = '\0';
    flatten(error->text);
    return false;
}

enum error_class error_class(const struct error *error) {
    return find(error->code)->class;
}

const char *error_code_name(enum error_code code) {
    return find(code)->name;
}

int error_exit_status(const struct error *error) {
    return find(error->code)->exit_status;
}
