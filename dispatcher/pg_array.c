#include "dispatcher/pg_array.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    buffer_int(array, value);
}

void pg_array_number(struct buffer *array, double value) {
    if (!(value >= 0)) {
        pg_array_null(array);
        return;
    }
    separate(array);
    int64_t thousandths = llround(value * 1000);
    buffer_int(array, thousandths / 1000);
    buffer_append(array,
                  (const char[]){'.', (char)('0' + thousandths / 100 % 10), (char)('0' + thousandths / 10 % 10),
                                 (char)('0' + thousandths % 10)},
                  4);
}

void pg_array_text(struct buffer *array, const char *text) {
    if (!text) {
        pg_array_null(array);
        return;
    }
    separate(array);
    buffer_char(array, '"');
    for (;;) {
        size_t plain = strcspn(text, "\"\\");
        buffer_append(array, text, plain);
        text += plain;
        if (*text == '\0')
            break;
        buffer_char(array, '\\');
        buffer_char(array, *text++);
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
