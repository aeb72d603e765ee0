// job_store_pg: job_store on PostgreSQL, on one direct connection (no transaction pooler) whose session holds the shard
// locks and makes the claims, so that who lost the session cannot claim.
#pragma once
#include "dispatcher/job_store.h"
#include <uv.h>

struct job_store_pg;

struct job_store_pg_options {
    const char *url, *direct_url; // copied; the second may be NULL
    bool once;                    // what is refused for good is told by on_down, instead of tried again
    const char *kind;             // of the subscriptions, which is also the name of the lane; static
    int lock_offset;              // keeps the locks of lanes apart: added to the shard
    void *arg;
    void (*on_up)(void *arg); // the session says that it is a dispatcher; it owns no shard yet
    void (*on_down)(void *arg, const struct error *error, bool first);
    // NOTIFY rowbell_jobs: work for these shards of a lane from this seq on, as far as the payload can be read (else
    // every shard, 0).
    void (*on_jobs)(void *arg, const char *lane, uint64_t shards, int64_t lowest);
    // The database's time, in microseconds since 1970, told by the answer to what was sent at sent_us (clock_ns /
    // 1000), with each round and at least once a second. NULL: nobody asks.
    void (*on_time)(void *arg, int64_t sent_us, int64_t database_us);
};

struct job_store_pg *job_store_pg_new(uv_loop_t *loop, const struct job_store_pg_options *options);
// What others see in pg_stat_activity.application_name behind "rowbell-dispatcher"; lost with the session.
void job_store_pg_name_session(struct job_store_pg *store, const char *addition);
const struct job_store *job_store_pg_port(struct job_store_pg *store);                        // view
void job_store_pg_close(struct job_store_pg *store, void (*on_closed)(void *arg), void *arg); // NULL is allowed
