// seal: secrets as they lie in the database (rowbell.subscriptions: secrets, and settings.client_key). Pure but for
// OpenSSL.
//
// A sealed form opens in its own place only: the place (seal_place) is authenticated with it, so that a form that is
// copied to another subscription, or put to another use, gives nothing.
//
//   stored   = ["until=" seconds ";"] form        seconds since 1970: from then on it does not sign any more
//   form     = "plain:" text | ("sealed:2:" | "sealed:1:") key id ":" base64(nonce[12] ciphertext tag[16])
//
// Sealed with AES-256-GCM under a key of ROWBELL_SECRET_KEY; what stands before the base64 is authenticated too, and
// with sealed:2 the place after it. sealed:1, of earlier versions, has no place: it is opened until `rowbell secrets
// rekey` seals it again, and the SQL functions take it from nobody. The key id is taken from a hash of the key, so that
// the right one of several is found and a missing one can be named.
#pragma once
#include "common/buffer.h"
#include "common/error.h"
#include <stdbool.h>
#include <stdint.h>

enum { SEAL_KEYS_MAX = 8, SEAL_KEY_ID_BYTES = 17, SEAL_TEXT_MAX_BYTES = 8192 };

struct seal_key {
    unsigned char bytes[32];
    char id[SEAL_KEY_ID_BYTES];
};
struct seal_keys {
    struct seal_key keys[SEAL_KEYS_MAX];
    int count; // 0: nothing can be sealed, and only plain: opened
};

// ROWBELL_SECRET_KEY: the base64 of 32 bytes, or several of them with commas between: the first seals, all open. NULL
// or
// "" is no key. ERROR_USAGE never holds the key.
bool seal_keys_init(struct seal_keys *keys, const char *text, struct error *ret_error);
void seal_keys_close(struct seal_keys *keys); // wipes them

// The form of a stored secret (a view), and when it ends in seconds since 1970; INT64_MAX: never. A broken "until="
// gives the text as it is, which is no form.
const char *seal_split(const char *stored, int64_t *ret_end_s);

// What a secret of a subscription is for.
#define SEAL_SIGNING "signing"
#define SEAL_AUTHORIZATION "authorization"
#define SEAL_CLIENT_KEY "client_key"

// Where a form may be opened: the seal_id of a subscription (rowbell.subscriptions), and what for. Views; both are
// required.
struct seal_place {
    const char *id;
    const char *purpose;
};

// Appends the text sealed under the first key for this place. At least one key, at most SEAL_TEXT_MAX_BYTES of text.
void seal_text(const struct seal_keys *keys, struct seal_place place, const char *text, struct buffer *ret_form);
// Appends the text of a form. ERROR_KEY: which key is missing here. ERROR_USAGE: it is no form, was changed, or was
// sealed for another place. Never with the secret.
bool seal_open(const struct seal_keys *keys, struct seal_place place, const char *form, struct buffer *ret_text,
               struct error *ret_error);
// Is it sealed under the first key, and for a place?
bool seal_is_current(const struct seal_keys *keys, const char *form);
