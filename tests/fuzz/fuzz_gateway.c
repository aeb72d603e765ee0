// What a client's request says, one line each: X-Forwarded-For or Forwarded, Host, Last-Event-ID, the query. A client
// cannot choose its address, nor pass with another host's name.
#include "gateway/allowed_host.h"
#include "gateway/client_address.h"
#include "gateway/parameter_name.h"
#include "gateway/resume.h"
#include "tests/fuzz/fuzz.h"
#include <arpa/inet.h>
#include <inttypes.h>

static struct client_address client_of(const struct egress_policy *trusted, const char *header, const char *value) {
    static struct http_request request;
    request.header_count = 1;
    request.headers[0] = (struct http_header){header, value};
    return client_address_of("10.0.0.1", trusted, header, &request);
}

static void require_same(struct client_address one, struct client_address other) {
    require(memcmp(one.bytes, other.bytes, sizeof one.bytes) == 0 && one.is_public == other.is_public);
}

static void check_forwarded(const char *text) {
    static const char *const proxies[] = {"10.0.0.0/8"};
    static const struct { const char *header, *before; } ways[] = {{"x-forwarded-for", ""}, {"forwarded", "for="}};
    static const struct egress_policy none;
    struct egress_policy trusted;
    struct config_list list = {(const char **)proxies, 1};
    require(egress_policy_init(&trusted, &list, NULL));
    for (size_t i = 0; i < 2; i++) {
        char seen[64], *value = malloc(strlen(text) + sizeof seen + 2);
        require(value != NULL);
        client_of(&trusted, ways[i].header, text);
        // Without a proxy that is trusted it is not looked at, and left of the address that one has seen neither.
        require_same(client_of(&none, ways[i].header, text), client_of(&none, ways[i].header, ""));
        snprintf(seen, sizeof seen, "%s8.8.4.4", ways[i].before);
        struct client_address alone = client_of(&trusted, ways[i].header, seen);
        require(alone.is_public && memcmp(alone.bytes + 12, "\x08\x08\x04\x04", 4) == 0);
        sprintf(value, "%s,%s", text, seen);
        require_same(client_of(&trusted, ways[i].header, value), alone);
        free(value);
    }
    egress_policy_close(&trusted);
}

static void check_host(const char *host) {
    static const char *const names[] = {"app.example"};
    struct config_list list = {(const char **)names, 1};
    if (!allowed_host(&list, host))
        return;
    // No part of it is of another host: name or address, then at most a port.
    const char *port = host[0] == '[' ? strchr(host, ']') : host + strcspn(host, ":");
    require(port != NULL);
    port += host[0] == '[';
    require(host[0] == '[' ? strspn(host + 1, "0123456789abcdefABCDEF:.") == (size_t)(port - host - 2)
                           : strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") ==
                                 (size_t)(port - host));
    require(*port == '\0' || (*port == ':' && strspn(port + 1, "0123456789") == strlen(port + 1)));
}

static void check_position(const char *text) {
    char again[32];
    struct resume_ask ask = resume_ask_parse(text);
    if (ask.kind == RESUME_ASK_POSITION) {
        snprintf(again, sizeof again, "%" PRId64, ask.position);
        require(ask.position > 0 && strcmp(again, text) == 0);
    } else {
        require((ask.kind == RESUME_ASK_FRESH) == (strcmp(text, "") == 0 || strcmp(text, "0") == 0));
    }
}

static bool count_pair(void *arg, const char *name, const char *value) {
    require(name && value);
    require(parameter_name_same(name, name));
    require(!parameter_name_same(name, "table") || parameter_name_near(name, "table"));
    return ++*(int *)arg < 1000;
}

FUZZ_TARGET(gateway) {
    int pairs = 0;
    char *forwarded = input_line(&bytes, &length), *host = input_line(&bytes, &length);
    char *position = input_line(&bytes, &length), *query = input_text(bytes, length);
    if (forwarded)
        check_forwarded(forwarded);
    if (host)
        check_host(host);
    if (position)
        check_position(position);
    if (length <= HTTP_TARGET_MAX_BYTES) {
        http_query_each(query, count_pair, &pairs);
        require(pairs <= 256);
    }
    free(forwarded);
    free(host);
    free(position);
    free(query);
    return 0;
}
