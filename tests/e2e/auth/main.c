// Who sees what, with the real gateway (docs/auth.md, G7): each way to authenticate, what it fails to, and that nobody
// ever receives, live or by replay, what is not theirs.
#include "tests/e2e/auth/world.h"

static void add_tests(Suite *suite) {
    jwt_tests(suite);
    asked_tests(suite);
    isolation_tests(suite);
    configuration_tests(suite);
}

int main(void) {
    return suite_main("auth", add_tests);
}
