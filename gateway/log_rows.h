// log_rows: rows of rowbell.stream_log in a result.
#pragma once
#include "common/stream_message.h"
#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

// An entry from the six columns position, prev, scope, name, key, op that start at `column`; strings are views of the
// result. False when position is NULL (the row of a left join without entries).
bool log_row_entry(const PGresult *result, int row, int column, struct stream_entry *ret_entry);
int64_t log_row_int(const PGresult *result, int row, int column); // 0 for NULL
bool log_row_bool(const PGresult *result, int row, int column);
