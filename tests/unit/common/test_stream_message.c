// stream_message: what goes over Redis comes back, and damage is never mistaken for entries.
#include "common/stream_message.h"
#include "tests/support/fixture.h"
#include "tests/unit/common/tests.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct seen {
    int count;
    struct stream_entry entries[STREAM_MESSAGE_MAX_ENTRIES];
};

static void see(void *arg, const struct stream_entry *entry) {
    struct seen *seen = arg;
    ck_assert_int_lt(seen->count, STREAM_MESSAGE_MAX_ENTRIES);
    seen->entries[seen->count++] = *entry;
}

static void assert_text(const char *actual, const char *expected) {
    if (expected == NULL)
        ck_assert_ptr_null(actual);
    else
        ck_assert_str_eq(actual, expected);
}

static const struct stream_entry awkward[] = {
    {0, 0, NULL, "posts", "p1", "update"},
    {0, 0, "", "posts", NULL, "delete"},
    {0, 0, "tenant\t1\n", "po\\sts", "\\N", "create"},
    {0, 0, "\r\r", "a", "", "create"},
    {0, 0, "*", "\xC3\xA9\x01\xFF", "a%2Fb/c", "update"},
};
enum { AWKWARD = sizeof awkward / sizeof awkward[0] };

static void write_awkward(struct buffer *buffer) {
    stream_message_begin(buffer, 41, 100, AWKWARD);
    for (int i = 0; i < AWKWARD; i++)
        stream_message_entry(buffer, &awkward[i]);
}

START_TEST(stream_message_has_these_bytes) {
    struct buffer buffer = {0};
    write_awkward(&buffer);
    write_awkward(&buffer); // begin empties it
    ck_assert_str_eq(buffer.bytes, "rowbell-stream 1 41 100 5\n"
                                   "\\N\tposts\tp1\tupdate\n"
                                   "\tposts\t\\N\tdelete\n"
                                   "tenant\\t1\\n\tpo\\\\sts\t\\\\N\tcreate\n"
                                   "\\r\\r\ta\t\tcreate\n"
                                   "*\t\xC3\xA9\x01\xFF\ta%2Fb/c\tupdate\n");
    buffer_free(&buffer);
}
END_TEST

START_TEST(stream_message_comes_back) {
    struct buffer buffer = {0};
    write_awkward(&buffer);
    struct seen seen = {0};
    ck_assert(stream_message_read(buffer.bytes, buffer.length, see, &seen));
    ck_assert_int_eq(seen.count, AWKWARD);
    for (int i = 0; i < AWKWARD; i++) {
        const struct stream_entry *entry = &seen.entries[i];
        ck_assert_int_eq(entry->position, 100 + i);
        ck_assert_int_eq(entry->prev, i == 0 ? 41 : 99 + i);
        assert_text(entry->scope, awkward[i].scope);
        assert_text(entry->name, awkward[i].name);
        assert_text(entry->key, awkward[i].key);
        assert_text(entry->op, awkward[i].op);
    }
    buffer_free(&buffer);
}
END_TEST

START_TEST(stream_message_of_the_most_entries) {
    struct buffer buffer = {0};
    int64_t first = INT64_MAX - STREAM_MESSAGE_MAX_ENTRIES;
    stream_message_begin(&buffer, 0, first, STREAM_MESSAGE_MAX_ENTRIES);
    for (int i = 0; i < STREAM_MESSAGE_MAX_ENTRIES; i++)
        stream_message_entry(&buffer, &awkward[0]);
    struct seen seen = {0};
    ck_assert(stream_message_read(buffer.bytes, buffer.length, see, &seen));
    ck_assert_int_eq(seen.count, STREAM_MESSAGE_MAX_ENTRIES);
    ck_assert_int_eq(seen.entries[seen.count - 1].position, INT64_MAX - 1);
    buffer_free(&buffer);
}
END_TEST

// In a block of just its size, so that a sanitizer sees one byte too far.
static bool read_copy(const char *bytes, size_t length) {
    char *copy = malloc(length > 0 ? length : 1);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, bytes, length);
    struct seen seen = {0};
    bool ok = stream_message_read(copy, length, see, &seen);
    free(copy);
    return ok;
}

START_TEST(stream_message_cut_anywhere_is_damaged) {
    struct buffer buffer = {0};
    write_awkward(&buffer);
    ck_assert(read_copy(buffer.bytes, buffer.length));
    for (size_t length = 0; length < buffer.length; length++)
        ck_assert_msg(!read_copy(buffer.bytes, length), "cut at %zu", length);
    buffer_char(&buffer, '\n');
    ck_assert(!read_copy(buffer.bytes, buffer.length));
    buffer_free(&buffer);
}
END_TEST

#define LINE "\\N\ta\t1\tupdate\n"
#define ROW(text)                                                                                                      \
    { text, sizeof(text) - 1 }
static const struct {
    const char *bytes;
    size_t length;
} damaged[] = {
    ROW("rowbell-stream 2 1 2 1\n" LINE), // a later version
    ROW("rowbell-stream 11 1 2 1\n" LINE),
    ROW("Rowbell-stream 1 1 2 1\n" LINE),
    ROW("rowbell-stream 1 1 2 0\n"),        // nothing in it
    ROW("rowbell-stream 1 1 2 201\n" LINE), // too many
    ROW("rowbell-stream 1 2 2 1\n" LINE),   // not above its predecessor
    ROW("rowbell-stream 1 -1 2 1\n" LINE),
    ROW("rowbell-stream 1 1 +2 1\n" LINE),
    ROW("rowbell-stream 1  2 1\n" LINE),
    ROW("rowbell-stream 1 1 2 1 \n" LINE),
    ROW("rowbell-stream 1 1 9223372036854775808 1\n" LINE), // no int64
    ROW("rowbell-stream 1 1 9223372036854775807 1\n" LINE), // no room behind it
    ROW("rowbell-stream 1 1 2 1\n" LINE LINE),              // more lines than said
    ROW("rowbell-stream 1 1 2 2\n" LINE),                   // fewer
    ROW("rowbell-stream 1 1 2 1\n\\N\ta\t1\n"),             // a field is missing
    ROW("rowbell-stream 1 1 2 1\n\\N\ta\t1\tupdate\tx\n"),  // one too many
    ROW("rowbell-stream 1 1 2 1\n\\N\t\\N\t1\tupdate\n"),   // name and op are never NULL
    ROW("rowbell-stream 1 1 2 1\n\\N\ta\t1\t\\N\n"),
    ROW("rowbell-stream 1 1 2 1\n\\N\ta\t1\tdrop\n"),        // no such op
    ROW("rowbell-stream 1 1 2 1\n\\Nxa\t1\tupdate\n"),       // \N is a whole field or nothing
    ROW("rowbell-stream 1 1 2 1\n\\N\ta\t\\x31\tupdate\n"),  // an escape that we never write
    ROW("rowbell-stream 1 1 2 1\n\\N\ta\t1\0002\tupdate\n"), // a NUL would cut the key
};

START_TEST(stream_message_damaged_is_refused) {
    ck_assert(!read_copy(damaged[_i].bytes, damaged[_i].length));
}
END_TEST

START_TEST(stream_message_with_any_byte_changed_is_read_safely) {
    struct buffer buffer = {0};
    write_awkward(&buffer);
    for (size_t at = 0; at < buffer.length; at++) {
        char before = buffer.bytes[at];
        for (int byte = 0; byte < 256; byte++) {
            buffer.bytes[at] = (char)byte;
            read_copy(buffer.bytes, buffer.length);
        }
        buffer.bytes[at] = before;
    }
    buffer_free(&buffer);
}
END_TEST

START_TEST(stream_message_above_the_most_is_a_bug) {
    struct buffer buffer = {0};
    stream_message_begin(&buffer, 1, 2, STREAM_MESSAGE_MAX_ENTRIES + 1);
}
END_TEST

START_TEST(stream_channel_names_installation_and_stream) {
    char channel[100];
    stream_channel(channel, sizeof channel, "0123abcd", 1);
    ck_assert_str_eq(channel, "rowbell:0123abcd:stream:1");
}
END_TEST

void stream_message_tests(Suite *suite) {
    TCase *message = suite_case(suite, "stream_message", 10);
    tcase_add_test(message, stream_message_has_these_bytes);
    tcase_add_test(message, stream_message_comes_back);
    tcase_add_test(message, stream_message_of_the_most_entries);
    tcase_add_test(message, stream_message_cut_anywhere_is_damaged);
    tcase_add_loop_test(message, stream_message_damaged_is_refused, 0, (int)(sizeof damaged / sizeof damaged[0]));
    tcase_add_test(message, stream_message_with_any_byte_changed_is_read_safely);
    tcase_add_test_raise_signal(message, stream_message_above_the_most_is_a_bug, SIGABRT);
    tcase_add_test(message, stream_channel_names_installation_and_stream);
}
