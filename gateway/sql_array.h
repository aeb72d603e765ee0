// sql_array: text in PostgreSQL's text[] literals.
#pragma once
#include "common/buffer.h"

void sql_array_append(struct buffer *buffer,
                      const char *text); // one quoted element; braces and commas are the caller's
