#include "gateway/cors.h"
#include <string.h>

// RFC 6454, 6.2: scheme, host, optional port; lower case, no path, not even "/".
static bool is_origin(const char *text) {
    const char *host = strncmp(text, "https://", 8) == 0  ? text + 8
                       : strncmp(text, "http://", 7) == 0 ? text + 7
                                                          : NULL;
    return host && host[0] != '\0' && host[strspn(host, "abcdefghijklmnopqrstuvwxyz0123456789.-_:[]")] == '\0';
}

bool cors_check(const struct config_list *origins, struct error *ret_error) {
    for (size_t i = 0; i < origins->count; i++) {
        if (!is_origin(origins->items[i])) {
            return error_set(ret_error, ERROR_USAGE,
                             "--cors-origin takes an origin such as https://app.example (lower case, no path, no *), "
                             "not %s",
                             origins->items[i]);
        }
    }
    return true;
}

void cors_append_headers(const struct config_list *origins, const char *origin, bool preflight, struct buffer *buffer) {
    if (origins->count == 0) {
        return;
    }
    // Caches must not give one origin's answer to another, also when this request had none.
    buffer_text(buffer, "Vary: Origin\r\n");
    for (size_t i = 0; origin && i < origins->count; i++) {
        if (strcmp(origins->items[i], origin) != 0) {
            continue;
        }
        // The listed text, not the request's: nothing from the wire is echoed.
        buffer_format(buffer, "Access-Control-Allow-Origin: %s\r\nAccess-Control-Allow-Credentials: true\r\n",
                      origins->items[i]);
        if (preflight) {
            buffer_text(
                buffer,
                "Access-Control-Allow-Methods: GET, HEAD\r\n"
                "Access-Control-Allow-Headers: Last-Event-ID, Cache-Control, Authorization, X-Requested-With\r\n"
                "Access-Control-Max-Age: 600\r\n");
        }
        return;
    }
}
