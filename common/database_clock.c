#include "common/database_clock.h"
#include "common/clock.h"
#include <math.h>

static const double drift_ppm = 500;

void database_clock_sample(struct database_clock *clock, int64_t sent_us, int64_t answered_us, int64_t told_us) {
    double error_us = (double)(answered_us - sent_us) / 2, ahead_us = (double)(told_us - sent_us) - error_us;
    double grown_us = clock->error_us + (double)(answered_us - clock->sampled_us) * drift_ppm / 1e6;
    bool agrees = clock->known && fabs(ahead_us - clock->ahead_us) <= error_us + grown_us;
    if (agrees) { // else one of the clocks was set, or it is another database: the newest word counts
        if (error_us >= grown_us)
            return; // we know it better
        ahead_us = clock->ahead_us + (ahead_us - clock->ahead_us) * grown_us / (grown_us + error_us);
    }
    *clock =
        (struct database_clock){.known = true, .ahead_us = ahead_us, .error_us = error_us, .sampled_us = answered_us};
}

int64_t database_clock_us(const struct database_clock *clock, int64_t monotonic_us, int64_t fallback_us) {
    return clock->known ? monotonic_us + (int64_t)clock->ahead_us : fallback_us;
}

int64_t database_clock_now_s(const struct database_clock *clock) {
    return database_clock_us(clock, (int64_t)(clock_ns() / 1000), clock_wall_us()) / 1000000;
}
