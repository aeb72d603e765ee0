// The reader of answers on any bytes: whole and byte by byte must be read the same, within its limits.
#include "common/http_answer.h"
#include "tests/fuzz/fuzz.h"

static struct buffer read_as(const uint8_t *bytes, size_t length, size_t cut, size_t whole_max_bytes) {
    struct http_answer answer = {0};
    http_answer_start(&answer, whole_max_bytes);
    enum http_answer_state state = HTTP_ANSWER_MORE;
    for (size_t at = 0; at < length && state == HTTP_ANSWER_MORE;) {
        size_t piece = length - at < cut ? length - at : cut;
        char *copy = input_copy(bytes + at, piece);
        state = http_answer_read(&answer, copy, piece);
        free(copy);
        at += piece;
    }
    if (state == HTTP_ANSWER_MORE)
        state = http_answer_end(&answer);
    struct buffer text = {0};
    require(state != HTTP_ANSWER_MORE && (state == HTTP_ANSWER_BAD) == (answer.reason[0] != '\0'));
    buffer_format(&text, "%d %d", state, answer.status);
    if (state == HTTP_ANSWER_DONE) {
        require(answer.status >= 200 && answer.header_bytes <= HTTP_ANSWER_HEADER_MAX_BYTES);
        require(answer.body_bytes <= (whole_max_bytes ? whole_max_bytes : HTTP_ANSWER_BODY_MAX_BYTES));
        size_t kept = answer.body_bytes < HTTP_ANSWER_HEAD_BYTES ? answer.body_bytes : HTTP_ANSWER_HEAD_BYTES;
        buffer_format(&text, " %s %s ", answer.retry_after, answer.delivery_control);
        buffer_append(&text, answer.head, kept);
        require(answer.body.length == (whole_max_bytes ? answer.body_bytes : 0));
    }
    http_answer_close(&answer);
    return text;
}

FUZZ_TARGET(http_answer) {
    for (size_t whole = 0; whole <= 100; whole += 100) {
        struct buffer one = read_as(bytes, length, SIZE_MAX, whole);
        struct buffer many = read_as(bytes, length, 1, whole);
        require(one.length == many.length && memcmp(one.bytes, many.bytes, one.length) == 0);
        buffer_free(&one);
        buffer_free(&many);
    }
    return 0;
}
