// outcome: what an answer of a webhook receiver means for the job. Pure: a table by status and one by failure.
#pragma once
#include "common/http_client.h"
#include "common/status_policy.h"
#include "dispatcher/sink.h"
#include <stdint.h>

enum { RETRY_AFTER_MAX_MS = 24 * 60 * 60 * 1000 };

// The outcome's strings are views of `http`; `error` is NULL where an answer came.
// now_s is the database's time, in seconds since 1970: a Retry-After date is judged by it when the answer has no Date.
struct attempt_outcome outcome_of_answer(const struct http_outcome *http, int64_t now_s);
// The same by a subscription's own policy; NULL: the usual one. Statuses it does not name are judged as usual.
struct attempt_outcome outcome_by_policy(const struct http_outcome *http, const struct status_policy *policy,
                                         int64_t now_s);

// Retry-After: delay seconds, or one of the three HTTP dates (RFC 9110, 10.2.3 and 5.6.7), nothing around them. In
// milliseconds, at most RETRY_AFTER_MAX_MS; 0 for what is malformed or past. A date is as far away as it is from the
// answer's own `date` header, so that the receiver's clock may be wrong; without a good one (NULL): from now_s.
uint64_t retry_after_ms(const char *text, const char *date, int64_t now_s);
