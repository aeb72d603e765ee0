// retry_schedule: when a job that failed is tried again. Pure: no clock, no randomness of its own.
//
// A schedule of n delays allows n + 1 attempts; the first is made at once. By default (Standard Webhooks): at once,
// then after 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h. A delay varies by 20 % either way, so that what
// failed together does not return together.
#pragma once
#include "common/error.h"
#include <stdbool.h>
#include <stdint.h>

enum { RETRY_SCHEDULE_MOST = 50 };
#define RETRY_DELAY_MOST_MS ((uint64_t)30 * 24 * 60 * 60 * 1000)

struct retry_schedule {
    int count;
    bool forever; // the last delay repeats, as long as attempts can be counted
    uint64_t delay_ms[RETRY_SCHEDULE_MOST];
};

void retry_schedule_default(struct retry_schedule *schedule);
// From a subscription's settings (JSON text): `retry`, an array of delays in milliseconds; without it the default. An
// empty array means one attempt. `retry_forever` true repeats the last delay. ERROR_USAGE for what is
// not such an array.
bool retry_schedule_from_settings(const char *settings, struct retry_schedule *ret_schedule, struct error *ret_error);

// After `failures` failed attempts (1 after the first): true and the delay, or false when the schedule is exhausted.
// after_ms, what the receiver asked for, is a floor and is not varied. unit is uniform in [0, 1).
bool retry_schedule_next(const struct retry_schedule *schedule, int failures, uint64_t after_ms, double unit,
                         uint64_t *ret_delay_ms);
