#include "common/memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// There is no way on: every caller would need an error path that no test can reach, and a daemon that is restarted
// loses nothing (docs/guarantees.md, G9).
static void *require(void *block, size_t count, size_t size) {
    if (block == NULL) {
        fprintf(stderr, "rowbell: out of memory (%zu x %zu bytes)\n", count, size);
        abort();
    }
    return block;
}

void *memory_alloc(size_t bytes) {
    return require(calloc(1, bytes > 0 ? bytes : 1), 1, bytes);
}

void *memory_resize(void *block, size_t count, size_t size) {
    // A size of 0 would free the block, and NULL would be its rightful answer.
    if (count == 0 || size == 0)
        count = size = 1;
    return require(reallocarray(block, count, size), count, size);
}

char *memory_copy_text(const char *text) {
    return text == NULL ? NULL : require(strdup(text), 1, strlen(text) + 1);
}
