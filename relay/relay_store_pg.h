// relay_store_pg: the relay's store on PostgreSQL: a connection for passes, one operation in flight, and relay_wake's.
#pragma once
#include "relay/relay.h"
#include <uv.h>

struct relay_store_pg;

struct relay_store_pg_options {
    const char *url;
    const char *direct_url; // past a transaction pooler; may be NULL
    bool once;              // what is refused for good is told by on_down, instead of tried again
    unsigned sweep_ms;      // how often LISTEN is probed
    struct relay *relay;    // keeps; gets every relay_on_* call
    void *arg;
    // Each may be NULL. first: no connection was ever established.
    void (*on_up)(void *arg);
    void (*on_down)(void *arg, const struct error *error, bool first);
};

struct relay_store_pg *relay_store_pg_new(uv_loop_t *loop, const struct relay_store_pg_options *options);
const struct relay_store *relay_store_pg_port(struct relay_store_pg *store);
// A pass in flight is finished or rolled back by the server; either way nothing is lost (G3).
void relay_store_pg_close(struct relay_store_pg *store);
