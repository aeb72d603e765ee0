// The webhook sink against a real receiver: the bytes that arrive, and what its answers come to.
#include "common/buffer.h"
#include "common/seal.h"
#include "dispatcher/sink_webhook.h"
#include "tests/support/fixture.h"
#include "tests/support/loop.h"
#include "tests/support/script_server.h"
#include "tests/support/tls_server.h"
#include <check.h>
#include <json-c/json.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SEAL_ID "0f8fad5b-d9cb-469f-a165-70867728950e"

#define SECRET_1 "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
#define SECRET_2 "C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
#define KEY_1 "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
#define KEY_2 "//////////////////////////////////////////8="

static uv_loop_t loop;
static struct egress_policy egress;
static const struct database_clock clock_unknown; // then it is the wall clock
static struct sink sink;
static struct receiver *receiver;
static char settings[1024];
static char *secrets[] = {"plain:whsec_" SECRET_1, "plain:whsec_" SECRET_2};
static struct subscription subscription;
static const char *secret_key; // ROWBELL_SECRET_KEY of the sink; NULL

static void start(bool allow_http) {
    static const char *loopback[] = {"127.0.0.0/8"};
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert(egress_policy_init(&egress, &(struct config_list){loopback, 1}, NULL));
    struct sink_webhook_options options = {
        .egress = &egress, .clock = &clock_unknown, .allow_http = allow_http, .secret_key = secret_key};
    ck_assert(sink_webhook_init(&sink, &loop, &options, NULL));
    ck_assert_str_eq(sink.kind, "webhook");
    ck_assert_uint_eq(sink.deadline_ms, 20000);
    receiver = receiver_start();
    subscription = (struct subscription){.id = 7,
                                         .name = "hook",
                                         .kind = "webhook",
                                         .settings = settings,
                                         .secrets = secrets,
                                         .secret_count = 1,
                                         .seal_id = (char *)SEAL_ID};
}

static void on_sink_closed(void *arg) {
    *(bool *)arg = true;
}

static void stop(void) {
    bool closed = false;
    sink.forget(sink.arg, &subscription);
    sink.close(sink.arg, on_sink_closed, &closed);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert(closed);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    egress_policy_close(&egress);
}

static bool prepare(struct error *ret_error, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool prepare(struct error *ret_error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(settings, sizeof settings, format, arguments);
    va_end(arguments);
    return sink.prepare(sink.arg, &subscription, ret_error);
}

static void prepare_usual(void) {
    struct error error;
    ck_assert_msg(prepare(&error, "{\"url\":\"%s/hook\",\"allow_http\":true,\"retry\":[1000]}", receiver_url(receiver)),
                  "%s", error.text);
}

static const struct delivery usual = {
    .subscription = &subscription,
    .event_seq = 42,
    .attempt = 1,
    .event_id = "019ac2b1-5d1f-7000-8000-00000000002a",
    .type = "posts.update",
    .occurred_at = "2026-11-29T20:39:22.123456Z",
    .subject = "posts/p%201",
    .data = "{\"key\": \"p%201\", \"op\": \"update\", \"table\": \"posts\"}",
};

struct result {
    struct attempt_outcome outcome;
    char error[512];
    char response_head[128];
    int calls;
};

static void on_done(void *arg, const struct attempt_outcome *outcome) {
    struct result *result = arg;
    result->outcome = *outcome;
    snprintf(result->error, sizeof result->error, "%s", outcome->error ? outcome->error : "");
    snprintf(result->response_head, sizeof result->response_head, "%s",
             outcome->response_head ? outcome->response_head : "");
    result->calls++;
    uv_stop(&loop);
}

static struct result send_delivery(const struct delivery *delivery) {
    struct result result = {0};
    sink.send(sink.arg, delivery, on_done, &result);
    ck_assert_int_eq(result.calls, 0); // never from inside
    while (result.calls == 0)
        uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(result.calls, 1);
    return result;
}

// As a receiver does it: a way of its own to the signature, from what arrived.
static void expected_signature(const struct received *received, const char *secret, char ret_text[64]) {
    char content[4096];
    int length = snprintf(content, sizeof content, "%s.%s.%s", received_header(received, "webhook-id"),
                          received_header(received, "webhook-timestamp"), received->body);
    unsigned char key[64];
    int key_length = EVP_DecodeBlock(key, (const unsigned char *)secret, (int)strlen(secret));
    unsigned char digest[32];
    HMAC(EVP_sha256(), key, key_length, (unsigned char *)content, (size_t)length, digest, NULL);
    strcpy(ret_text, "v1,");
    EVP_EncodeBlock((unsigned char *)ret_text + 3, digest, sizeof digest);
}

START_TEST(a_delivery_arrives_byte_for_byte_and_signed) {
    start(false);
    prepare_usual();
    time_t before = time(NULL);
    struct result result = send_delivery(&usual);
    ck_assert_int_eq(result.outcome.verdict, VERDICT_DELIVERED);
    ck_assert_int_eq(result.outcome.class, CLASS_DELIVERED);
    ck_assert_int_eq(result.outcome.status, 200);
    ck_assert_str_eq(result.error, "");
    struct received received = receiver_get(receiver, 0);
    ck_assert_str_eq(received.path, "/hook");
    ck_assert_str_eq(received.body, "{\"id\":\"019ac2b1-5d1f-7000-8000-00000000002a\",\"type\":\"posts.update\","
                                    "\"timestamp\":\"2026-11-29T20:39:22.123456Z\",\"subject\":\"posts/p%201\","
                                    "\"data\":{\"key\": \"p%201\", \"op\": \"update\", \"table\": \"posts\"}}");
    ck_assert_str_eq(received_header(&received, "content-type"), "application/json");
    ck_assert_str_eq(received_header(&received, "user-agent"), "rowbell/" ROWBELL_VERSION);
    ck_assert_str_eq(received_header(&received, "webhook-id"), usual.event_id);
    long long stamp = strtoll(received_header(&received, "webhook-timestamp"), NULL, 10);
    ck_assert(before <= stamp && stamp <= time(NULL));
    char signature[64];
    expected_signature(&received, SECRET_1, signature);
    ck_assert_str_eq(received_header(&received, "webhook-signature"), signature);
    stop();
}
END_TEST

START_TEST(all_secrets_sign) {
    start(false);
    subscription.secret_count = 2;
    prepare_usual();
    send_delivery(&usual);
    struct received received = receiver_get(receiver, 0);
    char newest[64];
    char oldest[64];
    char both[130];
    expected_signature(&received, SECRET_1, newest);
    expected_signature(&received, SECRET_2, oldest);
    snprintf(both, sizeof both, "%s %s", newest, oldest);
    ck_assert_str_eq(received_header(&received, "webhook-signature"), both);
    stop();
}
END_TEST

static char *sealed_for(const char *key, const char *purpose, const char *text) {
    struct seal_keys keys;
    struct buffer form = {0};
    ck_assert(seal_keys_init(&keys, key, NULL));
    seal_text(&keys, (struct seal_place){SEAL_ID, purpose}, text, &form);
    return form.bytes;
}

static char *sealed_under(const char *key, const char *text) {
    return sealed_for(key, SEAL_SIGNING, text);
}

START_TEST(sealed_secrets_are_opened_each_by_its_key) {
    secret_key = KEY_2 "," KEY_1;
    start(false);
    char *sealed[] = {sealed_under(KEY_1, "whsec_" SECRET_1), sealed_under(KEY_2, "whsec_" SECRET_2)};
    subscription.secrets = sealed;
    subscription.secret_count = 2;
    prepare_usual();
    send_delivery(&usual);
    struct received received = receiver_get(receiver, 0);
    char first[64], second[64], both[130];
    expected_signature(&received, SECRET_1, first);
    expected_signature(&received, SECRET_2, second);
    snprintf(both, sizeof both, "%s %s", first, second);
    ck_assert_str_eq(received_header(&received, "webhook-signature"), both);
    stop();
    free(sealed[0]);
    free(sealed[1]);
}
END_TEST

// Fails closed: one that cannot be opened is not left out, since the receiver may know that one alone.
START_TEST(a_secret_that_cannot_be_opened_sends_nothing) {
    secret_key = KEY_2;
    start(false);
    char *sealed = sealed_under(KEY_1, "whsec_" SECRET_2);
    char *mixed[] = {secrets[0], sealed};
    subscription.secrets = mixed;
    subscription.secret_count = 2;
    struct error error;
    ck_assert(!prepare(&error, "{\"url\":\"%s\",\"allow_http\":true}", receiver_url(receiver)));
    ck_assert_msg(strstr(error.text, "which ROWBELL_SECRET_KEY lacks"), "%s", error.text);
    ck_assert_int_eq(send_delivery(&usual).outcome.verdict, VERDICT_REJECTED);
    ck_assert_int_eq(receiver_count(receiver), 0);
    stop();
    free(sealed);
}
END_TEST

START_TEST(an_old_secret_stops_at_its_end) {
    start(false);
    char past[128], future[128];
    snprintf(past, sizeof past, "until=%lld;plain:whsec_" SECRET_2, (long long)time(NULL));
    snprintf(future, sizeof future, "until=%lld;plain:whsec_" SECRET_2, (long long)time(NULL) + 3600);
    char *rotated[] = {secrets[0], past, future};
    subscription.secrets = rotated;
    subscription.secret_count = 3;
    prepare_usual();
    send_delivery(&usual);
    struct received received = receiver_get(receiver, 0);
    char newest[64], old[64], both[130];
    expected_signature(&received, SECRET_1, newest);
    expected_signature(&received, SECRET_2, old);
    snprintf(both, sizeof both, "%s %s", newest, old);
    ck_assert_str_eq(received_header(&received, "webhook-signature"), both);
    sink.forget(sink.arg, &subscription);

    rotated[0] = future;
    struct error error;
    ck_assert(!prepare(&error, "{\"url\":\"%s\",\"allow_http\":true}", receiver_url(receiver)));
    ck_assert_msg(strstr(error.text, "the newest one ends"), "%s", error.text);
    stop();
}
END_TEST

START_TEST(a_key_that_is_none_ends_the_start) {
    struct sink none;
    struct error error;
    struct sink_webhook_options options = {.egress = &egress, .clock = &clock_unknown, .secret_key = "AAECAwQF"};
    ck_assert(!sink_webhook_init(&none, &loop, &options, &error));
    ck_assert_int_eq(error.code, ERROR_USAGE);
    ck_assert_msg(strstr(error.text, "ROWBELL_SECRET_KEY") && !strstr(error.text, "AAEC"), "%s", error.text);
}
END_TEST

// json-c would turn these numbers and this repeated key into something else.
START_TEST(data_passes_through_untouched) {
    static const char data[] =
        "{\"n\": 12345678901234567890.123456789, \"e\": 1E400, \"u\": \"\\u00e4/\\/\", \"u\": 2}";
    start(false);
    prepare_usual();
    struct delivery delivery = usual;
    delivery.data = data;
    delivery.subject = NULL;
    send_delivery(&delivery);
    struct received received = receiver_get(receiver, 0);
    ck_assert_ptr_nonnull(strstr(received.body, ",\"subject\":null,\"data\":"));
    ck_assert_ptr_nonnull(strstr(received.body, data));
    stop();
}
END_TEST

START_TEST(custom_headers_are_sent) {
    start(false);
    struct error error;
    ck_assert_msg(
        prepare(&error,
                "{\"url\":\"%s\",\"allow_http\":true,\"headers\":{\"Authorization\":\"Bearer x y\",\"X-Empty\":\"\"}}",
                receiver_url(receiver)),
        "%s", error.text);
    send_delivery(&usual);
    struct received received = receiver_get(receiver, 0);
    ck_assert_str_eq(received_header(&received, "authorization"), "Bearer x y");
    ck_assert_str_eq(received_header(&received, "x-empty"), "");
    stop();
}
END_TEST

START_TEST(other_signature_styles_are_a_setting) {
    start(false);
    struct error error;
    ck_assert_msg(
        prepare(&error, "{\"url\":\"%s\",\"allow_http\":true,\"signature\":\"body\"}", receiver_url(receiver)), "%s",
        error.text);
    send_delivery(&usual);
    struct received received = receiver_get(receiver, 0);
    ck_assert_int_eq(strncmp(received_header(&received, "x-hub-signature-256"), "sha256=", 7), 0);
    ck_assert_ptr_null(received_header(&received, "webhook-signature"));
    ck_assert_str_eq(received_header(&received, "webhook-id"), usual.event_id);
    stop();
}
END_TEST

static const struct {
    int status;
    const char *headers;
    enum verdict verdict;
    enum attempt_class class;
    uint64_t after_ms;
    bool disables, pauses;
} answers[] = {
    {204, NULL, VERDICT_DELIVERED, CLASS_DELIVERED, 0, false, false},
    {302, "Location: http://127.0.0.1/\r\n", VERDICT_REJECTED, CLASS_REJECTED, 0, false, false},
    {400, NULL, VERDICT_REJECTED, CLASS_HTTP_4XX, 0, false, false},
    {410, NULL, VERDICT_REJECTED, CLASS_HTTP_4XX, 0, true, false},
    {429, "Retry-After: 3\r\n", VERDICT_RETRY, CLASS_HTTP_4XX, 3000, false, true},
    {500, "Retry-After: 3\r\n", VERDICT_RETRY, CLASS_HTTP_5XX, 3000, false, false},
    {503, "Retry-After: 3\r\n", VERDICT_RETRY, CLASS_HTTP_5XX, 3000, false, true},
    {503, "webhook-delivery: abort-message\r\n", VERDICT_ABORTED, CLASS_ABORTED, 0, false, false},
    {422, "webhook-delivery: abort-message\r\n", VERDICT_ABORTED, CLASS_ABORTED, 0, false, false},
    {200, "webhook-delivery: disable\r\n", VERDICT_DELIVERED, CLASS_DELIVERED, 0, true, false},
};

START_TEST(answers_are_classified) {
    start(false);
    prepare_usual();
    receiver_answer(receiver, answers[_i].status, answers[_i].headers, 0);
    struct result result = send_delivery(&usual);
    ck_assert_int_eq(result.outcome.status, answers[_i].status);
    ck_assert_int_eq(result.outcome.verdict, answers[_i].verdict);
    ck_assert_int_eq(result.outcome.class, answers[_i].class);
    ck_assert_uint_eq(result.outcome.after_ms, answers[_i].after_ms);
    ck_assert_int_eq(result.outcome.disable_subscription, answers[_i].disables);
    ck_assert_int_eq(result.outcome.pause_endpoint, answers[_i].pauses);
    if (answers[_i].verdict != VERDICT_DELIVERED) {
        char text[64];
        snprintf(text, sizeof text, "the receiver answered %d", answers[_i].status);
        ck_assert_str_eq(result.error, text);
    }
    stop();
}
END_TEST

// The status came, whatever becomes of the body.
static const struct {
    const char *answer;
    enum script_then then;
    int status;
    enum verdict verdict;
    enum attempt_class class;
    uint64_t after_ms;
} broken_bodies[] = {
    {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", THEN_CLOSE, 200, VERDICT_DELIVERED, CLASS_DELIVERED, 0},
    {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", THEN_RESET, 200, VERDICT_DELIVERED, CLASS_DELIVERED, 0},
    {"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nsho", THEN_CLOSE, 202, VERDICT_DELIVERED,
     CLASS_DELIVERED, 0},
    {"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", THEN_DRIP, 200, VERDICT_DELIVERED, CLASS_DELIVERED, 0},
    {"HTTP/1.1 503 No\r\nRetry-After: 3\r\nContent-Length: 10\r\n\r\nshort", THEN_CLOSE, 503, VERDICT_RETRY,
     CLASS_HTTP_5XX, 3000},
    {"HTTP/1.1 422 No\r\nContent-Length: 10\r\n\r\n", THEN_RESET, 422, VERDICT_REJECTED, CLASS_HTTP_4XX, 0},
};

START_TEST(a_status_counts_though_its_body_breaks_off) {
    start(false);
    struct script_server server;
    script_server_start(&server, &loop);
    server.script = (struct script){.answer = broken_bodies[_i].answer, .then = broken_bodies[_i].then, .filler = "x"};
    struct error error;
    ck_assert_msg(
        prepare(&error, "{\"url\":\"http://127.0.0.1:%d/\",\"allow_http\":true,\"deadline_ms\":300}", server.port),
        "%s", error.text);
    struct result result = send_delivery(&usual);
    ck_assert_int_eq(result.outcome.status, broken_bodies[_i].status);
    ck_assert_int_eq(result.outcome.verdict, broken_bodies[_i].verdict);
    ck_assert_int_eq(result.outcome.class, broken_bodies[_i].class);
    ck_assert_uint_eq(result.outcome.after_ms, broken_bodies[_i].after_ms);
    uv_close((uv_handle_t *)&server.listener, NULL);
    stop();
}
END_TEST

START_TEST(a_status_policy_is_a_setting) {
    start(false);
    struct error error;
    ck_assert_msg(prepare(&error, "{\"url\":\"%s\",\"allow_http\":true,\"statuses\":{\"404\":\"retry\"}}",
                          receiver_url(receiver)),
                  "%s", error.text);
    receiver_answer(receiver, 404, "Retry-After: 3\r\n", 0);
    struct result result = send_delivery(&usual);
    ck_assert_int_eq(result.outcome.verdict, VERDICT_RETRY);
    ck_assert_int_eq(result.outcome.class, CLASS_HTTP_4XX);
    ck_assert_uint_eq(result.outcome.after_ms, 3000);
    stop();
}
END_TEST

static char *read_file(const char *path) {
    char *text = calloc(1, 16384);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_gt(fread(text, 1, 16383, file), 0);
    fclose(file);
    return text;
}

// Settings with these texts in them; NULL leaves one out. Returns what prepare says.
static bool prepare_tls(int port, const char *ca, const char *certificate, const char *key, struct error *ret_error) {
    static char *text;
    free(text);
    struct json_object *object = json_object_new_object();
    char url[64];
    snprintf(url, sizeof url, "https://127.0.0.1:%d/", port);
    json_object_object_add(object, "url", json_object_new_string(url));
    if (ca)
        json_object_object_add(object, "ca", json_object_new_string(ca));
    if (certificate)
        json_object_object_add(object, "client_certificate", json_object_new_string(certificate));
    if (key)
        json_object_object_add(object, "client_key", json_object_new_string(key));
    text = strdup(json_object_to_json_string(object));
    json_object_put(object);
    subscription.settings = text;
    return sink.prepare(sink.arg, &subscription, ret_error);
}

START_TEST(an_authority_of_its_own_is_trusted_by_that_subscription_alone) {
    start(false);
    struct tls_server tls;
    tls_server_start(&tls, "IP:127.0.0.1");
    char *ca = read_file(tls.ca_file);
    struct error error;
    ck_assert_msg(prepare_tls(tls.port, ca, NULL, NULL, &error), "%s", error.text);
    ck_assert_int_eq(send_delivery(&usual).outcome.verdict, VERDICT_DELIVERED);
    sink.forget(sink.arg, &subscription);
    ck_assert(prepare_tls(tls.port, NULL, NULL, NULL, &error));
    struct result result = send_delivery(&usual); // neither by its handle nor over its connection
    ck_assert_int_eq(result.outcome.class, CLASS_TLS);
    sink.forget(sink.arg, &subscription);
    char *other, *key;
    tls_identity_make(&other, &key);
    ck_assert(prepare_tls(tls.port, other, NULL, NULL, &error));
    ck_assert_int_eq(send_delivery(&usual).outcome.class, CLASS_TLS);
    stop();
    tls_server_stop(&tls);
    free(other);
    free(key);
    free(ca);
}
END_TEST

START_TEST(a_client_certificate_is_shown) {
    char *certificate, *key, *other, *other_key;
    tls_identity_make(&certificate, &key);
    tls_identity_make(&other, &other_key);
    char *sealed = sealed_for(KEY_1, SEAL_CLIENT_KEY, key),
         *other_sealed = sealed_for(KEY_1, SEAL_CLIENT_KEY, other_key);
    secret_key = KEY_1;
    start(false);
    struct tls_server tls;
    tls_server_start_asking(&tls, "IP:127.0.0.1", certificate);
    char *ca = read_file(tls.ca_file);
    struct error error;
    ck_assert_msg(prepare_tls(tls.port, ca, certificate, sealed, &error), "%s", error.text);
    ck_assert_int_eq(send_delivery(&usual).outcome.verdict, VERDICT_DELIVERED);
    sink.forget(sink.arg, &subscription);
    ck_assert(
        prepare_tls(tls.port, ca, NULL, NULL, &error)); // none, and not the one of the connection that stands open
    ck_assert_int_eq(send_delivery(&usual).outcome.verdict, VERDICT_RETRY);
    sink.forget(sink.arg, &subscription);
    ck_assert(prepare_tls(tls.port, ca, other, other_sealed, &error));
    ck_assert_int_eq(send_delivery(&usual).outcome.verdict, VERDICT_RETRY);
    sink.forget(sink.arg, &subscription);

    ck_assert(!prepare_tls(tls.port, ca, certificate, other_sealed, &error));
    ck_assert_msg(strstr(error.text, "does not belong to client_certificate"), "%s", error.text);
    ck_assert(!prepare_tls(tls.port, ca, certificate, NULL, &error));
    ck_assert_msg(strstr(error.text, "need each other"), "%s", error.text);
    ck_assert(
        !prepare_tls(tls.port, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", NULL, NULL, &error));
    ck_assert_msg(strstr(error.text, "ca: not a certificate"), "%s", error.text);
    stop();
    tls_server_stop(&tls);
    free(sealed);
    free(other_sealed);
    free(certificate);
    free(key);
    free(other);
    free(other_key);
    free(ca);
}
END_TEST

START_TEST(a_slow_receiver_is_a_timeout) {
    start(false);
    struct error error;
    ck_assert_msg(prepare(&error, "{\"url\":\"%s\",\"allow_http\":true,\"deadline_ms\":200}", receiver_url(receiver)),
                  "%s", error.text);
    receiver_hold(receiver, "");
    struct result result = {0};
    sink.send(sink.arg, &usual, on_done, &result);
    loop_turn_until(&loop, &result.calls, 1, 400, "the end at its deadline");
    ck_assert_int_eq(result.outcome.verdict, VERDICT_RETRY);
    ck_assert_int_eq(result.outcome.class, CLASS_TIMEOUT);
    ck_assert_int_eq(result.outcome.status, 0);
    ck_assert_double_ge(result.outcome.total_ms, 198);
    ck_assert_str_ne(result.error, "");
    stop();
}
END_TEST

START_TEST(a_denied_address_is_rejected) {
    start(false);
    struct error error;
    ck_assert(
        prepare(&error, "{\"url\":\"https://10.0.0.1/\"}")); // settings are good; the address is judged when sent to
    struct result result = send_delivery(&usual);
    ck_assert_int_eq(result.outcome.verdict, VERDICT_REJECTED);
    ck_assert_int_eq(result.outcome.class, CLASS_EGRESS_DENIED);
    ck_assert_ptr_nonnull(strstr(result.error, "private"));
    stop();
}
END_TEST

static const struct {
    const char *settings;
    const char *secret;
    const char *says;
} refusals[] = {
    {"{}", NULL, "url: missing"},
    {"[]", NULL, "not a JSON object"},
    {"{\"url\":1}", NULL, "url: must be a text"},
    {"{\"url\":\"http://example.com\"}", NULL, "http is not allowed"},
    {"{\"url\":\"https://u:p@example.com\"}", NULL, "no user"},
    {"{\"url\":\"https://example.com\",\"allow_http\":\"yes\"}", NULL, "allow_http: must be true or false"},
    {"{\"url\":\"https://example.com\",\"deadline_ms\":20001}", NULL, "deadline_ms: must be 100 to 20000"},
    {"{\"url\":\"https://example.com\",\"deadline_ms\":99}", NULL, "deadline_ms"},
    {"{\"url\":\"https://example.com\",\"headers\":{\"Host\":\"x\"}}", NULL, "Host is reserved"},
    {"{\"url\":\"https://example.com\",\"headers\":{\"Webhook-Id\":\"x\"}}", NULL, "Webhook-Id is reserved"},
    {"{\"url\":\"https://example.com\",\"headers\":{\"content-LENGTH\":\"0\"}}", NULL, "reserved"},
    {"{\"url\":\"https://example.com\",\"headers\":{\"X\":\"a\\r\\nEvil: 1\"}}", NULL, "line break"},
    {"{\"url\":\"https://example.com\",\"headers\":{\"X\":\"a\\u0000b\"}}", NULL, "line break"},
    {"{\"url\":\"https://example.com\",\"headers\":{\"X: y\\r\\nZ\":\"a\"}}", NULL, "not a header name"},
    {"{\"url\":\"https://example.com\",\"headers\":{\"X\":1}}", NULL, "must be a text"},
    {"{\"url\":\"https://example.com\",\"headers\":[]}", NULL, "headers: must be an object"},
    {"{\"url\":\"https://example.com\",\"statuses\":{\"4\":\"retry\"}}", NULL, "statuses: 4"},
    {"{\"url\":\"https://example.com\",\"signature\":\"md5\"}", NULL, "none of standard"},
    {"{\"url\":\"https://example.com\"}", "sealed:1:0011223344556677:AAAA", "ROWBELL_SECRET_KEY is not set here"},
    {"{\"url\":\"https://example.com\"}", "whsec_" SECRET_1, "stored in a form"},
    {"{\"url\":\"https://example.com\"}", "plain:whsec_AAAA", "24 to 64 bytes"},
};

START_TEST(bad_settings_are_refused) {
    start(false);
    char secret[128];
    char *list[] = {secret};
    if (refusals[_i].secret) {
        snprintf(secret, sizeof secret, "%s", refusals[_i].secret);
        subscription.secrets = list;
    }
    struct error error;
    ck_assert(!prepare(&error, "%s", refusals[_i].settings));
    ck_assert_msg(strstr(error.text, refusals[_i].says), "%s", error.text);
    ck_assert_ptr_null(subscription.sink_state);
    struct result result = send_delivery(&usual); // what is sent in spite of it
    ck_assert_int_eq(result.outcome.verdict, VERDICT_REJECTED);
    ck_assert_int_eq(result.outcome.class, CLASS_REJECTED);
    stop();
}
END_TEST

START_TEST(a_subscription_without_secrets_is_refused) {
    start(true);
    subscription.secret_count = 0;
    struct error error;
    ck_assert(!prepare(&error, "{\"url\":\"http://example.com\"}"));
    ck_assert_msg(strstr(error.text, "none to sign with"), "%s", error.text);
    stop();
}
END_TEST

START_TEST(http_for_all_is_an_option) {
    start(true);
    struct error error;
    ck_assert_msg(prepare(&error, "{\"url\":\"%s\"}", receiver_url(receiver)), "%s", error.text);
    ck_assert_int_eq(send_delivery(&usual).outcome.verdict, VERDICT_DELIVERED);
    stop();
}
END_TEST

START_TEST(settings_may_go_while_a_send_is_in_flight) {
    start(false);
    prepare_usual();
    struct result result = {0};
    sink.send(sink.arg, &usual, on_done, &result);
    sink.forget(sink.arg, &subscription);
    while (result.calls == 0)
        uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(result.outcome.verdict, VERDICT_DELIVERED);
    stop();
}
END_TEST

START_TEST(closing_loses_what_is_in_flight) {
    start(false);
    prepare_usual();
    receiver_hold(receiver, "");
    struct result results[3] = {0};
    for (int i = 0; i < 3; i++)
        sink.send(sink.arg, &usual, on_done, &results[i]);
    bool closed = false;
    sink.forget(sink.arg, &subscription);
    sink.close(sink.arg, on_sink_closed, &closed);
    while (!closed)
        uv_run(&loop, UV_RUN_DEFAULT);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(results[i].calls, 1);
        ck_assert_int_eq(results[i].outcome.verdict, VERDICT_RETRY);
        ck_assert_int_eq(results[i].outcome.class, CLASS_LOST);
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}
END_TEST

// ---- What broke elsewhere

// The outcome was not written after the call: the attempt is made again, and the receiver can tell that it knows it.
START_TEST(field_4_a_repeated_attempt_has_the_same_id_and_body) {
    start(false);
    prepare_usual();
    send_delivery(&usual);
    struct delivery again = usual;
    again.attempt = 2;
    send_delivery(&again);
    struct received first = receiver_get(receiver, 0), second = receiver_get(receiver, 1);
    ck_assert_str_eq(received_header(&first, "webhook-id"), received_header(&second, "webhook-id"));
    ck_assert_str_eq(first.body, second.body);
    stop();
}
END_TEST

struct many {
    int left, in_flight, done, connected, failed;
};

static void on_one_of_many(void *arg, const struct attempt_outcome *outcome) {
    struct many *many = arg;
    many->in_flight--;
    many->done++;
    many->connected += outcome->connect_ms > 0;
    many->failed += outcome->class != CLASS_DELIVERED;
    if (many->left > 0) {
        many->left--;
        many->in_flight++;
        sink.send(sink.arg, &usual, on_one_of_many, many);
    } else if (many->in_flight == 0) {
        uv_stop(&loop);
    }
}

START_TEST(field_7_ports_are_not_used_up) {
    enum { REQUESTS = 20000, CONCURRENT = 64 };
    start(false);
    prepare_usual();
    struct many many = {.left = REQUESTS - CONCURRENT, .in_flight = CONCURRENT};
    for (int i = 0; i < CONCURRENT; i++)
        sink.send(sink.arg, &usual, on_one_of_many, &many);
    while (many.done < REQUESTS)
        uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(many.failed, 0);
    ck_assert_msg(many.connected < REQUESTS / 20, "%d connections for %d requests", many.connected, REQUESTS);
    ck_assert_int_eq(receiver_count(receiver), REQUESTS);
    stop();
}
END_TEST

// Each request has a clock of its own: neither waits for another's deadline, nor gets less because another was slow.
START_TEST(field_8_nobody_waits_for_the_slowest_of_a_batch) {
    start(false);
    struct receiver *slow = receiver_start();
    receiver_hold(slow, "");
    struct subscription slow_one = subscription;
    char slow_settings[200];
    struct error error;
    snprintf(slow_settings, sizeof slow_settings, "{\"url\":\"%s\",\"allow_http\":true}", receiver_url(slow));
    slow_one.settings = slow_settings;
    ck_assert(sink.prepare(sink.arg, &slow_one, &error));
    prepare_usual();
    struct delivery to_slow = usual;
    to_slow.subscription = &slow_one;
    struct result late[5] = {0}, quick[50] = {0};
    for (int i = 0; i < 5; i++)
        sink.send(sink.arg, &to_slow, on_done, &late[i]);
    for (int i = 0; i < 50; i++)
        sink.send(sink.arg, &usual, on_done, &quick[i]);
    for (int i = 0; i < 50; i++) {
        while (quick[i].calls == 0)
            uv_run(&loop, UV_RUN_DEFAULT);
        ck_assert_int_eq(quick[i].outcome.class, CLASS_DELIVERED);
    }
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(late[i].calls, 0); // still on their way when the others are done
    receiver_release(slow);
    for (int i = 0; i < 5; i++) {
        while (late[i].calls == 0)
            uv_run(&loop, UV_RUN_DEFAULT);
        ck_assert_int_eq(late[i].outcome.class, CLASS_DELIVERED);
    }
    sink.forget(sink.arg, &slow_one);
    // Of those that are late together each has its whole deadline, and no more.
    snprintf(slow_settings, sizeof slow_settings, "{\"url\":\"%s\",\"allow_http\":true,\"deadline_ms\":300}",
             receiver_url(slow));
    ck_assert(sink.prepare(sink.arg, &slow_one, &error));
    receiver_hold(slow, "");
    struct result timed[5] = {0};
    for (int i = 0; i < 5; i++)
        sink.send(sink.arg, &to_slow, on_done, &timed[i]);
    loop_turn_until(&loop, &timed[4].calls, 1, 600, "the last one's end");
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(timed[i].calls, 1);
        ck_assert_int_eq(timed[i].outcome.class, CLASS_TIMEOUT);
        ck_assert_double_ge(timed[i].outcome.total_ms, 298);
    }
    sink.forget(sink.arg, &slow_one);
    stop();
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "sink_webhook", 20);
    tcase_add_test(tcase, a_delivery_arrives_byte_for_byte_and_signed);
    tcase_add_test(tcase, all_secrets_sign);
    tcase_add_test(tcase, sealed_secrets_are_opened_each_by_its_key);
    tcase_add_test(tcase, a_secret_that_cannot_be_opened_sends_nothing);
    tcase_add_test(tcase, an_old_secret_stops_at_its_end);
    tcase_add_test(tcase, a_key_that_is_none_ends_the_start);
    tcase_add_test(tcase, data_passes_through_untouched);
    tcase_add_test(tcase, custom_headers_are_sent);
    tcase_add_test(tcase, other_signature_styles_are_a_setting);
    tcase_add_loop_test(tcase, answers_are_classified, 0, (int)(sizeof answers / sizeof *answers));
    tcase_add_loop_test(tcase, a_status_counts_though_its_body_breaks_off, 0,
                        (int)(sizeof broken_bodies / sizeof *broken_bodies));
    tcase_add_test(tcase, a_status_policy_is_a_setting);
    tcase_add_test(tcase, an_authority_of_its_own_is_trusted_by_that_subscription_alone);
    tcase_add_test(tcase, a_client_certificate_is_shown);
    tcase_add_test(tcase, a_slow_receiver_is_a_timeout);
    tcase_add_test(tcase, a_denied_address_is_rejected);
    tcase_add_loop_test(tcase, bad_settings_are_refused, 0, (int)(sizeof refusals / sizeof *refusals));
    tcase_add_test(tcase, a_subscription_without_secrets_is_refused);
    tcase_add_test(tcase, http_for_all_is_an_option);
    tcase_add_test(tcase, settings_may_go_while_a_send_is_in_flight);
    tcase_add_test(tcase, closing_loses_what_is_in_flight);
    TCase *field = suite_case(suite, "field", 300);
    tcase_add_test(field, field_4_a_repeated_attempt_has_the_same_id_and_body);
    tcase_add_test(field, field_7_ports_are_not_used_up);
    tcase_add_test(field, field_8_nobody_waits_for_the_slowest_of_a_batch);
}

int main(void) {
    return suite_main("sink_webhook", add_tests);
}
