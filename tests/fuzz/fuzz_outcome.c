// What a receiver's answer says about the next attempt: Retry-After and Date, a line each.
#include "dispatcher/outcome.h"
#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(outcome) {
    char *text = input_line(&bytes, &length), *date = input_text(bytes, length);
    if (text) {
        uint64_t by_us = retry_after_ms(text, NULL, 1700000000);
        uint64_t by_date = retry_after_ms(text, date, 1700000000);
        require(by_us <= RETRY_AFTER_MAX_MS && by_date <= RETRY_AFTER_MAX_MS);
        require(by_us % 1000 == 0 && by_date % 1000 == 0);
        // Seconds mean the same to every clock.
        require(text[strspn(text, "0123456789")] != '\0' || by_us == by_date);
    }
    free(text);
    free(date);
    return 0;
}
