// grant: what one credential admits to: scopes, tables, and until when. Filled by an auth way, then given to a stream.
#pragma once
#include "common/json_read.h"
#include "gateway/table_filter.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GRANT_SCOPES_MAX = 1024, SCOPE_BYTES_MAX = 256, GRANT_SUBJECT_BYTES = 16 };

struct grant {
    bool open;        // --auth none: every scope, and events without one
    bool every_scope; // a `*` that the configuration allows
    bool overflow;    // more than GRANT_SCOPES_MAX were given: admit to nothing, not to some
    char *scopes;     // owned, one after the other, each with its NUL
    size_t scopes_size;
    size_t count;
    struct table_filter *tables; // owned; NULL: all
    uint64_t end_ms;             // clock_ms; 0: never
    bool has_subject;
    unsigned char subject[GRANT_SUBJECT_BYTES]; // who it is, as a digest: all streams of one are counted together
};

// Adds a scope as capture stores it (rowbell.scope_of): '' is none, one over 256 bytes is named by its digest. `*` is
// every scope with allow_every, else none. `scope` is UTF-8.
void grant_add_scope(struct grant *grant, const char *scope, bool allow_every);
// From JSON: a list, or one scope, where a text is one scope whatever is in it and an integer is taken as it is
// written. NULL and null: none. False when it is anything else.
bool grant_add_scopes(struct grant *grant, const struct json_value *value, bool allow_every);
// Who it is. kind: what the text is, a user's id or a credential, so that one cannot be taken for the other.
void grant_set_subject(struct grant *grant, const char *kind, const char *text);
void grant_free(struct grant *grant); // what it holds; the grant is empty afterwards
