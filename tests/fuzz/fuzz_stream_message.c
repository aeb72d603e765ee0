// Any bytes as a message from Redis. What is read must hold together, and be read the same after it was written again.
//
//   clang -fsanitize=fuzzer,address,undefined -D_GNU_SOURCE -std=gnu17 -I. tests/fuzz/fuzz_stream_message.c
//       common/stream_message.c common/buffer.c common/memory.c -o fuzz_stream_message
#include "common/stream_message.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t length);

struct copied {
    int count;
    struct stream_entry entries[STREAM_MESSAGE_MAX_ENTRIES];
};

static void require(int condition) {
    if (!condition)
        abort();
}

static void each(void *arg, const struct stream_entry *entry) {
    struct copied *copied = arg;
    require(copied->count < STREAM_MESSAGE_MAX_ENTRIES);
    require(entry->prev >= 0 && entry->prev < entry->position && entry->name != NULL && entry->op != NULL);
    copied->entries[copied->count++] = *entry;
}

static int same(const char *a, const char *b) {
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t length) {
    char *bytes = malloc(length > 0 ? length : 1);
    require(bytes != NULL);
    memcpy(bytes, input, length);
    struct copied first = {0};
    if (stream_message_read(bytes, length, each, &first)) {
        require(first.count > 0);
        struct buffer again = {0};
        stream_message_begin(&again, first.entries[0].prev, first.entries[0].position, first.count);
        for (int i = 0; i < first.count; i++)
            stream_message_entry(&again, &first.entries[i]);
        struct copied second = {0};
        require(stream_message_read(again.bytes, again.length, each, &second) && second.count == first.count);
        for (int i = 0; i < first.count; i++) {
            const struct stream_entry *a = &first.entries[i];
            const struct stream_entry *b = &second.entries[i];
            require(a->position == b->position && a->prev == b->prev && same(a->scope, b->scope) &&
                    same(a->name, b->name) && same(a->key, b->key) && same(a->op, b->op));
        }
        buffer_free(&again);
    }
    free(bytes);
    return 0;
}
