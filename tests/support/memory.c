#include "tests/support/fixture.h"
#include "tests/support/support.h"
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void **kept;
static size_t kept_count;
static size_t kept_capacity;

void *support_keep(void *memory) {
    ck_assert_ptr_nonnull(memory);
    if (kept_count == kept_capacity) {
        kept_capacity = kept_capacity == 0 ? 64 : kept_capacity * 2;
        void **larger = realloc(kept, kept_capacity * sizeof(*kept));
        ck_assert_ptr_nonnull(larger);
        kept = larger;
    }
    kept[kept_count++] = memory;
    return memory;
}

const char *support_keep_text(const char *text) {
    return support_keep(strdup(text == NULL ? "" : text));
}

void support_forget_memory(void) {
    for (size_t i = 0; i < kept_count; i++)
        free(kept[i]);
    free(kept);
    kept = NULL;
    kept_count = kept_capacity = 0;
}

uint64_t support_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void support_pause(void) {
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

const char *support_env(const char *name) {
    const char *value = getenv(name);
    if (value == NULL || value[0] == '\0')
        ck_abort_msg("%s is not set: run this test with dev/test", name);
    return value;
}

uint64_t support_end_ms(unsigned deadline_ms) {
    return support_now_ms() + (deadline_ms < HANG_MS ? HANG_MS : deadline_ms);
}

void wait_for(bool (*condition)(void *arg), void *arg, unsigned deadline_ms, const char *what) {
    uint64_t end = support_end_ms(deadline_ms);
    while (!condition(arg)) {
        if (support_now_ms() >= end)
            ck_abort_msg("after %u ms still not: %s", deadline_ms, what);
        support_pause();
    }
}

// Daemons first: they use everything else.
void fixture_close(void) {
    support_stop_daemons();
    support_stop_sse_clients();
    support_stop_receivers();
    support_stop_databases();
    support_forget_memory();
}
