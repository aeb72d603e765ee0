#include "common/http_request.h"

#include <assert.h>
#include <llhttp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/memory.h"

// Two parsers read every request. The scanner below is strict about each byte (RFC 9112: CRLF only, no fold, no control
// character) and knows where the head and the body end; llhttp then reads the same bytes, gives the body without its
// framing, and has the last word on what it understands better. Where they disagree the request is refused: a request
// that two parsers read in two ways is what smuggling is made of.
//
//   LEADING -> METHOD -> TARGET -> VERSION -> (FIELD_START -> FIELD_NAME -> FIELD_VALUE)* -> head is whole
//   body: LENGTH, or CHUNK_SIZE -> CHUNK_EXTENSION -> CHUNK_DATA -> ... -> trailer fields -> END
//
// The head is scanned to its end before llhttp sees a byte of it, so the answer cannot depend on how the bytes were
// cut.

enum {
    METHOD_MAX_BYTES = 32,
    VERSION_BYTES = 8, // "HTTP/1.1"
    CHUNK_SIZE_MAX_DIGITS = 8,
    CHUNK_LINE_MAX_BYTES = 256,
    TRAILER_MAX_BYTES = 4096,
    // What a chunked body may take on the wire: one-byte chunks cost six bytes each.
    BODY_WIRE_MAX_BYTES = 8 * HTTP_BODY_MAX_BYTES,
    QUERY_MAX_PAIRS = 256,
    QUERY_MAX_REPEATS = 64,
};

enum scan {
    SCAN_LEADING,
    SCAN_LEADING_LF,
    SCAN_METHOD,
    SCAN_TARGET,
    SCAN_VERSION,
    SCAN_VERSION_LF,
    SCAN_FIELD_START,
    SCAN_FIELD_NAME,
    SCAN_FIELD_VALUE,
    SCAN_FIELD_LF,
    SCAN_LAST_LF,
    SCAN_HEAD_WHOLE,
    SCAN_LENGTH,
    SCAN_CHUNK_SIZE,
    SCAN_CHUNK_EXTENSION,
    SCAN_CHUNK_LF,
    SCAN_CHUNK_DATA,
    SCAN_CHUNK_DATA_CR,
    SCAN_CHUNK_DATA_LF,
    SCAN_END,
};

struct http_parser {
    llhttp_t llhttp;
    enum scan scan;
    enum http_parse result;
    int status;
    bool head_done;
    bool complete; // llhttp saw the end of the message
    bool trailing; // the fields after a chunked body
    bool expects_continue;
    uint16_t token_length; // of the method, target, version, chunk size line, or trailer
    uint16_t field_count;
    uint64_t remaining;  // of the body or the chunk
    size_t body_wire;    // bytes of a chunked body and its framing
    size_t body_claimed; // sum of the chunk sizes
    struct buffer body;
    struct http_request request;
    size_t head_length;
    char head[HTTP_HEAD_MAX_BYTES];
};

// Anything else that is a token is a method that we do not know: 501 (RFC 9110, section 15.6.2). Which of these a
// resource has is the handler's business: 405.
static const char *const known_methods[] = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"};

static bool is_alphanumeric(unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_token_char(unsigned char c) {
    return is_alphanumeric(c) || (c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool is_text_char(unsigned char c) {
    return c == '\t' || (c >= 0x20 && c != 0x7f);
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static char lower(char c) {
    return (char)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
}

// ---- llhttp's callbacks ----

static int on_headers_complete(llhttp_t *llhttp) {
    llhttp->upgrade = 0; // we never switch protocols; `Upgrade: h2c` is answered in HTTP/1.1 (RFC 9110, section 7.8)
    return 0;
}

static int on_body(llhttp_t *llhttp, const char *bytes, size_t length) {
    struct http_parser *parser = llhttp->data;
    assert(parser->body.length + length <= HTTP_BODY_MAX_BYTES); // the scanner has refused more
    buffer_append(&parser->body, bytes, length);
    return 0;
}

static int on_message_complete(llhttp_t *llhttp) {
    struct http_parser *parser = llhttp->data;
    parser->complete = true;
    parser->request.keep_alive = llhttp_should_keep_alive(llhttp) != 0;
    return HPE_PAUSED; // what follows belongs to the next request
}

static const llhttp_settings_t llhttp_callbacks = {
    .on_headers_complete = on_headers_complete,
    .on_body = on_body,
    .on_message_complete = on_message_complete,
};

// True when llhttp takes exactly these bytes: all of them, and no end of the message before the last.
static bool llhttp_takes(struct http_parser *parser, const char *bytes, size_t length) {
    if (length == 0)
        return true;
    if (parser->complete)
        return false;
    llhttp_errno_t got = llhttp_execute(&parser->llhttp, bytes, length);
    if (got == HPE_OK)
        return true;
    return got == HPE_PAUSED && parser->complete && llhttp_get_error_pos(&parser->llhttp) == bytes + length;
}

// ---- the scanner ----

// Each step returns 0, or the status to refuse with.
static int scan_method(struct http_parser *parser, char c) {
    const char *method = parser->head + (parser->head_length - 1 - parser->token_length);
    if (c != ' ') {
        if (!is_token_char((unsigned char)c))
            return 400;
        return ++parser->token_length > METHOD_MAX_BYTES ? 501 : 0;
    }
    size_t length = parser->token_length;
    if (length == 0)
        return 400;
    for (size_t i = 0; i < sizeof known_methods / sizeof *known_methods; i++) {
        if (strlen(known_methods[i]) == length && memcmp(known_methods[i], method, length) == 0) {
            parser->token_length = 0;
            parser->scan = SCAN_TARGET;
            return 0;
        }
    }
    return 501;
}

static int scan_target(struct http_parser *parser, char c) {
    if (c == ' ') {
        if (parser->token_length == 0)
            return 400;
        parser->token_length = 0;
        parser->scan = SCAN_VERSION;
        return 0;
    }
    if ((unsigned char)c <= 0x20 || (unsigned char)c >= 0x7f || c == '#')
        return 400;
    return ++parser->token_length > HTTP_TARGET_MAX_BYTES ? 414 : 0;
}

static int scan_version(struct http_parser *parser, char c) {
    static const char shape[] = "HTTP/d.d";
    if (parser->token_length == VERSION_BYTES) {
        if (c != '\r')
            return 400;
        const char *version = parser->head + (parser->head_length - 1 - VERSION_BYTES);
        if (memcmp(version, "HTTP/1.1", VERSION_BYTES) != 0 && memcmp(version, "HTTP/1.0", VERSION_BYTES) != 0)
            return 505;
        parser->scan = SCAN_VERSION_LF;
        return 0;
    }
    char expected = shape[parser->token_length++];
    return (expected == 'd' ? c >= '0' && c <= '9' : c == expected) ? 0 : 400;
}

static int scan_field_start(struct http_parser *parser, char c) {
    if (c == '\r') {
        parser->scan = SCAN_LAST_LF;
        return 0;
    }
    if (!is_token_char((unsigned char)c)) // obs-fold (a space or tab here) and an empty name among them
        return 400;
    parser->scan = SCAN_FIELD_NAME;
    return ++parser->field_count > HTTP_HEADERS_MAX ? 431 : 0;
}

static int scan_field_name(struct http_parser *parser, char c) {
    if (c == ':') {
        parser->scan = SCAN_FIELD_VALUE;
        return 0;
    }
    return is_token_char((unsigned char)c) ? 0 : 400;
}

static int scan_field_value(struct http_parser *parser, char c) {
    if (c == '\r') {
        parser->scan = SCAN_FIELD_LF;
        return 0;
    }
    return is_text_char((unsigned char)c) ? 0 : 400;
}

// How many of these bytes a field's name or value goes on with: most of a head is that, and read at a stretch.
static size_t scan_stretch(const struct http_parser *parser, const char *bytes, size_t length) {
    size_t count = 0;
    if (parser->scan == SCAN_FIELD_VALUE) {
        while (count < length && is_text_char((unsigned char)bytes[count]))
            count++;
    } else if (parser->scan == SCAN_FIELD_NAME) {
        while (count < length && is_token_char((unsigned char)bytes[count]))
            count++;
    }
    return count;
}

static int scan_lf(struct http_parser *parser, char c, enum scan next) {
    parser->scan = next;
    return c == '\n' ? 0 : 400;
}

static int scan_chunk_line_end(struct http_parser *parser) {
    if (parser->remaining > HTTP_BODY_MAX_BYTES - parser->body_claimed)
        return 413;
    parser->body_claimed += parser->remaining;
    parser->scan = SCAN_CHUNK_LF;
    return 0;
}

static int scan_chunk_size(struct http_parser *parser, char c) {
    int digit = hex_digit(c);
    if (digit >= 0) {
        parser->remaining = parser->remaining * 16 + (uint64_t)digit;
        return ++parser->token_length > CHUNK_SIZE_MAX_DIGITS ? 413 : 0;
    }
    if (parser->token_length == 0)
        return 400;
    if (c == '\r')
        return scan_chunk_line_end(parser);
    parser->scan = SCAN_CHUNK_EXTENSION;
    return c == ';' ? 0 : 400;
}

static int scan_chunk_extension(struct http_parser *parser, char c) {
    if (c == '\r')
        return scan_chunk_line_end(parser);
    if (!is_text_char((unsigned char)c))
        return 400;
    return ++parser->token_length > CHUNK_LINE_MAX_BYTES ? 400 : 0;
}

static int scan_chunk_lf(struct http_parser *parser, char c) {
    parser->token_length = 0;
    parser->trailing = parser->remaining == 0;
    return scan_lf(parser, c, parser->trailing ? SCAN_FIELD_START : SCAN_CHUNK_DATA);
}

static int scan_byte(struct http_parser *parser, char c) {
    switch (parser->scan) {
    case SCAN_LEADING:
        if (c == '\r') { // one empty line is ignored (RFC 9112, section 2.2)
            parser->scan = SCAN_LEADING_LF;
            return 0;
        }
        parser->scan = SCAN_METHOD;
        return scan_method(parser, c);
    case SCAN_LEADING_LF:
        return scan_lf(parser, c, SCAN_METHOD);
    case SCAN_METHOD:
        return scan_method(parser, c);
    case SCAN_TARGET:
        return scan_target(parser, c);
    case SCAN_VERSION:
        return scan_version(parser, c);
    case SCAN_VERSION_LF:
        return scan_lf(parser, c, SCAN_FIELD_START);
    case SCAN_FIELD_START:
        return scan_field_start(parser, c);
    case SCAN_FIELD_NAME:
        return scan_field_name(parser, c);
    case SCAN_FIELD_VALUE:
        return scan_field_value(parser, c);
    case SCAN_FIELD_LF:
        return scan_lf(parser, c, SCAN_FIELD_START);
    case SCAN_LAST_LF:
        return scan_lf(parser, c, parser->trailing ? SCAN_END : SCAN_HEAD_WHOLE);
    case SCAN_CHUNK_SIZE:
        return scan_chunk_size(parser, c);
    case SCAN_CHUNK_EXTENSION:
        return scan_chunk_extension(parser, c);
    case SCAN_CHUNK_LF:
        return scan_chunk_lf(parser, c);
    case SCAN_CHUNK_DATA_CR:
        parser->scan = SCAN_CHUNK_DATA_LF;
        return c == '\r' ? 0 : 400;
    case SCAN_CHUNK_DATA_LF:
        parser->remaining = 0;
        return scan_lf(parser, c, SCAN_CHUNK_SIZE);
    case SCAN_HEAD_WHOLE:
    case SCAN_LENGTH:
    case SCAN_CHUNK_DATA:
    case SCAN_END:
        break;
    }
    assert(false); // these take no single byte
    return 400;
}

// Scans body bytes; *ret_scanned of them are in order.
static int scan_body(struct http_parser *parser, const char *bytes, size_t length, size_t *ret_scanned) {
    size_t at = 0;
    int status = 0;
    while (at < length && parser->scan != SCAN_END && status == 0) {
        size_t step = 1;
        if (parser->scan == SCAN_LENGTH || parser->scan == SCAN_CHUNK_DATA) {
            step = parser->remaining < length - at ? (size_t)parser->remaining : length - at;
            parser->remaining -= step;
            if (parser->remaining == 0)
                parser->scan = parser->scan == SCAN_LENGTH ? SCAN_END : SCAN_CHUNK_DATA_CR;
        } else {
            status = scan_byte(parser, bytes[at]);
            if (status == 0 && parser->trailing && ++parser->token_length > TRAILER_MAX_BYTES)
                status = 431;
        }
        if (status == 0) {
            at += step;
            parser->body_wire += step;
            if (parser->body_wire > BODY_WIRE_MAX_BYTES)
                status = 413;
        }
    }
    *ret_scanned = at;
    return status;
}

// ---- from the head's bytes to the request ----

// Percent-decodes in place and ends the text with a NUL (which the caller has room for). False: a malformed escape, or
// one that stands for a control character.
static bool percent_decode(char *text, size_t length, bool plus_is_space) {
    size_t to = 0;
    for (size_t from = 0; from < length; from++) {
        char c = text[from];
        if (c == '+' && plus_is_space)
            c = ' ';
        if (c == '%') {
            int high = length - from > 2 ? hex_digit(text[from + 1]) : -1;
            int low = high >= 0 ? hex_digit(text[from + 2]) : -1;
            if (low < 0)
                return false;
            c = (char)(high * 16 + low);
            if (c == 0 || (!plus_is_space && ((unsigned char)c < 0x20 || c == 0x7f)))
                return false;
            from += 2;
        }
        text[to++] = c;
    }
    text[to] = '\0';
    return true;
}

// The forms of RFC 9112, section 3.2: "/path?query", "http://host/path?query", and "*" for OPTIONS. target ends with
// NUL.
static int set_target(struct http_parser *parser, char *target) {
    static char root[] = "/";
    struct http_request *request = &parser->request;
    request->query = "";
    if (strcmp(target, "*") == 0) {
        request->path = target;
        return strcmp(request->method, "OPTIONS") == 0 ? 0 : 400;
    }
    char *path = target;
    if (*target != '/') { // absolute-form: its authority replaces Host, and we serve any host
        size_t scheme = strncasecmp(target, "http://", 7) == 0 ? 7 : strncasecmp(target, "https://", 8) == 0 ? 8 : 0;
        size_t authority = scheme > 0 ? strcspn(target + scheme, "/?") : 0;
        if (authority == 0 || memchr(target + scheme, '@', authority) != NULL)
            return 400;
        path = target + scheme + authority;
    }
    char *query = strchr(path, '?');
    if (query != NULL) {
        *query = '\0';
        request->query = query + 1;
    }
    if (*path == '\0')
        path = root;
    else if (!percent_decode(path, strlen(path), false))
        return 400;
    request->path = path;
    return 0;
}

static bool host_is_valid(const char *value) {
    while (is_alphanumeric((unsigned char)*value) || (*value != '\0' && strchr("-._~%!$&'()*+,;=:[]", *value) != NULL))
        value++;
    return *value == '\0';
}

// 0, or what RFC 9112, section 6.1 and 6.3 make of a Transfer-Encoding that is not just "chunked".
static int check_transfer_encoding(const char *value) {
    if (strcasecmp(value, "chunked") == 0)
        return 0;
    const char *last = strrchr(value, ',');
    if (last == NULL)
        return 400; // the end of such a body cannot be known
    last += 1 + strspn(last + 1, " \t");
    const char *first = strcasestr(value, "chunked");
    return strcasecmp(last, "chunked") == 0 && first == last ? 501 : 400; // "gzip, chunked" | "chunked, chunked"
}

static int check_content_length(const char *value, uint64_t *ret_length) {
    size_t digits = strspn(value, "0123456789");
    if (digits == 0 || value[digits] != '\0')
        return 400;
    value += strspn(value, "0");
    if (strlen(value) > 9)
        return 413;
    *ret_length = strtoull(value, NULL, 10);
    return *ret_length > HTTP_BODY_MAX_BYTES ? 413 : 0;
}

// The one value of a field that may come only once; false when it comes twice. *ret_value is NULL when absent.
static bool single_header(const struct http_request *request, const char *name, const char **ret_value) {
    *ret_value = NULL;
    for (size_t i = 0; i < request->header_count; i++) {
        if (strcmp(request->headers[i].name, name) != 0)
            continue;
        if (*ret_value != NULL)
            return false;
        *ret_value = request->headers[i].value;
    }
    return true;
}

static int check_fields(struct http_parser *parser, bool http_1_1) {
    struct http_request *request = &parser->request;
    const char *host, *length, *encoding, *expect;
    if (!single_header(request, "host", &host) || !single_header(request, "content-length", &length) ||
        !single_header(request, "transfer-encoding", &encoding) || !single_header(request, "expect", &expect))
        return 400;
    if (host == NULL ? http_1_1 : !host_is_valid(host))
        return 400;
    if (encoding != NULL && (length != NULL || !http_1_1))
        return 400;
    int status = encoding != NULL ? check_transfer_encoding(encoding) : 0;
    if (status == 0 && length != NULL)
        status = check_content_length(length, &parser->remaining);
    if (status != 0)
        return status;
    if (expect != NULL && http_1_1) {
        if (strcasecmp(expect, "100-continue") != 0)
            return 417;
        parser->expects_continue = true;
    }
    parser->head_done = true;
    parser->token_length = 0;
    parser->scan = encoding != NULL ? SCAN_CHUNK_SIZE : parser->remaining > 0 ? SCAN_LENGTH : SCAN_END;
    parser->expects_continue = parser->expects_continue && parser->scan != SCAN_END;
    return 0;
}

// Cuts the line that starts at *at (CRLF is known to be there) and moves *at behind it.
static char *take_line(char **at) {
    char *line = *at;
    char *end = strchr(line, '\r');
    *end = '\0';
    *at = end + 2;
    return line;
}

static void set_field(struct http_header *header, char *line) {
    char *colon = strchr(line, ':');
    *colon = '\0';
    for (char *c = line; c < colon; c++)
        *c = lower(*c);
    char *value = colon + 1 + strspn(colon + 1, " \t");
    char *end = value + strlen(value);
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *end = '\0';
    *header = (struct http_header){.name = line, .value = value};
}

// The head is whole and every line of it well-formed.
static int finish_head(struct http_parser *parser) {
    struct http_request *request = &parser->request;
    bool taken = llhttp_takes(parser, parser->head, parser->head_length); // before the bytes are cut into strings
    char *at = parser->head + (parser->head[0] == '\r' ? 2 : 0);
    char *method = take_line(&at);
    char *target = strchr(method, ' ');
    *target++ = '\0';
    char *version = strchr(target, ' ');
    *version++ = '\0';
    request->method = method;
    while (*at != '\r')
        set_field(&request->headers[request->header_count++], take_line(&at));
    int status = set_target(parser, target);
    if (status == 0)
        status = check_fields(parser, strcmp(version, "HTTP/1.1") == 0);
    if (status == 0 && (!taken || parser->complete != (parser->scan == SCAN_END)))
        status = 400;
    return status;
}

// ---- the parser ----

struct http_parser *http_parser_new(void) {
    struct http_parser *parser = memory_alloc(sizeof *parser);
    http_parser_reset(parser);
    return parser;
}

void http_parser_reset(struct http_parser *parser) {
    struct buffer body = parser->body;
    buffer_free(&body);
    memset(parser, 0, offsetof(struct http_parser, head));
    llhttp_init(&parser->llhttp, HTTP_REQUEST, &llhttp_callbacks);
    parser->llhttp.data = parser;
    parser->result = HTTP_PARSE_MORE;
}

void http_parser_free(struct http_parser *parser) {
    if (parser == NULL)
        return;
    buffer_free(&parser->body);
    free(parser);
}

static enum http_parse refuse(struct http_parser *parser, int status, int *ret_status) {
    parser->result = HTTP_PARSE_BAD;
    parser->status = status;
    *ret_status = status;
    return HTTP_PARSE_BAD;
}

enum http_parse http_parser_feed(struct http_parser *parser, const char *bytes, size_t length, size_t *ret_consumed,
                                 int *ret_status) {
    size_t at = 0;
    int status = parser->result == HTTP_PARSE_BAD ? parser->status : 0;
    assert(parser->result != HTTP_PARSE_DONE); // reset first
    while (at < length && !parser->head_done && parser->scan != SCAN_HEAD_WHOLE && status == 0) {
        size_t room = HTTP_HEAD_MAX_BYTES - parser->head_length;
        if (room == 0) {
            status = 431;
            break;
        }
        size_t stretch = scan_stretch(parser, bytes + at, length - at < room ? length - at : room);
        if (stretch > 0) {
            memcpy(parser->head + parser->head_length, bytes + at, stretch);
            parser->head_length += stretch;
            at += stretch;
            continue;
        }
        parser->head[parser->head_length++] = bytes[at];
        status = scan_byte(parser, bytes[at++]);
    }
    if (status == 0 && parser->scan == SCAN_HEAD_WHOLE)
        status = finish_head(parser);
    if (status == 0 && parser->head_done && parser->scan != SCAN_END) {
        size_t scanned = 0;
        status = scan_body(parser, bytes + at, length - at, &scanned);
        // What comes before the offending byte is llhttp's to judge first, however the bytes were cut.
        if (!llhttp_takes(parser, bytes + at, scanned) || parser->complete != (parser->scan == SCAN_END))
            status = 400;
        at += scanned;
    }
    *ret_consumed = at;
    if (status != 0)
        return refuse(parser, status, ret_status);
    if (parser->scan != SCAN_END)
        return HTTP_PARSE_MORE;
    assert(parser->complete);
    parser->request.body = buffer_cstr(&parser->body);
    parser->request.body_length = parser->body.length;
    parser->result = HTTP_PARSE_DONE;
    return HTTP_PARSE_DONE;
}

bool http_parser_expects_continue(struct http_parser *parser) {
    bool expects = parser->expects_continue && parser->head_done && parser->result == HTTP_PARSE_MORE;
    if (expects)
        parser->expects_continue = false;
    return expects;
}

const struct http_request *http_parser_request(const struct http_parser *parser) {
    assert(parser->result == HTTP_PARSE_DONE);
    return &parser->request;
}

const char *http_request_header(const struct http_request *request, const char *lower_case_name) {
    for (size_t i = 0; i < request->header_count; i++) {
        if (strcmp(request->headers[i].name, lower_case_name) == 0)
            return request->headers[i].value;
    }
    return NULL;
}

// ---- query strings ----

static bool name_repeats_too_often(const char *const *names, size_t count, const char *name) {
    unsigned repeats = 1;
    for (size_t i = 0; i < count; i++)
        repeats += strcmp(names[i], name) == 0;
    return repeats > QUERY_MAX_REPEATS;
}

bool http_query_each(const char *query, bool (*each)(void *arg, const char *name, const char *value), void *arg) {
    const char *names[QUERY_MAX_PAIRS];
    size_t count = 0;
    bool good = true;
    char *text = memory_copy_text(query);
    char *rest = text;
    for (char *pair; good && (pair = strsep(&rest, "&")) != NULL;) {
        if (*pair == '\0')
            continue;
        char *value = strchr(pair, '=');
        if (value == NULL)
            value = pair + strlen(pair);
        else
            *value++ = '\0';
        good = count < QUERY_MAX_PAIRS && percent_decode(pair, strlen(pair), true) &&
               percent_decode(value, strlen(value), true) && !name_repeats_too_often(names, count, pair) &&
               each(arg, pair, value);
        if (good)
            names[count++] = pair;
    }
    free(text);
    return good;
}
