#include "gateway/scope_index.h"
#include "common/memory.h"
#include "gateway/sql_array.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>
#include <utlist.h>

struct scope;

struct seat {
    struct scope *scope;
    struct scope_rights *rights;
    struct seat *prev, *next; // of scope->seats
};

// A scope that somebody may see. Freed with its last seat.
struct scope {
    struct seat *seats;
    UT_hash_handle hh;
    char name[];
};

struct scope_index {
    bool unscoped;
    struct scope *scopes;
    struct seat *sees_every; // seats of those who see every scope; their scope is NULL
};

struct scope_rights {
    struct scope_index *index;
    void *member;
    uint64_t end_ms;
    uint32_t count;
    bool every_scope; // then one seat, in sees_every
    struct seat seats[];
};

struct scope_index *scope_index_new(bool unscoped) {
    struct scope_index *index = memory_alloc(sizeof *index);
    index->unscoped = unscoped;
    return index;
}

void scope_index_free(struct scope_index *index) {
    assert(!index || (!index->scopes && !index->sees_every));
    free(index);
}

size_t scope_index_count(const struct scope_index *index) {
    return HASH_COUNT(index->scopes);
}

static bool is_for_all(const struct scope_index *index, const char *scope) {
    return scope ? strcmp(scope, "*") == 0 : index->unscoped;
}

static void each_seat(const struct seat *seats, void (*each)(void *arg, void *member), void *arg) {
    const struct seat *seat;
    DL_FOREACH(seats, seat) {
        each(arg, seat->rights->member);
    }
}

// Members with several scopes sit in several lists: only the first of their seats counts.
static void each_first_seat(const struct scope_index *index, void (*each)(void *arg, void *member), void *arg) {
    const struct scope *scope;
    const struct seat *seat;
    for (scope = index->scopes; scope; scope = scope->hh.next) {
        DL_FOREACH(scope->seats, seat) {
            if (seat == seat->rights->seats) {
                each(arg, seat->rights->member);
            }
        }
    }
}

void scope_index_each(const struct scope_index *index, const char *scope, void (*each)(void *arg, void *member),
                      void *arg) {
    if (is_for_all(index, scope)) {
        each_seat(index->sees_every, each, arg);
        each_first_seat(index, each, arg);
    } else if (scope) {
        struct scope *found;
        each_seat(index->sees_every, each, arg);
        HASH_FIND_STR(index->scopes, scope, found);
        if (found) {
            each_seat(found->seats, each, arg);
        }
    }
}

// ---- rights ----

static struct scope *scope_intern(struct scope_index *index, const char *name) {
    struct scope *scope;
    size_t length = strlen(name);
    HASH_FIND(hh, index->scopes, name, length, scope);
    if (!scope) {
        scope = memory_alloc(sizeof *scope + length + 1);
        memcpy(scope->name, name, length + 1);
        HASH_ADD_KEYPTR(hh, index->scopes, scope->name, length, scope);
        assert(scope->hh.tbl); // HASH_NONFATAL_OOM: not added
    }
    return scope;
}

struct scope_rights *scope_rights_new(struct scope_index *index, const struct grant *grant, void *member) {
    if (grant->open) {
        return NULL;
    }
    size_t count = grant->overflow ? 0 : grant->every_scope ? 1 : grant->count;
    struct scope_rights *rights = memory_alloc(sizeof *rights + count * sizeof rights->seats[0]);
    rights->index = index;
    rights->member = member;
    rights->end_ms = grant->end_ms;
    rights->count = (uint32_t)count;
    rights->every_scope = grant->every_scope && count > 0;
    const char *name = grant->scopes;
    for (size_t i = 0; i < count; i++) {
        struct seat *seat = &rights->seats[i];
        seat->rights = rights;
        if (rights->every_scope) {
            DL_APPEND(index->sees_every, seat);
            continue;
        }
        seat->scope = scope_intern(index, name);
        DL_APPEND(seat->scope->seats, seat);
        name += strlen(name) + 1;
    }
    return rights;
}

static void seat_leave(struct scope_index *index, struct seat *seat) {
    struct scope *scope = seat->scope;
    if (!scope) {
        DL_DELETE(index->sees_every, seat);
        return;
    }
    DL_DELETE(scope->seats, seat);
    if (!scope->seats) {
        HASH_DEL(index->scopes, scope);
        free(scope);
    }
}

void scope_rights_free(struct scope_rights *rights) {
    if (!rights) {
        return;
    }
    for (size_t i = 0; i < rights->count; i++) {
        seat_leave(rights->index, &rights->seats[i]);
    }
    free(rights);
}

bool scope_rights_see(const struct scope_rights *rights, const char *scope) {
    if (!rights) {
        return true;
    }
    if (rights->count == 0) {
        return false;
    }
    if (is_for_all(rights->index, scope)) {
        return true;
    }
    if (!scope) {
        return false;
    }
    if (rights->every_scope) {
        return true;
    }
    for (size_t i = 0; i < rights->count; i++) {
        if (strcmp(rights->seats[i].scope->name, scope) == 0) {
            return true;
        }
    }
    return false;
}

uint64_t scope_rights_end_ms(const struct scope_rights *rights) {
    return rights ? rights->end_ms : 0;
}

bool scope_rights_see_every_scope(const struct scope_rights *rights) {
    return !rights || rights->every_scope;
}

void scope_rights_append_array(const struct scope_rights *rights, struct buffer *buffer) {
    buffer_char(buffer, '{');
    for (size_t i = 0; i < rights->count; i++) {
        sql_array_append(buffer, rights->seats[i].scope->name);
        buffer_char(buffer, ',');
    }
    buffer_text(buffer, "\"*\"}");
}
