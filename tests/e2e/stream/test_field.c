#include "tests/e2e/stream/world.h"
void field_tests(Suite *suite) {
}
