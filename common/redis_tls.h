// redis_tls: rediss://, where hiredis was built with TLS (1.0 or newer with libhiredis_ssl; Debian 13 has it, Debian 12
// has not). The certificate is verified, and names the host.
#pragma once
#include "common/error.h"
#include <hiredis/async.h>
#include <stdbool.h>

struct ssl_st;

// False: this build has no TLS for Redis; ERROR_USAGE says so.
bool redis_tls_is_possible(struct error *ret_error);
// TLS on a context that is connecting, before anything is sent. ca_file: PEM; NULL: the system's. *ret_handle is the
// context's, and goes with it.
bool redis_tls_start(redisAsyncContext *context, const char *host, const char *ca_file, struct ssl_st **ret_handle,
                     struct error *ret_error);
// What is wrong with the certificate, static; NULL: nothing, as far as it was seen. hiredis does not say.
const char *redis_tls_problem(const struct ssl_st *handle);
