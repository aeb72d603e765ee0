#include "tests/e2e/stream/world.h"
void position_tests(Suite *suite) {
}
