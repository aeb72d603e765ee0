// What a stream begins with, to the byte, and what it is narrowed to.
#include "tests/e2e/gateway/world.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

START_TEST(fresh_stream_to_the_byte) {
    fresh_database();
    struct gateway gateway = gateway_start(NULL);
    struct sse_client *client = sse_open(gateway.port, "/events", NULL);
    int64_t opened = log_newest();
    wait_position(client, opened);
    char head[1000];
    const char *date = strstr(sse_bytes(client), "Date: ");
    ck_assert_ptr_nonnull(date);
    snprintf(head, sizeof head,
             "HTTP/1.1 200 OK\r\nDate: %.29s\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
             "Cache-Control: no-store, no-transform\r\nX-Accel-Buffering: no\r\nConnection: close\r\n\r\n"
             "retry: 3000\n: rowbell\n\nid: %" PRId64 "\n\n",
             date + 6, opened);
    ck_assert_str_eq(sse_bytes(client), head);

    struct sse_client *pinged = sse_open(gateway.port, "/events?ping=1", NULL);
    check_body(pinged, "retry: 3000\n: rowbell\n\nevent: ping\nid: %" PRId64 "\ndata: {}\n\n", opened);
}
END_TEST

START_TEST(empty_and_zero_are_fresh) {
    static const struct {
        const char *target;
        const char *header;
    } cases[] = {{"/events", "Last-Event-ID:\r\n"},
                 {"/events", "Last-Event-ID: 0\r\n"},
                 {"/events?last_event_id=", NULL},
                 {"/events?lastEventId=0", NULL}};
    fresh_database();
    struct gateway gateway = gateway_start(NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sse_client *client = sse_open(gateway.port, cases[i].target, cases[i].header);
        check_body(client, "retry: 3000\n: rowbell\n\nid: %" PRId64 "\n\n", log_newest());
    }
}
END_TEST

START_TEST(change_arrives_live_to_the_byte) { // G5
    fresh_database();
    struct gateway gateway = gateway_start(NULL);
    struct sse_client *client = sse_open(gateway.port, "/events", NULL);
    int64_t opened = log_newest();
    wait_position(client, opened);
    int64_t position = log_append("posts", "p1", 1);
    check_body(client,
               "retry: 3000\n: rowbell\n\nid: %" PRId64 "\n\nevent: change\nid: %" PRId64
               "\ndata: {\"table\":\"posts\",\"key\":\"p10xxx\",\"op\":\"update\"}\n\n",
               opened, position);
    ck_assert(gateway_metric(&gateway, "rowbell_stream_subscribers") == 1);
    ck_assert(gateway_metric(&gateway, "rowbell_stream_position") == (double)position);
}
END_TEST

START_TEST(table_parameter_filters_live_and_replay) {
    fresh_database();
    struct gateway gateway = gateway_start(WITH("--ring", "2"));
    int64_t start = log_newest();
    struct sse_client *live = sse_open(gateway.port, "/events?table=a&table=c", NULL);
    wait_position(live, start);
    log_append("a", "first", 1);
    int64_t hidden = log_append("b", "hidden", 5);
    int64_t last = log_append("c", "last", 1);
    char target[100];
    snprintf(target, sizeof target, "/events?table=a&table=c&last_event_id=%" PRId64, start);
    struct sse_client *replayed = sse_open(gateway.port, target, NULL); // past the ring: from the log
    struct sse_client *clients[] = {live, replayed};
    for (int i = 0; i < 2; i++) {
        wait_position(clients[i], last);
        ck_assert_int_eq(count_of(sse_bytes(clients[i]), "event: change"), 2);
        char id[40];
        snprintf(id, sizeof id, "%" PRId64, hidden); // an id of what was filtered out is never written
        ck_assert_ptr_null(strstr(sse_bytes(clients[i]), id));
    }
}
END_TEST

void opening_tests(Suite *suite) {
    TCase *opening = suite_case(suite, "opening", 60);
    tcase_add_test(opening, fresh_stream_to_the_byte);
    tcase_add_test(opening, empty_and_zero_are_fresh);
    tcase_add_test(opening, change_arrives_live_to_the_byte);
    tcase_add_test(opening, table_parameter_filters_live_and_replay);
}
