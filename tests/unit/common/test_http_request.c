// The request parser against golden requests: good ones are read as written, each smuggling form and each limit is
// refused with its status, and how the bytes are cut never matters (RFC 9112).
#include <stdlib.h>
#include <string.h>

#include "common/buffer.h"
#include "common/http_request.h"
#include "tests/support/fixture.h"

#define HOST "Host: a\r\n"
#define END "\r\n"

static void append_request(struct buffer *text, const struct http_request *request) {
    buffer_format(text, "%s %s ?%s", request->method, request->path, request->query);
    for (size_t i = 0; i < request->header_count; i++)
        buffer_format(text, " %s=<%s>", request->headers[i].name, request->headers[i].value);
    buffer_format(text, " body=<%.*s> %s\n", (int)request->body_length, request->body,
                  request->keep_alive ? "keep" : "close");
    ck_assert_uint_eq(strlen(request->body), request->body_length); // no body here holds a NUL
}

// Everything that a connection's bytes are read as, when `cut` of them arrive at a time: a line a request, and at last
// "more" (the last one is not whole), "end", or the status that it is refused with. Returns owned text.
static char *read_as(const char *bytes, size_t length, size_t cut) {
    struct http_parser *parser = http_parser_new();
    struct buffer text = {0};
    bool between = true;
    for (size_t at = 0; at < length;) {
        size_t piece = length - at < cut ? length - at : cut;
        while (piece > 0) {
            // A copy of exactly this size, so that the sanitizer sees a read beyond it.
            char *copy = malloc(piece);
            memcpy(copy, bytes + at, piece);
            size_t consumed = 0;
            int status = 0;
            enum http_parse parse = http_parser_feed(parser, copy, piece, &consumed, &status);
            free(copy);
            if (consumed > piece) // ck_assert would be a system call for each piece
                ck_abort_msg("%zu bytes of %zu consumed", consumed, piece);
            at += consumed;
            piece -= consumed;
            between = parse == HTTP_PARSE_DONE;
            if (parse == HTTP_PARSE_BAD) {
                buffer_format(&text, "%d", status);
                http_parser_free(parser);
                return text.bytes;
            }
            if (parse == HTTP_PARSE_DONE) {
                append_request(&text, http_parser_request(parser));
                http_parser_reset(parser);
            } else if (piece > 0) {
                ck_abort_msg("more is wanted and not all was used");
            }
        }
    }
    buffer_text(&text, between ? "end" : "more");
    http_parser_free(parser);
    return text.bytes;
}

static void check_read_as(const char *name, const char *bytes, size_t length, const char *expected) {
    static const size_t cuts[] = {SIZE_MAX, 1, 2, 3, 7, 64, 1000};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        char *got = read_as(bytes, length, cuts[i]);
        ck_assert_msg(strcmp(got, expected) == 0, "%s, %zd bytes at a time:\n%s\ninstead of\n%s", name,
                      (ssize_t)cuts[i], got, expected);
        free(got);
    }
}

struct golden {
    const char *name;
    const char *bytes;
    const char *expected;
};

static const struct golden good[] = {
    {"the least", "GET / HTTP/1.1\r\n" HOST END, "GET / ? host=<a> body=<> keep\nend"},
    {"query and escapes", "GET /a%20b/%C3%A4?x=%41&y HTTP/1.1\r\n" HOST END,
     "GET /a b/\xc3\xa4 ?x=%41&y host=<a> body=<> keep\nend"},
    {"second question mark", "GET /a?b?c HTTP/1.1\r\n" HOST END, "GET /a ?b?c host=<a> body=<> keep\nend"},
    {"names are lowered, values trimmed", "GET / HTTP/1.1\r\nHOST:a\r\nX-Y: \t v w \t\r\nEmpty:\r\n" END,
     "GET / ? host=<a> x-y=<v w> empty=<> body=<> keep\nend"},
    {"colon in a value", "GET / HTTP/1.1\r\nHost: [::1]:80\r\nA: b:c\r\n" END,
     "GET / ? host=<[::1]:80> a=<b:c> body=<> keep\nend"},
    {"obs-text in a value", "GET / HTTP/1.1\r\n" HOST "A: \xe4\r\n" END, "GET / ? host=<a> a=<\xe4> body=<> keep\nend"},
    {"empty host", "GET / HTTP/1.1\r\nHost:\r\n" END, "GET / ? host=<> body=<> keep\nend"},
    {"close", "GET / HTTP/1.1\r\n" HOST "Connection: foo, Close\r\n" END,
     "GET / ? host=<a> connection=<foo, Close> body=<> close\nend"},
    {"1.0", "GET / HTTP/1.0\r\n" END, "GET / ? body=<> close\nend"},
    {"1.0 keep-alive", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n" END,
     "GET / ? connection=<keep-alive> body=<> keep\nend"},
    {"one empty line before", "\r\nGET / HTTP/1.1\r\n" HOST END, "GET / ? host=<a> body=<> keep\nend"},
    {"absolute-form", "GET http://b.c:80/p?q HTTP/1.1\r\n" HOST END, "GET /p ?q host=<a> body=<> keep\nend"},
    {"absolute-form without a path", "GET HTTPS://b?q HTTP/1.1\r\n" HOST END, "GET / ?q host=<a> body=<> keep\nend"},
    {"asterisk-form", "OPTIONS * HTTP/1.1\r\n" HOST END, "OPTIONS * ? host=<a> body=<> keep\nend"},
    {"upgrade is ignored",
     "GET / HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: h2c\r\n" END "GET /2 HTTP/1.1\r\n" HOST END,
     "GET / ? host=<a> connection=<Upgrade> upgrade=<h2c> body=<> keep\nGET /2 ? host=<a> body=<> keep\nend"},
    {"body", "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\n" END "hello",
     "POST / ? host=<a> content-length=<5> body=<hello> keep\nend"},
    {"empty body", "POST / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n" END,
     "POST / ? host=<a> content-length=<0> body=<> keep\nend"},
    {"leading zeros", "POST / HTTP/1.1\r\n" HOST "Content-Length: 00000000000002\r\n" END "ab",
     "POST / ? host=<a> content-length=<00000000000002> body=<ab> keep\nend"},
    {"a GET may have a body", "GET / HTTP/1.1\r\n" HOST "Content-Length: 2\r\n" END "ab",
     "GET / ? host=<a> content-length=<2> body=<ab> keep\nend"},
    {"chunked",
     "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: Chunked\r\n" END "5\r\nhello\r\n1;a=\"b\"\r\n!\r\n0\r\n" END,
     "POST / ? host=<a> transfer-encoding=<Chunked> body=<hello!> keep\nend"},
    {"trailers are dropped",
     "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n" END "A\r\n0123456789\r\n000\r\nX: y\r\n" END,
     "POST / ? host=<a> transfer-encoding=<chunked> body=<0123456789> keep\nend"},
    {"pipelined",
     "GET /1 HTTP/1.1\r\n" HOST END "POST /2 HTTP/1.1\r\n" HOST "Content-Length: 3\r\n" END "abc"
     "POST /3 HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n" END "0\r\n\r\nGET /4 HTTP/1.1\r\n" HOST END,
     "GET /1 ? host=<a> body=<> keep\nPOST /2 ? host=<a> content-length=<3> body=<abc> keep\n"
     "POST /3 ? host=<a> transfer-encoding=<chunked> body=<> keep\nGET /4 ? host=<a> body=<> keep\nend"},
    {"after a close", "GET /1 HTTP/1.1\r\n" HOST "Connection: close\r\n" END "GET /2 HTTP/1.1\r\n" HOST END,
     "GET /1 ? host=<a> connection=<close> body=<> close\nGET /2 ? host=<a> body=<> keep\nend"},
    {"cut in the head", "GET / HTTP/1.1\r\nHost: a\r\n", "more"},
    {"cut in the body", "POST / HTTP/1.1\r\n" HOST "Content-Length: 3\r\n" END "ab", "more"},
    {"cut in a chunk", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n" END "3\r\nabc\r\n0\r\n", "more"},
    {"expects 100", "POST / HTTP/1.1\r\n" HOST "Expect: 100-Continue\r\nContent-Length: 1\r\n" END "x",
     "POST / ? host=<a> expect=<100-Continue> content-length=<1> body=<x> keep\nend"},
};

#define CHUNKED "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n" END

static const struct golden bad[] = {
    {"HTTP/0.9", "GET /\r\n", "400"},
    {"HTTP/0.9 by number", "GET / HTTP/0.9\r\n\r\n", "505"},
    {"HTTP/1.2", "GET / HTTP/1.2\r\n" HOST END, "505"},
    {"HTTP/2.0", "GET / HTTP/2.0\r\n" HOST END, "505"},
    {"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "501"},
    {"HTTP/11", "GET / HTTP/11\r\n" HOST END, "400"},
    {"HTTP/1.10", "GET / HTTP/1.10\r\n" HOST END, "400"},
    {"lower-case version", "GET / http/1.1\r\n" HOST END, "400"},
    {"no version digits", "GET / HTTP/\r\n" HOST END, "400"},
    {"not HTTP", "\x16\x03\x01\x02", "400"},
    {"two spaces", "GET  / HTTP/1.1\r\n" HOST END, "400"},
    {"two spaces before the version", "GET /  HTTP/1.1\r\n" HOST END, "400"},
    {"space after the version", "GET / HTTP/1.1 \r\n" HOST END, "400"},
    {"tab", "GET\t/ HTTP/1.1\r\n" HOST END, "400"},
    {"space before the method", " GET / HTTP/1.1\r\n" HOST END, "400"},
    {"two empty lines before", "\r\n\r\nGET / HTTP/1.1\r\n" HOST END, "400"},
    {"bare LF before", "\nGET / HTTP/1.1\r\n" HOST END, "400"},
    {"unknown method", "BREW / HTTP/1.1\r\n" HOST END, "501"},
    {"lower-case method", "get / HTTP/1.1\r\n" HOST END, "501"},
    {"a method of RTSP", "PLAY / HTTP/1.1\r\n" HOST END, "501"},
    {"TRACE", "TRACE / HTTP/1.1\r\n" HOST END, "501"},
    {"CONNECT", "CONNECT a:80 HTTP/1.1\r\n" HOST END, "501"},
    {"endless method", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "501"},
    {"not a token", "G(T / HTTP/1.1\r\n" HOST END, "400"},
    {"relative target", "GET a HTTP/1.1\r\n" HOST END, "400"},
    {"other scheme", "GET ftp://a/ HTTP/1.1\r\n" HOST END, "400"},
    {"no authority", "GET http:///p HTTP/1.1\r\n" HOST END, "400"},
    {"userinfo", "GET http://u@b/ HTTP/1.1\r\n" HOST END, "400"},
    {"asterisk of GET", "GET * HTTP/1.1\r\n" HOST END, "400"},
    {"fragment", "GET /#a HTTP/1.1\r\n" HOST END, "400"},
    {"raw UTF-8 in the target", "GET /\xc3\xa4 HTTP/1.1\r\n" HOST END, "400"},
    {"DEL in the target", "GET /\x7f HTTP/1.1\r\n" HOST END, "400"},
    {"escape too short", "GET /%4 HTTP/1.1\r\n" HOST END, "400"},
    {"escape not hex", "GET /%4g HTTP/1.1\r\n" HOST END, "400"},
    {"escaped NUL", "GET /%00 HTTP/1.1\r\n" HOST END, "400"},
    {"escaped LF", "GET /%0A HTTP/1.1\r\n" HOST END, "400"},
    {"bare LF after the request line", "GET / HTTP/1.1\n" HOST END, "400"},
    {"bare LF after a field", "GET / HTTP/1.1\r\nHost: a\n\r\n", "400"},
    {"bare LF at the end", "GET / HTTP/1.1\r\nHost: a\r\n\n", "400"},
    {"bare CR in a value", "GET / HTTP/1.1\r\nHost: a\rX: b\r\n" END, "400"},
    {"bare CR after the request line", "GET / HTTP/1.1\rHost: a\r\n" END, "400"},
    {"CR CR LF", "GET / HTTP/1.1\r\nHost: a\r\r\n" END, "400"},
    {"obs-fold", "GET / HTTP/1.1\r\nHost: a\r\n b\r\n" END, "400"},
    {"obs-fold by tab", "GET / HTTP/1.1\r\n" HOST "X: a\r\n\tb\r\n" END, "400"},
    {"space before the first field", "GET / HTTP/1.1\r\n Host: a\r\n" END, "400"},
    {"space before the colon", "GET / HTTP/1.1\r\nHost : a\r\n" END, "400"},
    {"no colon", "GET / HTTP/1.1\r\n" HOST "X\r\n" END, "400"},
    {"empty name", "GET / HTTP/1.1\r\n" HOST ": x\r\n" END, "400"},
    {"name not a token", "GET / HTTP/1.1\r\n" HOST "X(: x\r\n" END, "400"},
    {"VT in a value", "GET / HTTP/1.1\r\n" HOST "X: \x0b\r\n" END, "400"},
    {"no Host", "GET / HTTP/1.1\r\n" END, "400"},
    {"two Host", "GET / HTTP/1.1\r\n" HOST "hOST: a\r\n" END, "400"},
    {"two Host in 1.0", "GET / HTTP/1.0\r\n" HOST HOST END, "400"},
    {"Host with a path", "GET / HTTP/1.1\r\nHost: a/b\r\n" END, "400"},
    {"Host with userinfo", "GET / HTTP/1.1\r\nHost: u@a\r\n" END, "400"},
    {"Host list", "GET / HTTP/1.1\r\nHost: a b\r\n" END, "400"},
    {"two Content-Length", "POST / HTTP/1.1\r\n" HOST "Content-Length: 1\r\nContent-Length: 1\r\n" END "x", "400"},
    {"Content-Length list", "POST / HTTP/1.1\r\n" HOST "Content-Length: 1, 1\r\n" END "x", "400"},
    {"Content-Length +1", "POST / HTTP/1.1\r\n" HOST "Content-Length: +1\r\n" END "x", "400"},
    {"Content-Length -1", "POST / HTTP/1.1\r\n" HOST "Content-Length: -1\r\n" END "x", "400"},
    {"Content-Length 0x1", "POST / HTTP/1.1\r\n" HOST "Content-Length: 0x1\r\n" END "x", "400"},
    {"Content-Length 1 1", "POST / HTTP/1.1\r\n" HOST "Content-Length: 1 1\r\n" END "x", "400"},
    {"Content-Length empty", "POST / HTTP/1.1\r\n" HOST "Content-Length:\r\n" END, "400"},
    {"Content-Length too big", "POST / HTTP/1.1\r\n" HOST "Content-Length: 65537\r\n" END, "413"},
    {"Content-Length beyond 64 bits", "POST / HTTP/1.1\r\n" HOST "Content-Length: 18446744073709551617\r\n" END, "413"},
    {"CL.TE", "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n" END "0\r\n\r\n", "400"},
    {"TE.CL", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n" END "0\r\n\r\n", "400"},
    {"two Transfer-Encoding",
     "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n" END "0\r\n\r\n", "400"},
    {"chunked twice", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked, chunked\r\n" END "0\r\n\r\n", "400"},
    {"chunked not last", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked, gzip\r\n" END "0\r\n\r\n", "400"},
    {"gzip, chunked", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n" END "0\r\n\r\n", "501"},
    {"xchunked", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: xchunked\r\n" END "0\r\n\r\n", "400"},
    {"identity", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: identity\r\n" END, "400"},
    {"empty Transfer-Encoding", "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding:\r\n" END, "400"},
    {"chunked in 1.0", "POST / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n" END "0\r\n\r\n", "400"},
    {"unknown expectation", "POST / HTTP/1.1\r\n" HOST "Expect: tea\r\n" END, "417"},
    {"chunk size missing", CHUNKED "\r\n", "400"},
    {"chunk size 0x1", CHUNKED "0x1\r\na\r\n0\r\n\r\n", "400"},
    {"chunk size +1", CHUNKED "+1\r\na\r\n0\r\n\r\n", "400"},
    {"chunk size and space", CHUNKED "1 \r\na\r\n0\r\n\r\n", "400"},
    {"chunk size too long", CHUNKED "000000001\r\na\r\n0\r\n\r\n", "413"},
    {"chunk too big", CHUNKED "10001\r\n", "413"},
    {"chunk size and bare LF", CHUNKED "1\na\r\n0\r\n\r\n", "400"},
    {"chunk extension and bare LF", CHUNKED "1;a\na\r\n0\r\n\r\n", "400"},
    {"chunk extension and bare CR", CHUNKED "1;a\rb\r\na\r\n0\r\n\r\n", "400"},
    {"chunk longer than said", CHUNKED "1\r\nab\r\n0\r\n\r\n", "400"},
    {"chunk data and bare LF", CHUNKED "1\r\na\n0\r\n\r\n", "400"},
    {"trailer fold", CHUNKED "0\r\nA: b\r\n c\r\n\r\n", "400"},
    {"trailer and bare LF", CHUNKED "0\r\nA: b\n\r\n", "400"},
    {"trailer end and bare LF", CHUNKED "0\r\n\n", "400"},
    {"a bad one behind a good one", "GET /1 HTTP/1.1\r\n" HOST END "GET /2 HTTP/1.1\r\n" END,
     "GET /1 ? host=<a> body=<> keep\n400"},
};

static void check_golden(const struct golden *golden) {
    check_read_as(golden->name, golden->bytes, strlen(golden->bytes), golden->expected);
}

START_TEST(good_requests_are_read_as_written) {
    check_golden(&good[_i]);
}
END_TEST

START_TEST(bad_requests_are_refused) {
    check_golden(&bad[_i]);
}
END_TEST

START_TEST(nul_is_refused_everywhere) {
    static const char bytes[] = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
    for (size_t i = 0; i < sizeof bytes - 1; i++) {
        char with_nul[sizeof bytes];
        memcpy(with_nul, bytes, sizeof bytes);
        with_nul[i] = '\0';
        check_read_as("NUL", with_nul, sizeof bytes - 1, "400");
    }
}
END_TEST

static void append_times(struct buffer *buffer, char c, size_t times) {
    for (size_t i = 0; i < times; i++)
        buffer_char(buffer, c);
}

// Only the ends matter here: the whole request may be long.
static void check_limit(const char *name, const struct buffer *wire, const char *end) {
    static const size_t cuts[] = {SIZE_MAX, 1, 1000};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        char *got = read_as(wire->bytes, wire->length, cuts[i]);
        const char *last = strrchr(got, '\n');
        last = last == NULL ? got : last + 1;
        ck_assert_msg(strcmp(last, end) == 0, "%s, cut %zu: %s instead of %s", name, i, last, end);
        free(got);
    }
}

START_TEST(target_limit) {
    struct buffer wire = {0};
    buffer_text(&wire, "GET /");
    append_times(&wire, 'a', (size_t)(HTTP_TARGET_MAX_BYTES - 1 + _i));
    buffer_text(&wire, " HTTP/1.1\r\n" HOST END);
    check_limit("target", &wire, _i == 0 ? "end" : "414");
    buffer_free(&wire);
}
END_TEST

START_TEST(head_limit) {
    struct buffer wire = {0};
    buffer_text(&wire, "GET / HTTP/1.1\r\n" HOST "X: ");
    append_times(&wire, 'a', (size_t)(HTTP_HEAD_MAX_BYTES + _i) - wire.length - 4);
    buffer_text(&wire, "\r\n\r\n");
    ck_assert_uint_eq(wire.length, (size_t)(HTTP_HEAD_MAX_BYTES + _i));
    check_limit("head", &wire, _i == 0 ? "end" : "431");
    buffer_free(&wire);
}
END_TEST

START_TEST(field_count_limit) {
    struct buffer wire = {0};
    buffer_text(&wire, "GET / HTTP/1.1\r\n" HOST);
    for (int i = 0; i < HTTP_HEADERS_MAX - 1 + _i; i++)
        buffer_text(&wire, "X: y\r\n");
    buffer_text(&wire, END);
    check_limit("fields", &wire, _i == 0 ? "end" : "431");
    buffer_free(&wire);
}
END_TEST

START_TEST(body_limit) {
    struct buffer wire = {0};
    size_t length = (size_t)(HTTP_BODY_MAX_BYTES + _i);
    buffer_format(&wire, "POST / HTTP/1.1\r\n" HOST "Content-Length: %zu\r\n" END, length);
    append_times(&wire, 'b', length);
    check_limit("body", &wire, _i == 0 ? "end" : "413");
    buffer_clear(&wire);
    buffer_format(&wire, CHUNKED "8000\r\n");
    append_times(&wire, 'b', 0x8000);
    buffer_format(&wire, "\r\n%zx\r\n", length - 0x8000);
    append_times(&wire, 'b', length - 0x8000);
    buffer_text(&wire, "\r\n0\r\n\r\n");
    check_limit("chunked body", &wire, _i == 0 ? "end" : "413");
    buffer_free(&wire);
}
END_TEST

START_TEST(chunk_framing_limits) {
    struct buffer wire = {0};
    buffer_text(&wire, CHUNKED);
    for (int i = 0; i < HTTP_BODY_MAX_BYTES; i++)
        buffer_text(&wire, "1\r\nx\r\n");
    buffer_text(&wire, "0\r\n\r\n");
    check_limit("one-byte chunks", &wire, "end");
    buffer_clear(&wire);
    buffer_text(&wire, CHUNKED);
    for (int i = 0; i < HTTP_BODY_MAX_BYTES; i++)
        buffer_text(&wire, "1;a=b\r\nx\r\n");
    check_limit("one-byte chunks with extensions", &wire, "413");
    buffer_clear(&wire);
    buffer_text(&wire, CHUNKED "1;");
    append_times(&wire, 'a', 300);
    check_limit("long extension", &wire, "400");
    buffer_clear(&wire);
    buffer_text(&wire, CHUNKED "0\r\nX: ");
    append_times(&wire, 'a', 5000);
    check_limit("long trailer", &wire, "431");
    buffer_free(&wire);
}
END_TEST

START_TEST(continue_is_asked_for_once_and_only_before_a_body) {
    static const char head[] = "POST / HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 2\r\n" END;
    static const char no_body[] = "POST / HTTP/1.1\r\n" HOST "Expect: 100-continue\r\n" END;
    struct http_parser *parser = http_parser_new();
    size_t consumed;
    int status;
    ck_assert_int_eq(http_parser_feed(parser, head, 20, &consumed, &status), HTTP_PARSE_MORE);
    ck_assert(!http_parser_expects_continue(parser));
    ck_assert_int_eq(http_parser_feed(parser, head + 20, strlen(head) - 20, &consumed, &status), HTTP_PARSE_MORE);
    ck_assert(http_parser_expects_continue(parser));
    ck_assert(!http_parser_expects_continue(parser));
    http_parser_reset(parser);
    ck_assert_int_eq(http_parser_feed(parser, no_body, strlen(no_body), &consumed, &status), HTTP_PARSE_DONE);
    ck_assert(!http_parser_expects_continue(parser));
    http_parser_free(parser);
}
END_TEST

START_TEST(headers_are_found_by_name) {
    static const char bytes[] = "GET / HTTP/1.1\r\n" HOST "Last-Event-ID: 7\r\nX: 1\r\nX: 2\r\n" END;
    struct http_parser *parser = http_parser_new();
    size_t consumed;
    int status;
    ck_assert_int_eq(http_parser_feed(parser, bytes, strlen(bytes), &consumed, &status), HTTP_PARSE_DONE);
    const struct http_request *request = http_parser_request(parser);
    ck_assert_str_eq(http_request_header(request, "last-event-id"), "7");
    ck_assert_str_eq(http_request_header(request, "x"), "1");
    ck_assert_ptr_null(http_request_header(request, "y"));
    http_parser_free(parser);
}
END_TEST

static bool append_pair(void *arg, const char *name, const char *value) {
    buffer_format(arg, "%s=<%s>", name, value);
    return strcmp(name, "stop") != 0;
}

static const struct {
    const char *query;
    const char *pairs;
    bool good;
} queries[] = {
    {"", "", true},
    {"a=1&b=2", "a=<1>b=<2>", true},
    {"a", "a=<>", true},
    {"a=&=b", "a=<>=<b>", true},
    {"&&a=1&", "a=<1>", true},
    {"a=b=c", "a=<b=c>", true},
    {"a+b=c%2Bd+e%26", "a b=<c+d e&>", true},
    {"table=a&table=b", "table=<a>table=<b>", true},
    {"a=1&b=%", "a=<1>", false},
    {"a=%4", "", false},
    {"a=%zz", "", false},
    {"a=%00", "", false},
    {"%00=a", "", false},
    {"a=1&stop=2&b=3", "a=<1>stop=<2>", false},
};

START_TEST(queries_are_read_as_pairs) {
    struct buffer pairs = {0};
    ck_assert_int_eq(http_query_each(queries[_i].query, append_pair, &pairs), queries[_i].good);
    ck_assert_str_eq(buffer_cstr(&pairs), queries[_i].pairs);
    buffer_free(&pairs);
}
END_TEST

static bool accept_pair(void *arg, const char *name, const char *value) {
    ++*(int *)arg;
    return true;
}

START_TEST(query_limits) {
    struct buffer query = {0};
    int count = 0;
    for (int i = 0; i < 64; i++)
        buffer_text(&query, "a=1&");
    ck_assert(http_query_each(query.bytes, accept_pair, &count));
    ck_assert_int_eq(count, 64);
    buffer_text(&query, "a=1");
    ck_assert(!http_query_each(query.bytes, accept_pair, &count));
    buffer_clear(&query);
    for (int i = 0; i < 257; i++)
        buffer_format(&query, "%d=1&", i);
    ck_assert(!http_query_each(query.bytes, accept_pair, &count));
    buffer_free(&query);
}
END_TEST

#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

static void add_tests(Suite *suite) {
    TCase *requests = suite_case(suite, "requests", 20);
    tcase_add_loop_test(requests, good_requests_are_read_as_written, 0, COUNT(good));
    tcase_add_loop_test(requests, bad_requests_are_refused, 0, COUNT(bad));
    tcase_add_test(requests, nul_is_refused_everywhere);
    tcase_add_test(requests, continue_is_asked_for_once_and_only_before_a_body);
    tcase_add_test(requests, headers_are_found_by_name);
    TCase *limits = suite_case(suite, "limits", 20);
    tcase_add_loop_test(limits, target_limit, 0, 2);
    tcase_add_loop_test(limits, head_limit, 0, 2);
    tcase_add_loop_test(limits, field_count_limit, 0, 2);
    tcase_add_loop_test(limits, body_limit, 0, 2);
    tcase_add_test(limits, chunk_framing_limits);
    TCase *query = suite_case(suite, "query", 20);
    tcase_add_loop_test(query, queries_are_read_as_pairs, 0, COUNT(queries));
    tcase_add_test(query, query_limits);
}

int main(void) {
    return suite_main("http_request", add_tests);
}
