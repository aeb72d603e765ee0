#include "dispatcher/pace.h"
#include <assert.h>
#include <limits.h>
#include <math.h>

static const double group_ms = 20;   // between groups, about
static const double ramp_first = 10; // in the first second
static const double ramp_seconds = 10;

void pace_set(struct pace *pace, double rate, uint64_t now_ms) {
    assert(rate >= 0);
    if (rate == pace->rate)
        return;
    *pace = (struct pace){.rate = rate, .next_ms = (double)now_ms};
    if (rate == 0)
        return;
    double group = floor(rate * group_ms / 1000);
    pace->group = group > 1 ? (int)group : 1;
    // A whole number of groups a second, so that no second holds one too many.
    pace->interval_ms = pace->group > 1 ? 1000 / floor(rate / pace->group) : 1000 / rate;
}

void pace_continue(struct pace *pace, uint64_t now_ms, uint64_t idle_ms) {
    if (pace->rate == 0)
        return;
    double next_ms = (double)now_ms - (double)idle_ms + pace->interval_ms;
    if (next_ms > pace->next_ms)
        pace->next_ms = next_ms;
    pace->left = 0;
}

int pace_allows(const struct pace *pace, uint64_t now_ms) {
    if (pace->rate == 0)
        return INT_MAX;
    return (double)now_ms >= pace->next_ms ? pace->group : pace->left;
}

void pace_take(struct pace *pace, uint64_t now_ms, int count) {
    if (pace->rate == 0 || count <= 0)
        return;
    if ((double)now_ms < pace->next_ms) {
        pace->left = pace->left > count ? pace->left - count : 0;
        return;
    }
    pace->next_ms =
        (double)now_ms + pace->interval_ms; // what came late is not caught up with: a window would hold too many
    pace->left = pace->group > count ? pace->group - count : 0;
}

uint64_t pace_next_ms(const struct pace *pace) {
    return pace->rate == 0 || pace->left > 0 ? 0 : (uint64_t)ceil(pace->next_ms);
}

void pace_ramp_begin(struct pace_ramp *ramp, uint64_t now_ms) {
    *ramp = (struct pace_ramp){.began_ms = now_ms};
}

// Allowed since the begin: the integral of ramp_first * 2^t, and one at once.
static double ramp_total(double seconds) {
    return 1 + ramp_first * (exp2(seconds) - 1);
}

int pace_ramp_allows(const struct pace_ramp *ramp, uint64_t now_ms) {
    if (!ramp->began_ms)
        return INT_MAX;
    double seconds = (double)(now_ms - ramp->began_ms) / 1000;
    if (seconds >= ramp_seconds)
        return INT_MAX;
    double allowed = floor(ramp_total(seconds) - ramp->taken);
    return allowed > 0 ? (int)allowed : 0;
}

void pace_ramp_take(struct pace_ramp *ramp, int count) {
    ramp->taken += count;
}

uint64_t pace_ramp_next_ms(const struct pace_ramp *ramp) {
    if (!ramp->began_ms)
        return 0;
    double seconds = log2((ramp->taken > 0 ? ramp->taken : 0) / ramp_first + 1);
    return ramp->began_ms + (uint64_t)(ceil(fmin(seconds, ramp_seconds) * 1000));
}
