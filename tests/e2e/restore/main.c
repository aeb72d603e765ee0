// Dumps: what is restored, wholly or in part, where every number is another one.
#include "tests/e2e/restore/world.h"

static void add_tests(Suite *suite) {
    add_dumps(suite);
    add_without_data(suite);
    add_older(suite);
}

int main(void) {
    return suite_main("restore", add_tests);
}
