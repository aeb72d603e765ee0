#include "common/event_id.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

void event_id_write(char text[EVENT_ID_BYTES], int64_t occurred_us, int64_t seq) {
    uint64_t ms = (uint64_t)occurred_us / 1000 & 0xffffffffffff, us = (uint64_t)occurred_us % 1000;
    uint64_t low = (uint64_t)seq | (uint64_t)1 << 63;
    snprintf(text, EVENT_ID_BYTES, "%08" PRIx64 "-%04" PRIx64 "-7%03" PRIx64 "-%04" PRIx64 "-%012" PRIx64, ms >> 16,
             ms & 0xffff, us, low >> 48, low & 0xffffffffffff);
}

void event_time_write(char text[EVENT_TIME_BYTES], int64_t occurred_us) {
    time_t seconds = (time_t)(occurred_us / 1000000);
    struct tm parts;
    assert(gmtime_r(&seconds, &parts));
    size_t length = strftime(text, EVENT_TIME_BYTES, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text + length, EVENT_TIME_BYTES - length, ".%06dZ", (int)(occurred_us % 1000000));
}
