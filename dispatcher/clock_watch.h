// clock_watch: keeps the database's time for this process, and says when the machine's own clock is wrong: in the log
// once for each change, in rowbell_clock_offset_seconds, and behind the session's name, where doctor reads it.
#pragma once
#include "common/database_clock.h"
#include <stdbool.h>
#include <stddef.h>

enum { CLOCK_WRONG_S = 60 };

struct clock_watch {
    struct database_clock clock;
    double told_s; // the offset that was told last; 0: that the clock is right
};

// What the own clock is ahead of the database's, in seconds; 0 while nothing is known.
double clock_watch_offset_s(const struct clock_watch *watch);
// The database told its time, in an answer that has just come. True: sessions have another name now.
bool clock_watch_told(struct clock_watch *watch, int64_t sent_us, int64_t database_us);
// What belongs behind a session's name; "" while the clock is right.
void clock_watch_name(const struct clock_watch *watch, char *text, size_t size);
