// outcome: what an answer of a webhook receiver means for the job. Pure: a table by status and one by failure.
#pragma once
#include "common/http_client.h"
#include "common/status_policy.h"
#include "dispatcher/sink.h"
#include <stdint.h>

enum { RETRY_AFTER_MAX_MS = 24 * 60 * 60 * 1000 };

// The outcome's strings are views of `http`; `error` is NULL where an answer came.
// now_s is wall time, in seconds since 1970, against which a Retry-After date is read.
struct attempt_outcome outcome_of_answer(const struct http_outcome *http, int64_t now_s);
// The same by a subscription's own policy; NULL: the usual one. Statuses it does not name are judged as usual.
struct attempt_outcome outcome_by_policy(const struct http_outcome *http, const struct status_policy *policy,
                                         int64_t now_s);

// Retry-After: delay seconds, or one of the three HTTP dates (RFC 9110, 10.2.3 and 5.6.7), nothing around them. In
// milliseconds, at most RETRY_AFTER_MAX_MS; 0 for what is malformed or past.
uint64_t retry_after_ms(const char *text, int64_t now_s);
