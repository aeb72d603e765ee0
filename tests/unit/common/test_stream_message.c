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

#define CHANNEL "rowbell:0123abcd:stream:1"
#define FIRST_LINE "rowbell-stream 2 0000000007 "

static struct stream_keys keys(void) {
    struct stream_keys two = {0};
    stream_keys_add(&two, "7", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
    stream_keys_add(&two, "8", "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
    ck_assert_int_eq(two.count, 2);
    return two;
}

static void sign(struct buffer *buffer) {
    struct stream_keys two = keys();
    ck_assert(stream_message_sign(buffer, &two.keys[0], CHANNEL));
}

static enum stream_message_fault read_on(struct buffer *buffer, const char *channel, struct seen *seen) {
    struct stream_keys two = keys();
    return stream_message_read(buffer->bytes, buffer->length, &two, channel, see, seen);
}

static void write_awkward(struct buffer *buffer) {
    stream_message_begin(buffer, 41, 100, AWKWARD);
    for (int i = 0; i < AWKWARD; i++)
        stream_message_entry(buffer, &awkward[i]);
    sign(buffer);
}

START_TEST(stream_message_has_these_bytes) {
    struct buffer buffer = {0};
    write_awkward(&buffer);
    write_awkward(&buffer); // begin empties it
    // python3: hmac.new(bytes(range(32)), b"rowbell-stream 2\n" + channel + b"\n" + body, "sha256").hexdigest()[:32]
    ck_assert_str_eq(buffer.bytes, FIRST_LINE "84321b4787420ff51ffe89f6b1b0b65d\n41 100 5\n"
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
    ck_assert_int_eq(read_on(&buffer, CHANNEL, &seen), STREAM_MESSAGE_GOOD);
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
    sign(&buffer);
    struct seen seen = {0};
    ck_assert_int_eq(read_on(&buffer, CHANNEL, &seen), STREAM_MESSAGE_GOOD);
    ck_assert_int_eq(seen.count, STREAM_MESSAGE_MAX_ENTRIES);
    ck_assert_int_eq(seen.entries[seen.count - 1].position, INT64_MAX - 1);
    buffer_free(&buffer);
}
END_TEST

// In a block of just its size, so that a sanitizer sees one byte too far.
static enum stream_message_fault read_copy(const char *bytes, size_t length) {
    char *copy = malloc(length > 0 ? length : 1);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, bytes, length);
    struct seen seen = {0};
    struct stream_keys two = keys();
    enum stream_message_fault fault = stream_message_read(copy, length, &two, CHANNEL, see, &seen);
    free(copy);
    ck_assert(fault == STREAM_MESSAGE_GOOD || fault == STREAM_MESSAGE_DAMAGED || seen.count == 0);
    return fault;
}

START_TEST(stream_message_cut_anywhere_is_damaged) {
    struct buffer buffer = {0};
    write_awkward(&buffer);
    ck_assert_int_eq(read_copy(buffer.bytes, buffer.length), STREAM_MESSAGE_GOOD);
    for (size_t length = 0; length < buffer.length; length++) {
        enum stream_message_fault fault = read_copy(buffer.bytes, length);
        ck_assert_msg(fault == (length < 17 ? STREAM_MESSAGE_VERSION : STREAM_MESSAGE_SIGNATURE), "cut at %zu", length);
    }
    buffer_char(&buffer, '\n');
    ck_assert_int_eq(read_copy(buffer.bytes, buffer.length), STREAM_MESSAGE_SIGNATURE);
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
    ROW("1 2 0\n"),        // nothing in it
    ROW("1 2 201\n" LINE), // too many
    ROW("2 2 1\n" LINE),   // not above its predecessor
    ROW("-1 2 1\n" LINE),
    ROW("1 +2 1\n" LINE),
    ROW(" 2 1\n" LINE),
    ROW("1 2 1 \n" LINE),
    ROW("1 9223372036854775808 1\n" LINE), // no int64
    ROW("1 9223372036854775807 1\n" LINE), // no room behind it
    ROW("1 2 1\n" LINE LINE),              // more lines than said
    ROW("1 2 2\n" LINE),                   // fewer
    ROW("1 2 1\n\\N\ta\t1\n"),             // a field is missing
    ROW("1 2 1\n\\N\ta\t1\tupdate\tx\n"),  // one too many
    ROW("1 2 1\n\\N\t\\N\t1\tupdate\n"),   // name and op are never NULL
    ROW("1 2 1\n\\N\ta\t1\t\\N\n"),
    ROW("1 2 1\n\\N\ta\t1\tdrop\n"),        // no such op
    ROW("1 2 1\n\\Nxa\t1\tupdate\n"),       // \N is a whole field or nothing
    ROW("1 2 1\n\\N\ta\t\\x31\tupdate\n"),  // an escape that we never write
    ROW("1 2 1\n\\N\ta\t1\0002\tupdate\n"), // a NUL would cut the key
};

START_TEST(stream_message_damaged_is_refused) {
    struct buffer buffer = {0};
    stream_message_begin(&buffer, 1, 2, 1);
    buffer.length -= sizeof "1 2 1\n" - 1; // what follows is ours
    buffer_append(&buffer, damaged[_i].bytes, damaged[_i].length);
    sign(&buffer);
    ck_assert_int_eq(read_copy(buffer.bytes, buffer.length), STREAM_MESSAGE_DAMAGED);
    buffer_free(&buffer);
}
END_TEST

START_TEST(stream_message_with_any_byte_changed_does_not_verify) {
    struct buffer buffer = {0};
    write_awkward(&buffer);
    for (size_t at = 0; at < buffer.length; at++) {
        char before = buffer.bytes[at];
        for (int byte = 0; byte < 256; byte++) {
            buffer.bytes[at] = (char)byte;
            ck_assert_msg((read_copy(buffer.bytes, buffer.length) == STREAM_MESSAGE_GOOD) ==
                              (buffer.bytes[at] == before),
                          "byte %zu made %d", at, byte);
        }
        buffer.bytes[at] = before;
    }
    buffer_free(&buffer);
}
END_TEST

START_TEST(stream_message_counts_for_its_channel_and_keys_alone) {
    struct buffer buffer = {0};
    struct seen seen = {0};
    write_awkward(&buffer);
    ck_assert_int_eq(read_on(&buffer, "rowbell:0123abcd:stream:2", &seen), STREAM_MESSAGE_SIGNATURE);
    ck_assert_int_eq(read_on(&buffer, "rowbell:0123abce:stream:1", &seen), STREAM_MESSAGE_SIGNATURE);
    struct stream_keys other = {0};
    ck_assert_int_eq(stream_message_read(buffer.bytes, buffer.length, &other, CHANNEL, see, &seen), STREAM_MESSAGE_KEY);
    stream_keys_add(&other, "7", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1e");
    ck_assert_int_eq(stream_message_read(buffer.bytes, buffer.length, &other, CHANNEL, see, &seen),
                     STREAM_MESSAGE_SIGNATURE);
    ck_assert_int_eq(seen.count, 0);
    char unsigned_[] = "rowbell-stream 1 1 2 1\n" LINE;
    ck_assert_int_eq(stream_message_read(unsigned_, sizeof unsigned_ - 1, &other, CHANNEL, see, &seen),
                     STREAM_MESSAGE_VERSION);
    buffer_free(&buffer);
}
END_TEST

START_TEST(stream_message_keys_are_32_bytes_in_hex) {
    struct stream_keys some = {0};
    stream_keys_add(&some, "7", "00");
    stream_keys_add(&some, "0", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
    stream_keys_add(&some, "", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
    stream_keys_add(&some, "7", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1g");
    stream_keys_add(&some, "", "");
    ck_assert_int_eq(some.count, 0);
}
END_TEST

START_TEST(stream_message_that_is_too_long_is_not_sent) {
    struct buffer buffer = {0};
    struct stream_keys two = keys();
    stream_message_begin(&buffer, 1, 2, 1);
    while (buffer.length <= STREAM_MESSAGE_MAX_BYTES)
        buffer_char(&buffer, 'x');
    ck_assert(!stream_message_sign(&buffer, &two.keys[0], CHANNEL));
    ck_assert_int_eq(read_copy(buffer.bytes, buffer.length), STREAM_MESSAGE_TOO_LONG);
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
    tcase_add_test(message, stream_message_with_any_byte_changed_does_not_verify);
    tcase_add_test(message, stream_message_counts_for_its_channel_and_keys_alone);
    tcase_add_test(message, stream_message_keys_are_32_bytes_in_hex);
    tcase_add_test(message, stream_message_that_is_too_long_is_not_sent);
    tcase_add_test_raise_signal(message, stream_message_above_the_most_is_a_bug, SIGABRT);
    tcase_add_test(message, stream_channel_names_installation_and_stream);
}
