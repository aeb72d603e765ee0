// Any bytes as an event stream: whole and byte by byte must be read the same, and what is read keeps to the standard.
#include "cli/sse_parser.h"
#include "tests/fuzz/fuzz.h"

static void on_event(void *arg, const struct sse_event *event) {
    require(strpbrk(event->type, "\r\n") == NULL);
    require(strpbrk(event->id, "\r\n") == NULL && strchr(event->data, '\r') == NULL);
    buffer_format(arg, "%s|%s|%s\n", event->type, event->id, event->data);
}

static struct buffer read_as(const uint8_t *bytes, size_t length, size_t cut) {
    struct buffer text = {0};
    struct sse_parser parser;
    sse_parser_init(&parser, on_event, &text);
    for (size_t at = 0; at < length;) {
        size_t piece = length - at < cut ? length - at : cut;
        char *copy = input_copy(bytes + at, piece);
        bool more = sse_parser_feed(&parser, copy, piece);
        free(copy);
        at += piece;
        if (!more)
            break;
    }
    require(memchr(buffer_cstr(&parser.last_id), '\0', parser.last_id.length) == NULL);
    require(parser.retry_ms >= -1);
    buffer_format(&text, "%s %ld", buffer_cstr(&parser.last_id), parser.retry_ms);
    // A new connection begins with nothing of the old one's block.
    static const char whole[] = "data: whole\n\n";
    sse_parser_reconnect(&parser);
    size_t before = text.length;
    require(sse_parser_feed(&parser, whole, sizeof whole - 1));
    require(text.length > before && strncmp(text.bytes + before, "message|", 8) == 0);
    require(strcmp(strrchr(text.bytes + before, '|'), "|whole\n") == 0);
    sse_parser_close(&parser);
    return text;
}

FUZZ_TARGET(sse) {
    struct buffer whole = read_as(bytes, length, SIZE_MAX);
    struct buffer single = read_as(bytes, length, 1);
    require(whole.length == single.length && memcmp(whole.bytes, single.bytes, whole.length) == 0);
    buffer_free(&whole);
    buffer_free(&single);
    return 0;
}
