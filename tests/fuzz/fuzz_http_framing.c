// A kept connection is never out of step: where an answer ends that leaves its connection to the next request, an
// independent reading of RFC 9112, 6.3 lets it end too, and what follows is read as the next answer, however it is cut.
#include "common/http_answer.h"
#include "tests/fuzz/fuzz.h"
#include <strings.h>

enum { NONE = -1, NEXT_STATUS = 299 };
static const char next[] = "HTTP/1.1 299 Next\r\nContent-Length: 4\r\n\r\nnext";

struct head {
    int status;
    long long length; // NONE: not said
    bool chunked, coded;
    const char *end; // behind the empty line
};

static bool line_is_folded(const char *line_end, const char *end) {
    return line_end + 2 < end && (line_end[2] == ' ' || line_end[2] == '\t');
}

static bool ends_with_chunked(const char *value, size_t length) {
    static const char word[] = "chunked";
    while (length > 0 && strchr(" \t\r\n", value[length - 1]))
        length--;
    size_t from = length - (sizeof word - 1);
    return length >= sizeof word - 1 && strncasecmp(value + from, word, sizeof word - 1) == 0 &&
           (from == 0 || strchr(", \t\r\n", value[from - 1]));
}

// The head at text; end NULL: none.
static struct head read_head(const char *text, const char *end) {
    struct head head = {.length = NONE};
    while (text < end && strchr("\r\n", *text))
        text++;
    const char *line = memmem(text, (size_t)(end - text), "\r\n", 2);
    const char *space = line ? memchr(text, ' ', (size_t)(line - text)) : NULL;
    if (!space)
        return head;
    head.status = atoi(space);
    for (line += 2;;) {
        const char *line_end = memmem(line, (size_t)(end - line), "\r\n", 2);
        if (!line_end)
            return head;
        if (line_end == line) {
            head.end = line + 2;
            return head;
        }
        while (line_end && line_is_folded(line_end, end))
            line_end = memmem(line_end + 2, (size_t)(end - line_end - 2), "\r\n", 2);
        const char *colon = line_end ? memchr(line, ':', (size_t)(line_end - line)) : NULL;
        if (!colon)
            return head;
        size_t name = (size_t)(colon - line);
        if (name == 14 && strncasecmp(line, "content-length", name) == 0)
            head.length = strtoll(colon + 1, NULL, 10);
        if (name == 17 && strncasecmp(line, "transfer-encoding", name) == 0) {
            head.coded = true;
            head.chunked = ends_with_chunked(colon + 1, (size_t)(line_end - colon - 1));
        }
        line = line_end + 2;
    }
}

static const char *chunks_end(const char *at, const char *end) {
    for (;;) {
        char *digits_end;
        unsigned long long size = strtoull(at, &digits_end, 16);
        const char *line = memmem(at, (size_t)(end - at), "\r\n", 2);
        if (!line || digits_end == at)
            return NULL;
        at = line + 2;
        if (size > (size_t)(end - at))
            return NULL;
        if (size == 0)
            break;
        at += size;
        if (end - at < 2 || memcmp(at, "\r\n", 2) != 0)
            return NULL;
        at += 2;
    }
    for (;;) { // trailers
        const char *line = memmem(at, (size_t)(end - at), "\r\n", 2);
        if (!line)
            return NULL;
        bool last = line == at;
        at = line + 2;
        if (last)
            return at;
    }
}

// Where the answer ends by its own framing; NULL: it does not.
static const char *answer_end(const char *text, const char *end) {
    struct head head = read_head(text, end);
    while (head.end && head.status < 200)
        head = read_head(head.end, end);
    if (!head.end)
        return NULL;
    if (head.status == 204 || head.status == 304)
        return head.end;
    if (head.coded)
        return head.chunked ? chunks_end(head.end, end) : NULL;
    return head.length >= 0 && head.length <= end - head.end ? head.end + head.length : NULL;
}

// Up to the end of an answer, in pieces of these sizes.
static enum http_answer_state read_pieces(struct http_answer *answer, const char *bytes, size_t length,
                                          size_t *ret_taken, uint32_t sizes) {
    enum http_answer_state state = HTTP_ANSWER_MORE;
    size_t at = 0;
    while (at < length && state == HTTP_ANSWER_MORE) {
        size_t piece = sizes == 0 ? 1 : 1 + sizes % 61;
        sizes = sizes == 0 ? 0 : sizes * 1664525 + 1013904223;
        if (piece > length - at)
            piece = length - at;
        char *copy = input_copy(bytes + at, piece);
        state = http_answer_read(answer, copy, piece);
        free(copy);
        at += piece;
    }
    *ret_taken = at;
    return state;
}

static void read_next(struct http_answer *answer, uint32_t sizes) {
    size_t taken;
    http_answer_start(answer, 100);
    require(read_pieces(answer, next, sizeof next - 1, &taken, sizes) == HTTP_ANSWER_DONE);
    require(taken == sizeof next - 1 && answer->status == NEXT_STATUS && answer->keep_alive);
    require(answer->body.length == 4 && memcmp(answer->body.bytes, "next", 4) == 0);
    require(answer->retry_after[0] == '\0' && answer->delivery_control[0] == '\0' && answer->date[0] == '\0');
}

FUZZ_TARGET(http_framing) {
    struct http_answer answer = {0};
    size_t end, taken;
    if (length < 4)
        return 0;
    uint32_t sizes;
    memcpy(&sizes, bytes, sizeof sizes);
    sizes |= 1;
    char *text = input_text(bytes + 4, length - 4);
    http_answer_start(&answer, 1000);
    enum http_answer_state state = read_pieces(&answer, text, length - 4, &end, 0);
    if (state == HTTP_ANSWER_DONE && answer.keep_alive) {
        require(answer_end(text, text + end) == text + end);
        int status = answer.status;
        size_t body = answer.body_bytes;
        read_next(&answer, sizes);
        // Both at once: whatever came too early is of no request, so that the connection must end. In pieces, the first
        // may end with one of them, and then it is as if it had come alone.
        struct buffer both = {0};
        buffer_append(&both, text, end);
        buffer_append(&both, next, sizeof next - 1);
        http_answer_start(&answer, 1000);
        require(read_pieces(&answer, both.bytes, both.length, &taken, sizes) == HTTP_ANSWER_DONE);
        require(answer.status == status && answer.body_bytes == body && answer.keep_alive == (taken == end));
        buffer_free(&both);
    }
    // Whatever came before: one that is started again has nothing of it.
    read_next(&answer, sizes);
    http_answer_close(&answer);
    free(text);
    return 0;
}
