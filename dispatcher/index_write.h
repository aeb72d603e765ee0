// index_write: documents to a search engine, in as few requests as its limits allow; each document gets its fate.
//
// Requests go one after the other. One that is too large (413), or that a task refused, is sent again in halves. The
// first fault of the target as a whole (no answer, 429, 5xx, 401) ends the write: documents without a fate then have
// FATE_RETRY.
#pragma once
#include "dispatcher/index.h"

struct index_write;
// `documents` are borrowed until done. moment: the one that they were read in; nothing is sent after it. done is called
// exactly once, in a later loop turn; whole says how the target as such behaved.
typedef void index_write_done(void *arg, const struct index_outcome *whole);
void index_write_start(struct index_sink *sink, const struct index_target *target, struct index_document *documents,
                       size_t count, int64_t moment, index_write_done *done, void *arg);

// One request as it is. False: the sink is closing, and done will not be called.
bool index_request_send(struct index_sink *sink, const struct index_target *target, const struct index_request *request,
                        http_done *done, void *arg);
