// jwt_keys: the keys that tokens are checked with: of a secret, of PEM, or of a JWK Set (RFC 7517). Each key has one
// algorithm, which follows from what the key is and never from what a token says (RFC 8725, 3.1).
#pragma once
#include "common/error.h"
#include <openssl/evp.h>
#include <stdbool.h>
#include <stddef.h>

enum jwt_algorithm { JWT_HS256, JWT_RS256, JWT_ES256, JWT_EDDSA };

enum { JWT_SECRET_MIN_BYTES = 32, JWT_RSA_MIN_BITS = 2048, JWT_RSA_MAX_BITS = 8192, JWT_KEYS_MAX = 64 };

struct jwt_key {
    enum jwt_algorithm algorithm;
    char *kid;             // owned; NULL: it has none
    EVP_PKEY *public_key;  // owned; NULL for HS256
    unsigned char *secret; // owned; HS256
    size_t secret_length;
};

struct jwt_keys {
    struct jwt_key *keys; // owned
    size_t count;
    bool named;      // a JWK Set: a token's `kid` chooses. Else it means nothing.
    size_t unusable; // keys of a JWK Set that were left out because they are damaged, weak, or too many
};

// Each fills empty keys. ERROR_USAGE says what is wrong and names no secret; nothing is left in keys then.
bool jwt_keys_from_secret(struct jwt_keys *keys, const char *secret, struct error *ret_error); // its bytes; HS256
// PUBLIC KEY, RSA PUBLIC KEY and CERTIFICATE blocks: RSA, P-256, Ed25519. A private key is refused.
bool jwt_keys_from_pem(struct jwt_keys *keys, const char *pem, size_t length, struct error *ret_error);
// Keys that are not for checking signatures, not of our four algorithms, damaged or weak are left out; a set without
// any usable key is an error. secrets: `oct` keys count (they do not belong into what is fetched from a URL).
bool jwt_keys_from_jwks(struct jwt_keys *keys, const char *json, size_t length, bool secrets, struct error *ret_error);
void jwt_keys_free(struct jwt_keys *keys); // wipes secrets; the keys are empty afterwards

// RFC 7515, 2: no padding, no other characters, unused bits zero. *ret_bytes holds at least length * 3 / 4 bytes.
bool base64url_decode(const char *text, size_t length, unsigned char *ret_bytes, size_t *ret_length);
