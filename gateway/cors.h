// cors: which web origins may read the stream (Fetch standard, 3.2). An explicit list; no wildcard.
#pragma once
#include "common/buffer.h"
#include "common/config.h"
#include "common/error.h"
#include <stdbool.h>

// Each must be an origin as browsers send it, "https://app.example" or "http://localhost:3000"; else ERROR_USAGE.
bool cors_check(const struct config_list *origins, struct error *ret_error);
// Appends header lines (each with CRLF) for an answer to a request with this Origin header (NULL if it had none).
// preflight: also what a preflight asks about.
void cors_append_headers(const struct config_list *origins, const char *origin, bool preflight, struct buffer *buffer);
