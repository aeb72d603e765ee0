// The bytes of the wire, to the byte: clients of years depend on them.
#include "gateway/frame.h"
#include "tests/support/fixture.h"
#include "tests/unit/gateway/tests.h"
#include <string.h>

static void check_bytes(const struct frame *frame, const char *expected) {
    ck_assert_uint_eq(frame->length, strlen(expected));
    ck_assert(memcmp(frame->bytes, expected, frame->length) == 0);
}

START_TEST(change_is_id_and_address) {
    struct frame *frame = frame_new(&(struct stream_entry){
        .position = 1764446400000123, .prev = 7, .scope = "tenant-a", .name = "posts", .key = "p1", .op = "update"});
    check_bytes(frame, "event: change\nid: 1764446400000123\n"
                       "data: {\"table\":\"posts\",\"key\":\"p1\",\"op\":\"update\"}\n\n");
    ck_assert_str_eq(frame->table, "posts");
    ck_assert_str_eq(frame->scope, "tenant-a");
    ck_assert_int_eq(frame->prev, 7);
    frame_free(frame);
}
END_TEST

START_TEST(keyless_change_has_an_empty_key_and_no_scope) {
    struct frame *frame = frame_new(&(struct stream_entry){.position = 1, .name = "posts", .op = "delete"});
    check_bytes(frame, "event: change\nid: 1\ndata: {\"table\":\"posts\",\"key\":\"\",\"op\":\"delete\"}\n\n");
    ck_assert_ptr_null(frame->scope);
    frame_free(frame);
}
END_TEST

START_TEST(nothing_in_a_key_ends_a_line) {
    struct frame *frame = frame_new(&(struct stream_entry){
        .position = 2, .name = "a\rb", .key = "x\n\ndata: {\"table\":\"forged\"}\"\\\xff", .op = "create"});
    size_t line_ends = 0;
    for (size_t i = 0; i < frame->length; i++) {
        ck_assert_int_ne(frame->bytes[i], '\r');
        line_ends += frame->bytes[i] == '\n';
    }
    ck_assert_uint_eq(line_ends, 4);
    frame_free(frame);
}
END_TEST

static void check_appended(struct buffer *buffer, const char *expected) {
    ck_assert_str_eq(buffer_cstr(buffer), expected);
    buffer_free(buffer);
}

START_TEST(opening_position_reset_and_heartbeats) {
    struct buffer buffer = {0};
    frame_append_opening(&buffer, 3000);
    check_appended(&buffer, "retry: 3000\n: rowbell\n\n");
    frame_append_position(&buffer, 41, false);
    check_appended(&buffer, "id: 41\n\n");
    frame_append_position(&buffer, 41, true);
    check_appended(&buffer, "event: ping\nid: 41\ndata: {}\n\n");
    frame_append_reset(&buffer, 42, "history_expired");
    check_appended(&buffer, "event: reset\nid: 42\ndata: {\"reason\":\"history_expired\"}\n\n");
    frame_append_retry(&buffer, 1234);
    check_appended(&buffer, "retry: 1234\n\n");
    ck_assert_str_eq(frame_heartbeat, ":\n\n");
    ck_assert_str_eq(frame_ping, "event: ping\ndata: {}\n\n");
}
END_TEST

void frame_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "frame", 10);
    tcase_add_test(tcase, change_is_id_and_address);
    tcase_add_test(tcase, keyless_change_has_an_empty_key_and_no_scope);
    tcase_add_test(tcase, nothing_in_a_key_ends_a_line);
    tcase_add_test(tcase, opening_position_reset_and_heartbeats);
}
