// scope_index: who may see an event, found from the event's scope (G7). An event costs those who may see it, and nobody
// else. Each member has rights: the scopes of its grant, each a seat in the list of that scope.
//
// Fails closed: rights without a scope see nothing. An event without a scope is for nobody unless `unscoped`; one of
// scope
// `*` (a TRUNCATE of a scoped table) is for everybody who sees anything. NULL rights are those of --auth none: all of
// it.
#pragma once
#include "common/buffer.h"
#include "gateway/grant.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct scope_index;
struct scope_rights;

struct scope_index *scope_index_new(bool unscoped);        // events without a scope are for everybody who sees anything
void scope_index_free(struct scope_index *index);          // every rights must be freed; NULL is allowed
size_t scope_index_count(const struct scope_index *index); // scopes that have a member

// Calls each for every member that may see an event of this scope (NULL: it has none), once each. each must not make or
// free rights.
void scope_index_each(const struct scope_index *index, const char *scope, void (*each)(void *arg, void *member),
                      void *arg);

// NULL for a grant that is `open`. `member` is kept, for scope_index_each.
struct scope_rights *scope_rights_new(struct scope_index *index, const struct grant *grant, void *member);
void scope_rights_free(struct scope_rights *rights); // leaves the index; NULL is allowed
bool scope_rights_see(const struct scope_rights *rights, const char *scope);
uint64_t scope_rights_end_ms(const struct scope_rights *rights); // of the grant; 0: never

// For replay's statements, which know no rights. Otherwise the array names what to read: the scopes and `*`, as text[].
bool scope_rights_see_every_scope(const struct scope_rights *rights);
void scope_rights_append_array(const struct scope_rights *rights, struct buffer *buffer);
