// source_memory: a log in memory. For unit tests, which turn it by hand, and for a program that keeps its stream in one
// process: then appending is publishing, and nothing survives the process (clients that come back after it are told
// id_ahead or history_expired, as after any loss).
//
// Entries are counted from 0; the log starts with one that nobody is sent, so that it is never empty.
#pragma once
#include "gateway/stream_source.h"
#include <uv.h>

struct source_memory;

// With a loop, reads are answered in its next turn and time is the clock's. Without one (NULL) both are moved by hand.
// first: the position of the entry that it starts with. The port's close frees it.
struct source_memory *source_memory_new(uv_loop_t *loop, int64_t first);
struct stream_source source_memory_port(struct source_memory *source);

// Appends (position 0: the clock's, or one more) and pushes the entry to the listener. Strings are copied, prev is set
// here. Returns the position.
int64_t source_memory_append(struct source_memory *source, const struct stream_entry *entry);
int64_t source_memory_append_quietly(struct source_memory *source, const struct stream_entry *entry); // pushes nothing
void source_memory_prune(struct source_memory *source, size_t oldest);    // entries before this one are gone
void source_memory_take_back(struct source_memory *source, size_t count); // all but the first `count` never were

size_t source_memory_count(const struct source_memory *source);
struct stream_entry source_memory_at(const struct source_memory *source, size_t i); // views
bool source_memory_holds(const struct source_memory *source, int64_t position);

// ---- by hand ----
void source_memory_set_down(struct source_memory *source, bool down); // reads are answered ERROR_CONNECT
void source_memory_pass(struct source_memory *source, uint64_t ms);
bool source_memory_answer(struct source_memory *source); // the oldest read; false: none waits
bool source_memory_is_asked(const struct source_memory *source);
