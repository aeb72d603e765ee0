#include "tests/support/fixture.h"
#include "tests/unit/dispatcher/webhook_tests.h"

static void add_tests(Suite *suite) {
    outcome_tests(suite);
    webhook_signature_tests(suite);
}

int main(void) {
    return suite_main("webhook", add_tests);
}
