// db_conn against a real PostgreSQL, and through a proxy that fails on demand.
#include "tests/integration/db_conn/world.h"

static void add_tests(Suite *suite) {
    batches_tests(suite);
    sessions_tests(suite);
    losses_tests(suite);
    starts_tests(suite);
    reentrant_tests(suite);
}

int main(void) {
    return suite_main("db_conn", add_tests);
}
