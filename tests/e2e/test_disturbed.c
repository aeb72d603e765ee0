#include "tests/support/fixture.h"
static void add_tests(Suite *suite) {
    suite_case(suite, "disturbed", 60);
}
int main(void) {
    return suite_main("disturbed", add_tests);
}
