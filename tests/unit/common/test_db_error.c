// db_error: whose fault an SQLSTATE is. schema_version: which schema a program may work on.
#include "common/db_error.h"
#include "common/schema_version.h"
#include "tests/support/fixture.h"
#include "tests/unit/common/tests.h"
#include <stdio.h>
#include <string.h>

static struct error with_sqlstate(const char *sqlstate) {
    struct error error = {.code = ERROR_SQL};
    snprintf(error.sqlstate, sizeof(error.sqlstate), "%s", sqlstate);
    return error;
}

START_TEST(faults_of_the_system_are_told_from_faults_of_the_row) {
    static const struct {
        const char *sqlstate;
        bool system;
        bool transient;
    } cases[] = {
        {"", true, false},       // libpq's own, and ours: timeout, not connected
        {"08000", true, false},  // connection_exception
        {"08006", true, false},  // connection_failure
        {"0A000", false, false}, // feature_not_supported: a row can cause it
        {"21000", false, false}, // cardinality_violation
        {"22001", false, false}, // string_data_right_truncation
        {"22012", false, false}, // division_by_zero
        {"22P02", false, false}, // invalid_text_representation
        {"23502", false, false}, // not_null_violation
        {"23503", false, false}, // foreign_key_violation
        {"23505", false, false}, // unique_violation
        {"23514", false, false}, // check_violation
        {"25006", true, false},  // read_only_sql_transaction: a standby
        {"25P03", true, false},  // idle_in_transaction_session_timeout
        {"28P01", true, false},  // invalid_password
        {"2200G", false, false}, // most_specific_type_mismatch
        {"3D000", true, false},  // invalid_catalog_name
        {"3F000", false, false}, // invalid_schema_name
        {"40001", true, true},   // serialization_failure
        {"40P01", true, true},   // deadlock_detected
        {"40003", true, false},  // statement_completion_unknown
        {"42501", true, false},  // insufficient_privilege
        {"42P01", true, false},  // undefined_table
        {"53100", true, false},  // disk_full
        {"53200", true, false},  // out_of_memory
        {"53300", true, false},  // too_many_connections
        {"54000", false, false}, // program_limit_exceeded: a row that is too large
        {"55P03", true, false},  // lock_not_available
        {"57014", true, false},  // query_canceled
        {"57P01", true, false},  // admin_shutdown
        {"58030", true, false},  // io_error
        {"P0001", false, false}, // raise_exception
        {"XX000", true, false},  // internal_error
        {"XX001", true, false},  // data_corrupted
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct error error = with_sqlstate(cases[i].sqlstate);
        ck_assert_msg(db_error_is_system(&error) == cases[i].system, "%s", cases[i].sqlstate);
        ck_assert_msg(db_error_is_transient_conflict(&error) == cases[i].transient, "%s", cases[i].sqlstate);
    }
}
END_TEST

START_TEST(result_without_sqlstate_is_a_lost_connection) {
    PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_FATAL_ERROR);
    struct error error;
    db_error_from_result(result, &error);
    PQclear(result);
    ck_assert_int_eq(error.code, ERROR_CONNECT);
    ck_assert_str_eq(error.sqlstate, "");
    ck_assert_str_eq(error.text, "the connection was lost");
    db_error_from_result(NULL, &error); // libpq had no memory
    ck_assert_int_eq(error.code, ERROR_CONNECT);
}
END_TEST

static PGresult *version_row(const char *version, const char *compatible_from) {
    PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    PGresAttDesc columns[] = {{.name = (char *)"max"}, {.name = (char *)"compatible_from"}};
    const char *const values[] = {version, compatible_from};
    PQsetResultAttrs(result, 2, columns);
    for (int i = 0; i < 2; i++)
        PQsetvalue(result, 0, i, (char *)values[i], values[i] ? (int)strlen(values[i]) : -1);
    return result;
}

static bool check(const char *version, const char *compatible_from, struct error *ret_error) {
    PGresult *result = version_row(version, compatible_from);
    bool good = schema_version_check(result, NULL, ret_error);
    PQclear(result);
    return good;
}

START_TEST(schema_is_refused_only_when_it_needs_a_newer_program) {
    char own[12], next[12];
    snprintf(own, sizeof(own), "%d", SCHEMA_VERSION);
    snprintf(next, sizeof(next), "%d", SCHEMA_VERSION + 1);
    struct error error = {0};
    ck_assert(check(own, own, &error));
    ck_assert(check(own, "1", &error));
    ck_assert(check("9999", own, &error)); // a rolling deploy: the schema has been expanded, not contracted
    ck_assert(check("1", NULL, &error));
    ck_assert(!check("9999", next, &error));
    ck_assert_int_eq(error.code, ERROR_SCHEMA);
    ck_assert_ptr_nonnull(strstr(error.text, "upgrade rowbell"));
    ck_assert(!check(NULL, NULL, &error)); // the schema is there, no migration is
    ck_assert_ptr_nonnull(strstr(error.text, "rowbell migrate"));
}
END_TEST

START_TEST(schema_that_cannot_be_read_names_the_remedy) {
    static const struct {
        const char *sqlstate;
        enum error_code code;
        const char *text;
    } cases[] = {
        {"42P01", ERROR_SCHEMA, "run `rowbell migrate` first"}, {"3F000", ERROR_SCHEMA, "run `rowbell migrate` first"},
        {"42703", ERROR_SCHEMA, "run `rowbell migrate` first"}, {"42501", ERROR_SCHEMA, "grant"},
        {"57014", ERROR_SQL, "read the version of the schema"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct error sql_error = with_sqlstate(cases[i].sqlstate);
        struct error error;
        ck_assert(!schema_version_check(NULL, &sql_error, &error));
        ck_assert_int_eq(error.code, cases[i].code);
        ck_assert_msg(strstr(error.text, cases[i].text), "%s", error.text);
    }
}
END_TEST

void db_error_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "db_error", 10);
    tcase_add_test(tcase, faults_of_the_system_are_told_from_faults_of_the_row);
    tcase_add_test(tcase, result_without_sqlstate_is_a_lost_connection);
    TCase *schema = suite_case(suite, "schema_version", 10);
    tcase_add_test(schema, schema_is_refused_only_when_it_needs_a_newer_program);
    tcase_add_test(schema, schema_that_cannot_be_read_names_the_remedy);
}
