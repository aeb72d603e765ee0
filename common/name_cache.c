#include "common/name_cache.h"
#include "common/memory.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

enum { SECOND_CHANCES = 64 };

static const struct {
    const char *code, *text;
} faults[] = {
    [NAME_FOUND] = {"found", "found"},
    [NAME_NXDOMAIN] = {"nxdomain", "there is no such name"},
    [NAME_NODATA] = {"nodata", "the name has no address"},
    [NAME_SERVFAIL] = {"servfail", "the name servers failed"},
    [NAME_REFUSED] = {"refused", "the name server refused to answer"},
    [NAME_TIMEOUT] = {"timeout", "the name servers did not answer in time"},
    [NAME_MALFORMED] = {"malformed", "the answer of the name server cannot be read"},
    [NAME_UNREACHABLE] = {"unreachable", "no name server can be reached"},
    [NAME_INVALID] = {"invalid", "this is not a host name"},
    [NAME_BUSY] = {"busy", "too many look-ups are waiting"},
    [NAME_FAILED] = {"failed", "the look-up failed"},
};

const char *name_fault_code(enum name_fault fault) {
    return faults[fault].code;
}

const char *name_fault_text(enum name_fault fault) {
    return faults[fault].text;
}

// ---- names

struct name *name_cache_find(const struct name_cache *cache, const char *host) {
    struct name *name;
    HASH_FIND_STR(cache->names, host, name);
    return name;
}

// One that was used since goes to the end instead.
static bool make_room(struct name_cache *cache) {
    struct name *name;
    struct name *next;
    int chances = SECOND_CHANCES;
    HASH_ITER(hh, cache->names, name, next) {
        if (name->state != NAME_IDLE || name->ours)
            continue;
        HASH_DEL(cache->names, name);
        if (!name->used || chances-- == 0) {
            free(name);
            return true;
        }
        name->used = false;
        HASH_ADD_STR(cache->names, host, name);
    }
    return false;
}

struct name *name_cache_add(struct name_cache *cache, const char *host) {
    struct name *name = name_cache_find(cache, host);
    if (name || (HASH_COUNT(cache->names) >= NAMES_MOST && !make_room(cache)))
        return name;
    name = memory_alloc(sizeof *name + strlen(host) + 1);
    memcpy(name->host, host, strlen(host) + 1);
    HASH_ADD_STR(cache->names, host, name);
    return name;
}

void name_cache_close(struct name_cache *cache) {
    struct name *name;
    struct name *next;
    HASH_ITER(hh, cache->names, name, next) {
        HASH_DEL(cache->names, name);
        free(name);
    }
    *cache = (struct name_cache){0};
}

// ---- what is known

static bool is_final(enum name_fault fault) {
    return fault == NAME_NXDOMAIN || fault == NAME_NODATA;
}

enum name_verdict name_judge(const struct name *name, uint64_t now_ms) {
    bool faulty = name->fault != NAME_FOUND && now_ms < name->faulty_until_ms;
    if (name->answer.count > 0) {
        if (now_ms < name->fresh_until_ms)
            return NAME_KNOWN;
        bool slow = name->state != NAME_IDLE && now_ms >= name->since_ms + NAME_STALE_WAIT_MS;
        if ((faulty || slow) && (name->ours || now_ms < name->fresh_until_ms + NAME_STALE_MS))
            return NAME_KNOWN;
    }
    return faulty ? NAME_FAULTY : NAME_WAIT;
}

bool name_is_due(const struct name *name, uint64_t now_ms) {
    if (name->state != NAME_IDLE || (name->fault != NAME_FOUND && now_ms < name->faulty_until_ms))
        return false;
    return name->answer.count == 0 || now_ms + name->ttl_ms / 5 >= name->fresh_until_ms;
}

// ---- look-ups

void name_queue(struct name_cache *cache, struct name *name, uint64_t now_ms) {
    assert(name->state == NAME_IDLE);
    name->state = NAME_QUEUED;
    name->since_ms = now_ms;
    name->suspect = !name->ours && name->fault != NAME_FOUND && !is_final(name->fault);
    if (name->suspect)
        DL_APPEND(cache->suspects, name);
    else if (name->ours || name->answer.count > 0)
        DL_PREPEND(cache->queue, name);
    else
        DL_APPEND(cache->queue, name);
}

struct name *name_cache_next(struct name_cache *cache, uint64_t now_ms) {
    struct name *name = cache->queue;
    bool room = cache->looking_count < NAME_LOOKUPS_MOST;
    if (name && (name->ours || (room && cache->quick_count < NAME_QUICK_MOST))) {
        DL_DELETE(cache->queue, name);
        name->quick = true;
        cache->quick_count++;
    } else if (cache->suspects && room && cache->suspect_count < NAME_SUSPECT_MOST) {
        name = cache->suspects;
        DL_DELETE(cache->suspects, name);
        name->quick = false;
        cache->suspect_count++;
    } else {
        return NULL;
    }
    cache->looking_count++;
    name->state = NAME_LOOKING;
    name->since_ms = now_ms;
    DL_APPEND(cache->looking, name);
    return name;
}

static void leave_quick(struct name_cache *cache, struct name *name) {
    cache->quick_count -= name->quick;
    name->quick = false;
}

void name_cache_tick(struct name_cache *cache, uint64_t now_ms) {
    struct name *name;
    DL_FOREACH(cache->looking, name) {
        if (now_ms < name->since_ms + NAME_QUICK_MS)
            break; // they are in the order of their start
        leave_quick(cache, name);
    }
}

static void lookup_ended(struct name_cache *cache, struct name *name) {
    if (name->state != NAME_LOOKING) // an answer that came late
        return;
    leave_quick(cache, name);
    cache->suspect_count -= name->suspect;
    cache->looking_count--;
    DL_DELETE(cache->looking, name);
    name->state = NAME_IDLE;
}

void name_answered(struct name_cache *cache, struct name *name, const struct resolver_answer *answer, uint64_t ttl_ms,
                   uint64_t now_ms) {
    lookup_ended(cache, name);
    name->answer = *answer;
    name->ttl_ms = ttl_ms < NAME_TTL_LEAST_MS  ? NAME_TTL_LEAST_MS
                   : ttl_ms < NAME_TTL_MOST_MS ? ttl_ms
                                               : NAME_TTL_MOST_MS;
    name->fresh_until_ms = now_ms + name->ttl_ms;
    name->fault = NAME_FOUND;
    name->faults = 0;
}

void name_failed(struct name_cache *cache, struct name *name, enum name_fault fault, uint64_t now_ms) {
    lookup_ended(cache, name);
    if (is_final(fault))
        name->answer.count = 0;
    name->fault = fault;
    uint64_t lasts_ms = name->faults < 4 ? (uint64_t)NAME_FAULT_FIRST_MS << name->faults : NAME_FAULT_MOST_MS;
    name->faults++;
    name->faulty_until_ms = now_ms + lasts_ms;
}
