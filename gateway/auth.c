#include "gateway/auth.h"
#include "common/clock.h"
#include "common/memory.h"
#include "gateway/auth_way.h"
#include "gateway/metrics.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    const struct auth_way *way; // NULL: nobody is asked
} ways[] = {
    {"none", NULL},
    {"jwt", &auth_jwt},
    {"callout", &auth_callout},
    {"header", &auth_header},
};

struct auth {
    const struct auth_way *way;
    void *self; // of the way
};

// Who asked, while the way makes up its mind; counts its answer.
struct asked {
    auth_done *done;
    void *arg;
};

struct auth *auth_new(uv_loop_t *loop, const struct gateway_config *config, struct error *ret_error) {
    struct auth *auth = memory_alloc(sizeof *auth);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        if (strcmp(ways[i].name, config->auth) == 0) {
            auth->way = ways[i].way;
        }
    }
    assert(auth->way || strcmp(config->auth, "none") == 0); // config.def lists the same names
    if (auth->way) {
        auth->self = auth->way->start(loop, config, ret_error);
        if (!auth->self) {
            free(auth);
            return NULL;
        }
    }
    return auth;
}

bool auth_is_open(const struct auth *auth) {
    return !auth->way;
}

static void count(const struct auth_answer *answer) {
    static const char *const verdicts[] = {
        [AUTH_ADMITTED] = "admitted", [AUTH_REFUSED] = "refused", [AUTH_UNAVAILABLE] = "unavailable"};
    bool nothing = answer->verdict == AUTH_ADMITTED && answer->grant.count == 0 && !answer->grant.every_scope;
    metric_add(METRIC_AUTH, nothing ? "admitted_to_nothing" : verdicts[answer->verdict], NULL, 1);
}

static void on_done(void *arg, struct auth_answer *answer) {
    struct asked asked = *(struct asked *)arg;
    free(arg);
    count(answer);
    asked.done(asked.arg, answer);
}

bool auth_check(struct auth *auth, const struct http_exchange *exchange, const struct http_request *request,
                const char *ticket, struct auth_answer *ret_answer, auth_done *done, void *arg) {
    *ret_answer = (struct auth_answer){.verdict = AUTH_UNAVAILABLE};
    if (!auth->way) {
        ret_answer->verdict = AUTH_ADMITTED;
        ret_answer->grant.open = true;
        return true;
    }
    struct asked *asked = memory_alloc(sizeof *asked);
    *asked = (struct asked){done, arg};
    if (!auth->way->check(auth->self, exchange, request, ticket, ret_answer, on_done, asked)) {
        return false;
    }
    free(asked);
    count(ret_answer);
    return true;
}

void auth_close(struct auth *auth) {
    if (!auth) {
        return;
    }
    if (auth->way) {
        auth->way->close(auth->self);
    }
    free(auth);
}

// ---- for the ways ----

bool auth_refuse(struct auth_answer *ret_answer, int status, const char *problem) {
    *ret_answer = (struct auth_answer){.verdict = AUTH_REFUSED, .status = status, .problem = problem};
    return true;
}

bool auth_unavailable(struct auth_answer *ret_answer) {
    *ret_answer = (struct auth_answer){.verdict = AUTH_UNAVAILABLE};
    return true;
}

bool auth_header_once(const struct http_request *request, const char *lower_case_name, const char **ret_value) {
    *ret_value = NULL;
    for (size_t i = 0; i < request->header_count; i++) {
        if (strcmp(request->headers[i].name, lower_case_name) != 0) {
            continue;
        }
        if (*ret_value) {
            return false;
        }
        *ret_value = request->headers[i].value;
    }
    return true;
}

void auth_cookies(const struct http_request *request, struct buffer *ret_cookies) {
    for (size_t i = 0; i < request->header_count; i++) {
        if (strcmp(request->headers[i].name, "cookie") == 0) {
            buffer_text(ret_cookies, ret_cookies->length > 0 ? "; " : "");
            buffer_text(ret_cookies, request->headers[i].value);
        }
    }
}

uint64_t auth_end_ms(const struct gateway_config *config, int64_t lasts_ms) {
    int64_t most_ms = config->auth_max_age_ms;
    return clock_ms() + (uint64_t)(lasts_ms > 0 && lasts_ms < most_ms ? lasts_ms : most_ms);
}
