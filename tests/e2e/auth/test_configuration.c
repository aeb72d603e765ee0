// What would let everybody in by mistake is not started.
#include "tests/e2e/auth/world.h"
#include <string.h>

START_TEST(unsafe_configurations_are_refused) {
    static const struct {
        const char *arguments[8];
        const char *part;
    } rows[] = {
        {{"--auth", "jwt"}, "--jwt-secret"},
        {{"--auth", "jwt", "--jwt-secret", "short"}, "32 bytes"},
        {{"--auth", "jwt", "--jwt-secret", SECRET, "--jwt-key", "x"}, "one of"},
        {{"--auth", "jwt", "--jwt-key", "/does/not/exist"}, "No such file"},
        {{"--auth", "jwt", "--jwt-jwks", "/does/not/exist"}, "No such file"},
        {{"--auth", "jwt", "--jwt-jwks", "https://u:p@x/"}, "--jwt-jwks"},
        {{"--auth", "callout"}, "--callout-url"},
        {{"--auth", "callout", "--callout-url", "ftp://x"}, "--callout-url"},
        {{"--auth", "header"}, "--trusted-peer"},
        {{"--auth", "header", "--trusted-peer", "10.0.0.1/8"}, "--trusted-peer"},
        {{"--auth", "header", "--trusted-peer", "10.0.0.0/8", "--scopes-header", "a b"}, "--scopes-header"},
        {{"--auth", "everybody"}, "none|jwt|callout|header"},
        {{"--auth", "none", "--listen", "0.0.0.0:0"}, "--allow-anonymous"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *out;
        const char *error;
        const char *arguments[12] = {"--database-url", "postgres://nobody@127.0.0.1:1/none"};
        memcpy(arguments + 2, rows[i].arguments, sizeof rows[i].arguments);
        ck_assert_msg(program_run("rowbell-gateway", arguments, &out, &error) == 2, "%s: %s", rows[i].arguments[1],
                      error);
        ck_assert_msg(strstr(error, rows[i].part) != NULL, "%s: %s", rows[i].arguments[1], error);
        ck_assert_msg(strstr(error, "u:p@") == NULL && strstr(error, SECRET) == NULL, "%s", error);
    }
}
END_TEST

void configuration_tests(Suite *suite) {
    TCase *configuration = suite_case(suite, "configuration", 30);
    tcase_add_test(configuration, unsafe_configurations_are_refused);
}
