#include "tests/unit/dispatcher/dispatcher_tests.h"

uint64_t clock_stopped_ms, clock_moved_ms;
double chance = -1;
uint64_t __real_clock_ms(void);
uint64_t __wrap_clock_ms(void);
double __real_random_unit(void);
double __wrap_random_unit(void);

uint64_t real_clock_ms(void) {
    return __real_clock_ms();
}

uint64_t __wrap_clock_ms(void) {
    return (clock_stopped_ms ? clock_stopped_ms : __real_clock_ms()) + clock_moved_ms;
}

double __wrap_random_unit(void) {
    return chance < 0 ? __real_random_unit() : chance;
}

static void add_tests(Suite *suite) {
    add_retry_schedule_tests(suite);
    add_shard_tests(suite);
    add_lanes_tests(suite);
    add_pace_tests(suite);
    add_job_hints_tests(suite);
    add_fair_share_tests(suite);
    add_endpoint_tests(suite);
    add_job_tests(suite);
    add_dispatcher_tests(suite);
}

int main(void) {
    return suite_main("dispatcher", add_tests);
}
