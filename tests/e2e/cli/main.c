// The commands of rowbell with the real program on real PostgreSQL; tail against a server of bytes.
#include "tests/e2e/cli/world.h"

static void add_tests(Suite *suite) {
    publish_tests(suite);
    subscription_tests(suite);
    secrets_tests(suite);
    events_tests(suite);
    operating_tests(suite);
    usage_tests(suite);
    tail_tests(suite);
    console_tests(suite);
}

int main(void) {
    return suite_main("cli", add_tests);
}
