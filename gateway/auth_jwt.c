// auth_jwt: a JSON Web Token in `Authorization: Bearer`, `?ticket=` or a cookie. The first of these that is there
// counts: a bad one is refused, whatever the others say.
#include "common/buffer.h"
#include "common/clock.h"
#include "common/memory.h"
#include "gateway/auth_jwks.h"
#include "gateway/auth_way.h"
#include "gateway/jwt.h"
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { PEM_MAX_BYTES = 256 * 1024 };

struct jwt_way {
    const struct gateway_config *config;
    struct jwt_rules rules;
    struct jwt_keys keys;   // of a secret or PEM
    struct auth_jwks *jwks; // else
};

// A token whose key is not known yet.
struct pending {
    struct auth_jwks_waiter waiter;
    struct jwt_way *way;
    auth_done *done;
    void *arg;
    char token[];
};

static void *start(uv_loop_t *loop, const struct gateway_config *config, struct error *ret_error) {
    struct jwt_way *way = memory_alloc(sizeof *way);
    struct buffer pem = {0};
    bool started;
    way->config = config;
    way->rules = (struct jwt_rules){
        .audience = config->jwt_audience,
        .issuer = config->jwt_issuer,
        .claim = config->jwt_claim,
        .every_scope = config->allow_all_scopes,
        .leeway_ms = config->jwt_leeway_ms,
    };
    if (config->jwt_secret) {
        started =
            jwt_keys_from_secret(&way->keys, config->jwt_secret, ret_error) || error_wrap(ret_error, "--jwt-secret");
    } else if (config->jwt_key) {
        started = (auth_file_read(config->jwt_key, PEM_MAX_BYTES, &pem, ret_error) &&
                   jwt_keys_from_pem(&way->keys, buffer_cstr(&pem), pem.length, ret_error)) ||
                  error_wrap(ret_error, "--jwt-key");
    } else {
        way->jwks = auth_jwks_new(loop, config, ret_error);
        started = way->jwks != NULL;
    }
    buffer_free(&pem);
    if (!started) {
        free(way);
        return NULL;
    }
    return way;
}

static void stop(void *self) {
    struct jwt_way *way = self;
    auth_jwks_close(way->jwks);
    jwt_keys_free(&way->keys);
    free(way);
}

// ---- the token ----

// The value of one cookie, into an empty buffer. False when it is there with two values: one of them may have been set
// by another site of the domain.
static bool find_cookie(const char *cookies, const char *name, struct buffer *ret_value) {
    size_t name_length = strlen(name);
    bool found = false;
    while (*cookies != '\0') {
        cookies += strspn(cookies, "; \t");
        size_t length = strcspn(cookies, ";");
        const char *value = cookies + name_length + 1;
        if (length > name_length && memcmp(cookies, name, name_length) == 0 && cookies[name_length] == '=') {
            size_t value_length = length - name_length - 1;
            while (value_length > 0 && strchr(" \t", value[value_length - 1])) {
                value_length--;
            }
            if (value_length >= 2 && value[0] == '"' && value[value_length - 1] == '"') {
                value++;
                value_length -= 2;
            }
            if (found && (value_length != ret_value->length || memcmp(value, ret_value->bytes, value_length) != 0)) {
                return false;
            }
            buffer_clear(ret_value);
            buffer_append(ret_value, value, value_length);
            found = true;
        }
        cookies += length;
    }
    return true;
}

// Into an empty buffer; empty afterwards when there is none. NULL, or what is wrong.
static const char *find_token(const struct jwt_way *way, const struct http_request *request, const char *ticket,
                              struct buffer *ret_token) {
    const char *authorization;
    if (!auth_header_once(request, "authorization", &authorization)) {
        return "there are two Authorization headers";
    }
    if (authorization && strncasecmp(authorization, "bearer ", 7) == 0) {
        buffer_text(ret_token, authorization + 7 + strspn(authorization + 7, " "));
        return ret_token->length > 0 ? NULL : "the Authorization header has no token";
    }
    if (ticket) {
        buffer_text(ret_token, ticket);
        return ret_token->length > 0 ? NULL : "the ticket is empty";
    }
    struct buffer cookies = {0};
    auth_cookies(request, &cookies);
    bool clear = find_cookie(buffer_cstr(&cookies), way->config->jwt_cookie, ret_token);
    buffer_free(&cookies);
    return clear ? NULL : "there are two cookies of that name";
}

// JWT_UNKNOWN_KEY leaves *ret_answer alone.
static enum jwt_verdict check_token(const struct jwt_way *way, const char *token, struct auth_answer *ret_answer) {
    struct grant grant = {0};
    int64_t end_ms;
    int64_t now_ms = clock_wall_us() / 1000;
    const char *problem;
    enum jwt_verdict verdict = jwt_check(token, way->jwks ? auth_jwks_keys(way->jwks) : &way->keys, &way->rules, now_ms,
                                         &grant, &end_ms, &problem);
    if (verdict == JWT_VALID) {
        grant.end_ms = auth_end_ms(way->config, end_ms - now_ms);
        *ret_answer = (struct auth_answer){.verdict = AUTH_ADMITTED, .grant = grant};
        return verdict;
    }
    grant_free(&grant);
    if (verdict == JWT_REFUSED) {
        auth_refuse(ret_answer, 401, problem);
    }
    return verdict;
}

static void on_keys(struct auth_jwks_waiter *waiter, bool fresh) {
    struct pending *pending = (struct pending *)waiter; // its first member
    struct auth_answer answer;
    if (check_token(pending->way, pending->token, &answer) == JWT_UNKNOWN_KEY) {
        // Without having seen the set, nobody knows that the key is not in it.
        if (fresh) {
            auth_refuse(&answer, 401, "the token's key is not known");
        } else {
            auth_unavailable(&answer);
        }
    }
    pending->done(pending->arg, &answer);
    OPENSSL_cleanse(pending->token, strlen(pending->token));
    free(pending);
}

static bool check(void *self, const struct http_exchange *exchange, const struct http_request *request,
                  const char *ticket, struct auth_answer *ret_answer, auth_done *done, void *arg) {
    struct jwt_way *way = self;
    struct buffer token = {0};
    bool answered = true;
    const char *problem = find_token(way, request, ticket, &token);
    if (problem || token.length == 0) {
        auth_refuse(ret_answer, 401, problem ? problem : "a token is needed");
    } else if (check_token(way, buffer_cstr(&token), ret_answer) == JWT_UNKNOWN_KEY) {
        struct pending *pending = memory_alloc(sizeof *pending + token.length + 1);
        *pending = (struct pending){.waiter.done = on_keys, .way = way, .done = done, .arg = arg};
        memcpy(pending->token, buffer_cstr(&token), token.length);
        answered = !auth_jwks_wait(way->jwks, &pending->waiter);
        if (answered) {
            free(pending);
            auth_unavailable(ret_answer);
        }
    }
    buffer_free(&token);
    return answered;
}

const struct auth_way auth_jwt = {start, check, stop};
