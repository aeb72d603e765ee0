// webhook_signature: the header by which a receiver knows that a request is ours and unchanged. Pure but for OpenSSL.
//
// Styles (a subscription's setting `signature`; one table in webhook_signature.c):
//   standard   webhook-signature: "v1,<base64>" (HMAC-SHA256, secret whsec_...) and "v1a,<base64>" (Ed25519, whsk_...)
//   over
//              "{id}.{timestamp}.{body}"; space-separated, one for each secret. Standard Webhooks 1.0.
//   timestamp  webhook-signature: "t=<timestamp>,v1=<hex>[,v1=<hex>]", HMAC-SHA256 over "{timestamp}.{body}"
//   body       x-hub-signature-256: "sha256=<hex>", HMAC-SHA256 over the body; it has room for one, so the newest
//   secret signs
// In the last two the secret is used as it is written, prefix included.
#pragma once
#include "common/buffer.h"
#include "common/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct webhook_signer;

// secrets as the receiver knows them ("whsec_..."), newest first. NULL with ERROR_USAGE, whose text never holds the
// secret.
struct webhook_signer *webhook_signer_new(const char *style, const char *const *secrets, int secret_count,
                                          struct error *ret_error);
// From end_s on (seconds since 1970, as timestamp_s below) the secret of this index signs no more. Not for the newest.
void webhook_signer_end(struct webhook_signer *signer, int index, int64_t end_s);
void webhook_signer_free(struct webhook_signer *signer);                // NULL is allowed
const char *webhook_signer_header(const struct webhook_signer *signer); // lower case; static
// Appends the header's value.
void webhook_signer_sign(struct webhook_signer *signer, const char *id, int64_t timestamp_s, const char *body,
                         size_t body_length, struct buffer *value);
