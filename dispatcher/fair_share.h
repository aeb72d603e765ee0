// fair_share: who of those that want slots gets how many. Pure: no clock and no memory of its own.
//
// A slot is worth the time for which it is held, so endpoints are told apart by that time, not by how many slots they
// hold. held_ms is weighted by the slot time itself (the sum of squares over the sum): the expected length of a hold
// that somebody meets when looking at an occupied slot. A thousand quick answers between two long holds do not hide
// the holds, and one slow answer among thousands does not make an endpoint slow.
//
//   quick    its holds are short: it may use every free slot, since it gives them back soon, but for an eighth: those
//            are for who has nothing in flight, since quick ones may become slow all at once
//   unknown  it has not answered yet: all unknown ones together leave a quarter of the slots to the others
//   slow     its slots are held for more than a second: all slow ones together get half of the slots
//
// So endpoints that are known as slow can never fill the process, and a healthy one that arrives starts at once.
// Within that, slots are shared max-min: who has nothing in flight goes first, then who holds least. A slow endpoint's
// slots count more, by its seconds.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FAIR_SHARE_SLOW_MS = 1000,
    FAIR_SHARE_WEIGHT_MOST = 16,
};

// What one endpoint does with its slots.
struct slot_use {
    int running;
    uint64_t started_sum, started_sum2; // of the running: sums of their begins in ms and of the squares, modulo 2^64
    double held_s, held_s2;             // of ended holds: sums of time and of its square, halved every minute
    uint64_t decayed_ms;
    bool aged; // was slow by the ages of what runs, and nothing quick has ended since
};
void slot_use_begin(struct slot_use *use, uint64_t started_ms);
void slot_use_end(struct slot_use *use, uint64_t started_ms, uint64_t now_ms);
double slot_use_held_ms(const struct slot_use *use, uint64_t now_ms);

enum slot_class { SLOT_QUICK, SLOT_UNKNOWN, SLOT_SLOW, SLOT_CLASSES };
enum slot_class slot_use_class(const struct slot_use *use, uint64_t now_ms);
// Before slots are granted: what runs for too long now is not made to look quick by what begins beside it. Returns the
// class and the held_ms that both rest on.
enum slot_class slot_use_note(struct slot_use *use, uint64_t now_ms, double *ret_held_ms);

struct slot_pool {
    int total;                  // of the process
    int held[SLOT_CLASSES];     // by the class of who holds them
    size_t bytes_most;          // of event data in memory; a class that holds as much gets no slot
    size_t bytes[SLOT_CLASSES]; // held now
};

struct slot_want {
    enum slot_class class;
    double held_ms;
    int holds, wants; // wants: more than it holds
    int granted;      // the answer
};
// Grants at most `room` slots. Where whole shares leave some over, wants are served in their order.
void fair_share(const struct slot_pool *pool, int room, struct slot_want *wants, size_t count);
