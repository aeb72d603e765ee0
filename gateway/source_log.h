// source_log: the stream's log in PostgreSQL, alone: LISTEN for news, and reads.
//
// With direct_url the log is followed there, and url, which may be a pooler or a standby, answers what clients missed;
// where a copy cannot decide, the direct one is asked.
#pragma once
#include "gateway/stream_source.h"
#include <uv.h>

enum { STREAM_ID = 1 }; // the stream `default`

struct stream_source source_log_new(uv_loop_t *loop, const char *url,
                                    const char *direct_url); // direct_url: may be NULL
