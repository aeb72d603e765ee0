// http_request: one HTTP/1.x request head (and small body) from the wire, parsed by llhttp, with the limits that llhttp
// lacks and the smuggling forms that it lets through refused (obs-fold, HTTP/0.9, bare CR or LF, two Host, two
// Content-Length, Content-Length with Transfer-Encoding, no Host in 1.1). RFC 9112.
#pragma once
#include "common/buffer.h"
#include <stdbool.h>
#include <stddef.h>

enum { HTTP_HEAD_MAX_BYTES = 16384, HTTP_TARGET_MAX_BYTES = 4096, HTTP_BODY_MAX_BYTES = 65536, HTTP_HEADERS_MAX = 100 };

struct http_header {
    const char *name;  // lower case
    const char *value; // trimmed
};

struct http_request {
    const char *method; // "GET"
    const char *path;   // percent-decoded, no query; never holds a control character; "*" only for OPTIONS
    const char *query;  // raw, without '?'; "" when none
    struct http_header headers[HTTP_HEADERS_MAX];
    size_t header_count;
    const char *body;
    size_t body_length;
    bool keep_alive;
};

const char *http_request_header(const struct http_request *request, const char *lower_case_name); // NULL if absent

// Feeding: bytes go in as they arrive. Owned memory is freed by http_parser_free; the request views it.
struct http_parser; // heap, so that an idle stream can free it (about 20 KiB)
enum http_parse { HTTP_PARSE_MORE, HTTP_PARSE_DONE, HTTP_PARSE_BAD };
struct http_parser *http_parser_new(void);
// *ret_consumed bytes were used (less than length when a pipelined request follows). On BAD, *ret_status is 400, 413,
// 414, 417, 431, 501 or 505, and the connection must be closed. How the bytes are cut never changes the result.
enum http_parse http_parser_feed(struct http_parser *parser, const char *bytes, size_t length, size_t *ret_consumed,
                                 int *ret_status);
const struct http_request *http_parser_request(const struct http_parser *parser); // after DONE
// True once, when the client waits for "100 Continue" before it sends the body.
bool http_parser_expects_continue(struct http_parser *parser);
void http_parser_reset(struct http_parser *parser); // for the next request of the connection
void http_parser_free(struct http_parser *parser);

// Query strings: calls each for every name=value pair, percent-decoded ('+' is a space); "name" alone has the value "".
// False when an escape is malformed, a name repeats more than 64 times, there are more than 256
// pairs, or each returned false.
bool http_query_each(const char *query, bool (*each)(void *arg, const char *name, const char *value), void *arg);
