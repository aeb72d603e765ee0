// llhttp is paused where a head and where a message ends, which is how their length is known:
//
//   head --> interim (1xx) --> head ...
//     \----> body ----------> DONE
//
// What can go wrong: too many bytes of headers or of body, bytes that are not HTTP, an upgrade that nobody asked for,
// an end in the middle.
#include "common/http_answer.h"
#include "common/memory.h"
#include <llhttp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { WIRE_BYTES_A_BYTE = 8 }; // a chunk of one byte takes six

// ---- llhttp's callbacks

static void keep(char *text, size_t size, size_t *length, const char *bytes, size_t more) {
    if (*length + more < size)
        memcpy(text + *length, bytes, more);
    *length += more; // past size: too long to be one that we know
}

static int on_header_name(llhttp_t *llhttp, const char *bytes, size_t length) {
    struct http_answer *answer = llhttp->data;
    keep(answer->name, sizeof answer->name, &answer->name_length, bytes, length);
    return 0;
}

static int on_header_value(llhttp_t *llhttp, const char *bytes, size_t length) {
    struct http_answer *answer = llhttp->data;
    keep(answer->value, sizeof answer->value, &answer->value_length, bytes, length);
    return 0;
}

static bool name_is(const struct http_answer *answer, const char *name) {
    return answer->name_length == strlen(name) && strncasecmp(answer->name, name, answer->name_length) == 0;
}

// The first of a name counts.
static void take_value(const struct http_answer *answer, char *text, size_t size, bool *has) {
    size_t length = answer->value_length;
    if (*has || length >= sizeof answer->value || length >= size)
        return;
    while (length > 0 && (unsigned char)answer->value[length - 1] <= ' ')
        length--;
    memcpy(text, answer->value, length);
    text[length] = '\0';
    *has = true;
}

static int on_header_end(llhttp_t *llhttp) {
    struct http_answer *answer = llhttp->data;
    if (answer->in_body)
        answer->name_length = 0; // a trailer: what it says came too late (RFC 9110, 6.5.1)
    if (name_is(answer, "retry-after"))
        take_value(answer, answer->retry_after, sizeof answer->retry_after, &answer->has_retry_after);
    else if (name_is(answer, "webhook-delivery"))
        take_value(answer, answer->delivery_control, sizeof answer->delivery_control, &answer->has_delivery_control);
    else if (name_is(answer, "date"))
        take_value(answer, answer->date, sizeof answer->date, &answer->has_date);
    answer->name_length = answer->value_length = 0;
    return 0;
}

static int on_head(llhttp_t *llhttp) {
    if (llhttp->status_code < 200 || llhttp->status_code == 204 || llhttp->status_code == 304)
        llhttp->flags |= F_SKIPBODY; // whatever its headers say (RFC 9112, 6.3)
    return HPE_PAUSED;
}

static int on_body(llhttp_t *llhttp, const char *bytes, size_t length) {
    struct http_answer *answer = llhttp->data;
    size_t most = answer->whole_max_bytes ? answer->whole_max_bytes : HTTP_ANSWER_BODY_MAX_BYTES;
    if (answer->body_bytes < HTTP_ANSWER_HEAD_BYTES) {
        size_t room = HTTP_ANSWER_HEAD_BYTES - answer->body_bytes;
        memcpy(answer->head + answer->body_bytes, bytes, length < room ? length : room);
    }
    answer->body_bytes += length;
    if (answer->body_bytes > most)
        return HPE_USER;
    if (answer->whole_max_bytes)
        buffer_append(&answer->body, bytes, length);
    return 0;
}

static int on_complete(llhttp_t *llhttp) {
    struct http_answer *answer = llhttp->data;
    answer->complete = true;
    answer->chunked = (llhttp->flags & (F_CHUNKED | F_SKIPBODY)) == F_CHUNKED;
    answer->keep_alive = llhttp_should_keep_alive(llhttp) != 0;
    return HPE_PAUSED;
}

static const llhttp_settings_t callbacks = {
    .on_header_field = on_header_name,
    .on_header_value = on_header_value,
    .on_header_value_complete = on_header_end,
    .on_headers_complete = on_head,
    .on_body = on_body,
    .on_message_complete = on_complete,
};

// ---- reading

static enum http_answer_state bad(struct http_answer *answer, const char *reason) {
    snprintf(answer->reason, sizeof answer->reason, "the answer %s", reason);
    return HTTP_ANSWER_BAD;
}

void http_answer_start(struct http_answer *answer, size_t whole_max_bytes) {
    answer->status = 0;
    answer->keep_alive = answer->in_body = answer->complete = false;
    answer->has_retry_after = answer->has_delivery_control = answer->has_date = false;
    answer->header_bytes = answer->body_bytes = answer->body_wire_bytes = 0;
    answer->name_length = answer->value_length = 0;
    answer->retry_after[0] = answer->delivery_control[0] = answer->date[0] = answer->reason[0] = '\0';
    answer->last = '\0';
    answer->whole_max_bytes = whole_max_bytes;
    buffer_clear(&answer->body);
    if (!answer->llhttp)
        answer->llhttp = memory_alloc(sizeof *answer->llhttp);
    llhttp_init(answer->llhttp, HTTP_RESPONSE, &callbacks);
    answer->llhttp->data = answer;
}

void http_answer_close(struct http_answer *answer) {
    buffer_free(&answer->body);
    free(answer->llhttp);
}

// Counts what llhttp took. False: it is too much.
static bool count_bytes(struct http_answer *answer, size_t taken) {
    if (!answer->in_body)
        return (answer->header_bytes += taken) <= HTTP_ANSWER_HEADER_MAX_BYTES;
    size_t most = answer->whole_max_bytes ? answer->whole_max_bytes : HTTP_ANSWER_BODY_MAX_BYTES;
    return (answer->body_wire_bytes += taken) <= WIRE_BYTES_A_BYTE * most + HTTP_ANSWER_HEADER_MAX_BYTES;
}

// llhttp takes a bare LF behind the reason phrase for an end of its line. Others do not, and read another head.
static bool has_bare_lf(struct http_answer *answer, const char *bytes, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] == '\n' && answer->last != '\r')
            return true;
        answer->last = bytes[i];
    }
    return false;
}

// A head is whole: that of the answer, or of an interim one, of which nothing is kept.
static const char *judge_head(struct http_answer *answer) {
    const llhttp_t *llhttp = answer->llhttp;
    if (llhttp->http_major != 1)
        return "is not HTTP/1.1";
    if (llhttp->status_code < 100 || llhttp->status_code == 101)
        return "has a status that ends nothing";
    answer->in_body = llhttp->status_code >= 200;
    if (answer->in_body) {
        answer->status = llhttp->status_code;
    } else {
        answer->has_retry_after = answer->has_delivery_control = answer->has_date = false;
        answer->retry_after[0] = answer->delivery_control[0] = answer->date[0] = '\0';
    }
    return NULL;
}

enum http_answer_state http_answer_read(struct http_answer *answer, const char *bytes, size_t length) {
    for (;;) {
        llhttp_errno_t got = llhttp_execute(answer->llhttp, bytes, length);
        size_t taken = got == HPE_OK ? length : (size_t)(llhttp_get_error_pos(answer->llhttp) - bytes);
        if (got == HPE_USER)
            return HTTP_ANSWER_CUT;
        bool bare_lf = !answer->in_body && has_bare_lf(answer, bytes, taken);
        // llhttp takes one for the end of trailers too: an answer that ends sooner than others see it end.
        char before = taken >= 2 ? bytes[taken - 2] : answer->last;
        if (bare_lf || (got == HPE_PAUSED && answer->complete && answer->in_body && answer->chunked && before != '\r'))
            return bad(answer, "is not HTTP/1.1: a line ends with LF alone");
        if (taken > 0)
            answer->last = bytes[taken - 1];
        if (!count_bytes(answer, taken))
            return bad(answer, answer->in_body ? "has more framing than body" : "has more than 16384 bytes of headers");
        if (got == HPE_OK)
            return HTTP_ANSWER_MORE;
        if (got != HPE_PAUSED) {
            char text[128];
            snprintf(text, sizeof text, "is not HTTP/1.1: %s", llhttp_get_error_reason(answer->llhttp));
            return bad(answer, text);
        }
        bytes += taken;
        length -= taken;
        if (!answer->complete) {
            const char *reason = judge_head(answer);
            if (reason)
                return bad(answer, reason);
        } else if (answer->in_body) {
            answer->keep_alive = answer->keep_alive && length == 0;
            return HTTP_ANSWER_DONE;
        }
        answer->complete = false; // it was an interim one
        llhttp_resume(answer->llhttp);
    }
}

enum http_answer_state http_answer_end(struct http_answer *answer) {
    if (answer->in_body && llhttp_finish(answer->llhttp) == HPE_PAUSED)
        return HTTP_ANSWER_DONE;
    return bad(answer, "broke off: the connection was closed");
}
