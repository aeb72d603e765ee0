// Any bytes as a message from Redis: nothing that is not signed is read. Then the same bytes as the body of a signed
// one: what is read must hold together, and be read the same after it was written again.
#include "common/stream_message.h"
#include "tests/fuzz/fuzz.h"

struct copied {
    int count;
    struct stream_entry entries[STREAM_MESSAGE_MAX_ENTRIES];
};

static void each(void *arg, const struct stream_entry *entry) {
    struct copied *copied = arg;
    require(copied->count < STREAM_MESSAGE_MAX_ENTRIES);
    require(entry->prev >= 0 && entry->prev < entry->position && entry->name != NULL && entry->op != NULL);
    copied->entries[copied->count++] = *entry;
}

static int same(const char *a, const char *b) {
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

static const char channel[] = "rowbell:0123abcd:stream:1";
#define HEAD "1 2 1\n" // of stream_message_begin below

static void require_unread(const uint8_t *input, size_t length, const struct stream_keys *keys) {
    struct copied none = {0};
    char *bytes = input_copy(input, length);
    require(stream_message_read(bytes, length, keys, channel, each, &none) != STREAM_MESSAGE_GOOD && none.count == 0);
    free(bytes);
}

FUZZ_TARGET(stream_message) {
    struct stream_keys keys = {0};
    struct buffer message = {0};
    struct copied first = {0};
    stream_keys_add(&keys, "1", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
    require_unread(bytes, length, &keys);
    stream_message_begin(&message, 1, 2, 1);
    message.length -= sizeof HEAD - 1;
    buffer_append(&message, (const char *)bytes, length);
    if (length == 0 || !stream_message_sign(&message, &keys.keys[0], channel)) {
        buffer_free(&message);
        return 0;
    }
    if (stream_message_read(message.bytes, message.length, &keys, channel, each, &first) == STREAM_MESSAGE_GOOD) {
        require(first.count > 0);
        struct buffer again = {0};
        stream_message_begin(&again, first.entries[0].prev, first.entries[0].position, first.count);
        for (int i = 0; i < first.count; i++)
            stream_message_entry(&again, &first.entries[i]);
        require(stream_message_sign(&again, &keys.keys[0], channel));
        struct copied second = {0};
        require(stream_message_read(again.bytes, again.length, &keys, channel, each, &second) == STREAM_MESSAGE_GOOD &&
                second.count == first.count);
        for (int i = 0; i < first.count; i++) {
            const struct stream_entry *a = &first.entries[i];
            const struct stream_entry *b = &second.entries[i];
            require(a->position == b->position && a->prev == b->prev && same(a->scope, b->scope) &&
                    same(a->name, b->name) && same(a->key, b->key) && same(a->op, b->op));
        }
        buffer_free(&again);
    }
    buffer_free(&message);
    return 0;
}
