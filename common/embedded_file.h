// embedded_file: a file compiled in by embed.py.
#pragma once
#include <stddef.h>

struct embedded_file {
    const char *name;   // without directories
    const char *sha256; // hex
    size_t length;
    const char *bytes; // NUL-terminated; the NUL is not counted
};
