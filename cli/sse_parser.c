#include "cli/sse_parser.h"
#include <stdlib.h>
#include <string.h>

enum { RETRY_MAX_DIGITS = 9 };

void sse_parser_init(struct sse_parser *parser, void (*on_event)(void *arg, const struct sse_event *event), void *arg) {
    *parser = (struct sse_parser){.on_event = on_event, .arg = arg, .retry_ms = -1};
}

static void block_clear(struct sse_parser *parser) {
    buffer_clear(&parser->type);
    buffer_clear(&parser->data);
    parser->has_data = false;
}

static void buffer_assign(struct buffer *to, const char *bytes, size_t length) {
    buffer_clear(to);
    buffer_append(to, bytes, length);
}

static void field_event(struct sse_parser *parser, const char *value, size_t length) {
    buffer_assign(&parser->type, value, length);
}

static void field_data(struct sse_parser *parser, const char *value, size_t length) {
    if (parser->has_data)
        buffer_char(&parser->data, '\n');
    buffer_append(&parser->data, value, length);
    parser->has_data = true;
}

static void field_id(struct sse_parser *parser, const char *value, size_t length) {
    if (memchr(value, 0, length) == NULL)
        buffer_assign(&parser->pending_id, value, length);
}

static void field_retry(struct sse_parser *parser, const char *value, size_t length) {
    if (length > 0 && length <= RETRY_MAX_DIGITS && strspn(value, "0123456789") == length)
        parser->retry_ms = atol(value);
}

static const struct {
    const char *name;
    void (*read)(struct sse_parser *parser, const char *value, size_t length);
} fields[] = {{"event", field_event}, {"data", field_data}, {"id", field_id}, {"retry", field_retry}};

static void block_end(struct sse_parser *parser) {
    buffer_assign(&parser->last_id, buffer_cstr(&parser->pending_id), parser->pending_id.length);
    if (parser->has_data) {
        struct sse_event event = {
            .type = parser->type.length > 0 ? buffer_cstr(&parser->type) : "message",
            .data = buffer_cstr(&parser->data),
            .id = buffer_cstr(&parser->last_id),
        };
        parser->on_event(parser->arg, &event);
    }
    block_clear(parser);
}

static void line_end(struct sse_parser *parser) {
    const char *line = buffer_cstr(&parser->line);
    size_t length = parser->line.length;
    if (length == 0) {
        block_end(parser);
        return;
    }
    const char *colon = memchr(line, ':', length);
    size_t name_length = colon != NULL ? (size_t)(colon - line) : length;
    const char *value = colon != NULL ? colon + 1 : line + length;
    if (value < line + length && *value == ' ')
        value++;
    // A comment has an empty name, and so fits none.
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
        if (strlen(fields[i].name) == name_length && memcmp(fields[i].name, line, name_length) == 0)
            fields[i].read(parser, value, (size_t)(line + length - value));
    buffer_clear(&parser->line);
}

bool sse_parser_feed(struct sse_parser *parser, const char *bytes, size_t length) {
    static const char byte_order_mark[] = "\xef\xbb\xbf";
    for (size_t i = 0; i < length; i++) {
        bool lf_of_crlf = parser->after_cr && bytes[i] == '\n';
        parser->after_cr = bytes[i] == '\r';
        if (lf_of_crlf)
            continue;
        if (bytes[i] == '\r' || bytes[i] == '\n') {
            parser->begun = true;
            line_end(parser);
            continue;
        }
        if (parser->line.length + parser->data.length >= SSE_EVENT_MAX_BYTES)
            return false;
        buffer_char(&parser->line, bytes[i]);
        if (!parser->begun && parser->line.length == 3) {
            parser->begun = true;
            if (memcmp(buffer_cstr(&parser->line), byte_order_mark, 3) == 0)
                buffer_clear(&parser->line);
        }
    }
    return true;
}

void sse_parser_reconnect(struct sse_parser *parser) {
    block_clear(parser);
    buffer_clear(&parser->line);
    buffer_assign(&parser->pending_id, buffer_cstr(&parser->last_id), parser->last_id.length);
    parser->after_cr = false;
    parser->begun = false;
}

void sse_parser_close(struct sse_parser *parser) {
    buffer_free(&parser->last_id);
    buffer_free(&parser->pending_id);
    buffer_free(&parser->type);
    buffer_free(&parser->data);
    buffer_free(&parser->line);
}
