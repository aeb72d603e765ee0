#include "gateway/log_rows.h"
#include <stddef.h>
#include <stdlib.h>

static const char *text(const PGresult *result, int row, int column) {
    return PQgetisnull(result, row, column) ? NULL : PQgetvalue(result, row, column);
}

int64_t log_row_int(const PGresult *result, int row, int column) {
    return strtoll(PQgetvalue(result, row, column), NULL, 10);
}

bool log_row_bool(const PGresult *result, int row, int column) {
    return PQgetvalue(result, row, column)[0] == 't';
}

bool log_row_entry(const PGresult *result, int row, int column, struct stream_entry *ret_entry) {
    if (PQgetisnull(result, row, column)) {
        return false;
    }
    *ret_entry = (struct stream_entry){
        .position = log_row_int(result, row, column),
        .prev = log_row_int(result, row, column + 1),
        .scope = text(result, row, column + 2),
        .name = PQgetvalue(result, row, column + 3),
        .key = text(result, row, column + 4),
        .op = PQgetvalue(result, row, column + 5),
    };
    return true;
}
