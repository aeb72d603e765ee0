#include "common/backoff.h"
#include "common/clock.h"
#include <assert.h>
#include <sys/random.h>

static const double backoff_share = 0.2;

double random_unit(void) {
    // xorshift64* (Marsaglia 2003, Vigna 2016): processes that start together must not retry together, so the seed is
    // the system's entropy.
    static uint64_t state;
    while (state == 0) {
        if (getrandom(&state, sizeof state, GRND_NONBLOCK) != sizeof state)
            state = clock_ns(); // early at boot there may be none yet
    }
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (double)((state * 2685821657736338717u) >> 11) * 0x1p-53;
}

uint64_t jitter_ms(uint64_t value_ms, double share) {
    assert(share >= 0 && share <= 1);
    double factor = 1 - share + 2 * share * random_unit();
    return (uint64_t)((double)value_ms * factor + 0.5);
}

uint64_t backoff_next_ms(struct backoff *backoff) {
    assert(backoff->first_ms <= backoff->most_ms);
    uint64_t wait_ms = backoff->first_ms;
    for (uint32_t i = 0; i < backoff->failures && wait_ms < backoff->most_ms; i++)
        wait_ms *= 2;
    if (wait_ms > backoff->most_ms)
        wait_ms = backoff->most_ms;
    if (backoff->failures < UINT32_MAX)
        backoff->failures++;
    return jitter_ms(wait_ms, backoff_share);
}

void backoff_reset(struct backoff *backoff) {
    backoff->failures = 0;
}
