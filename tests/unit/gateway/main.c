#include "tests/support/fixture.h"
#include "tests/unit/gateway/tests.h"

static void add_tests(Suite *suite) {
    admission_tests(suite);
    frame_tests(suite);
    http_tests(suite);
    parameter_name_tests(suite);
    resume_tests(suite);
    ring_tests(suite);
    stream_tests(suite);
}

int main(void) {
    return suite_main("gateway", add_tests);
}
