// Event streams, whole and in pieces of one byte (HTML standard, 9.2.6).
#include "cli/sse_parser.h"
#include "tests/support/fixture.h"
#include "tests/unit/cli/tests.h"
#include <string.h>

static void record(void *arg, const struct sse_event *event) {
    buffer_format(arg, "[%s|%s|%s]", event->type, event->data, event->id);
}

// What a stream gives: events as [type|data|id], then last id and retry. Fed as a whole and byte by byte.
static void expect(const char *bytes, size_t length, const char *events, const char *last_id, long retry_ms) {
    for (size_t piece = length; piece > 0; piece = piece > 1 ? 1 : 0) {
        struct buffer got = {0};
        struct sse_parser parser;
        sse_parser_init(&parser, record, &got);
        for (size_t at = 0; at < length; at += piece)
            ck_assert(sse_parser_feed(&parser, bytes + at, piece));
        ck_assert_str_eq(buffer_cstr(&got), events);
        ck_assert_str_eq(buffer_cstr(&parser.last_id), last_id);
        ck_assert_int_eq(parser.retry_ms, retry_ms);
        sse_parser_close(&parser);
        buffer_free(&got);
    }
}
#define EXPECT(bytes, events, last_id, retry_ms) expect(bytes, sizeof(bytes) - 1, events, last_id, retry_ms)

START_TEST(test_event) {
    EXPECT("event: change\nid: 7\ndata: {\"a\":1}\n\n", "[change|{\"a\":1}|7]", "7", -1);
}
END_TEST

START_TEST(test_line_ends) {
    EXPECT("data: a\r\rdata: b\r\n\r\ndata: c\n\n", "[message|a|][message|b|][message|c|]", "", -1);
    EXPECT("data: a\r\ndata: b\r\rdata: c\n\r", "[message|a\nb|][message|c|]", "", -1);
}
END_TEST

START_TEST(test_id_only_block_fires_nothing_and_moves_the_id) {
    EXPECT("retry: 3000\n: hello\n\nid: 42\n\n", "", "42", 3000);
}
END_TEST

START_TEST(test_id_takes_effect_at_the_blank_line) {
    EXPECT("id: 1\ndata: a\n\nid: 2\ndata: b\n", "[message|a|1]", "1", -1);
}
END_TEST

START_TEST(test_id_empty_resets_and_nul_is_ignored) {
    EXPECT("id: 1\n\nid\ndata: a\n\n", "[message|a|]", "", -1);
    EXPECT("id: 1\n\nid: 2\0003\ndata: a\n\n", "[message|a|1]", "1", -1);
}
END_TEST

START_TEST(test_fields) {
    EXPECT("data:a\ndata:  b\ndata\nfoo: x\ndat: y\n:data: z\n\n", "[message|a\n b\n|]", "", -1);
    EXPECT("data\n\n", "[message||]", "", -1);
    EXPECT("event: x\n\ndata: a\n\n", "[message|a|]", "", -1);
    EXPECT("retry: 1e3\nretry: -1\nretry:\nretry: 12345678901234567890\n\n", "", "", -1);
}
END_TEST

START_TEST(test_byte_order_mark) {
    EXPECT("\xef\xbb\xbf"
           "data: a\n\n",
           "[message|a|]", "", -1);
    EXPECT("data: a\n\n\xef\xbb\xbf"
           "data: b\n\n",
           "[message|a|]", "", -1);
}
END_TEST

START_TEST(test_reconnect_discards_the_cut_block) {
    struct buffer got = {0};
    struct sse_parser parser;
    sse_parser_init(&parser, record, &got);
    static const char first[] = "id: 5\ndata: a\n\nevent: change\nid: 6\ndata: b";
    ck_assert(sse_parser_feed(&parser, first, sizeof(first) - 1));
    sse_parser_reconnect(&parser);
    ck_assert_str_eq(buffer_cstr(&parser.last_id), "5");
    ck_assert(sse_parser_feed(&parser, "data: c\n\n", 9));
    ck_assert_str_eq(buffer_cstr(&got), "[message|a|5][message|c|5]");
    sse_parser_close(&parser);
    buffer_free(&got);
}
END_TEST

START_TEST(test_endless_event_is_refused) {
    struct sse_parser parser;
    struct buffer got = {0};
    sse_parser_init(&parser, record, &got);
    char block[1024];
    memset(block, 'x', sizeof(block));
    bool ok = true;
    int fed = 0;
    while (ok && fed <= 2 * SSE_EVENT_MAX_BYTES) {
        ok = sse_parser_feed(&parser, "data:", 5) && sse_parser_feed(&parser, block, sizeof(block)) &&
             sse_parser_feed(&parser, "\n", 1);
        fed += (int)sizeof(block);
    }
    ck_assert(!ok);
    ck_assert_int_le(fed, SSE_EVENT_MAX_BYTES + (int)sizeof(block));
    sse_parser_close(&parser);
}
END_TEST

void add_sse_parser_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "sse_parser", 10);
    tcase_add_test(tcase, test_event);
    tcase_add_test(tcase, test_line_ends);
    tcase_add_test(tcase, test_id_only_block_fires_nothing_and_moves_the_id);
    tcase_add_test(tcase, test_id_takes_effect_at_the_blank_line);
    tcase_add_test(tcase, test_id_empty_resets_and_nul_is_ignored);
    tcase_add_test(tcase, test_fields);
    tcase_add_test(tcase, test_byte_order_mark);
    tcase_add_test(tcase, test_reconnect_discards_the_cut_block);
    tcase_add_test(tcase, test_endless_event_is_refused);
}
