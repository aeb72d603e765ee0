#include "gateway/ring.h"
#include "common/memory.h"
#include <assert.h>
#include <stdlib.h>

struct ring {
    size_t capacity;
    uint64_t begin;
    uint64_t end;
    int64_t base;
    struct frame **frames; // owned; sequence s is at s % capacity
};

struct ring *ring_new(size_t capacity) {
    assert(capacity > 0);
    struct ring *ring = memory_alloc(sizeof *ring);
    ring->capacity = capacity;
    ring->frames = memory_alloc(capacity * sizeof ring->frames[0]);
    return ring;
}

static struct frame **slot(const struct ring *ring, uint64_t sequence) {
    return &ring->frames[sequence % ring->capacity];
}

static void drop(struct ring *ring, uint64_t sequence) {
    struct frame **frame = slot(ring, sequence);
    frame_free(*frame);
    *frame = NULL;
}

void ring_free(struct ring *ring) {
    if (!ring) {
        return;
    }
    ring_start(ring, 0);
    free(ring->frames);
    free(ring);
}

void ring_start(struct ring *ring, int64_t position) {
    while (ring->begin < ring->end) {
        drop(ring, ring->begin++);
    }
    ring->base = position;
}

void ring_append(struct ring *ring, struct frame *frame) {
    assert(frame->position > ring_head(ring));
    if (ring->end - ring->begin == ring->capacity) {
        ring->base = ring_at(ring, ring->begin)->position;
        drop(ring, ring->begin++);
    }
    *slot(ring, ring->end++) = frame;
}

void ring_truncate(struct ring *ring, int64_t position) {
    uint64_t first_above;
    bool held = ring_find(ring, position, &first_above);
    assert(held);
    (void)held;
    while (ring->end > first_above) {
        drop(ring, --ring->end);
    }
}

size_t ring_capacity(const struct ring *ring) {
    return ring->capacity;
}

int64_t ring_head(const struct ring *ring) {
    return ring->begin == ring->end ? ring->base : (*slot(ring, ring->end - 1))->position;
}

uint64_t ring_begin(const struct ring *ring) {
    return ring->begin;
}

uint64_t ring_end(const struct ring *ring) {
    return ring->end;
}

int64_t ring_base(const struct ring *ring) {
    return ring->base;
}

const struct frame *ring_at(const struct ring *ring, uint64_t sequence) {
    assert(sequence >= ring->begin && sequence < ring->end);
    return *slot(ring, sequence);
}

bool ring_find(const struct ring *ring, int64_t position, uint64_t *ret_sequence) {
    // The first sequence whose position is above.
    uint64_t low = ring->begin;
    uint64_t high = ring->end;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (ring_at(ring, middle)->position <= position) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    int64_t before = low == ring->begin ? ring->base : ring_at(ring, low - 1)->position;
    if (before != position) {
        return false;
    }
    *ret_sequence = low;
    return true;
}
