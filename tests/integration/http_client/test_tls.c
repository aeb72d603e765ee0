// Who is trusted, and what a TLS peer may do in the middle of an exchange.
#include "tests/integration/http_client/world.h"
#include "tests/support/tls_server.h"
#include <poll.h>
#include <stdlib.h>
#include <string.h>

static struct result post_tls(const struct tls_server *tls) {
    char url[64];
    snprintf(url, sizeof url, "https://127.0.0.1:%d/hook", tls->port);
    struct http_call call = usual;
    call.url = url;
    call.allow_http = false;
    return post(call);
}

START_TEST(tls_is_verified) {
    struct tls_server tls;
    tls_server_start(&tls, "IP:127.0.0.1");
    start_allowing_loopback();
    struct result result = post_tls(&tls);
    CHECK_FAILURE(result, HTTP_TLS);
    ck_assert(strstr(result.outcome.error, "self-signed") || strstr(result.outcome.error, "self signed"));
    ck_assert_double_ge(result.outcome.connect_ms, 0);
    ck_assert_double_eq(result.outcome.tls_ms, -1);
    stop();
    tls_server_stop(&tls);
}
END_TEST

START_TEST(tls_with_a_trusted_certificate_works) {
    static const char *const loopback[] = {"127.0.0.0/8"};
    struct tls_server tls;
    tls_server_start(&tls, "IP:127.0.0.1");
    start(loopback, 1, tls.ca_file);
    struct result result = post_tls(&tls);
    CHECK_FAILURE(result, HTTP_OK);
    ck_assert_double_gt(result.outcome.tls_ms, 0);
    ck_assert_str_eq(result.response_head, "ok");
    result = post_tls(&tls);
    CHECK_FAILURE(result, HTTP_OK);
    ck_assert_double_eq(result.outcome.tls_ms, 0);
    ck_assert_uint_eq(http_client_connections_opened(client), 1);
    stop();
    tls_server_stop(&tls);
}
END_TEST

static void tls_write(SSL *ssl, const char *text) {
    SSL_write(ssl, text, (int)strlen(text));
}

static void answer_and_update_keys(SSL *ssl) {
    tls_write(ssl, OK_EMPTY);
    SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED);
    SSL_do_handshake(ssl);
}

static void answer_and_say_goodbye(SSL *ssl) {
    tls_write(ssl, OK_EMPTY);
    SSL_shutdown(ssl); // TCP stays
}

static void answer_twice(SSL *ssl) {
    tls_write(ssl, OK_EMPTY);
    tls_write(ssl, "HTTP/1.1 500 Not Yours\r\nContent-Length: 0\r\n\r\n");
}

static void answer_in_records(SSL *ssl) {
    static char body[60001];
    memset(body, 'x', sizeof body - 1);
    tls_write(ssl, "HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n");
    tls_write(ssl, "\r\n");
    tls_write(ssl, body);
}

static void answer_half(SSL *ssl) {
    tls_write(ssl, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel");
    shutdown(SSL_get_fd(ssl), SHUT_RDWR);
}

static void answer_half_a_chunk(SSL *ssl) {
    tls_write(ssl, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    shutdown(SSL_get_fd(ssl), SHUT_RDWR);
}

static void answer_and_vanish(SSL *ssl) {
    tls_write(ssl, OK_EMPTY);
    shutdown(SSL_get_fd(ssl), SHUT_RDWR);
}

static void answer_to_the_end(SSL *ssl) {
    tls_write(ssl, "HTTP/1.1 200 OK\r\n\r\nhello");
    SSL_shutdown(ssl);
}

static void answer_truncated(SSL *ssl) {
    tls_write(ssl, "HTTP/1.1 200 OK\r\n\r\nhello");
    shutdown(SSL_get_fd(ssl), SHUT_RDWR); // an attacker's, for all we know
}

static const struct {
    tls_server_answer *answer;
    int version;
    enum http_failure failure;
    uint64_t connections; // that two requests need
} tls_answers[] = {
    {answer_and_update_keys, 0, HTTP_OK, 1},
    {answer_and_say_goodbye, 0, HTTP_OK, 2},
    {answer_twice, 0, HTTP_OK, 2},
    {answer_in_records, 0, HTTP_OK, 1},
    {answer_half, 0, HTTP_OK, 2}, // the body is not asked for
    {answer_half_a_chunk, 0, HTTP_OK, 2},
    {answer_and_vanish, 0, HTTP_OK, 2},
    {answer_and_vanish, TLS1_2_VERSION, HTTP_OK, 2},
    {answer_to_the_end, 0, HTTP_OK, 2},
    {answer_truncated, 0, HTTP_OK, 2}, // the status is what counts
    {answer_truncated, TLS1_2_VERSION, HTTP_OK, 2},
    {answer_and_say_goodbye, TLS1_2_VERSION, HTTP_OK, 2},
    {answer_twice, TLS1_2_VERSION, HTTP_OK, 2},
};

START_TEST(tls_answers_in_pieces) {
    static const char *const loopback[] = {"127.0.0.0/8"};
    struct tls_server tls;
    tls_server_start_answering(&tls, tls_answers[_i].answer, tls_answers[_i].version);
    start(loopback, 1, tls.ca_file);
    for (int i = 0; i < 2; i++) {
        struct result idle = post_to(url_to("127.0.0.1", "/"));
        CHECK_FAILURE(idle, HTTP_OK);
        struct result result = post_tls(&tls);
        CHECK_FAILURE(result, tls_answers[_i].failure);
        ck_assert_int_eq(result.outcome.status, 200);
        while (tls_answers[_i].connections == 2 && tls.ended == i)
            uv_run(&loop, UV_RUN_NOWAIT);
        ck_assert_int_eq(server.open, 1); // the older one: it did not end for having idled enough
    }
    ck_assert_uint_eq(http_client_connections_opened(client), 1 + tls_answers[_i].connections);
    stop();
    tls_server_stop(&tls);
}
END_TEST

// More than the buffers on the way take: written when there is room, with the same bytes (SSL_write's rule).
START_TEST(tls_takes_a_large_request) {
    static const char *const loopback[] = {"127.0.0.0/8"};
    struct tls_server tls;
    tls_server_start(&tls, "IP:127.0.0.1");
    start(loopback, 1, tls.ca_file);
    char url[64];
    snprintf(url, sizeof url, "https://127.0.0.1:%d/hook", tls.port);
    struct http_call call = usual;
    call.url = url;
    call.body_length = 16 << 20;
    char *body = malloc(call.body_length);
    memset(body, 'x', call.body_length);
    body[call.body_length - 1] = '}';
    call.body = body;
    for (int i = 0; i < 2; i++) {
        struct result result = post(call);
        CHECK_FAILURE(result, HTTP_OK);
        ck_assert_str_eq(result.response_head, "ok");
    }
    ck_assert_uint_eq(http_client_connections_opened(client), 1);
    free(body);
    stop();
    tls_server_stop(&tls);
}
END_TEST

static atomic_bool has_asked;

static void answer_and_renegotiate(SSL *ssl) {
    tls_write(ssl, OK_EMPTY);
    SSL_renegotiate(ssl);
    SSL_do_handshake(ssl); // asks
    struct pollfd peer = {.fd = SSL_get_fd(ssl), .events = POLLIN};
    poll(&peer, 1, -1); // the client agreed; it hears no more
    has_asked = true;
    peer.events = POLLRDHUP;
    poll(&peer, 1, -1);
}

static void count_turn(uv_prepare_t *turns) {
    (*(int *)turns->data)++;
}

// A renegotiation that the peer asks for and does not go on with: a write waits for reading, while the socket may be
// written to.
START_TEST(a_renegotiation_does_not_spin) {
    static const char *const loopback[] = {"127.0.0.0/8"};
    struct tls_server tls;
    tls_server_start_answering(&tls, answer_and_renegotiate, TLS1_2_VERSION);
    start(loopback, 1, tls.ca_file);
    struct result result = post_tls(&tls);
    CHECK_FAILURE(result, HTTP_OK);
    while (!has_asked)
        uv_run(&loop, UV_RUN_NOWAIT);
    char url[64];
    snprintf(url, sizeof url, "https://127.0.0.1:%d/hook", tls.port);
    struct http_call call = usual;
    call.url = url;
    call.deadline_ms = 500;
    uv_prepare_t prepare;
    int turns = 0;
    uv_prepare_init(&loop, &prepare);
    prepare.data = &turns;
    uv_prepare_start(&prepare, count_turn);
    uv_unref((uv_handle_t *)&prepare);
    result = post(call);
    CHECK_FAILURE(result, HTTP_TIMEOUT);
    ck_assert_msg(turns < 50, "%d turns of the loop", turns); // thousands if it spun
    uv_close((uv_handle_t *)&prepare, NULL);
    stop();
    tls_server_stop(&tls);
}
END_TEST

START_TEST(tls_for_another_name_is_refused) {
    static const char *const loopback[] = {"127.0.0.0/8"};
    struct tls_server tls;
    tls_server_start(&tls, "DNS:example.test");
    start(loopback, 1, tls.ca_file);
    struct result result = post_tls(&tls);
    CHECK_FAILURE(result, HTTP_TLS);
    stop();
    tls_server_stop(&tls);
}
END_TEST

START_TEST(tls_with_a_peer_that_speaks_http_is_tls) {
    start_allowing_loopback();
    server.script = (struct script){0};
    char url[64];
    snprintf(url, sizeof url, "https://127.0.0.1:%d/", server.port);
    struct http_call call = usual;
    call.url = url;
    call.connect_ms = 200;
    struct result result = post(call); // the handshake gets no answer
    CHECK_FAILURE(result, HTTP_TLS);
    stop();
}
END_TEST

// What a connection was trusted or shown for does not hold for a call with other certificates.
START_TEST(calls_with_other_certificates_share_no_connection) {
    static const char *const loopback[] = {"127.0.0.0/8"};
    struct tls_server tls;
    tls_server_start(&tls, "IP:127.0.0.1"); // it serves one connection at a time: a second gets no handshake
    start(loopback, 1, tls.ca_file);
    struct result result = post_tls(&tls);
    CHECK_FAILURE(result, HTTP_OK);
    char *certificate;
    char *key;
    tls_identity_make(&certificate, &key);
    char url[64];
    snprintf(url, sizeof url, "https://127.0.0.1:%d/hook", tls.port);
    struct http_call call = usual;
    call.url = url;
    call.connect_ms = 100;
    call.ca_pem = certificate; // of somebody else
    result = post(call);
    CHECK_FAILURE(result, HTTP_TLS);
    call.ca_pem = NULL;
    call.certificate_pem = certificate;
    call.key_pem = key;
    result = post(call);
    CHECK_FAILURE(result, HTTP_TLS);
    ck_assert_uint_eq(http_client_connections_opened(client), 3);
    result = post_tls(&tls);
    CHECK_FAILURE(result, HTTP_OK);
    ck_assert_uint_eq(http_client_connections_opened(client), 3);
    free(certificate);
    free(key);
    stop();
    tls_server_stop(&tls);
}
END_TEST

void tls_tests(Suite *suite) {
    TCase *tls = suite_case(suite, "tls", 20);
    tcase_add_test(tls, tls_is_verified);
    tcase_add_test(tls, tls_with_a_trusted_certificate_works);
    tcase_add_loop_test(tls, tls_answers_in_pieces, 0, (int)(sizeof tls_answers / sizeof *tls_answers));
    tcase_add_test(tls, tls_takes_a_large_request);
    tcase_add_test(tls, a_renegotiation_does_not_spin);
    tcase_add_test(tls, tls_for_another_name_is_refused);
    tcase_add_test(tls, tls_with_a_peer_that_speaks_http_is_tls);
    tcase_add_test(tls, calls_with_other_certificates_share_no_connection);
}
