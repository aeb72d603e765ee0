// The request parser on any bytes: whole and byte by byte must be read the same, and what is read keeps the promises of
// common/http_request.h.

#include "common/buffer.h"
#include "common/http_request.h"
#include "tests/fuzz/fuzz.h"

static bool accept_pair(void *arg, const char *name, const char *value) {
    require(strlen(name) + strlen(value) <= HTTP_TARGET_MAX_BYTES);
    return true;
}

static void check_request(const struct http_request *request) {
    require(request->header_count <= HTTP_HEADERS_MAX && request->body_length <= HTTP_BODY_MAX_BYTES);
    require(request->path[0] == '/' || strcmp(request->path, "*") == 0);
    require(strlen(request->path) + strlen(request->query) <= HTTP_TARGET_MAX_BYTES);
    for (const char *c = request->path; *c != '\0'; c++)
        require((unsigned char)*c >= 0x20 && *c != 0x7f);
    require(request->body[request->body_length] == '\0');
    for (size_t i = 0; i < request->header_count; i++) {
        const char *value = request->headers[i].value;
        require(request->headers[i].name[0] != '\0' && strpbrk(request->headers[i].name, " \t:\r\n") == NULL);
        require(strpbrk(value, "\r\n") == NULL);
        require(*value == '\0' || (strchr(" \t", value[0]) == NULL && strchr(" \t", value[strlen(value) - 1]) == NULL));
    }
    http_query_each(request->query, accept_pair, NULL);
}

static void append_request(struct buffer *text, const struct http_request *request) {
    check_request(request);
    buffer_format(text, "%s %s ?%s %d\n", request->method, request->path, request->query, request->keep_alive);
    for (size_t i = 0; i < request->header_count; i++)
        buffer_format(text, "%s=%s\n", request->headers[i].name, request->headers[i].value);
    buffer_append(text, request->body, request->body_length);
}

static struct buffer read_as(const uint8_t *bytes, size_t length, size_t cut) {
    struct http_parser *parser = http_parser_new();
    struct buffer text = {0};
    int status = 0;
    for (size_t at = 0; at < length && status == 0;) {
        size_t piece = length - at < cut ? length - at : cut;
        size_t consumed = 0;
        char *copy = input_copy(bytes + at, piece);
        enum http_parse parse = http_parser_feed(parser, copy, piece, &consumed, &status);
        free(copy);
        require(consumed <= piece && (parse != HTTP_PARSE_MORE || consumed == piece));
        require((parse == HTTP_PARSE_BAD) == (status != 0));
        if (parse == HTTP_PARSE_DONE) {
            append_request(&text, http_parser_request(parser));
            http_parser_reset(parser);
        }
        at += consumed;
    }
    buffer_format(&text, "%d", status);
    http_parser_free(parser);
    return text;
}

FUZZ_TARGET(http_request) {
    struct buffer whole = read_as(bytes, length, SIZE_MAX);
    struct buffer single = read_as(bytes, length, 1);
    require(whole.length == single.length && memcmp(whole.bytes, single.bytes, whole.length) == 0);
    buffer_free(&whole);
    buffer_free(&single);
    return 0;
}
