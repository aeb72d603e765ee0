// resolver: names to addresses by c-ares on the loop, for endpoints, Redis and PostgreSQL alike. No thread waits for a
// name server, and no name for another. What is kept, for how long and who goes first: common/name_cache.h.
//
// One resolver for each loop, shared by all who use it there.
#pragma once
#include "common/error.h"
#include "common/name_cache.h"
#include <stdbool.h>
#include <uv.h>

struct resolver;
struct resolver_wait;

// One of answer (view) and error is NULL. A failure is ERROR_CONNECT, "dns nxdomain: HOST: there is no such name".
typedef void resolver_done(void *arg, const struct resolver_answer *answer, const struct error *error);

// Name servers instead of those of /etc/resolv.conf: "192.0.2.53,[2001:db8::53]:5353". NULL or "": none. For resolvers
// made from now on.
bool resolver_set_servers(const char *servers, struct error *ret_error);

struct resolver *resolver_get(uv_loop_t *loop);   // made when it is the first
void resolver_release(struct resolver *resolver); // waits of this user must have ended. NULL is allowed

// Addresses too ("::1", "127.0.0.1"). ours: the host of a server of our own, an operator's choice. done is called
// exactly once, never from inside, unless it is cancelled; the wait is gone then.
struct resolver_wait *resolver_lookup(struct resolver *resolver, const char *host, bool ours, resolver_done *done,
                                      void *arg);
void resolver_cancel(struct resolver_wait *wait); // NULL is allowed
// What resolver_lookup would answer at once: an address, or a known name. False: a look-up is needed.
bool resolver_peek(struct resolver *resolver, const char *host, struct resolver_answer *ret_answer);
// 0: resolver_lookup would answer at once, with addresses or a fault. Else the name is being looked up from now on, and
// it is worth asking again in so many milliseconds.
unsigned resolver_wait_ms(struct resolver *resolver, const char *host);
