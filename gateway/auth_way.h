// auth_way: what a way to authenticate offers to auth.c: each of auth_jwt.c, auth_callout.c and auth_header.c is one.
#pragma once
#include "gateway/auth.h"

struct auth_way {
    void *(*start)(uv_loop_t *loop, const struct gateway_config *config, struct error *ret_error); // NULL: failed
    bool (*check)(void *self, const struct http_exchange *exchange, const struct http_request *request,
                  const char *ticket, struct auth_answer *ret_answer, auth_done *done, void *arg);
    void (*close)(void *self);
};

extern const struct auth_way auth_jwt;
extern const struct auth_way auth_callout;
extern const struct auth_way auth_header;

// For the ways. Each returns true, so that a check can end with it.
bool auth_refuse(struct auth_answer *ret_answer, int status, const char *problem);
bool auth_unavailable(struct auth_answer *ret_answer);
// *ret_value is the header's, NULL when there is none. False when it is there twice: then nobody knows which one a
// proxy looked at.
bool auth_header_once(const struct http_request *request, const char *lower_case_name, const char **ret_value);
// Everything of the Cookie headers, joined as RFC 6265, 5.4 does, into an empty buffer.
void auth_cookies(const struct http_request *request, struct buffer *ret_cookies);
// When a grant ends that its credential gives lasts_ms (0: no word about it): at most --auth-max-age from now.
uint64_t auth_end_ms(const struct gateway_config *config, int64_t lasts_ms);
