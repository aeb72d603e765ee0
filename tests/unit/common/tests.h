// The unit tests of common/: each file adds its cases to the one suite of main.c.
#pragma once
#include <check.h>

void error_tests(Suite *suite);
void buffer_tests(Suite *suite);
void backoff_tests(Suite *suite);
void config_tests(Suite *suite);
void metrics_tests(Suite *suite);
void egress_tests(Suite *suite);
void process_tests(Suite *suite);
void stream_message_tests(Suite *suite);
void db_error_tests(Suite *suite);
void db_url_tests(Suite *suite);
void database_clock_tests(Suite *suite);
void seal_tests(Suite *suite);
void http_target_tests(Suite *suite);
void name_cache_tests(Suite *suite);
