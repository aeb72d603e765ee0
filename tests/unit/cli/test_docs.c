// docs/cli.md is what the table of commands says. ROWBELL_TEST_WRITE_DOCS=1 writes it anew.
#include "cli/arguments.h"
#include "tests/support/fixture.h"
#include "tests/unit/cli/tests.h"
#include <stdlib.h>
#include <string.h>

static const char path[] = SOURCE_ROOT "/docs/cli.md";

static const char introduction[] =
    "# rowbell, the command line\n"
    "\n"
    "This page is written from the program's own table of commands (`cli/commands.c`): a test compares them.\n"
    "\n"
    "- The database is `--database-url`, else `ROWBELL_DATABASE_URL`, else `DATABASE_URL`.\n"
    "- Results go to stdout, everything else to stderr. An error is one line that says what to do about it.\n"
    "- `--json` writes one document: an array for a list, an object for one thing. `status --watch` and `tail` write "
    "one\n"
    "  object a line. Times are RFC 3339 in UTC; a field without a value is `null`.\n"
    "- Flags may stand anywhere after the command. `--` ends them.\n"
    "\n"
    "| status | meaning |\n"
    "|---|---|\n"
    "| 0 | done |\n"
    "| 1 | failed: no such table, subscription or event; refused by the database |\n"
    "| 2 | wrong usage: a flag, a value, a URL |\n"
    "| 3 | the database or the gateway cannot be reached, or refused the login |\n"
    "| 4 | the schema is missing, newer than this program, or was changed |\n"
    "\n"
    "```text\n";

static char *expected_text(void) {
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    fputs(introduction, file);
    arguments_print_tree(file, commands, "");
    fputs("```\n", file);
    for (const struct command *command = commands; command->path != NULL; command++) {
        fprintf(file, "\n## rowbell %s\n\n```text\n", command->path);
        arguments_print_command(file, command);
        fputs("```\n", file);
    }
    ck_assert_int_eq(fclose(file), 0);
    return text;
}

START_TEST(test_docs_say_what_help_says) {
    char *expected = expected_text();
    if (getenv("ROWBELL_TEST_WRITE_DOCS") != NULL) {
        FILE *file = fopen(path, "w");
        ck_assert_ptr_nonnull(file);
        fputs(expected, file);
        fclose(file);
    }
    char found[65536] = "";
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "there is no %s", path);
    size_t length = fread(found, 1, sizeof(found) - 1, file);
    found[length] = 0;
    fclose(file);
    size_t same = 0;
    while (expected[same] != 0 && expected[same] == found[same])
        same++;
    ck_assert_msg(expected[same] == found[same],
                  "docs/cli.md differs from --help near \"%.60s\": run this test with ROWBELL_TEST_WRITE_DOCS=1",
                  expected + same);
    free(expected);
}
END_TEST

START_TEST(test_table_is_sound) {
    for (const struct command *command = commands; command->path != NULL; command++) {
        ck_assert_ptr_nonnull(command->run);
        ck_assert_int_le(command->least, command->most);
        ck_assert_msg((command->most == 0) == (command->arguments[0] == 0), "%s", command->path);
        for (const struct command *other = commands; other != command; other++)
            ck_assert_str_ne(other->path, command->path);
    }
}
END_TEST

void add_docs_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "docs", 10);
    tcase_add_test(tcase, test_docs_say_what_help_says);
    tcase_add_test(tcase, test_table_is_sound);
}
