// endpoint: the subscriptions of one lane as this process knows them: what may be claimed for each, and who is next.
//
// Because each shard has one owner, slots are plain memory of one process and exact for the fleet (DESIGN 5).
// Invariants: in_flight counts the jobs that hold a slot; an endpoint that is gone is freed with its last job. A change
// of a subscription makes a new version; sends that began under the old one keep it.
#pragma once
#include "dispatcher/job_store.h"
#include "dispatcher/retry_schedule.h"
#include "dispatcher/sink.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uthash.h>

enum { ENDPOINT_MAX_IN_FLIGHT = 16 }; // without settings.max_in_flight

// One reading of a subscription's row.
struct endpoint_version {
    struct subscription subscription;
    struct retry_schedule schedule;
    int max_in_flight;
    bool prepared;
    struct error fault; // why not
    int uses;
};

struct endpoint {
    int id;
    char *row_version;
    struct endpoint_version *version; // the newest
    int in_flight;
    int foreign_leases;      // of a former owner, still running: they hold slots too
    bool hungry;             // may have ready jobs; false once a claim found fewer than it asked for
    bool gone;               // removed; freed when nothing is in flight
    bool lease_asked;        // its foreign leases are being counted
    uint64_t quiet_until_ms; // the receiver asked to be left alone
    UT_hash_handle hh;
};

struct endpoint_table {
    struct endpoint *by_id;
    const struct sink *sink; // borrows
    int last_served;         // id; the next claim begins after it
};

void endpoint_table_init(struct endpoint_table *table, const struct sink *sink);
void endpoint_table_close(struct endpoint_table *table); // nothing may be in flight
void endpoint_table_apply(struct endpoint_table *table, const struct subscription_change *change, uint64_t now_ms);
struct endpoint *endpoint_find(const struct endpoint_table *table, int id); // NULL when unknown or gone
void endpoint_wake(struct endpoint_table *table, uint64_t shards);

// Shares `free_slots` among the hungry endpoints of `shards` that may be sent to now, in turn, so that each gets some.
// Writes at most `most` claims, takes hungry from those it chose; returns how many.
size_t endpoint_choose(struct endpoint_table *table, uint64_t shards, int free_slots, uint64_t now_ms,
                       struct job_claim *ret_claims, size_t most);
// Is there an endpoint that endpoint_choose would give slots if there were enough?
bool endpoint_any_hungry(const struct endpoint_table *table, uint64_t shards, uint64_t now_ms);
uint64_t endpoint_busy_shards(const struct endpoint_table *table);

// A job takes a slot, and gives it back. The version returned is valid in between.
struct endpoint_version *endpoint_begin(struct endpoint *endpoint);
void endpoint_end(struct endpoint_table *table, struct endpoint *endpoint, struct endpoint_version *version);
