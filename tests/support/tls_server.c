#include "tests/support/tls_server.h"
#include <arpa/inet.h>
#include <check.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct acceptor {
    int listen_fd;
    SSL_CTX *context;
    tls_server_answer *answer;
    struct tls_server *server;
};

static X509 *make_certificate(EVP_PKEY *key, const char *name) {
    X509 *certificate = X509_new();
    X509_set_version(certificate, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_NAME *subject = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)"rowbell test", -1, -1, 0);
    X509_set_issuer_name(certificate, subject);
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, certificate, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, NID_subject_alt_name, name);
    ck_assert_ptr_nonnull(extension);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
    ck_assert_int_gt(X509_sign(certificate, key, EVP_sha256()), 0);
    return certificate;
}

static void answer_ok(SSL *ssl) {
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    SSL_write(ssl, answer, sizeof answer - 1);
}

// One connection after the other is enough: requests end with their bodies' last byte, a closing brace.
static void *accept_loop(void *arg) {
    struct acceptor *acceptor = arg;
    for (int fd; (fd = accept(acceptor->listen_fd, NULL, NULL)) >= 0;) {
        SSL *ssl = SSL_new(acceptor->context);
        SSL_set_fd(ssl, fd);
        char bytes[16384];
        int count;
        if (SSL_accept(ssl) == 1)
            while ((count = SSL_read(ssl, bytes, sizeof bytes)) > 0)
                if (bytes[count - 1] == '}')
                    acceptor->answer(ssl);
        SSL_free(ssl);
        close(fd);
        acceptor->server->ended++;
    }
    SSL_CTX_free(acceptor->context);
    free(acceptor);
    return NULL;
}

static char *pem_text(BIO *bio) {
    char *bytes;
    long length = BIO_get_mem_data(bio, &bytes);
    char *text = strndup(bytes, (size_t)length);
    BIO_free(bio);
    return text;
}

void tls_identity_make(char **ret_certificate, char **ret_key) {
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = make_certificate(key, "DNS:client.test");
    BIO *bio = BIO_new(BIO_s_mem());
    ck_assert_int_eq(PEM_write_bio_X509(bio, certificate), 1);
    *ret_certificate = pem_text(bio);
    bio = BIO_new(BIO_s_mem());
    ck_assert_int_eq(PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL), 1);
    *ret_key = pem_text(bio);
    X509_free(certificate);
    EVP_PKEY_free(key);
}

static void ask_for(SSL_CTX *context, const char *client_certificate) {
    BIO *bio = BIO_new_mem_buf(client_certificate, -1);
    X509 *certificate = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    BIO_free(bio);
    ck_assert_int_eq(X509_STORE_add_cert(SSL_CTX_get_cert_store(context), certificate), 1);
    X509_free(certificate);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION); // so that a refusal ends the handshake, not what follows
}

static void start(struct tls_server *server, const char *name, const char *client_certificate,
                  tls_server_answer *answer, int version) {
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = make_certificate(key, name);
    strcpy(server->ca_file, "/tmp/rowbell-test-ca-XXXXXX");
    FILE *file = fdopen(mkstemp(server->ca_file), "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(PEM_write_X509(file, certificate), 1);
    fclose(file);

    struct acceptor *acceptor = calloc(1, sizeof *acceptor);
    acceptor->answer = answer;
    acceptor->server = server;
    server->ended = 0;
    acceptor->context = SSL_CTX_new(TLS_server_method());
    SSL_CTX_set_max_proto_version(acceptor->context, version);
    ck_assert_int_eq(SSL_CTX_use_certificate(acceptor->context, certificate), 1);
    ck_assert_int_eq(SSL_CTX_use_PrivateKey(acceptor->context, key), 1);
    if (client_certificate)
        ask_for(acceptor->context, client_certificate);
    X509_free(certificate);
    EVP_PKEY_free(key);

    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    acceptor->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(acceptor->listen_fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(acceptor->listen_fd, 16), 0);
    ck_assert_int_eq(getsockname(acceptor->listen_fd, (struct sockaddr *)&address, &length), 0);
    server->port = ntohs(address.sin_port);
    ck_assert_int_eq(pthread_create(&server->thread, NULL, accept_loop, acceptor), 0);
    server->listen_fd = acceptor->listen_fd;
}

void tls_server_start(struct tls_server *server, const char *name) {
    start(server, name, NULL, answer_ok, 0);
}

void tls_server_start_asking(struct tls_server *server, const char *name, const char *client_certificate) {
    start(server, name, client_certificate, answer_ok, 0);
}

void tls_server_start_answering(struct tls_server *server, tls_server_answer *answer, int version) {
    start(server, "IP:127.0.0.1", NULL, answer, version);
}

void tls_server_stop(struct tls_server *server) {
    shutdown(server->listen_fd, SHUT_RDWR);
    pthread_join(server->thread, NULL);
    close(server->listen_fd);
    unlink(server->ca_file);
}
