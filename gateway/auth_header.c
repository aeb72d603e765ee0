// auth_header: a proxy in front has authenticated the client and says its scopes in a header, separated by commas, each
// percent-encoded. Only peers of the listed ranges are believed; everybody else is refused, with and without the
// header.
#include "common/buffer.h"
#include "common/egress.h"
#include "common/memory.h"
#include "gateway/auth_way.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct header_way {
    const struct gateway_config *config;
    char *name;    // in lower case
    char *subject; // likewise; NULL: no header names it
    struct egress_policy peers;
};

static char *lower_case(const char *text) {
    char *copy = memory_copy_text(text);
    for (char *c = copy; *c != '\0'; c++) {
        *c = (char)tolower((unsigned char)*c);
    }
    return copy;
}

static void *start(uv_loop_t *loop, const struct gateway_config *config, struct error *ret_error) {
    struct header_way *way = memory_alloc(sizeof *way);
    if (!egress_policy_init(&way->peers, &config->trusted_peers, ret_error)) {
        error_wrap(ret_error, "--trusted-peer");
        free(way);
        return NULL;
    }
    way->config = config;
    way->name = lower_case(config->scopes_header);
    way->subject = config->subject_header ? lower_case(config->subject_header) : NULL;
    return way;
}

static void stop(void *self) {
    struct header_way *way = self;
    egress_policy_close(&way->peers);
    free(way->name);
    free(way->subject);
    free(way);
}

static int hex_value(char c) {
    static const char digits[] = "0123456789abcdef";
    const char *digit = c != '\0' ? strchr(digits, tolower((unsigned char)c)) : NULL;
    return digit ? (int)(digit - digits) : -1;
}

// One scope, decoded into an empty buffer. False for a bad escape, a NUL, or what is not UTF-8.
static bool decode(const char *text, size_t length, struct buffer *ret_scope) {
    buffer_text(ret_scope, "");
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        if (c == '%') {
            int high = i + 2 < length ? hex_value(text[i + 1]) : -1;
            int low = high >= 0 ? hex_value(text[i + 2]) : -1;
            if (low < 0) {
                return false;
            }
            c = (char)(high << 4 | low);
            i += 2;
        }
        if (c == '\0') {
            return false;
        }
        buffer_char(ret_scope, c);
    }
    return utf8_is_valid(ret_scope->bytes, ret_scope->length);
}

static bool read_scopes(const char *text, bool every_scope, struct grant *grant) {
    bool read = true;
    while (read && *text != '\0') {
        struct buffer scope = {0};
        text += strspn(text, " \t,");
        size_t length = strcspn(text, ",");
        size_t trimmed = length;
        while (trimmed > 0 && strchr(" \t", text[trimmed - 1])) {
            trimmed--;
        }
        read = decode(text, trimmed, &scope);
        if (read) {
            grant_add_scope(grant, scope.bytes, every_scope);
        }
        buffer_free(&scope);
        text += length;
    }
    return read && !grant->overflow;
}

static bool check(void *self, const struct http_exchange *exchange, const struct http_request *request,
                  const char *ticket, struct auth_answer *ret_answer, auth_done *done, void *arg) {
    struct header_way *way = self;
    const char *scopes, *subject = NULL;
    struct grant grant = {0};
    if (!egress_policy_lists(&way->peers, http_exchange_peer(exchange))) {
        return auth_refuse(ret_answer, 403, "only the proxy may connect here");
    }
    // A second one may be the client's own, which the proxy passed on.
    if (!auth_header_once(request, way->name, &scopes)) {
        return auth_refuse(ret_answer, 403, "the header of scopes is there twice");
    }
    if (way->subject && !auth_header_once(request, way->subject, &subject)) {
        return auth_refuse(ret_answer, 403, "the header of the subject is there twice");
    }
    if (!scopes) {
        return auth_refuse(ret_answer, 401, "not signed in");
    }
    if (!read_scopes(scopes, way->config->allow_all_scopes, &grant)) {
        grant_free(&grant);
        return auth_refuse(ret_answer, 403, "the header of scopes cannot be read");
    }
    if (subject && subject[0] != '\0') {
        grant_set_subject(&grant, "subject", subject);
    }
    grant.end_ms = auth_end_ms(way->config, 0);
    *ret_answer = (struct auth_answer){.verdict = AUTH_ADMITTED, .grant = grant};
    return true;
}

const struct auth_way auth_header = {start, check, stop};
