// resolver: names to addresses, off the loop, with a cache (positive 30 s, negative 2 s) and one lookup in flight a name.
#pragma once
#include <netinet/in.h>
#include <stddef.h>
#include <uv.h>
#include "common/error.h"

enum { RESOLVER_MAX_ADDRESSES = 16 };
struct resolver;
struct resolver_answer {
    struct sockaddr_storage addresses[RESOLVER_MAX_ADDRESSES]; // port 0
    size_t count;
};
typedef void resolver_done(void *arg, const struct resolver_answer *answer, const struct error *error);

struct resolver *resolver_new(uv_loop_t *loop);
// IP literals too ("::1", "127.0.0.1"). done is called exactly once, never from inside.
void resolver_lookup(struct resolver *resolver, const char *host, resolver_done *done, void *arg);
void resolver_close(struct resolver *resolver); // pending lookups get ERROR_CANCELLED
