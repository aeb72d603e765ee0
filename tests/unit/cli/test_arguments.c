// Command lines, good and bad.
#include "cli/arguments.h"
#include "cli/parameters.h"
#include "tests/support/fixture.h"
#include "tests/unit/cli/tests.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_WORDS = 16 };

static struct cli cli;
static struct error error;
static char *line;

// Splits at spaces.
static bool parse(const char *text) {
    static char *argv[MAX_WORDS + 1];
    int argc = 0;
    free(line);
    free(cli.given);
    cli = (struct cli){0};
    error = (struct error){0};
    line = strdup(text);
    for (char *word = strtok(line, " "); word != NULL && argc < MAX_WORDS; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    bool exit_early = false;
    bool ok = arguments_parse(commands, argc, argv, &cli, &exit_early, &error);
    ck_assert(!exit_early);
    return ok;
}

static void refuse(const char *text, const char *why) {
    ck_assert_msg(!parse(text), "accepted: %s", text);
    ck_assert_int_eq(error.code, ERROR_USAGE);
    ck_assert_msg(strstr(error.text, why) != NULL, "%s: %s", text, error.text);
}

START_TEST(test_longest_path_wins) {
    ck_assert(parse("rowbell subscription add webhook orders https://a/ --type x --json"));
    ck_assert_str_eq(cli.command->path, "subscription add webhook");
    ck_assert_int_eq(cli.argument_count, 2);
    ck_assert_str_eq(cli.arguments[0], "orders");
    ck_assert_str_eq(cli.arguments[1], "https://a/");
    ck_assert(cli.json);
}
END_TEST

START_TEST(test_options_anywhere) {
    ck_assert(parse("rowbell --json --database-url A publish --scope s posts --scope=t"));
    ck_assert_str_eq(cli.arguments[0], "posts");
    ck_assert_str_eq(option_value(&cli, "scope"), "t");
    ck_assert_str_eq(option_value(&cli, "database-url"), "A");
    ck_assert_ptr_null(option_value(&cli, "name"));
    ck_assert(!option_given(&cli, "no-webhook"));
}
END_TEST

START_TEST(test_double_dash) {
    ck_assert(parse("rowbell publish -- --posts"));
    ck_assert_str_eq(cli.arguments[0], "--posts");
}
END_TEST

START_TEST(test_refusals) {
    refuse("rowbell", "no command");
    refuse("rowbell nonsense", "unknown command nonsense");
    refuse("rowbell subscription", "subscription is not a whole command");
    refuse("rowbell subscription nonsense", "subscription is not a whole command");
    refuse("rowbell --nonsense status", "unknown flag --nonsense");
    refuse("rowbell status --nonsense", "unknown flag --nonsense: see rowbell status --help");
    refuse("rowbell status -x", "unknown flag -x");
    refuse("rowbell status --scope x", "unknown flag --scope");
    refuse("rowbell status --json=yes", "--json takes no value");
    refuse("rowbell publish posts --scope", "--scope needs a value (COLUMN)");
    refuse("rowbell publish", "publish needs TABLE");
    refuse("rowbell publish a b", "unexpected argument b");
}
END_TEST

START_TEST(test_arrays) {
    struct buffer buffer = {0};
    ck_assert(parse("rowbell publish posts --watch a,b --watch q\"\\x"));
    ck_assert_str_eq(parameter_array(&cli, "watch", ',', &buffer), "{\"a\",\"b\",\"q\\\"\\\\x\"}");
    ck_assert_ptr_null(parameter_array(&cli, "key", ',', &buffer));
    buffer_free(&buffer);
}
END_TEST

START_TEST(test_integers_and_choices) {
    int64_t value = 7;
    ck_assert(parse("rowbell event list"));
    ck_assert(option_integer(&cli, "limit", 1, 10, &value, &error));
    ck_assert_int_eq(value, 7);
    static const char *const bad[] = {"0", "11", "x", "1x", "99999999999999999999", NULL};
    for (int i = 0; bad[i] != NULL; i++) {
        char text[60];
        snprintf(text, sizeof(text), "rowbell event list --limit %s", bad[i]);
        ck_assert(parse(text));
        ck_assert(!option_integer(&cli, "limit", 1, 10, &value, &error));
        ck_assert_ptr_nonnull(strstr(error.text, "from 1 to 10"));
    }
    static const char *const states[] = {"good", "fine", NULL};
    ck_assert(parse("rowbell event list --state fine"));
    ck_assert(option_choice(&cli, "state", states, &error));
    ck_assert(parse("rowbell event list --state bad"));
    ck_assert(!option_choice(&cli, "state", states, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "good, fine"));
}
END_TEST

START_TEST(test_events) {
    ck_assert(parameter_is_event("12"));
    ck_assert(parameter_is_event("0193A000-0000-7000-8000-000000000001"));
    ck_assert(!parameter_is_event(""));
    ck_assert(!parameter_is_event("-1"));
    ck_assert(!parameter_is_event("1234567890123456789012"));
    ck_assert(!parameter_is_event("0193a000-0000-7000-8000-00000000000"));
    ck_assert(!parameter_is_event("0193a000-0000-7000-8000-0000000000010"));
}
END_TEST

void add_arguments_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "arguments", 10);
    tcase_add_test(tcase, test_longest_path_wins);
    tcase_add_test(tcase, test_options_anywhere);
    tcase_add_test(tcase, test_double_dash);
    tcase_add_test(tcase, test_refusals);
    tcase_add_test(tcase, test_arrays);
    tcase_add_test(tcase, test_integers_and_choices);
    tcase_add_test(tcase, test_events);
}
