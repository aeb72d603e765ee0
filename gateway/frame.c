#include "gateway/frame.h"
#include "common/memory.h"
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char frame_heartbeat[] = ":\n\n";
const char frame_ping[] = "event: ping\ndata: {}\n\n";

static void append_member(struct buffer *buffer, const char *name, const char *value) {
    buffer_text(buffer, name);
    buffer_json_string(buffer, value, strlen(value));
}

struct frame *frame_new(const struct stream_entry *entry) {
    assert(entry->position > 0);
    // Kept from call to call: an entry costs one allocation, its own.
    static struct buffer text;
    buffer_clear(&text);
    buffer_format(&text, "event: change\nid: %" PRId64 "\ndata: ", entry->position);
    append_member(&text, "{\"table\":", entry->name);
    // A keyless event names the whole collection; its key is empty, so that clients read one shape.
    append_member(&text, ",\"key\":", entry->key ? entry->key : "");
    append_member(&text, ",\"op\":", entry->op);
    buffer_text(&text, "}\n\n");

    size_t table_size = strlen(entry->name) + 1;
    size_t scope_size = entry->scope ? strlen(entry->scope) + 1 : 0;
    struct frame *frame = memory_alloc(sizeof *frame + text.length + table_size + scope_size);
    char *block = (char *)(frame + 1);
    memcpy(block, text.bytes, text.length);
    memcpy(block + text.length, entry->name, table_size);
    if (entry->scope) {
        memcpy(block + text.length + table_size, entry->scope, scope_size);
    }
    *frame = (struct frame){
        .position = entry->position,
        .prev = entry->prev,
        .scope = entry->scope ? block + text.length + table_size : NULL,
        .table = block + text.length,
        .length = text.length,
        .bytes = block,
    };
    return frame;
}

void frame_free(struct frame *frame) {
    free(frame);
}

void frame_append_opening(struct buffer *buffer, unsigned long retry_ms) {
    buffer_format(buffer, "retry: %lu\n: rowbell\n\n", retry_ms);
}

void frame_append_retry(struct buffer *buffer, unsigned long retry_ms) {
    buffer_format(buffer, "retry: %lu\n\n", retry_ms);
}

void frame_append_position(struct buffer *buffer, int64_t position, bool ping) {
    if (ping) {
        buffer_format(buffer, "event: ping\nid: %" PRId64 "\ndata: {}\n\n", position);
    } else {
        buffer_format(buffer, "id: %" PRId64 "\n\n", position);
    }
}

void frame_append_reset(struct buffer *buffer, int64_t position, const char *reason) {
    buffer_format(buffer, "event: reset\nid: %" PRId64 "\ndata: {\"reason\":\"%s\"}\n\n", position, reason);
}
