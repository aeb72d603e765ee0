// A test program's main. dev/test --filter and --list look at single tests, which Check cannot select, and long
// programs are run in shares (tests/meson.build): each tcase_add_test passes through here (the linker's --wrap).
#include "tests/support/fixture.h"
#include "tests/support/support.h"
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static const char *running_suite;

enum { HANG_S = 600 }; // of a whole test

TCase *suite_case(Suite *suite, const char *name, double timeout_s) {
    TCase *tcase = tcase_create(name);
    tcase_add_checked_fixture(tcase, NULL, fixture_close);
    tcase_set_timeout(tcase, timeout_s < HANG_S ? HANG_S : timeout_s);
    suite_add_tcase(suite, tcase);
    return tcase;
}

static TCase *long_cases[4];
static size_t long_count;

TCase *suite_long_case(Suite *suite, const char *name, double timeout_s) {
    if (long_count == sizeof long_cases / sizeof *long_cases)
        abort(); // no test runs yet, so Check cannot say it
    return long_cases[long_count++] = suite_case(suite, name, timeout_s);
}

// Long by nature: a run of everything leaves them out, unless it is dev/test --long.
static bool left_out(const TCase *tcase) {
    for (size_t i = 0; i < long_count; i++)
        if (long_cases[i] == tcase)
            return getenv("ROWBELL_TEST_LONG") == NULL;
    return false;
}

// Of ROWBELL_TEST_SHARE=2/4 every fourth test is ours, from the second on: neighbours in a file take about the same
// time.
static bool in_share(void) {
    static int seen;
    const char *share = getenv("ROWBELL_TEST_SHARE");
    int mine = 1, shares = 1;
    if (share != NULL && (sscanf(share, "%d/%d", &mine, &shares) != 2 || mine < 1 || mine > shares)) {
        fprintf(stderr, "ROWBELL_TEST_SHARE=%s: it must be like 2/4\n", share);
        exit(EXIT_FAILURE);
    }
    return seen++ % shares == mine - 1;
}

void __real__tcase_add_test(TCase *tcase, const TTest *test, int signal, int exit_status, int start, int end);
void __wrap__tcase_add_test(TCase *tcase, const TTest *test, int signal, int exit_status, int start, int end);

void __wrap__tcase_add_test(TCase *tcase, const TTest *test, int signal, int exit_status, int start, int end) {
    const char *filter = getenv("ROWBELL_TEST_FILTER");
    if ((filter != NULL && strstr(test->name, filter) == NULL) || left_out(tcase))
        return;
    if (getenv("ROWBELL_TEST_LIST") != NULL)
        printf("%s %s\n", running_suite, test->name);
    else
        for (int i = start; i < end; i++)
            if (in_share())
                __real__tcase_add_test(tcase, test, signal, exit_status, i, i + 1);
}

// Settings of whoever runs the tests must not reach the programs under test.
static void clean_environment(void) {
    unsetenv("DATABASE_URL");
    unsetenv("REDIS_URL");
    for (char *const *entry = environ; *entry != NULL;) {
        const char *equals = strchr(*entry, '=');
        if (strncmp(*entry, "ROWBELL_", 8) == 0 && strncmp(*entry, "ROWBELL_TEST_", 13) != 0 && equals != NULL) {
            char *name = strndup(*entry, (size_t)(equals - *entry));
            unsetenv(name);
            free(name);
            entry = environ; // unsetenv moves the rest
        } else {
            entry++;
        }
    }
}

int suite_main(const char *suite_name, void (*add_tests)(Suite *suite)) {
    running_suite = suite_name;
    clean_environment();
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGTERM); // with meson goes the program; Check then ends the running test
    Suite *suite = suite_create(suite_name);
    SRunner *runner = srunner_create(suite);
    add_tests(suite);
    int failed = 0;
    char times[300];
    if (getenv("ROWBELL_TEST_TIMES") != NULL) {
        snprintf(times, sizeof times, "%s/%s-%d.xml", getenv("ROWBELL_TEST_TIMES"), suite_name, getpid());
        srunner_set_xml(runner, times);
    }
    if (getenv("ROWBELL_TEST_LIST") == NULL) {
        srunner_run_all(runner, CK_ENV);
        failed = srunner_ntests_failed(runner);
        if (failed > 0 && getenv("ROWBELL_TEST_PG") != NULL && getenv("ROWBELL_TEST_KEEP") == NULL)
            support_drop_leftover_databases();
    }
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
