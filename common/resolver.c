// A name is one entry: it is waited for (a lookup in flight), or known until expires_ms, or stale and looked up again.
//
// Waiters whose answer is there already are put on `ready` and called from a zero timer, so that no callback runs
// inside resolver_lookup. The happy path of a busy process is resolver_peek, which costs one hash lookup.
#include "common/resolver.h"
#include "common/clock.h"
#include "common/memory.h"
#include <arpa/inet.h>
#include <assert.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>
#include <utlist.h>

enum {
    POSITIVE_MS = 30000,
    NEGATIVE_MS = 2000,
    MAX_NAMES = 4096,     // the oldest that nobody waits for goes first
    MAX_NAME_BYTES = 255, // RFC 1035, and a trailing dot
};

struct waiter {
    resolver_done *done;
    void *arg;
    struct resolver_answer *answer; // owned; NULL: error
    struct error error;
    struct waiter *next;
};

struct name {
    char *host;
    struct resolver *resolver;
    bool looking_up;
    bool failed;
    struct resolver_answer answer;
    struct error error;
    uint64_t expires_ms; // 0 before the first answer
    struct waiter *waiters;
    uv_getaddrinfo_t request;
    UT_hash_handle hh;
};

struct resolver {
    uv_loop_t *loop;
    uv_timer_t ready_timer;
    struct waiter *ready;
    struct name *names; // uthash keeps the order of insertion
    size_t lookups;     // in flight in the thread pool
    bool closing;
    bool timer_closed;
};

static void resolver_free_when_idle(struct resolver *resolver) {
    if (resolver->closing && resolver->timer_closed && resolver->lookups == 0)
        free(resolver);
}

static void name_free(struct name *name) {
    free(name->host);
    free(name);
}

static void on_timer_closed(uv_handle_t *handle) {
    struct resolver *resolver = handle->data;
    resolver->timer_closed = true;
    resolver_free_when_idle(resolver);
}

static void on_ready(uv_timer_t *timer) {
    struct resolver *resolver = timer->data;
    // Only those of this turn: a callback may ask again.
    struct waiter *ready = resolver->ready;
    resolver->ready = NULL;
    struct waiter *waiter;
    struct waiter *next;
    LL_FOREACH_SAFE(ready, waiter, next) {
        waiter->done(waiter->arg, waiter->answer, waiter->answer ? NULL : &waiter->error);
        free(waiter->answer);
        free(waiter);
    }
    if (resolver->closing && !resolver->ready)
        uv_close((uv_handle_t *)&resolver->ready_timer, on_timer_closed);
}

static void waiter_answer(struct resolver *resolver, struct waiter *waiter, const struct resolver_answer *answer,
                          const struct error *error) {
    if (answer) {
        waiter->answer = memory_alloc(sizeof *answer);
        *waiter->answer = *answer;
    } else {
        waiter->error = *error;
    }
    LL_APPEND(resolver->ready, waiter);
    uv_timer_start(&resolver->ready_timer, on_ready, 0, 0);
}

static bool parse_literal(const char *host, struct resolver_answer *ret_answer) {
    struct sockaddr_in *v4 = (struct sockaddr_in *)&ret_answer->addresses[0];
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&ret_answer->addresses[0];
    ret_answer->addresses[0] = (struct sockaddr_storage){0};
    ret_answer->count = 1;
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        return true;
    }
    ret_answer->addresses[0] = (struct sockaddr_storage){0};
    if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        return true;
    }
    return false;
}

static void copy_addresses(struct resolver_answer *answer, const struct addrinfo *list) {
    answer->count = 0;
    for (; list && answer->count < RESOLVER_MAX_ADDRESSES; list = list->ai_next) {
        if (list->ai_family != AF_INET && list->ai_family != AF_INET6)
            continue;
        struct sockaddr_storage *address = &answer->addresses[answer->count++];
        *address = (struct sockaddr_storage){0};
        memcpy(address, list->ai_addr, list->ai_addrlen);
    }
}

static void on_looked_up(uv_getaddrinfo_t *request, int status, struct addrinfo *list) {
    struct name *name = request->data;
    struct resolver *resolver = name->resolver;
    resolver->lookups--;
    if (resolver->closing) {
        uv_freeaddrinfo(list);
        name_free(name);
        resolver_free_when_idle(resolver);
        return;
    }
    name->looking_up = false;
    copy_addresses(&name->answer, status == 0 ? list : NULL);
    uv_freeaddrinfo(list);
    name->failed = name->answer.count == 0;
    if (name->failed)
        error_set(&name->error, ERROR_CONNECT, "resolve %s: %s", name->host,
                  status == 0 ? "no IPv4 or IPv6 address" : uv_strerror(status));
    name->expires_ms = clock_ms() + (name->failed ? NEGATIVE_MS : POSITIVE_MS);

    struct waiter *waiter;
    struct waiter *next;
    LL_FOREACH_SAFE(name->waiters, waiter, next) {
        LL_DELETE(name->waiters, waiter);
        waiter_answer(resolver, waiter, name->failed ? NULL : &name->answer, &name->error);
    }
}

static void start_lookup(struct resolver *resolver, struct name *name) {
    static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    name->request.data = name;
    int status = uv_getaddrinfo(resolver->loop, &name->request, on_looked_up, name->host, NULL, &hints);
    resolver->lookups++;
    name->looking_up = true;
    if (status != 0) // a host that is no name at all (too long for IDNA)
        on_looked_up(&name->request, status, NULL);
}

// Makes room by dropping the oldest that nobody waits for.
static void drop_oldest(struct resolver *resolver) {
    struct name *name;
    struct name *next;
    HASH_ITER(hh, resolver->names, name, next) {
        if (!name->looking_up) {
            HASH_DEL(resolver->names, name);
            name_free(name);
            return;
        }
    }
}

static struct name *name_find_or_add(struct resolver *resolver, const char *host) {
    struct name *name;
    HASH_FIND_STR(resolver->names, host, name);
    if (name)
        return name;
    if (HASH_COUNT(resolver->names) >= MAX_NAMES)
        drop_oldest(resolver);
    name = memory_alloc(sizeof *name);
    name->host = memory_copy_text(host);
    name->resolver = resolver;
    HASH_ADD_KEYPTR(hh, resolver->names, name->host, strlen(name->host), name);
    return name;
}

struct resolver *resolver_new(uv_loop_t *loop) {
    struct resolver *resolver = memory_alloc(sizeof *resolver);
    resolver->loop = loop;
    uv_timer_init(loop, &resolver->ready_timer);
    resolver->ready_timer.data = resolver;
    return resolver;
}

bool resolver_peek(struct resolver *resolver, const char *host, struct resolver_answer *ret_answer) {
    if (parse_literal(host, ret_answer))
        return true;
    struct name *name;
    HASH_FIND_STR(resolver->names, host, name);
    if (!name || name->failed || name->expires_ms == 0 || clock_ms() >= name->expires_ms)
        return false;
    memcpy(ret_answer->addresses, name->answer.addresses, name->answer.count * sizeof *name->answer.addresses);
    ret_answer->count = name->answer.count;
    return true;
}

void resolver_lookup(struct resolver *resolver, const char *host, resolver_done *done, void *arg) {
    struct waiter *waiter = memory_alloc(sizeof *waiter);
    waiter->done = done;
    waiter->arg = arg;

    struct resolver_answer literal;
    struct error error;
    assert(!resolver->closing);
    if (parse_literal(host, &literal)) {
        waiter_answer(resolver, waiter, &literal, NULL);
    } else if (host[0] == '\0' || strlen(host) > MAX_NAME_BYTES) {
        error_set(&error, ERROR_CONNECT, "resolve %.100s: not a host name", host);
        waiter_answer(resolver, waiter, NULL, &error);
    } else {
        struct name *name = name_find_or_add(resolver, host);
        if (!name->looking_up && name->expires_ms != 0 && clock_ms() < name->expires_ms) {
            waiter_answer(resolver, waiter, name->failed ? NULL : &name->answer, &name->error);
            return;
        }
        LL_APPEND(name->waiters, waiter);
        if (!name->looking_up)
            start_lookup(resolver, name);
    }
}

void resolver_close(struct resolver *resolver) {
    if (!resolver)
        return;
    resolver->closing = true;
    struct name *name;
    struct name *next;
    HASH_ITER(hh, resolver->names, name, next) {
        struct error error;
        error_set(&error, ERROR_CANCELLED, "resolve %s: closing", name->host);
        struct waiter *waiter;
        struct waiter *next_waiter;
        LL_FOREACH_SAFE(name->waiters, waiter, next_waiter) {
            LL_DELETE(name->waiters, waiter);
            waiter_answer(resolver, waiter, NULL, &error);
        }
        HASH_DEL(resolver->names, name);
        if (name->looking_up)
            uv_cancel((uv_req_t *)&name->request); // its callback comes in any case, and frees the name
        else
            name_free(name);
    }
    uv_timer_start(&resolver->ready_timer, on_ready, 0, 0);
}
