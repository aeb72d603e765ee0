// buffer: the invariant of its header, and JSON strings from any bytes.
#include "common/buffer.h"
#include "tests/support/fixture.h"
#include "tests/unit/common/tests.h"
#include <signal.h>
#include <string.h>

START_TEST(buffer_is_always_a_c_string) {
    struct buffer buffer = {0};
    ck_assert_str_eq(buffer_cstr(&buffer), "");
    ck_assert_ptr_null(buffer.bytes);
    buffer_append(&buffer, NULL, 0);
    ck_assert_str_eq(buffer.bytes, "");
    for (size_t i = 1; i <= 1000; i++) {
        buffer_char(&buffer, 'x');
        ck_assert_uint_eq(buffer.length, i);
        ck_assert_uint_eq(strlen(buffer.bytes), i);
        ck_assert_uint_gt(buffer.capacity, buffer.length);
    }
    buffer_free(&buffer);
    ck_assert_ptr_null(buffer.bytes);
    buffer_text(&buffer, "again");
    ck_assert_str_eq(buffer.bytes, "again");
    buffer_free(&buffer);
}
END_TEST

START_TEST(buffer_keeps_every_byte) {
    struct buffer buffer = {0};
    char bytes[300];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)i;
    buffer_append(&buffer, bytes, sizeof bytes);
    buffer_append(&buffer, bytes, sizeof bytes);
    ck_assert_uint_eq(buffer.length, 2 * sizeof bytes);
    ck_assert_mem_eq(buffer.bytes + sizeof bytes, bytes, sizeof bytes);
    buffer_free(&buffer);
}
END_TEST

START_TEST(buffer_int_writes_any_number) {
    struct buffer buffer = {0};
    static const int64_t numbers[] = {0, 7, -1, 1000000, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        buffer_int(&buffer, numbers[i]);
        buffer_char(&buffer, ' ');
    }
    ck_assert_str_eq(buffer.bytes, "0 7 -1 1000000 9223372036854775807 -9223372036854775808 ");
    buffer_free(&buffer);
}
END_TEST

START_TEST(buffer_format_longer_than_its_room) {
    struct buffer buffer = {0};
    buffer_text(&buffer, "<");
    buffer_format(&buffer, "%0*d", 5000, 7);
    buffer_format(&buffer, "%s", "");
    ck_assert_uint_eq(buffer.length, 5001);
    ck_assert_str_eq(buffer.bytes + 4999, "07");
    buffer_free(&buffer);
}
END_TEST

START_TEST(buffer_consume_drops_the_first_bytes) {
    struct buffer buffer = {0};
    buffer_consume(&buffer, 0);
    buffer_text(&buffer, "one two");
    buffer_consume(&buffer, 4);
    ck_assert_str_eq(buffer.bytes, "two");
    buffer_consume(&buffer, 3);
    ck_assert_str_eq(buffer.bytes, "");
    buffer_text(&buffer, "three");
    size_t capacity = buffer.capacity;
    buffer_clear(&buffer);
    ck_assert_str_eq(buffer.bytes, "");
    ck_assert_uint_eq(buffer.length, 0);
    ck_assert_uint_eq(buffer.capacity, capacity);
    buffer_free(&buffer);
}
END_TEST

START_TEST(buffer_consume_more_than_there_is_is_a_bug) {
    struct buffer buffer = {0};
    buffer_text(&buffer, "two");
    buffer_consume(&buffer, 4);
}
END_TEST

#define BAD "\xEF\xBF\xBD"
// Written with explicit lengths, since NUL is one of the bytes.
#define ROW(in, out)                                                                                                   \
    { in, sizeof(in) - 1, out }
static const struct {
    const char *in;
    size_t length;
    const char *out;
} json_rows[] = {
    ROW("", "\"\""),
    ROW("plain / text", "\"plain / text\""),
    ROW("\"\\\b\f\n\r\t", "\"\\\"\\\\\\b\\f\\n\\r\\t\""),
    ROW("\x00\x01\x1f\x7f", "\"\\u0000\\u0001\\u001f\x7f\""),
    // The first and the last character of each row of RFC 3629.
    ROW("\xC2\x80\xDF\xBF", "\"\xC2\x80\xDF\xBF\""),
    ROW("\xE0\xA0\x80\xED\x9F\xBF", "\"\xE0\xA0\x80\xED\x9F\xBF\""),
    ROW("\xEE\x80\x80\xEF\xBF\xBF", "\"\xEE\x80\x80\xEF\xBF\xBF\""),
    ROW("\xF0\x90\x80\x80\xF4\x8F\xBF\xBF", "\"\xF0\x90\x80\x80\xF4\x8F\xBF\xBF\""),
    // And what lies just outside: overlong, surrogates, beyond U+10FFFF, never a first byte.
    ROW("\xC0\x80", "\"" BAD BAD "\""),
    ROW("\xC1\xBF", "\"" BAD BAD "\""),
    ROW("\xE0\x9F\xBF", "\"" BAD BAD BAD "\""),
    ROW("\xED\xA0\x80", "\"" BAD BAD BAD "\""),
    ROW("\xF0\x8F\xBF\xBF", "\"" BAD BAD BAD BAD "\""),
    ROW("\xF4\x90\x80\x80", "\"" BAD BAD BAD BAD "\""),
    ROW("\xF5\xFF\xFE", "\"" BAD BAD BAD "\""),
    // Cut short by the end, by another character, by a quote.
    ROW("\xE2\x82", "\"" BAD "\""),
    ROW("\xF0\x9F\x98", "\"" BAD "\""),
    ROW("\xC3\"", "\"" BAD "\\\"\""),
    ROW("\x80\xBF", "\"" BAD BAD "\""),
    // Unicode 15, table 3-8.
    ROW("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64", "\"a" BAD BAD BAD "b" BAD "c" BAD BAD "d\""),
};

START_TEST(buffer_json_string_is_valid_utf8_and_json) {
    struct buffer buffer = {0};
    buffer_json_string(&buffer, json_rows[_i].in, json_rows[_i].length);
    ck_assert_str_eq(buffer.bytes, json_rows[_i].out);
    buffer_free(&buffer);
}
END_TEST

void buffer_tests(Suite *suite) {
    TCase *buffer = suite_case(suite, "buffer", 10);
    tcase_add_test(buffer, buffer_is_always_a_c_string);
    tcase_add_test(buffer, buffer_keeps_every_byte);
    tcase_add_test(buffer, buffer_int_writes_any_number);
    tcase_add_test(buffer, buffer_format_longer_than_its_room);
    tcase_add_test(buffer, buffer_consume_drops_the_first_bytes);
    tcase_add_test_raise_signal(buffer, buffer_consume_more_than_there_is_is_a_bug, SIGABRT);
    tcase_add_loop_test(buffer, buffer_json_string_is_valid_utf8_and_json, 0,
                        (int)(sizeof json_rows / sizeof json_rows[0]));
}
