// db_url: a parameter is named; a piece of a password is not.
#include "common/db_url.h"
#include "tests/support/fixture.h"
#include "tests/unit/common/tests.h"
#include <string.h>

START_TEST(parameters_that_libpq_does_not_know_are_named) {
    static const struct {
        const char *url, *says;
    } cases[] = {
        {"postgres://u:hunter2@h/d?schema=public", "know: schema. It is of another tool: remove it"},
        {"postgresql://h/d?sslmode=require&pgbouncer=true&connection_limit=5",
         "know: pgbouncer, connection_limit. They"},
        {"postgres://h/d?pool-size=5&x.y=1", "know: pool-size, x.y."},
        {"postgres://h/d?sslmode=no-verify", "sslmode=no-verify, which"},
        {"postgres://h/d?schema=a%zz", "know: schema."},
        // These could be a piece of a password, or of whatever stands between.
        {"postgres://u:hunter2/x?hunter2=y@h/d", "malformed"},
        {"postgres://u:1/x?sslmode=hunter2@h/d", "sslmode=..., which"},
        {"postgres://h/d?sslmode=hunter2 hunter2", "sslmode=..., which"},
        {"postgres://h/d?hunter2 x=1", "malformed"},
        {"postgres://u:hunter2@h:hunter2/d", "malformed"},
        {"postgres://u:hunter2@h:0/d", "malformed"},
        {"postgres://u:hunter2@h:65536/d", "malformed"},
        {"host=h password=hunter2 x=1", "malformed"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error error = {0};
        bool good = db_url_check(cases[i].url, &error);
        ck_assert_msg(good == (*cases[i].says == '\0'), "%s: %s", cases[i].url, error.text);
        ck_assert_msg(good || error.code == ERROR_USAGE, "%s", cases[i].url);
        ck_assert_msg(strstr(error.text, cases[i].says), "%s: %s", cases[i].url, error.text);
        ck_assert_msg(!strstr(error.text, "hunter2"), "%s: %s", cases[i].url, error.text);
    }
}
END_TEST

START_TEST(what_libpq_takes_is_taken) {
    static const char *const urls[] = {
        "postgres://u:p@h/d",
        "postgres://u:p%40@a:1,b:65535,c/d?target_session_attrs=read-write&sslmode=verify-full",
        "postgres://h/d?ssl=true&application_name=me",
        "postgres:///d?host=/tmp&port=5432",
        "postgres://a,b/d?port=,5433",
        "host=h dbname=d password='a?b=c'",
        "service=s",
    };
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        struct error error = {0};
        ck_assert_msg(db_url_check(urls[i], &error), "%s: %s", urls[i], error.text);
    }
}
END_TEST

void db_url_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "db_url", 10);
    tcase_add_test(tcase, parameters_that_libpq_does_not_know_are_named);
    tcase_add_test(tcase, what_libpq_takes_is_taken);
}
