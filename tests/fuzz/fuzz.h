// fuzz: what the targets share. A target is a function of any bytes that ends the process when a promise is broken.
// Each is a row of the table in tests/meson.build, with seeds in seeds/NAME and, where it has a grammar, words in
// dict/NAME. Built twice: with libFuzzer, for dev/fuzz (fuzz_engine.c), and all into one test program that runs the
// seeds (fuzz_seeds.c).
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUZZ_TARGET(name)                                                                                              \
    int fuzz_##name(const uint8_t *bytes, size_t length);                                                              \
    int fuzz_##name(const uint8_t *bytes, size_t length)

#define require(condition) ((condition) ? (void)0 : require_failed(__FILE__, __LINE__, #condition))

static inline _Noreturn void require_failed(const char *file, int line, const char *condition) {
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
    abort();
}

// A copy of exactly this size, so that the sanitizer sees a read beyond it. Owned by the caller.
static inline char *input_copy(const void *bytes, size_t length) {
    char *copy = malloc(length > 0 ? length : 1);
    require(copy != NULL);
    if (length > 0)
        memcpy(copy, bytes, length);
    return copy;
}

// The same with a NUL at its end.
static inline char *input_text(const void *bytes, size_t length) {
    char *text = malloc(length + 1);
    require(text != NULL);
    if (length > 0)
        memcpy(text, bytes, length);
    text[length] = '\0';
    return text;
}

// The input as several texts: takes the next line of it. NULL: there is none. Owned by the caller.
static inline char *input_line(const uint8_t **bytes, size_t *length) {
    if (*length == 0)
        return NULL;
    const uint8_t *end = memchr(*bytes, '\n', *length);
    size_t line = end ? (size_t)(end - *bytes) : *length;
    char *text = input_text(*bytes, line);
    size_t taken = line + (end != NULL);
    *bytes += taken;
    *length -= taken;
    return text;
}
