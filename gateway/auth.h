// auth: who may subscribe, and to what (docs/auth.md): the way that --auth chooses. It fails closed: an answer that is
// not a plain yes admits nobody, and a credential that has ended is refused, never admitted to less.
//
// No credential, ticket or cookie reaches a log line, an error or an answer.
#pragma once
#include "common/error.h"
#include "common/http_server.h"
#include "gateway/config.h"
#include "gateway/grant.h"
#include <stdbool.h>
#include <uv.h>

struct auth;

enum auth_verdict {
    AUTH_ADMITTED,
    AUTH_REFUSED,
    AUTH_UNAVAILABLE, // cannot be told now: the client had better come again
};

struct auth_answer {
    enum auth_verdict verdict;
    int status;          // with AUTH_REFUSED: 401 or 403
    const char *problem; // with AUTH_REFUSED: one line for the client; static
    struct grant grant;  // with AUTH_ADMITTED: whoever gets the answer frees it
};
// Exactly once, never from inside auth_check.
typedef void auth_done(void *arg, struct auth_answer *answer);

// Reads keys and certificates. ERROR_USAGE names the flag.
struct auth *auth_new(uv_loop_t *loop, const struct gateway_config *config, struct error *ret_error);
// ticket: of the query (NULL: none). True: *ret_answer is the answer. False: done will be called; the exchange must
// stay unanswered until then, the request is not looked at again.
bool auth_check(struct auth *auth, const struct http_exchange *exchange, const struct http_request *request,
                const char *ticket, struct auth_answer *ret_answer, auth_done *done, void *arg);
bool auth_is_open(const struct auth *auth); // --auth none: every grant is `open`
// Answers who waits with AUTH_UNAVAILABLE, and frees. NULL is allowed.
void auth_close(struct auth *auth);
