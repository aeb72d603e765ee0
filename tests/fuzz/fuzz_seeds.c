// Every target on its seeds, and on each of their beginnings: what needs no libFuzzer. TARGETS is TARGET(name)...
#include "tests/support/fixture.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

enum { SEED_MOST_BYTES = 1 << 16, BEGINNINGS = 64 };

static void run_file(const char *path, int (*target)(const uint8_t *bytes, size_t length)) {
    static uint8_t bytes[SEED_MOST_BYTES];
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "%s", path);
    size_t length = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    target(bytes, length);
    for (size_t i = 0; i < BEGINNINGS; i++)
        target(bytes, length * i / BEGINNINGS);
}

static void run_seeds(const char *name, int (*target)(const uint8_t *bytes, size_t length)) {
    char directory[400], path[800];
    int count = 0;
    snprintf(directory, sizeof directory, "%s/tests/fuzz/seeds/%s", SOURCE_ROOT, name);
    DIR *seeds = opendir(directory);
    ck_assert_msg(seeds != NULL, "%s", directory);
    for (const struct dirent *entry; (entry = readdir(seeds));) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        run_file(path, target);
        count++;
    }
    closedir(seeds);
    ck_assert_int_gt(count, 0);
}

#define TARGET(name)                                                                                                   \
    int fuzz_##name(const uint8_t *bytes, size_t length);                                                              \
    START_TEST(seeds_of_##name) {                                                                                      \
        run_seeds(#name, fuzz_##name);                                                                                 \
    }                                                                                                                  \
    END_TEST
TARGETS
#undef TARGET

static void add_tests(Suite *suite) {
    TCase *seeds = suite_case(suite, "seeds", 120);
#define TARGET(name) tcase_add_test(seeds, seeds_of_##name);
    TARGETS
#undef TARGET
}

int main(void) {
    return suite_main("fuzz", add_tests);
}
