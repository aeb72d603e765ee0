// database_clock: the database's time, as this process knows it between two looks at it. Pure: no clock of its own.
//
// Everything that must agree between machines (signature timestamps, ends of secrets, dates) uses this time, so that a
// machine with a wrong clock does no harm. A sample is taken at an unknown instant between the sending of a statement
// and its answer; the middle is right to half the round trip. The monotonic clock carries the time on; it may drift
// by DRIFT_PPM, so an old exact sample gives way to newer ones. Times are in microseconds.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct database_clock {
    bool known;
    double ahead_us; // the database's time minus the monotonic one
    double error_us; // at sampled_us
    int64_t sampled_us;
};

// Sent and answered by the monotonic clock; told by the database.
void database_clock_sample(struct database_clock *clock, int64_t sent_us, int64_t answered_us, int64_t told_us);
// Since 1970. fallback_us while nothing is known.
int64_t database_clock_us(const struct database_clock *clock, int64_t monotonic_us, int64_t fallback_us);
// The same for now by this process's clocks, in seconds.
int64_t database_clock_now_s(const struct database_clock *clock);
