#include "common/webhook_header.h"
#include <string.h>
#include <strings.h>

// Reserved: what frames the message, what says who we are, and what a receiver verifies.
static bool is_reserved(const char *name) {
    static const char *const names[] = {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "x-hub-signature-256",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcasecmp(names[i], name) == 0)
            return true;
    return strncasecmp(name, "webhook-", 8) == 0 || strncasecmp(name, "proxy-", 6) == 0;
}

static bool is_token(const char *name) {
    static const char token[] =
        "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"; // RFC 9110, 5.6.2
    return *name && strspn(name, token) == strlen(name);
}

static bool value_is_sendable(const char *value, size_t length) {
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)value[i];
        if ((byte < ' ' && byte != '\t') || byte >= 0x7f)
            return false;
    }
    return true;
}

bool webhook_header_check(const char *name, const char *value, size_t value_length, struct error *ret_error) {
    if (!is_token(name))
        return error_set(ret_error, ERROR_USAGE, "%.60s is not a header name", name);
    if (is_reserved(name))
        return error_set(ret_error, ERROR_USAGE, "%.60s is reserved", name);
    if (!value_is_sendable(value, value_length))
        return error_set(ret_error, ERROR_USAGE, "%.60s has a line break, control or non-ASCII character", name);
    if (strlen(name) + value_length > WEBHOOK_HEADER_MAX_BYTES)
        return error_set(ret_error, ERROR_USAGE, "%.60s is longer than %d bytes", name, WEBHOOK_HEADER_MAX_BYTES);
    return true;
}
