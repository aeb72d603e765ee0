// source_redis: entries as the dispatchers publish them on Redis, in front of a log. Fast, and allowed to lose any of
// them: every read goes to the log, which is compared more often while Redis is away or delivers nothing.
#pragma once
#include "gateway/stream_source.h"
#include <uv.h>

// Takes log. Messages count that are signed with one of its keys (read_keys). ca_file: for rediss; NULL: the system's.
struct stream_source source_redis_new(uv_loop_t *loop, const char *url, const char *ca_file, int stream_id,
                                      struct stream_source log);
