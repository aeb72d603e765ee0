// auth_jwks: the keys of a JWK Set in a file or behind a URL, kept fresh: read again every --jwks-refresh, and at once
// (but not more often than every few seconds) when a token names a key that is not there. Keys that were read stay in
// use while the set cannot be had, up to KEYS_LAST_MS.
#pragma once
#include "common/buffer.h"
#include "common/error.h"
#include "gateway/config.h"
#include "gateway/jwt_keys.h"
#include <stdbool.h>
#include <uv.h>

struct auth_jwks;
struct auth_jwks_waiter {
    struct auth_jwks_waiter *prev, *next;
    // The set was read again (or, fresh false, could not be). Not called from inside auth_jwks_wait.
    void (*done)(struct auth_jwks_waiter *waiter, bool fresh);
};

// A file that cannot be read is an error; a URL is read in the background.
struct auth_jwks *auth_jwks_new(uv_loop_t *loop, const struct gateway_config *config, struct error *ret_error);
const struct jwt_keys *auth_jwks_keys(const struct auth_jwks *jwks); // view, until the loop's next turn; may have none
// Waits for a reading that starts from now on. False when too many wait already. The waiter is the caller's.
bool auth_jwks_wait(struct auth_jwks *jwks, struct auth_jwks_waiter *waiter);
// Who waits is told that it failed. Frees itself later. NULL is allowed.
void auth_jwks_close(struct auth_jwks *jwks);

// A whole file of at most `most` bytes into an empty buffer; ERROR_USAGE names it.
bool auth_file_read(const char *path, size_t most, struct buffer *ret_bytes, struct error *ret_error);
