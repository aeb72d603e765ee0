// pg_array: PostgreSQL array literals ('{1,2,"a b",NULL}') for statements that take whole batches, and the reading of
// int arrays. PostgreSQL docs, 8.15.6.
//
// Invariant: between pg_array_begin and pg_array_end the buffer holds a literal that only lacks its closing brace.
#pragma once
#include "common/buffer.h"
#include <stdbool.h>
#include <stdint.h>

void pg_array_begin(struct buffer *array); // clears the buffer
void pg_array_int(struct buffer *array, int64_t value);
void pg_array_number(struct buffer *array, double value);   // below zero: NULL, as in a sink's timings
void pg_array_text(struct buffer *array, const char *text); // NULL pointer: NULL
void pg_array_null(struct buffer *array);
const char *pg_array_end(struct buffer *array); // view

// Calls each for every element of an int array in text form, "{1,2,3}".
void pg_array_each_int(const char *text, void (*each)(void *arg, int value), void *arg);
