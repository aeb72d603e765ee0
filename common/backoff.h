// backoff: how long to wait before the next try; doubles from first_ms to most_ms, each with +-20 % jitter.
#pragma once
#include <stdint.h>

struct backoff {
    uint32_t first_ms;
    uint32_t most_ms;
    uint32_t failures; // 0 after backoff_reset
};

uint64_t backoff_next_ms(struct backoff *backoff); // counts a failure
void backoff_reset(struct backoff *backoff);
// A number in [value * (1 - share), value * (1 + share)], uniformly.
uint64_t jitter_ms(uint64_t value_ms, double share);
double random_unit(void); // uniform in [0, 1); not for secrets
