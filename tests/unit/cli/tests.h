// The files of this test program.
#pragma once
#include <check.h>

void add_sse_parser_tests(Suite *suite);
void add_migration_plan_tests(Suite *suite);
void add_arguments_tests(Suite *suite);
void add_docs_tests(Suite *suite);
