#include "tests/e2e/stream/world.h"
void property_tests(Suite *suite) {
}
