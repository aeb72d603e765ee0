// One target under libFuzzer; TARGET is its function.
#include <stddef.h>
#include <stdint.h>

int TARGET(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    return TARGET(bytes, length);
}
