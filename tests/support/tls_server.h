// tls_server: a TLS receiver on 127.0.0.1 in a thread, with a self-signed certificate made for it. It answers every
// request "200 OK" and keeps the connection.
#pragma once
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>

struct tls_server {
    int port;
    int listen_fd;
    atomic_int ended; // connections
    pthread_t thread;
    char ca_file[64]; // the certificate as PEM; removed by tls_server_stop
};

// name: what the certificate is for, "IP:127.0.0.1" or "DNS:example.test". Fails the test.
void tls_server_start(struct tls_server *server, const char *name);
// The same, but it refuses who does not show this certificate (PEM).
void tls_server_start_asking(struct tls_server *server, const char *name, const char *client_certificate);
// The same, but this is called in its thread to answer each request; version is the newest that it speaks, 0: all.
typedef void tls_server_answer(SSL *ssl);
void tls_server_start_answering(struct tls_server *server, tls_server_answer *answer, int version);
// A key and a self-signed certificate for it, as PEM; free() both.
void tls_identity_make(char **ret_certificate, char **ret_key);
void tls_server_stop(struct tls_server *server); // when its clients have closed
