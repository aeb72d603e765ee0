// http_answer: reads the answer to one request (HTTP/1.x) from bytes as they come, by llhttp, within limits. Pure.
// llhttp is strict: an answer that could be read in two ways (two lengths, a bare LF in the head, a space in a name) is
// none.
#pragma once
#include "common/buffer.h"
#include <stdbool.h>
#include <stddef.h>

enum {
    HTTP_ANSWER_HEADER_MAX_BYTES = 16384, // status line and headers, those of interim answers (1xx) included
    HTTP_ANSWER_BODY_MAX_BYTES = 65536,   // unless the body is kept
    HTTP_ANSWER_HEAD_BYTES = 4096,
};

enum http_answer_state {
    HTTP_ANSWER_MORE,
    HTTP_ANSWER_DONE,
    HTTP_ANSWER_CUT, // its status is known, its body is longer than the limit: the rest was not read
    HTTP_ANSWER_BAD, // reason says why
};

struct http_answer {
    int status;      // of the final answer; 0: its head is not whole yet
    bool keep_alive; // when DONE: the connection may take another request
    size_t header_bytes, body_bytes;
    char retry_after[128]; // the headers that we know, "" when absent or longer
    char delivery_control[64];
    char date[64];
    char head[HTTP_ANSWER_HEAD_BYTES + 1]; // the first bytes of the body, as they came
    struct buffer body;                    // all of it, when whole_max_bytes was set; owned
    char reason[160];                      // when BAD

    // Inside.
    struct llhttp__internal_s *llhttp; // owned
    size_t whole_max_bytes;
    size_t body_wire_bytes; // with the framing of chunks
    bool in_body, complete, chunked, has_retry_after, has_delivery_control, has_date;
    char last;                 // byte that was read
    char name[32], value[128]; // of the header that is being read
    size_t name_length, value_length;
};

// A zeroed one, or one that was read before, whose memory is kept. whole_max_bytes: keep the body, up to so many bytes;
// 0: its head only.
void http_answer_start(struct http_answer *answer, size_t whole_max_bytes);
// To be called until it is not MORE; bytes that follow a whole answer make it one that is not keep_alive.
enum http_answer_state http_answer_read(struct http_answer *answer, const char *bytes, size_t length);
// The peer sends no more, while the answer is at MORE: DONE where the end of the body is that of the connection.
enum http_answer_state http_answer_end(struct http_answer *answer);
void http_answer_close(struct http_answer *answer);
