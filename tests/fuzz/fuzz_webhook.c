// The settings of a webhook and, after a line's end, its secrets: what is taken makes a request whose headers are whole
// and ours alone, and a refusal names no secret.
#include "common/clock.h"
#include "common/webhook_endpoint.h"
#include "tests/fuzz/fuzz.h"
#include <strings.h>

static void check_call(const struct webhook_endpoint *endpoint) {
    static const char *const ours[] = {"content-length:", "transfer-encoding:", "host:", "connection:", "webhook-id:"};
    struct error error;
    struct buffer body = {0}, headers = {0};
    const char *list[HTTP_CALL_MAX_HEADERS + 1];
    webhook_body_write(&body, &(struct webhook_event){"id", "type", "1970-01-01T00:00:00Z", "s\"\n\xff", "{}"});
    struct http_call call = webhook_endpoint_call(endpoint, "id", 1700000000, &body, &headers, list);
    require(call.url && http_url_check(call.url, endpoint->allow_http, &error));
    size_t count = 0;
    for (; list[count]; count++) {
        require(count < HTTP_CALL_MAX_HEADERS && strchr(list[count], ':') && !strpbrk(list[count], "\r\n"));
        for (const char *c = list[count]; *c; c++)
            require((*c >= ' ' && *c < 0x7f) || *c == '\t');
    }
    for (size_t i = 0; i < endpoint->header_count; i++)
        for (size_t j = 0; j < sizeof ours / sizeof *ours; j++)
            require(strncasecmp(endpoint->headers[i], ours[j], strlen(ours[j])) != 0);
    buffer_free(&body);
    buffer_free(&headers);
}

FUZZ_TARGET(webhook) {
    static const char known[] = "plain:whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    struct webhook_endpoint endpoint;
    struct error error = {0};
    const struct seal_keys none = {0};
    char copy[sizeof known];
    memcpy(copy, known, sizeof copy);
    char *settings = input_line(&bytes, &length), *secret = input_text(bytes, length);
    if (!settings) {
        free(secret);
        return 0;
    }
    char *const secrets[] = {length > 0 ? secret : copy, copy};
    if (webhook_endpoint_init(&endpoint, settings, secrets, 2, "id", &none, false, &error)) {
        require(endpoint.deadline_ms >= 100 && endpoint.deadline_ms <= WEBHOOK_DEADLINE_MS);
        require(endpoint.header_count <= WEBHOOK_HEADERS_MAX);
        for (int status = 0; status < 700; status += 7)
            status_policy_find(&endpoint.statuses, status);
        check_call(&endpoint);
    } else {
        require(error.text[0] != '\0' && strpbrk(error.text, "\r\n") == NULL);
        require(strlen(secret) < 16 || strstr(error.text, secret) == NULL);
    }
    webhook_endpoint_close(&endpoint);
    free(settings);
    free(secret);
    return 0;
}
