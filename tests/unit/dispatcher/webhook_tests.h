// The unit tests of the webhook sink: each file adds its cases to the one suite of webhook_main.c.
#pragma once
#include <check.h>

void outcome_tests(Suite *suite);
void webhook_signature_tests(Suite *suite);
