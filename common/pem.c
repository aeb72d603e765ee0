#include "common/pem.h"
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <string.h>

// A key with a passphrase is no use to a daemon; without this OpenSSL would ask the terminal.
static int no_passphrase(char *buffer, int size, int writing, void *arg) {
    return -1;
}

bool pem_certificates_check(const char *text, const char *what, struct error *ret_error) {
    BIO *bio = BIO_new_mem_buf(text, (int)strlen(text));
    int count = 0;
    X509 *certificate;
    while ((certificate = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL)) != NULL) {
        X509_free(certificate);
        count++;
    }
    // The loop ends with "no start line" where the text does.
    bool ended = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    ERR_clear_error();
    BIO_free(bio);
    return (count > 0 && ended) || error_set(ret_error, ERROR_USAGE, "%s: not a certificate in PEM", what);
}

bool pem_pair_check(const char *certificate, const char *key, struct error *ret_error) {
    if (!pem_certificates_check(certificate, "client_certificate", ret_error))
        return false;
    BIO *bio = BIO_new_mem_buf(certificate, (int)strlen(certificate));
    X509 *leaf = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL);
    BIO_free(bio);
    bio = BIO_new_mem_buf(key, (int)strlen(key));
    EVP_PKEY *private_key = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL);
    BIO_free(bio);
    bool good = private_key != NULL ||
                error_set(ret_error, ERROR_USAGE, "client_key: not a private key in PEM without a passphrase");
    if (good && X509_check_private_key(leaf, private_key) != 1)
        good = error_set(ret_error, ERROR_USAGE, "client_key: it does not belong to client_certificate");
    EVP_PKEY_free(private_key);
    X509_free(leaf);
    ERR_clear_error();
    return good;
}
