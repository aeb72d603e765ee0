// clock: monotonic time for deadlines; wall time only for what leaves the process.
#pragma once
#include <stdint.h>

uint64_t clock_ms(void);     // monotonic, milliseconds
uint64_t clock_ns(void);     // monotonic, nanoseconds
int64_t clock_wall_us(void); // microseconds since 1970
