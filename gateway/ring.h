// ring: the newest entries of the stream, in order, shared by every subscriber.
//
// Entries are numbered from 0 as they are appended (their sequence, of this process only); a subscriber's cursor is
// such a number. Invariant: begin <= end, end - begin <= capacity, and the positions of the sequences begin..end-1
// rise. `base` is the position right before the oldest entry held: whoever has seen it misses nothing that the ring
// cannot give.
#pragma once
#include "gateway/frame.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ring;

struct ring *ring_new(size_t capacity); // empty, head 0: unknown
void ring_free(struct ring *ring);
// Empties it; head and base become `position`. Sequences go on from where they were.
void ring_start(struct ring *ring, int64_t position);
// Takes the frame; its position is above head. The oldest entry falls out when the ring is full.
void ring_append(struct ring *ring, struct frame *frame);
// Drops every entry above position, which the ring holds (or its base).
void ring_truncate(struct ring *ring, int64_t position);

size_t ring_capacity(const struct ring *ring);
int64_t ring_head(const struct ring *ring);   // position of the newest entry; the base when empty
uint64_t ring_begin(const struct ring *ring); // sequence of the oldest entry held
uint64_t ring_end(const struct ring *ring);   // sequence that the next entry will get
const struct frame *ring_at(const struct ring *ring, uint64_t sequence); // view; begin <= sequence < end
// True when the ring holds `position` or it is the base: everything after it is here, from *ret_sequence on.
bool ring_find(const struct ring *ring, int64_t position, uint64_t *ret_sequence);
int64_t ring_base(const struct ring *ring);
