#include "gateway/grant.h"
#include "common/buffer.h"
#include "common/memory.h"
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGEST_NAME_SIZE = sizeof "sha256:" + 2 * SHA256_DIGEST_LENGTH };

static void name_by_digest(const char *scope, size_t length, char ret_name[DIGEST_NAME_SIZE]) {
    unsigned char digest[SHA256_DIGEST_LENGTH];
    SHA256((const unsigned char *)scope, length, digest);
    int at = snprintf(ret_name, DIGEST_NAME_SIZE, "sha256:");
    for (size_t i = 0; i < sizeof digest; i++) {
        at += snprintf(ret_name + at, DIGEST_NAME_SIZE - (size_t)at, "%02x", digest[i]);
    }
}

static bool has_scope(const struct grant *grant, const char *scope) {
    for (const char *s = grant->scopes; s < grant->scopes + grant->scopes_size; s += strlen(s) + 1) {
        if (strcmp(s, scope) == 0) {
            return true;
        }
    }
    return false;
}

void grant_add_scope(struct grant *grant, const char *scope, bool allow_every) {
    char digest_name[DIGEST_NAME_SIZE];
    size_t length = strlen(scope);
    if (strcmp(scope, "*") == 0) {
        grant->every_scope |= allow_every;
        return;
    }
    if (length > SCOPE_BYTES_MAX) {
        name_by_digest(scope, length, digest_name);
        scope = digest_name;
        length = strlen(scope);
    }
    if (length == 0 || (grant->count > 0 && has_scope(grant, scope))) {
        return;
    }
    if (grant->count == GRANT_SCOPES_MAX) {
        grant->overflow = true;
        return;
    }
    grant->scopes = memory_resize(grant->scopes, 1, grant->scopes_size + length + 1);
    memcpy(grant->scopes + grant->scopes_size, scope, length + 1);
    grant->scopes_size += length + 1;
    grant->count++;
}

static bool add_json_scope(struct grant *grant, const struct json_value *value, bool allow_every) {
    int64_t number;
    if (!json_is(value, JSON_STRING) && !json_integer(value, &number)) {
        return false;
    }
    grant_add_scope(grant, value->text, allow_every);
    return true;
}

bool grant_add_scopes(struct grant *grant, const struct json_value *value, bool allow_every) {
    if (!value || json_is(value, JSON_NULL)) {
        return true;
    }
    if (!json_is(value, JSON_ARRAY)) {
        return add_json_scope(grant, value, allow_every);
    }
    for (const struct json_value *item = value->first; item; item = item->next) {
        if (!add_json_scope(grant, item, allow_every)) {
            return false;
        }
    }
    return true;
}

void grant_set_subject(struct grant *grant, const char *kind, const char *text) {
    unsigned char digest[SHA256_DIGEST_LENGTH];
    struct buffer named = {0};
    buffer_append(&named, kind, strlen(kind) + 1);
    buffer_text(&named, text);
    SHA256((const unsigned char *)named.bytes, named.length, digest);
    OPENSSL_cleanse(named.bytes, named.length);
    buffer_free(&named);
    memcpy(grant->subject, digest, sizeof grant->subject);
    grant->has_subject = true;
}

void grant_free(struct grant *grant) {
    free(grant->scopes);
    table_filter_free(grant->tables);
    *grant = (struct grant){0};
}
