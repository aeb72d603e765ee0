#include "gateway/sql_array.h"

void sql_array_append(struct buffer *buffer, const char *text) {
    buffer_char(buffer, '"');
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\') {
            buffer_char(buffer, '\\');
        }
        buffer_char(buffer, *c);
    }
    buffer_char(buffer, '"');
}
