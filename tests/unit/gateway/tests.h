// The unit tests of gateway/: each file adds its cases to the one suite of main.c.
#pragma once
#include <check.h>

void admission_tests(Suite *suite);
void frame_tests(Suite *suite);
void http_tests(Suite *suite);
void parameter_name_tests(Suite *suite);
void resume_tests(Suite *suite);
void ring_tests(Suite *suite);
void stream_tests(Suite *suite);
