// What a command line gets wrong, and a database that is not there.
#include "tests/e2e/cli/world.h"
#include <stdlib.h>
#include <string.h>

// What every command answers when the database is the problem.
START_TEST(test_database_problems) {
    const char *empty = fixture_empty_database();
    static const char *const commands[][5] = {
        {"status"}, {"publish", "posts"}, {"event", "list"}, {"subscription", "list"}, {"requeue", "jobs", "--all"},
    };
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
        expect_status(run(commands[i]), 4);
        expect_text(err, "run `rowbell migrate` first");
    }
    struct {
        const char *url;
        int status;
        const char *text;
    } urls[] = {
        {"postgres://127.0.0.1:1/a", 3, "is PostgreSQL running, and is --database-url or DATABASE_URL right?"},
        {"postgres://u:s3cret%zz@h/a", 2, "the database URL is malformed"},
        {"postgres://u:s3cret@h:99999/a", 2, "the database URL is malformed"},
        {"nonsense", 2, "the database URL is malformed"},
        {"http://u:s3cret@h/a", 2, "the database URL is malformed"},
    };
    for (size_t i = 0; i < sizeof(urls) / sizeof(*urls); i++) {
        expect_status(RUN("status", "--database-url", urls[i].url), urls[i].status);
        expect_text(err, urls[i].text);
        ck_assert_ptr_null(strstr(err, "s3cret"));
        ck_assert_msg(strchr(err, '\n') == err + strlen(err) - 1, "more than a line: %s", err);
    }
    char url[1000];
    snprintf(url, sizeof(url), "%s%cdbname=no_such_database", empty, strchr(empty, '?') != NULL ? '&' : '?');
    expect_status(RUN("migrate", "--database-url", url), 3);
    expect_text(err, "check user, password and database name");
    snprintf(url, sizeof(url), "%s%cuser=no_such_user&password=s3cret", empty, strchr(empty, '?') != NULL ? '&' : '?');
    expect_status(RUN("migrate", "--database-url", url), 3);
    expect_text(err, "check user, password and database name");
    ck_assert_ptr_null(strstr(err, "s3cret"));
}
END_TEST

START_TEST(test_no_database_given) {
    expect_status(RUN("status"), 2);
    expect_text(err, "no database given: set DATABASE_URL or give --database-url");
}
END_TEST

START_TEST(test_help_and_version) {
    expect_status(RUN("--help"), 0);
    expect_text(out, "\n  subscription\n    add webhook NAME URL");
    expect_status(RUN("requeue", "jobs", "--help"), 0);
    expect_text(out, "Usage: rowbell requeue jobs [FLAGS]\n");
    expect_text(out, "--subscription NAME");
    expect_status(RUN("requeue", "--help"), 0);
    ck_assert_ptr_null(strstr(out, "publish"));
    expect_status(RUN("--version"), 0);
    expect_text(out, "rowbell 0.");
    expect_status(RUN("nonsense"), 2);
    ck_assert_str_eq(out, "");
    expect_status(RUN("status", "--nonsense"), 2);
    ck_assert_str_eq(err, "rowbell: unknown flag --nonsense: see rowbell status --help\n");
}
END_TEST

void usage_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "usage", 60);
    tcase_add_test(tcase, test_database_problems);
    tcase_add_test(tcase, test_no_database_given);
    tcase_add_test(tcase, test_help_and_version);
}
