// The test cases of the dispatcher's pure parts.
#pragma once
#include "tests/support/fixture.h"

// The clock that the code under test reads: the real one, until a test stops it, and what a test has moved it on by.
// The same for chance: below 0, real. (--wrap in tests/meson.build.)
extern uint64_t clock_stopped_ms, clock_moved_ms;
extern double chance;
uint64_t real_clock_ms(void);

void add_retry_schedule_tests(Suite *suite);
void add_shard_tests(Suite *suite);
void add_lanes_tests(Suite *suite);
void add_pace_tests(Suite *suite);
void add_job_hints_tests(Suite *suite);
void add_fair_share_tests(Suite *suite);
void add_endpoint_tests(Suite *suite);
void add_job_tests(Suite *suite);
void add_dispatcher_tests(Suite *suite);
