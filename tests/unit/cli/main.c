#include "tests/support/fixture.h"
#include "tests/unit/cli/tests.h"

static void add_tests(Suite *suite) {
    add_sse_parser_tests(suite);
    add_migration_plan_tests(suite);
    add_arguments_tests(suite);
    add_docs_tests(suite);
}

int main(void) {
    return suite_main("cli", add_tests);
}
