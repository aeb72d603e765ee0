// sink_index: deliveries of index subscriptions. The sends of one loop turn are collected into batches; a batch
// re-reads the rows by their address and writes what it found to the subscription's target.
//
// Settings of a subscription (JSON; made by rowbell.add_index):
//   target       "postgres" (rowbell.search of this database), "opensearch", "elasticsearch" or "meilisearch"
//   url, index, allow_http   of a search engine; the authorization is in the secrets
//   columns, language        read by the database
#pragma once
#include "common/database_clock.h"
#include "common/egress.h"
#include "common/error.h"
#include "dispatcher/sink.h"
#include <uv.h>

struct sink_index_options {
    const char *url;                    // of the database, copied
    const char *direct_url;             // past a transaction pooler; may be NULL. Copied
    const struct egress_policy *egress; // keeps
    const struct database_clock *clock; // keeps
    const char *ca_file;                // PEM; NULL: the system's
    const char *secret_key;             // ROWBELL_SECRET_KEY (common/seal.h); NULL: sealed secrets cannot be opened
};

// Fills *ret_sink; sink.close frees it all.
bool sink_index_init(struct sink *ret_sink, uv_loop_t *loop, const struct sink_index_options *options,
                     struct error *ret_error);
