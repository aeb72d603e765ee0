// table_filter: the tables that a subscriber asked for by ?table=. NULL stands for all of them.
#pragma once
#include "common/buffer.h"
#include <stdbool.h>
#include <stddef.h>

struct table_filter;

// Adds a name to *filter, making the filter at the first one. Duplicates are dropped.
void table_filter_add(struct table_filter **filter, const char *name);
// A NULL name is everybody's.
void table_filter_add_none(struct table_filter **filter); // makes one that holds no table, unless there is one
bool table_filter_holds(const struct table_filter *filter, const char *name);
// Drops from *filter what is not in `allowed` (NULL: nothing). What is left may be a filter without a name: no table.
void table_filter_narrow(struct table_filter **filter, const struct table_filter *allowed);
// PostgreSQL text[] literal; for replay's statement.
void table_filter_append_array(const struct table_filter *filter, struct buffer *buffer);
void table_filter_free(struct table_filter *filter);
