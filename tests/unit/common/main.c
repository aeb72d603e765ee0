#include "tests/support/fixture.h"
#include "tests/unit/common/tests.h"

static void add_tests(Suite *suite) {
    error_tests(suite);
    buffer_tests(suite);
    backoff_tests(suite);
    config_tests(suite);
    metrics_tests(suite);
    egress_tests(suite);
    process_tests(suite);
    stream_message_tests(suite);
    db_error_tests(suite);
    db_url_tests(suite);
    database_clock_tests(suite);
    seal_tests(suite);
    http_target_tests(suite);
    name_cache_tests(suite);
}

int main(void) {
    return suite_main("common", add_tests);
}
