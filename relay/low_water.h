// low_water: the low-water mark of claims: rows at or below it need not be looked at. Pure.
//
// A claim that starts at the front of its index walks over every row that was fanned out and not yet vacuumed: for
// ever, while any old snapshot is held. The mark skips them. It is an optimisation and never a cursor: it only rises
// past seqs whose writers have all ended and whose rows this relay saw in one snapshot, and passes without it look
// below it again (a row comes back there when another relay dies in mid-pass).
//
// The rule (docs/decisions/0003): a sample is (S, X): first the sequence's last value S is read, then a transaction id
// X of our own is taken. Whoever took a seq <= S got its own id before, so below X. When the oldest running transaction
// of a pass's snapshot (xmin) is >= X, they have all ended, and that pass saw every row <= S.
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { LOW_WATER_SAMPLES = 64 };

struct low_water_sample {
    int64_t seq;
    uint64_t xid;
};

struct low_water {
    int64_t mark;   // 0: none
    bool needed;    // a claim without it costs too much
    double bare_ms; // what a claim without it cost last
    uint64_t bare_at_ms;
    uint64_t sampled_at_ms;
    int64_t sampled_seq;
    struct low_water_sample samples[LOW_WATER_SAMPLES]; // oldest first
    int sample_count;
};

// What a pass says of its claim.
struct low_water_pass {
    int64_t mark; // that it was given
    int64_t claimed, marked;
    int64_t left;    // of the claimed: to the pass that follows at once
    int64_t highest; // seq that was claimed; 0: none
    bool full;       // a whole batch: rows above highest were not looked at
    double claim_ms;
    uint64_t xmin; // of the snapshot
};

void low_water_init(struct low_water *water); // also after each error and on each new connection
// The mark for the next pass: 0 when none is needed, or when it is time to look below.
int64_t low_water_next(const struct low_water *water, uint64_t now_ms);
// Take a sample with the next pass? About five a second, and only while a mark is needed and the sequence moves.
bool low_water_wants_sample(const struct low_water *water, uint64_t now_ms);
void low_water_on_sample(struct low_water *water, const struct low_water_sample *sample, uint64_t now_ms);
void low_water_on_pass(struct low_water *water, const struct low_water_pass *pass, uint64_t now_ms);
