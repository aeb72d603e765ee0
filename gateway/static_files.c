#include "gateway/static_files.h"
#include "gateway/files.h"
#include <assert.h>
#include <string.h>

static struct {
    struct static_file file;
    const char *name;
} table[] = {
    {{"/openapi.json", "application/json", false, NULL}, "openapi.json"},
    {{"/", "text/html; charset=utf-8", true, NULL}, "index.html"},
    {{"/demo.js", "text/javascript; charset=utf-8", true, NULL}, "demo.js"},
    {{"/rowbell.js", "text/javascript; charset=utf-8", true, NULL}, "rowbell.js"},
    {{"/demo.css", "text/css; charset=utf-8", true, NULL}, "demo.css"},
};

static const struct embedded_file *embedded(const char *name) {
    size_t i = 0;
    while (strcmp(gateway_files[i].name, name) != 0) {
        i++;
        assert(i < gateway_files_count); // every file of the table is in meson.build
    }
    return &gateway_files[i];
}

const struct static_file *static_file_find(const char *path, bool demo) {
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(table[i].file.path, path) == 0 && (demo || !table[i].file.demo)) {
            table[i].file.file = embedded(table[i].name);
            return &table[i].file;
        }
    }
    return NULL;
}
