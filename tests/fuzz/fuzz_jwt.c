// Any bytes as a token, as a JSON text, and as a JWK Set: nothing is read beyond its end, what is refused leaves
// nothing behind, and no token is ever valid but one that the key's owner made.
#include "common/json_read.h"
#include "gateway/jwt.h"
#include "tests/fuzz/fuzz.h"

static void look_at(const struct json_value *value, unsigned depth) {
    require(depth <= JSON_DEPTH_MAX);
    require((value->text != NULL) == (value->kind == JSON_STRING || value->kind == JSON_NUMBER));
    size_t count = 0;
    for (const struct json_value *item = value->first; item; item = item->next) {
        require((item->name != NULL) == (value->kind == JSON_OBJECT));
        require(!item->name || json_member(value, item->name) == item); // no other member has its name
        look_at(item, depth + 1);
        count++;
    }
    require(count == value->count);
}

static void read_json(const char *text, size_t length) {
    struct error error;
    struct json_document *document = json_read(text, length, &error);
    if (document) {
        look_at(json_root(document), 0);
        json_free(document);
    }
}

static void read_set(const char *text, size_t length) {
    struct error error;
    struct jwt_keys keys = {0};
    bool read = jwt_keys_from_jwks(&keys, text, length, true, &error);
    require(read == (keys.count > 0));
    for (size_t i = 0; i < keys.count; i++) {
        require((keys.keys[i].public_key != NULL) == (keys.keys[i].algorithm != JWT_HS256));
        require(keys.keys[i].public_key || keys.keys[i].secret_length >= JWT_SECRET_MIN_BYTES);
    }
    jwt_keys_free(&keys);
}

// Whose secret the fuzzer does not know.
static void check_token(const char *token) {
    static const struct jwt_rules rules = {.claim = "scopes", .leeway_ms = 5000};
    static struct jwt_keys keys;
    struct grant grant = {0};
    int64_t end_ms;
    const char *problem = NULL;
    if (keys.count == 0) {
        require(jwt_keys_from_secret(&keys, "b3e1f7c4d2a90586b3e1f7c4d2a90586!", NULL));
        keys.named = true; // both ways of choosing a key
    }
    require(jwt_check(token, &keys, &rules, 0, &grant, &end_ms, &problem) != JWT_VALID);
    keys.named = !keys.named;
    require(jwt_check(token, &keys, &rules, 0, &grant, &end_ms, &problem) != JWT_VALID);
    require(problem && grant.count == 0 && !grant.every_scope);
}

// What is decoded fits into what jwt_keys.h promises.
static void check_base64url(const uint8_t *bytes, size_t length) {
    unsigned char decoded[64];
    size_t decoded_length;
    if (length <= sizeof decoded && base64url_decode((const char *)bytes, length, decoded, &decoded_length)) {
        require(decoded_length <= length * 3 / 4 && length % 4 != 1);
    }
}

FUZZ_TARGET(jwt) {
    char *text = input_text(bytes, length);
    char *exact = input_copy(bytes, length);
    read_json(exact, length);
    read_set(exact, length);
    check_token(text);
    check_base64url(bytes, length);
    free(exact);
    free(text);
    return 0;
}
