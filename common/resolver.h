// resolver: names to addresses, off the loop, with a cache (positive 30 s, negative 2 s) and one lookup in flight a
// name.
#pragma once
#include "common/error.h"
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

enum { RESOLVER_MAX_ADDRESSES = 16 };
struct resolver;
struct resolver_answer {
    struct sockaddr_storage addresses[RESOLVER_MAX_ADDRESSES]; // port 0
    size_t count;
};
// One of answer (view) and error is NULL.
typedef void resolver_done(void *arg, const struct resolver_answer *answer, const struct error *error);

struct resolver *resolver_new(uv_loop_t *loop);
// IP literals too ("::1", "127.0.0.1"). done is called exactly once, never from inside. A failure is ERROR_CONNECT.
void resolver_lookup(struct resolver *resolver, const char *host, resolver_done *done, void *arg);
// What resolver_lookup would answer without waiting: an IP literal, or a cached name. False: a lookup is needed.
bool resolver_peek(struct resolver *resolver, const char *host, struct resolver_answer *ret_answer);
// Pending lookups get ERROR_CANCELLED in a later loop turn; the resolver is freed when the last of its system calls is
// back. NULL resolver is allowed.
void resolver_close(struct resolver *resolver);
