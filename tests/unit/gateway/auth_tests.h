// The unit tests of who may see what: each file adds its cases to the one suite of auth_main.c.
#pragma once
#include <check.h>

void json_read_tests(Suite *suite);
void jwt_tests(Suite *suite);
void scope_index_tests(Suite *suite);
