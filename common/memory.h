// memory: allocation that aborts with a message. Every size from the wire is bounded before it comes here.
#pragma once
#include <stddef.h>

void *memory_alloc(size_t bytes);                            // zeroed; returns owned, free() it
void *memory_resize(void *block, size_t count, size_t size); // like reallocarray; new bytes are not zeroed
char *memory_copy_text(const char *text);                    // strdup; NULL gives NULL
