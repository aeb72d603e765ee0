// The HTTP client against peers that do everything wrong.
#include "tests/integration/http_client/world.h"

static void add_tests(Suite *suite) {
    requests_tests(suite);
    answers_tests(suite);
    connections_tests(suite);
    tls_tests(suite);
}

int main(void) {
    return suite_main("http_client", add_tests);
}
