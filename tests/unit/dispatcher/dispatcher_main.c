#include "tests/unit/dispatcher/dispatcher_tests.h"

static void add_tests(Suite *suite) {
    add_retry_schedule_tests(suite);
    add_shard_tests(suite);
    add_lanes_tests(suite);
    add_pace_tests(suite);
    add_fair_share_tests(suite);
    add_endpoint_tests(suite);
    add_job_tests(suite);
    add_dispatcher_tests(suite);
}

int main(void) {
    return suite_main("dispatcher", add_tests);
}
