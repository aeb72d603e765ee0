// static_files: the files that the gateway serves, compiled in: openapi.json, and the demo page.
#pragma once
#include "common/embedded_file.h"
#include <stdbool.h>

struct static_file {
    const char *path;
    const char *content_type;
    bool demo; // only with --demo
    const struct embedded_file *file;
};

// NULL when there is none at this path.
const struct static_file *static_file_find(const char *path, bool demo);
