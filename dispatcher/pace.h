// pace: how many may go now, when so many a second may go. Pure: no clock of its own.
//
// A pace is a cadence: groups of equal size, equally far apart, so that no window of one second (of one interval, for
// less than one a second) ever holds more than the rate. Slow rates go one by one; quick ones in groups about 20 ms
// apart, since nobody polls a thousand times a second.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct pace {
    double rate;        // a second; 0: no limit
    double interval_ms; // between groups
    int group;
    double next_ms; // the next group may go from here on
    int left;       // of the group that began
};

// next_ms is kept where the rate is unchanged.
void pace_set(struct pace *pace, double rate, uint64_t now_ms);
// Somebody else sent the last one idle_ms ago.
void pace_continue(struct pace *pace, uint64_t now_ms, uint64_t idle_ms);
int pace_allows(const struct pace *pace, uint64_t now_ms); // INT_MAX without a limit
void pace_take(struct pace *pace, uint64_t now_ms, int count);
uint64_t pace_next_ms(const struct pace *pace); // when pace_allows is above 0

// A ramp: 10 in the first second, twice as many in each that follows, no limit after 10 s.
struct pace_ramp {
    uint64_t began_ms; // 0: none
    double taken;
};
void pace_ramp_begin(struct pace_ramp *ramp, uint64_t now_ms);
int pace_ramp_allows(const struct pace_ramp *ramp, uint64_t now_ms); // INT_MAX without a limit
void pace_ramp_take(struct pace_ramp *ramp, int count);
uint64_t pace_ramp_next_ms(const struct pace_ramp *ramp);
