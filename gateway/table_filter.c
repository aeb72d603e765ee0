#include "gateway/table_filter.h"
#include "common/memory.h"
#include "gateway/sql_array.h"
#include <stdlib.h>
#include <string.h>

// Names one after the other, each with its NUL: one block, since a subscriber may live for days.
struct table_filter {
    size_t size;
    char names[];
};

void table_filter_add(struct table_filter **filter, const char *name) {
    if (*filter && table_filter_holds(*filter, name)) {
        return;
    }
    size_t old_size = *filter ? (*filter)->size : 0;
    size_t name_size = strlen(name) + 1;
    struct table_filter *grown = memory_resize(*filter, 1, sizeof *grown + old_size + name_size);
    memcpy(grown->names + old_size, name, name_size);
    grown->size = old_size + name_size;
    *filter = grown;
}

void table_filter_add_none(struct table_filter **filter) {
    if (!*filter) {
        *filter = memory_alloc(sizeof **filter);
    }
}

bool table_filter_holds(const struct table_filter *filter, const char *name) {
    if (!filter || !name) {
        return true;
    }
    for (const char *n = filter->names; n < filter->names + filter->size; n += strlen(n) + 1) {
        if (strcmp(n, name) == 0) {
            return true;
        }
    }
    return false;
}

void table_filter_narrow(struct table_filter **filter, const struct table_filter *allowed) {
    if (!allowed) {
        return;
    }
    struct table_filter *narrowed = NULL;
    table_filter_add_none(&narrowed);
    for (const char *n = allowed->names; n < allowed->names + allowed->size; n += strlen(n) + 1) {
        if (table_filter_holds(*filter, n)) {
            table_filter_add(&narrowed, n);
        }
    }
    table_filter_free(*filter);
    *filter = narrowed;
}

void table_filter_append_array(const struct table_filter *filter, struct buffer *buffer) {
    buffer_char(buffer, '{');
    for (const char *n = filter->names; n < filter->names + filter->size; n += strlen(n) + 1) {
        if (n != filter->names) {
            buffer_char(buffer, ',');
        }
        sql_array_append(buffer, n);
    }
    buffer_char(buffer, '}');
}

void table_filter_free(struct table_filter *filter) {
    free(filter);
}
