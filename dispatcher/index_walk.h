// index_walk: one walk over a whole table, for a rebuild or an event without a key.
//
//   waiting (older transactions still run) --> rows --> sweep --> done
// Each step is saved, so that whoever gets the job next goes on. Between steps other work of the subscription goes on
// too; with a serial target each step takes a turn.
#pragma once
#include "dispatcher/index.h"

struct index_walk;
// Answers the item when the walk is done, failed, or cancelled (unsent), then frees itself and calls on_end.
struct index_walk *index_walk_start(struct index_queue *queue, struct index_item *item,
                                    void (*on_end)(struct index_queue *queue));
// With a serial target: does it wait for its turn? The queue gives it with index_walk_turn.
bool index_walk_wants_turn(const struct index_walk *walk);
void index_walk_turn(struct index_walk *walk);
