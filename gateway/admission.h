// admission: how much of this gateway one client may hold: how many streams one subject, one set of scopes and one
// address, and how many requests of one address may wait for their auth. So that nobody who may enter fills it alone.
//
// Whoever is beyond a bound is told to come back later, as at the cap of all (events_endpoint.h).
#pragma once
#include "gateway/client_address.h"
#include "gateway/config.h"
#include "gateway/grant.h"
#include <stdbool.h>

struct admission;
struct admission_share;

// What one stream, or one that asks, holds. Zeroed: nothing.
struct admission_ticket {
    struct admission_share *shares[3];
};

struct admission *admission_new(const struct gateway_config *config); // keeps config
void admission_free(struct admission *admission);                     // what is held is given back before
// False: a bound is reached, and nothing is held; *ret_reason is "subject", "scopes" or "address", static.
bool admission_take(struct admission *admission, const struct grant *grant, const struct client_address *address,
                    struct admission_ticket *ret_ticket, const char **ret_reason);
// The same for one that waits for its auth, of which only the address is known; most: of one address. False: too many.
bool admission_ask(struct admission *admission, const struct client_address *address, size_t most,
                   struct admission_ticket *ret_ticket);
// One that waits for a receipt: of its subject, or else of its address, `most` at once. False: too many.
bool admission_wait(struct admission *admission, const struct grant *grant, const struct client_address *address,
                    size_t most, struct admission_ticket *ret_ticket);
void admission_give_back(struct admission *admission, struct admission_ticket *ticket); // zeroes it
