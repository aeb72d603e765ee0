// error: what went wrong, as a code for programs and one line for people.
//
// A function that can fail takes `struct error *ret_error` last and returns false. It fills the error only on
// failure. Callers wrap outward, so the text reads from the general to the particular:
// "claim jobs: connect: timeout after 5000 ms".
#pragma once
#include <stdbool.h>

enum error_code {
    ERROR_NONE = 0,
#define ERROR_CODE(code, class, exit_status) ERROR_##code,
#include "common/errors.def"
#undef ERROR_CODE
};

enum error_class { ERROR_CLASS_RETRY, ERROR_CLASS_PERMANENT };

struct error {
    enum error_code code;
    char sqlstate[6]; // five characters when code is ERROR_SQL (or a refused connection), else ""
    char text[500];   // one line, no trailing newline, never a secret
};

// Sets code and text; clears sqlstate. Newlines in the text become spaces. Always returns false, so that
// `return error_set(ret_error, ERROR_IO, "...")` reads well. ret_error may be NULL.
bool error_set(struct error *ret_error, enum error_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// Puts "context: " before the text. Always returns false.
bool error_wrap(struct error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

enum error_class error_class(const struct error *error);
const char *error_code_name(enum error_code code); // "CONNECT"; static
int error_exit_status(const struct error *error);  // NAMES: 1 failed, 2 usage, 3 unreachable, 4 schema, 5 problems
