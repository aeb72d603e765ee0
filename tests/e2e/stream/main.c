#include "tests/e2e/stream/world.h"

static void add_tests(Suite *suite) {
    field_tests(suite);
    position_tests(suite);
    failover_tests(suite);
    property_tests(suite);
}

int main(void) {
    return suite_main("stream", add_tests);
}
