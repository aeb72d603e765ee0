#include "tests/support/fixture.h"
#include "tests/unit/gateway/auth_tests.h"

static void add_tests(Suite *suite) {
    json_read_tests(suite);
    jwt_tests(suite);
    scope_index_tests(suite);
}

int main(void) {
    return suite_main("auth", add_tests);
}
