// jwt: checks one JSON Web Token (RFC 7515, 7519, 8725) and reads what it grants. Pure: the keys, the rules and the
// time come in.
//
// The algorithm is the key's; a token that names another is refused, `none` with them. So is whatever two readers could
// take for two things: members twice, other base64, more than three parts, `crit`.
#pragma once
#include "gateway/grant.h"
#include "gateway/jwt_keys.h"
#include <stdbool.h>
#include <stdint.h>

enum { JWT_MAX_BYTES = 8192 };

struct jwt_rules {
    const char
        *audience;      // NULL: only tokens without `aud`, since those with one are for somebody else (RFC 7519, 4.1.3)
    const char *issuer; // NULL: any
    const char *claim;  // its name; with a leading / a JSON Pointer (RFC 6901) such as /app_metadata/tenant
    bool every_scope;   // a scope `*` counts
    int64_t leeway_ms;  // for clocks that differ: of exp and nbf
};

enum jwt_verdict {
    JWT_VALID,
    JWT_REFUSED,
    JWT_UNKNOWN_KEY, // of a named set: refused by the keys that there are; others may have come since
};

// now_ms: milliseconds since 1970. With JWT_VALID: adds the claim's scopes to *grant (no claim: none), and *ret_end_ms
// is when the token ends, with the leeway. Else *ret_problem is a few words; static, so never a part of the token.
enum jwt_verdict jwt_check(const char *token, const struct jwt_keys *keys, const struct jwt_rules *rules,
                           int64_t now_ms, struct grant *grant, int64_t *ret_end_ms, const char **ret_problem);
