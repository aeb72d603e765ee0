// The test cases of the dispatcher's pure parts.
#pragma once
#include "tests/support/fixture.h"

void add_retry_schedule_tests(Suite *suite);
void add_shard_tests(Suite *suite);
void add_lanes_tests(Suite *suite);
void add_pace_tests(Suite *suite);
void add_fair_share_tests(Suite *suite);
void add_endpoint_tests(Suite *suite);
void add_job_tests(Suite *suite);
void add_dispatcher_tests(Suite *suite);
