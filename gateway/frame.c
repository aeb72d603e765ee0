#include "gateway/frame.h"
#include "common/memory.h"
#include "gateway/resume.h"
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

static size_t text_size(const char *text) {
    return text ? strlen(text) + 1 : 0;
}

// All of it is one block.
static struct frame *frame_of(const struct stream_entry *entry, const struct buffer *text, const char *table,
                              const char *scope) {
    size_t table_size = text_size(table);
    size_t scope_size = text_size(scope);
    struct frame *frame = memory_alloc(sizeof *frame + text->length + table_size + scope_size);
    char *block = (char *)(frame + 1);
    memcpy(block, text->bytes, text->length);
    *frame = (struct frame){.position = entry->position, .prev = entry->prev, .length = text->length, .bytes = block};
    if (table) {
        frame->table = memcpy(block + text->length, table, table_size);
    }
    if (scope) {
        frame->scope = memcpy(block + text->length + table_size, scope, scope_size);
    }
    return frame;
}

// The op of a mark, which the dispatcher appends when it gives an entry up (dispatcher/sql/stream_fault.sql).
static bool is_mark(const struct stream_entry *entry) {
    return strcmp(entry->op, "damaged") == 0;
}

struct frame *frame_new(const struct stream_entry *entry) {
    assert(entry->position > 0);
    // Kept from call to call: an entry costs one allocation, its own.
    static struct buffer text;
    buffer_clear(&text);
    if (is_mark(entry)) {
        frame_append_reset(&text, entry->position, reset_reason_name(RESET_STREAM_DAMAGED));
        return frame_of(entry, &text, NULL, NULL);
    }
    buffer_format(&text, "event: change\nid: %" PRId64 "\ndata: ", entry->position);
    append_member(&text, "{\"table\":", entry->name);
    // A keyless event names the whole collection; its key is empty, so that clients read one shape.
    append_member(&text, ",\"key\":", entry->key ? entry->key : "");
    append_member(&text, ",\"op\":", entry->op);
    buffer_text(&text, "}\n\n");
    return frame_of(entry, &text, entry->name, entry->scope);
}

void frame_free(struct frame *frame) {
    free(frame);
}

void frame_append_opening(struct buffer *buffer, unsigned long retry_ms) {
    buffer_text(buffer, "retry: ");
    buffer_int(buffer, (int64_t)retry_ms);
    buffer_text(buffer, "\n: rowbell\n\n");
}

void frame_append_retry(struct buffer *buffer, unsigned long retry_ms) {
    buffer_format(buffer, "retry: %lu\n\n", retry_ms);
}

void frame_append_position(struct buffer *buffer, int64_t position, bool ping) {
    buffer_text(buffer, ping ? "event: ping\nid: " : "id: ");
    buffer_int(buffer, position);
    buffer_text(buffer, ping ? "\ndata: {}\n\n" : "\n\n");
}

void frame_append_reset(struct buffer *buffer, int64_t position, const char *reason) {
    buffer_format(buffer, "event: reset\nid: %" PRId64 "\ndata: {\"reason\":\"%s\"}\n\n", position, reason);
}
