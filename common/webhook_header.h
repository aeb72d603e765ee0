// webhook_header: which headers a subscription may add to its requests. Asked when one is stored and when it is sent.
#pragma once
#include "common/error.h"
#include <stdbool.h>
#include <stddef.h>

enum { WEBHOOK_HEADERS_MAX = 32, WEBHOOK_HEADER_MAX_BYTES = 2048 };

// ERROR_USAGE names the header: not a token (RFC 9110, 5.6.2), reserved, too long, or a value with a line break, a
// control or a non-ASCII character. The text never holds the value, which may be a credential.
bool webhook_header_check(const char *name, const char *value, size_t value_length, struct error *ret_error);
