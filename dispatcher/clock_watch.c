#include "dispatcher/clock_watch.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/metrics.h"
#include "dispatcher/metrics.h"
#include <math.h>
#include <stdio.h>

double clock_watch_offset_s(const struct clock_watch *watch) {
    int64_t wall_us = clock_wall_us();
    return (double)(wall_us - database_clock_us(&watch->clock, (int64_t)(clock_ns() / 1000), wall_us)) / 1e6;
}

bool clock_watch_told(struct clock_watch *watch, int64_t sent_us, int64_t database_us) {
    database_clock_sample(&watch->clock, sent_us, (int64_t)(clock_ns() / 1000), database_us);
    double offset_s = clock_watch_offset_s(watch);
    metric_set(METRIC_CLOCK_OFFSET_SECONDS, NULL, NULL, offset_s);
    bool wrong = fabs(offset_s) > CLOCK_WRONG_S;
    if (wrong ? fabs(offset_s - watch->told_s) <= CLOCK_WRONG_S : watch->told_s == 0)
        return false;
    if (wrong)
        log_warn("clock_wrong", LOG_INT("ahead_s", llround(offset_s)));
    else
        log_info("clock_right", LOG_INT("ahead_s", llround(offset_s)));
    watch->told_s = wrong ? offset_s : 0;
    return true;
}

void clock_watch_name(const struct clock_watch *watch, char *text, size_t size) {
    text[0] = '\0';
    if (watch->told_s != 0)
        snprintf(text, size, ", clock %+lld s", llround(watch->told_s));
}
