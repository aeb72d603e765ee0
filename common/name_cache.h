// name_cache: what is known of host names, and which look-ups may run now. Pure: time is given, nothing is asked here.
// resolver.c asks.
//
//   idle --name_queue--> queued --name_cache_next--> looking --name_answered, name_failed--> idle
//
// An answer is fresh for its TTL (5 s to 5 min). After that it is stale and looked up again; while that fails or takes
// longer than NAME_STALE_WAIT_MS the stale answer is served, for an hour at the most, and without end for names of our
// own servers. A fault holds for 2 s, then 4, up to 30. That a name does not exist ends a stale answer; no other fault
// does.
//
// Look-ups that stay silent must not take the turn of others. A look-up counts among the quick ones until it is
// NAME_QUICK_MS old; at most NAME_QUICK_MOST are quick, so the next may start when older ones turn out to be slow.
// Names whose last look-up failed wait in a queue of their own. Names with an answer, and our own servers, go first.
#pragma once
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uthash.h>

enum {
    RESOLVER_MAX_ADDRESSES = 16,
    NAME_TTL_LEAST_MS = 5000,
    NAME_TTL_MOST_MS = 300000, // a connection is not kept longer either
    NAME_STALE_MS = 3600000,
    NAME_STALE_WAIT_MS = 500,
    NAME_FAULT_FIRST_MS = 2000,
    NAME_FAULT_MOST_MS = 30000,
    NAME_QUICK_MS = 250,
    NAME_QUICK_MOST = 256,
    NAME_SUSPECT_MOST = 256,
    NAME_LOOKUPS_MOST = 4096,
    NAMES_MOST = 16384, // the oldest that nobody used goes first
};

union resolver_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};
struct resolver_answer {
    union resolver_address addresses[RESOLVER_MAX_ADDRESSES]; // port 0; IPv4 first
    size_t count;
};

// The codes are what operators see: name_fault_code.
enum name_fault {
    NAME_FOUND,
    NAME_NXDOMAIN,
    NAME_NODATA,
    NAME_SERVFAIL,
    NAME_REFUSED,
    NAME_TIMEOUT,
    NAME_MALFORMED,
    NAME_UNREACHABLE,
    NAME_INVALID,
    NAME_BUSY,
    NAME_FAILED,
};

enum name_verdict { NAME_WAIT, NAME_KNOWN, NAME_FAULTY };
enum name_state { NAME_IDLE, NAME_QUEUED, NAME_LOOKING };

struct name {
    UT_hash_handle hh;
    struct name *prev, *next; // in a queue, or in `looking`
    enum name_state state;
    bool ours;           // a server of our own: never forgotten, and its last answer serves without end
    bool used;           // since it was last passed over for removal
    bool suspect, quick; // how the look-up counts
    uint64_t since_ms;   // queued or looking
    struct resolver_answer answer;
    uint64_t ttl_ms, fresh_until_ms;
    enum name_fault fault; // of the last look-up
    unsigned faults;       // in a row
    uint64_t faulty_until_ms;
    char host[];
};

struct name_cache {
    struct name *names;
    struct name *queue, *suspects, *looking;
    size_t looking_count, quick_count, suspect_count;
};

struct name *name_cache_find(const struct name_cache *cache, const char *host); // NULL: unknown
// Found or added. NULL: full of names that are being looked up.
struct name *name_cache_add(struct name_cache *cache, const char *host);
void name_cache_close(struct name_cache *cache);

enum name_verdict name_judge(const struct name *name, uint64_t now_ms);
// Should it be looked up, now or (used while the last fifth of its time runs) beforehand?
bool name_is_due(const struct name *name, uint64_t now_ms);
void name_queue(struct name_cache *cache, struct name *name, uint64_t now_ms); // it must be idle
// The next whose look-up starts now; NULL: none may.
struct name *name_cache_next(struct name_cache *cache, uint64_t now_ms);
void name_cache_tick(struct name_cache *cache, uint64_t now_ms); // quick ones become slow
void name_answered(struct name_cache *cache, struct name *name, const struct resolver_answer *answer, uint64_t ttl_ms,
                   uint64_t now_ms);
void name_failed(struct name_cache *cache, struct name *name, enum name_fault fault, uint64_t now_ms);

const char *name_fault_code(enum name_fault fault); // "nxdomain"
const char *name_fault_text(enum name_fault fault); // for people
