// index_batch: changes of single rows, many at a time: their present state is read, and written to the target.
#pragma once
#include "dispatcher/index.h"

// Takes the items (all of one version of one subscription) and answers each. A serial target's turn is taken by the
// caller and given back through on_end, which is called after the last item was answered.
void index_batch_start(struct index_queue *queue, struct index_item *items, void (*on_end)(struct index_queue *queue));
