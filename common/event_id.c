// A claim makes both for each of its jobs; printf and strftime took a tenth of a delivery's instructions.
#include "common/event_id.h"
#include <assert.h>
#include <time.h>

static char *hex(char *at, uint64_t value, int digits) {
    for (int i = digits; i-- > 0; value >>= 4)
        at[i] = "0123456789abcdef"[value & 15];
    return at + digits;
}

static char *decimal(char *at, uint64_t value, int digits, char after) {
    for (int i = digits; i-- > 0; value /= 10)
        at[i] = (char)('0' + value % 10);
    at[digits] = after;
    return at + digits + 1;
}

void event_id_write(char text[EVENT_ID_BYTES], int64_t occurred_us, int64_t seq) {
    uint64_t ms = (uint64_t)occurred_us / 1000 & 0xffffffffffff, us = (uint64_t)occurred_us % 1000;
    uint64_t low = (uint64_t)seq | (uint64_t)1 << 63;
    char *at = hex(text, ms >> 16, 8);
    *at++ = '-';
    at = hex(at, ms, 4);
    *at++ = '-';
    *at++ = '7';
    at = hex(at, us, 3);
    *at++ = '-';
    at = hex(at, low >> 48, 4);
    *at++ = '-';
    at = hex(at, low, 12);
    *at = '\0';
}

void event_time_write(char text[EVENT_TIME_BYTES], int64_t occurred_us) {
    time_t seconds = (time_t)(occurred_us / 1000000);
    struct tm parts;
    assert(gmtime_r(&seconds, &parts));
    char *at = decimal(text, (uint64_t)parts.tm_year + 1900, 4, '-');
    at = decimal(at, (uint64_t)parts.tm_mon + 1, 2, '-');
    at = decimal(at, (uint64_t)parts.tm_mday, 2, 'T');
    at = decimal(at, (uint64_t)parts.tm_hour, 2, ':');
    at = decimal(at, (uint64_t)parts.tm_min, 2, ':');
    at = decimal(at, (uint64_t)parts.tm_sec, 2, '.');
    at = decimal(at, (uint64_t)occurred_us % 1000000, 6, 'Z');
    *at = '\0';
}
