#include "common/clock.h"
#include <assert.h>
#include <time.h>

uint64_t clock_ns(void) {
    struct timespec now;
    int rv = clock_gettime(CLOCK_MONOTONIC, &now);
    assert(rv == 0);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t clock_ms(void) {
    return clock_ns() / 1000000u;
}

int64_t clock_wall_us(void) {
    struct timespec now;
    int rv = clock_gettime(CLOCK_REALTIME, &now);
    assert(rv == 0);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}
