#include "common/redis_tls.h"

#ifdef ROWBELL_REDIS_TLS
#include <arpa/inet.h>
#include <hiredis/hiredis_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

bool redis_tls_is_possible(struct error *ret_error) {
    return true;
}

// hiredis verifies the chain and no name (its option for that is of 1.5): so the handle is ours.
static SSL *handle_new(const char *host, const char *ca_file, struct error *ret_error) {
    unsigned char address[sizeof(struct in6_addr)];
    bool is_address = inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = NULL;
    bool good = context && SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1 &&
                (ca_file ? SSL_CTX_load_verify_file(context, ca_file) : SSL_CTX_set_default_verify_paths(context)) == 1;
    if (good) {
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
        ssl = SSL_new(context);
        X509_VERIFY_PARAM *rules = ssl ? SSL_get0_param(ssl) : NULL;
        good = ssl && (is_address ? X509_VERIFY_PARAM_set1_ip_asc(rules, host) == 1
                                  : SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1);
        if (rules)
            X509_VERIFY_PARAM_set_hostflags(rules, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    }
    if (!good) {
        SSL_free(ssl);
        ssl = NULL;
        const char *reason = ERR_reason_error_string(ERR_get_error());
        error_set(ret_error, ERROR_CONNECT, "prepare TLS%s%s: %s", ca_file ? " with " : "", ca_file ? ca_file : "",
                  reason ? reason : "OpenSSL says no reason");
        ERR_clear_error();
    }
    SSL_CTX_free(context); // the handle keeps it
    return ssl;
}

bool redis_tls_start(redisAsyncContext *context, const char *host, const char *ca_file, struct ssl_st **ret_handle,
                     struct error *ret_error) {
    SSL *ssl = handle_new(host, ca_file, ret_error);
    if (!ssl)
        return false;
    if (redisInitiateSSL(&context->c, ssl) == REDIS_OK) {
        *ret_handle = ssl;
        return true;
    }
    SSL_free(ssl);
    return error_set(ret_error, ERROR_CONNECT, "TLS: %s", context->c.errstr);
}

const char *redis_tls_problem(const struct ssl_st *handle) {
    long result = handle ? SSL_get_verify_result(handle) : X509_V_OK;
    return result == X509_V_OK ? NULL : X509_verify_cert_error_string(result);
}
#else
bool redis_tls_is_possible(struct error *ret_error) {
    return error_set(ret_error, ERROR_USAGE,
                     "rediss:// needs hiredis 1.0 or newer with TLS (libhiredis_ssl: Debian 13 has it, Debian 12 has "
                     "not), and this program was built without it");
}

bool redis_tls_start(redisAsyncContext *context, const char *host, const char *ca_file, struct ssl_st **ret_handle,
                     struct error *ret_error) {
    return redis_tls_is_possible(ret_error);
}

const char *redis_tls_problem(const struct ssl_st *handle) {
    return NULL;
}
#endif
