// The fixture itself: what the other tests take for granted.
#include "tests/support/fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

START_TEST(databases_are_clones_of_their_own) {
    PGconn *first = fixture_connect();
    const char *id = sql_text(first, "select id from rowbell.installation");
    sql_run(first, "create table only_here (id int)");
    fixture_database();
    PGconn *second = fixture_connect();
    ck_assert_str_ne(id, sql_text(second, "select id from rowbell.installation"));
    ck_assert_str_eq(sql_error(second, "select 1 from only_here"), "42P01");
    ck_assert_int_eq(sql_int(second, "select count(*) from rowbell.stream_log"), 1);
    ck_assert_str_eq(sql_text(second, "select null"), "");
    sql_wait(second, HANG_MS, "select true");
}
END_TEST

START_TEST(empty_database_is_not_migrated) {
    fixture_empty_database();
    ck_assert_str_eq(sql_text(fixture_connect(), "select to_regnamespace('rowbell')"), "");
}
END_TEST

START_TEST(receiver_answers_and_records) {
    struct receiver *receiver = receiver_start();
    char url[100];
    snprintf(url, sizeof(url), "%s/hook?x=1", receiver_url(receiver));
    const char *body;
    ck_assert_int_eq(http_get(url, &body), 200);
    ck_assert_str_eq(body, "ok");
    receiver_answer(receiver, 503, "Retry-After: 7\r\n", 20);
    ck_assert_int_eq(http_get(url, NULL), 503);
    receiver_wait(receiver, 2, HANG_MS);
    struct received request = receiver_get(receiver, 1);
    ck_assert_str_eq(request.path, "/hook?x=1");
    ck_assert_ptr_nonnull(strstr(receiver_url(receiver), received_header(&request, "host")));
    ck_assert_ptr_null(received_header(&request, "content-type"));
    ck_assert_int_eq(receiver_max_in_flight(receiver), 1);
}
END_TEST

START_TEST(receiver_holds_what_it_is_told_to) {
    struct receiver *receiver = receiver_start();
    int port = atoi(strrchr(receiver_url(receiver), ':') + 1);
    receiver_hold(receiver, "/slow");
    struct sse_client *slow = sse_open(port, "/slow", "");
    receiver_wait(receiver, 1, HANG_MS);
    sse_wait(sse_open(port, "/quick", ""), "ok", HANG_MS);
    ck_assert_str_eq(sse_bytes(slow), "");
    ck_assert_int_eq(receiver_max_in_flight(receiver), 2);
    receiver_release(receiver);
    sse_wait(slow, "ok", HANG_MS);
    sse_wait(sse_open(port, "/slow", ""), "ok", HANG_MS);
}
END_TEST

START_TEST(sse_client_keeps_the_bytes) {
    struct receiver *receiver = receiver_start();
    receiver_answer(receiver, 200, "Content-Type: text/event-stream\r\nConnection: close\r\n", 0);
    struct sse_client *client = sse_open(atoi(strrchr(receiver_url(receiver), ':') + 1), "/events", "X-Test: 1\r\n");
    const char *bytes = sse_wait(client, "\r\n\r\nok", HANG_MS);
    ck_assert_int_eq(strncmp(bytes, "HTTP/1.1 200", 12), 0);
    struct received request = receiver_get(receiver, 0);
    ck_assert_str_eq(received_header(&request, "x-test"), "1");
    ck_assert(!sse_closed(client));
    sse_close(client);
    ck_assert(sse_closed(client));
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *database = suite_case(suite, "database", 20);
    tcase_add_test(database, databases_are_clones_of_their_own);
    tcase_add_test(database, empty_database_is_not_migrated);
    TCase *network = suite_case(suite, "network", 20);
    tcase_add_test(network, receiver_answers_and_records);
    tcase_add_test(network, receiver_holds_what_it_is_told_to);
    tcase_add_test(network, sse_client_keeps_the_bytes);
}

int main(void) {
    return suite_main("fixture", add_tests);
}
