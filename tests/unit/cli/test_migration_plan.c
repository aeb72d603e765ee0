// What runs on which database.
#include "cli/migration_plan.h"
#include "common/buffer.h"
#include "tests/support/fixture.h"
#include "tests/unit/cli/tests.h"
#include <string.h>

static const struct embedded_file files[] = {
    {"roles.sql", "r", 0, ""},
    {"bootstrap.sql", "b", 0, ""},
    {"0001_first.sql", "one", 0, "-- compatible_from: 1\n"},
    {"0002_second.sql", "two", 0, "-- The second.\n-- compatible_from: 2\n"},
    {"publish.sql", "p", 0, ""},
    {"views.sql", "v", 0, ""},
    {"grants.sql", "g", 0, ""},
};
enum { FILE_COUNT = sizeof(files) / sizeof(*files) };

static const struct migration_record all[] = {
    {"0001_first", 1, "one", ""},    {"0002_second", 2, "two", ""}, {"functions/publish", 0, "p", ""},
    {"functions/views", 0, "v", ""}, {"grants", 0, "g", ""},
};
enum { ALL = sizeof(all) / sizeof(*all) };

static const char *runs(const struct migration_record *records, size_t count, bool roles) {
    static struct buffer names;
    struct migration_plan plan;
    migration_plan_init(&plan, files, FILE_COUNT, records, count);
    buffer_clear(&names);
    for (size_t i = 0; i < plan.count; i++)
        if (migration_plan_runs(&plan, &plan.steps[i], roles))
            buffer_format(&names, "%s ", plan.steps[i].name);
    migration_plan_close(&plan);
    return buffer_cstr(&names);
}

static enum error_code check_plan(const struct migration_record *records, size_t count, struct error *error) {
    struct migration_plan plan;
    *error = (struct error){0};
    migration_plan_init(&plan, files, FILE_COUNT, records, count);
    bool ok = migration_plan_check(&plan, error);
    ck_assert(ok == (error->code == ERROR_NONE));
    migration_plan_close(&plan);
    return error->code;
}

START_TEST(test_empty_database_gets_everything_in_order) {
    ck_assert_str_eq(runs(NULL, 0, true), "0001_first 0002_second functions/publish functions/views grants ");
    ck_assert_str_eq(runs(NULL, 0, false), "0001_first 0002_second functions/publish functions/views ");
}
END_TEST

START_TEST(test_current_database_gets_nothing) {
    struct error error;
    ck_assert_str_eq(runs(all, ALL, true), "");
    ck_assert_int_eq(check_plan(all, ALL, &error), ERROR_NONE);
}
END_TEST

START_TEST(test_changed_function_brings_all_functions_and_grants) {
    struct migration_record records[ALL];
    memcpy(records, all, sizeof(all));
    records[3].checksum = "old";
    ck_assert_str_eq(runs(records, ALL, true), "functions/publish functions/views grants ");
    ck_assert_str_eq(runs(records, ALL, false), "functions/publish functions/views ");
}
END_TEST

START_TEST(test_changed_grants_alone) {
    struct migration_record records[ALL];
    memcpy(records, all, sizeof(all));
    records[4].checksum = "old";
    ck_assert_str_eq(runs(records, ALL, true), "grants ");
}
END_TEST

START_TEST(test_new_tables_need_grants) {
    const struct migration_record records[] = {all[0], all[2], all[3], all[4]};
    ck_assert_str_eq(runs(records, 4, true), "0002_second grants ");
}
END_TEST

START_TEST(test_changed_table_migration_is_refused_by_name) {
    struct migration_record records[ALL];
    memcpy(records, all, sizeof(all));
    records[1].checksum = "old";
    struct error error;
    ck_assert_int_eq(check_plan(records, ALL, &error), ERROR_SCHEMA);
    ck_assert_ptr_nonnull(strstr(error.text, "0002_second.sql"));
    ck_assert_int_eq(error_exit_status(&error), 4);
}
END_TEST

START_TEST(test_newer_database_is_refused) {
    const struct migration_record records[] = {all[0], all[1], {"0003_third", 3, "three", ""}};
    struct error error;
    ck_assert_int_eq(check_plan(records, 3, &error), ERROR_SCHEMA);
    ck_assert_ptr_nonnull(strstr(error.text, "version 3"));
    struct migration_plan plan;
    migration_plan_init(&plan, files, FILE_COUNT, records, 3);
    ck_assert_str_eq(plan.steps[plan.count - 1].name, "0003_third");
    ck_assert_int_eq(plan.steps[plan.count - 1].state, MIGRATION_UNKNOWN);
    ck_assert_int_eq(plan.steps[3].compatible_from, 2);
    migration_plan_close(&plan);
}
END_TEST

void add_migration_plan_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "migration_plan", 10);
    tcase_add_test(tcase, test_empty_database_gets_everything_in_order);
    tcase_add_test(tcase, test_current_database_gets_nothing);
    tcase_add_test(tcase, test_changed_function_brings_all_functions_and_grants);
    tcase_add_test(tcase, test_changed_grants_alone);
    tcase_add_test(tcase, test_new_tables_need_grants);
    tcase_add_test(tcase, test_changed_table_migration_is_refused_by_name);
    tcase_add_test(tcase, test_newer_database_is_refused);
}
