// Batches, their parameters and answers; statements that are prepared once.
#include "common/db_error.h"
#include "tests/integration/db_conn/world.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct db_statement insert_row = {"test_insert", "insert into public.numbers values ($1::int)"};
static const struct db_statement count_rows = {"test_count", "select count(*) from public.numbers"};

START_TEST(batch_commits_together) {
    PGconn *pg = open_database();
    sql_run(pg, "create table public.numbers (n int primary key)");
    struct probe probe = {0};
    probe_up(&probe, database_url);
    struct db_batch *batch = db_batch_begin(probe.conn);
    db_batch_add(batch, &insert_row, 1, (const char *const[]){"1"});
    db_batch_add(batch, &insert_row, 1, (const char *const[]){"2"});
    db_batch_add(batch, &count_rows, 0, NULL);
    db_batch_send(batch, HANG_MS, on_answer, &probe);
    turn_until(&probe.answers, 1, HANG_MS, "batch");
    ck_assert_msg(probe.last.good, "%s", probe.last.error.text);
    ck_assert_int_eq(probe.last.results, 3);
    ck_assert_str_eq(probe.last.text, "2"); // a statement sees what those before it did
    ck_assert_int_eq(sql_int(pg, "select count(*) from public.numbers"), 2);
    ck_assert_int_eq(sql_int(pg, "select count(distinct xmin::text) from public.numbers"), 1); // one transaction
    probe_close(&probe);
}
END_TEST

START_TEST(batch_with_an_error_leaves_nothing_and_does_not_touch_its_neighbours) {
    PGconn *pg = open_database();
    sql_run(pg, "create table public.numbers (n int primary key)");
    struct probe probe = {0};
    probe_up(&probe, database_url);
    ask(&probe, &insert_row, "1");
    struct db_batch *batch = db_batch_begin(probe.conn);
    db_batch_add(batch, &insert_row, 1, (const char *const[]){"2"});
    db_batch_add(batch, &insert_row, 1, (const char *const[]){"1"}); // there already
    db_batch_add(batch, &count_rows, 0, NULL);
    db_batch_send(batch, HANG_MS, on_answer, &probe);
    ask(&probe, &insert_row, "3");
    turn_until(&probe.answers, 3, HANG_MS, "answers");
    ck_assert(probe.each[0].good);
    ck_assert(!probe.each[1].good);
    ck_assert_int_eq(probe.each[1].error.code, ERROR_SQL);
    ck_assert_str_eq(probe.each[1].error.sqlstate, "23505");
    ck_assert(probe.each[2].good);
    ck_assert_str_eq(sql_text(pg, "select string_agg(n::text, ',' order by n) from public.numbers"), "1,3");
    ck_assert_int_eq(probe.downs, 0);
    probe_close(&probe);
}
END_TEST

static void count_in_order(struct probe *probe) {
    ck_assert_int_eq(atoi(probe->last.text), probe->answers);
}

START_TEST(many_batches_in_flight_are_answered_in_order) {
    struct probe probe = {.on_answer = count_in_order};
    probe_up(&probe, fixture_database());
    for (int i = 0; i < 5000; i++) {
        char value[12];
        snprintf(value, sizeof(value), "%d", i);
        ask(&probe, &add_one, value);
    }
    turn_until(&probe.answers, 5000, HANG_MS, "answers");
    probe_close(&probe);
}
END_TEST

START_TEST(parameters_null_empty_and_large) {
    struct probe probe = {0};
    probe_up(&probe, fixture_database());
    db_query(probe.conn, &length_of, 1, (const char *const[]){NULL}, HANG_MS, on_answer, &probe);
    ask(&probe, &length_of, "");
    size_t length = 8 << 20; // does not fit any socket buffer
    char *large = malloc(length + 1);
    memset(large, 'x', length);
    large[length] = '\0';
    ask(&probe, &length_of, large);
    free(large); // copied
    turn_until(&probe.answers, 3, HANG_MS, "answers");
    ck_assert_str_eq(probe.each[0].text, "-1");
    ck_assert_str_eq(probe.each[1].text, "0");
    ck_assert_str_eq(probe.each[2].text, "8388608");
    probe_close(&probe);
}
END_TEST

START_TEST(empty_batch_is_answered) {
    struct probe probe = {0};
    probe_up(&probe, fixture_database());
    db_batch_send(db_batch_begin(probe.conn), HANG_MS, on_answer, &probe);
    turn_until(&probe.answers, 1, HANG_MS, "answer");
    ck_assert(probe.last.good);
    ck_assert_int_eq(probe.last.results, 0);
    probe_close(&probe);
}
END_TEST

// ---- prepared statements

static const struct db_statement prepared_names = {
    "test_names", "select string_agg(name, ',' order by name) from pg_prepared_statements where name like 'test%'"};

START_TEST(statements_are_prepared_once_and_again_after_a_reconnect) {
    struct probe probe = {0};
    probe_up(&probe, fixture_database());
    ask_text(&probe, &add_one, "1");
    ask_text(&probe, &add_one, "2");
    ck_assert_str_eq(ask_text(&probe, &prepared_names, NULL), "test_add_one,test_names");
    db_conn_reset(probe.conn, "test");
    turn_until(&probe.ups, 2, HANG_MS, "on_up");
    ck_assert_str_eq(ask_text(&probe, &prepared_names, NULL), "test_names");
    ck_assert_str_eq(ask_text(&probe, &add_one, "41"), "42");
    probe_close(&probe);
}
END_TEST

START_TEST(failed_prepare_is_told_to_all_in_flight_and_tried_again) {
    PGconn *pg = open_database();
    struct probe probe = {0};
    probe_up(&probe, database_url);
    ask(&probe, &add_one, "1");
    ask(&probe, &count_rows, NULL); // no such table
    ask(&probe, &count_rows, NULL); // counts on the prepare ahead of it
    ask(&probe, &add_one, "2");
    turn_until(&probe.answers, 4, HANG_MS, "answers");
    ck_assert_str_eq(probe.each[0].text, "2");
    ck_assert_str_eq(probe.each[1].error.sqlstate, "42P01");
    ck_assert_str_eq(probe.each[2].error.sqlstate, "42P01");
    ck_assert_str_eq(probe.each[3].text, "3");
    sql_run(pg, "create table public.numbers (n int)");
    ck_assert_str_eq(ask_text(&probe, &count_rows, NULL), "0");
    probe_close(&probe);
}
END_TEST

START_TEST(changed_result_type_fails_once_without_blaming_the_row) {
    static const struct db_statement read_all = {"test_read_all", "select * from public.numbers"};
    PGconn *pg = open_database();
    sql_run(pg, "create table public.numbers (n int); insert into public.numbers values (7)");
    struct probe probe = {0};
    probe_up(&probe, database_url);
    ck_assert_str_eq(ask_text(&probe, &read_all, NULL), "7");
    sql_run(pg, "alter table public.numbers alter n type text");
    ask(&probe, &read_all, NULL);
    ask(&probe, &read_all, NULL);
    turn_until(&probe.answers, 3, HANG_MS, "answers");
    for (int i = 1; i < 3; i++) {
        ck_assert(!probe.each[i].good);
        ck_assert(db_error_is_system(&probe.each[i].error));
    }
    ck_assert_str_eq(ask_text(&probe, &read_all, NULL), "7");
    ck_assert_str_eq(ask_text(&probe, &add_one, "1"), "2");
    ck_assert_int_eq(probe.downs, 0);
    probe_close(&probe);
}
END_TEST

START_TEST(prepared_statements_dropped_by_somebody_else_come_back) {
    static const struct db_statement discard = {NULL, "deallocate all"};
    struct probe probe = {0};
    probe_up(&probe, fixture_database());
    ask_text(&probe, &add_one, "1");
    ask_text(&probe, &discard, NULL);
    ask(&probe, &add_one, "1");
    turn_until(&probe.answers, 3, HANG_MS, "answer");
    ck_assert(!probe.last.good);
    ck_assert(db_error_is_system(&probe.last.error));
    ck_assert_str_eq(ask_text(&probe, &add_one, "1"), "2");
    probe_close(&probe);
}
END_TEST

void batches_tests(Suite *suite) {
    TCase *batches = loop_case(suite, "batches", 40);
    tcase_add_test(batches, batch_commits_together);
    tcase_add_test(batches, batch_with_an_error_leaves_nothing_and_does_not_touch_its_neighbours);
    tcase_add_test(batches, many_batches_in_flight_are_answered_in_order);
    tcase_add_test(batches, parameters_null_empty_and_large);
    tcase_add_test(batches, empty_batch_is_answered);
    TCase *prepared = loop_case(suite, "prepared", 20);
    tcase_add_test(prepared, statements_are_prepared_once_and_again_after_a_reconnect);
    tcase_add_test(prepared, failed_prepare_is_told_to_all_in_flight_and_tried_again);
    tcase_add_test(prepared, changed_result_type_fails_once_without_blaming_the_row);
    tcase_add_test(prepared, prepared_statements_dropped_by_somebody_else_come_back);
}
