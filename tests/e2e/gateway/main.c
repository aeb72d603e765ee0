// The gateway with the real program on real PostgreSQL and Redis: the wire to the byte, G5 (every event or a reset that
// covers it), G6 (positions mean the same on every gateway), G9 (Redis and the process are disposable). The log is
// written here as the dispatcher's SSE lane writes it.
#include "tests/e2e/gateway/world.h"

static void add_tests(Suite *suite) {
    opening_tests(suite);
    resuming_tests(suite);
    source_tests(suite);
    limit_tests(suite);
    http_tests(suite);
}

int main(void) {
    return suite_main("gateway", add_tests);
}
