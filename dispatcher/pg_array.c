#include "dispatcher/pg_array.h"
#include <inttypes.h>
#include <stdlib.h>

void pg_array_begin(struct buffer *array) {
    buffer_clear(array);
    buffer_char(array, '{');
}

static void separate(struct buffer *array) {
    if (array->length > 1)
        buffer_char(array, ',');
}

void pg_array_int(struct buffer *array, int64_t value) {
    separate(array);
    buffer_format(array, "%" PRId64, value);
}

void pg_array_number(struct buffer *array, double value) {
    if (!(value >= 0)) {
        pg_array_null(array);
        return;
    }
    separate(array);
    buffer_format(array, "%.3f", value);
}

void pg_array_text(struct buffer *array, const char *text) {
    if (!text) {
        pg_array_null(array);
        return;
    }
    separate(array);
    buffer_char(array, '"');
    for (const char *c = text; *c; c++) {
        if (*c == '"' || *c == '\\')
            buffer_char(array, '\\');
        buffer_char(array, *c);
    }
    buffer_char(array, '"');
}

void pg_array_null(struct buffer *array) {
    separate(array);
    buffer_text(array, "NULL");
}

const char *pg_array_end(struct buffer *array) {
    buffer_char(array, '}');
    return buffer_cstr(array);
}

void pg_array_each_int(const char *text, void (*each)(void *arg, int value), void *arg) {
    while (*text == '{' || *text == ',') {
        char *end;
        long value = strtol(text + 1, &end, 10);
        if (end == text + 1)
            return;
        each(arg, (int)value);
        text = end;
    }
}
