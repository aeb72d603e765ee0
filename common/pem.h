// pem: certificates and keys as text, checked before they are stored and before they are used.
#pragma once
#include "common/error.h"
#include <stdbool.h>

// At least one certificate, and each that the text holds can be read. what names the text in the error.
bool pem_certificates_check(const char *text, const char *what, struct error *ret_error);
// A certificate (its chain may follow) and the private key that belongs to it, without a passphrase. The error never
// holds the key.
bool pem_pair_check(const char *certificate, const char *key, struct error *ret_error);
