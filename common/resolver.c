// The happy path of a busy process is resolver_peek, which costs one hash look-up. Otherwise a query asks c-ares for
// the IPv4 and the IPv6 addresses at once, each a half; c-ares says which sockets to watch, and gives the answers in
// callbacks from on_readable and on_tick. When one half has addresses and the other is late, the answer is complete
// without it.
//
// The failure modes are: a name server is silent (c-ares tries twice; after LOOKUP_MOST_MS the query is over for us,
// but what still comes is kept); it answers with a fault; the servers change (resolv.conf), and then everything is
// asked again. Waiters are called from a zero timer, so that no callback runs inside resolver_lookup.
#include "common/resolver.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/memory.h"
#include <ares.h>
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <utlist.h>

enum {
    TRY_MS = 2000, // then another try, of twice the time
    TRIES = 2,
    LOOKUP_MOST_MS = 6000,
    HALF_MS = 100, // after one half has addresses
    TICK_MS = 50,
    CONF_LOOK_MS = 1000,
    HOST_MOST_BYTES = 254, // RFC 1035, and a trailing dot
    ASK_AGAIN_LEAST_MS = 10,
    ASK_AGAIN_MOST_MS = 500,
};

// c-ares 1.18 says "refused the connection" for servers that answer with a fault, since it goes on to the next server.
// Then a second channel, which takes any answer, is asked what the fault is.
enum channel { CHANNEL_ANSWERS, CHANNEL_FAULTS, CHANNELS };

struct half {
    struct query *query;
    int family;
    enum channel channel;
    bool pending, unasked; // unasked: its channel went away
    int status;
    uint64_t ttl_ms;
    struct resolver_answer answer;
};

struct query {
    struct resolver *resolver;
    struct query *prev, *next;
    struct name *name;          // NULL: given up, but an answer is still welcome
    uint64_t began_ms, half_ms; // half_ms: when the first half had addresses
    int pending;
    struct half halves[2];
    char host[];
};

struct resolver_wait {
    struct resolver *resolver;
    struct resolver_wait *prev, *next; // in `waits`, or once answered in `ready`
    struct name *name;                 // NULL: answered
    uint64_t since_ms, turn;
    resolver_done *done;
    void *arg;
    struct resolver_answer answer;
    struct error error; // when the answer is empty
};

struct watch {
    uv_poll_t poll;
    struct resolver *resolver;
    enum channel channel;
    ares_socket_t fd;
    struct watch *prev, *next;
};

struct channel_of {
    struct resolver *resolver;
    ares_channel ares; // NULL: none could be made
};

struct resolver {
    uv_loop_t *loop;
    struct resolver *next; // of this thread
    int users;
    struct channel_of channels[CHANNELS];
    struct name_cache cache;
    struct query *queries;
    struct resolver_wait *waits, *ready;
    uint64_t turn; // of on_ready
    struct watch *watches;
    uv_timer_t tick, ready_timer;
    size_t handles; // not closed yet
    bool pumping;
    struct timespec conf_changed;
    ino_t conf_inode;
    uint64_t conf_looked_ms;
};

static _Thread_local struct resolver *resolvers;
static char *given_servers;

// ---- answers

static void on_ready(uv_timer_t *timer) {
    struct resolver *resolver = timer->data;
    uint64_t turn = resolver->turn++; // only those of this turn: a callback may ask again, or cancel others
    while (resolver->ready && resolver->ready->turn <= turn) {
        struct resolver_wait *wait = resolver->ready;
        DL_DELETE(resolver->ready, wait);
        wait->done(wait->arg, wait->answer.count > 0 ? &wait->answer : NULL,
                   wait->answer.count > 0 ? NULL : &wait->error);
        free(wait);
    }
}

static void wait_end(struct resolver_wait *wait) {
    struct resolver *resolver = wait->resolver;
    wait->turn = resolver->turn;
    DL_APPEND(resolver->ready, wait);
    uv_timer_start(&resolver->ready_timer, on_ready, 0, 0);
}

static void wait_fail(struct resolver_wait *wait, const char *host, enum name_fault fault) {
    error_set(&wait->error, ERROR_CONNECT, "dns %s: %.100s: %s", name_fault_code(fault), host, name_fault_text(fault));
    wait_end(wait);
}

static void wait_answer(struct resolver_wait *wait, const struct resolver_answer *answer) {
    wait->answer = *answer;
    wait_end(wait);
}

// Answers those whose name is known by now, or given up.
static void waits_settle(struct resolver *resolver, uint64_t now_ms) {
    struct resolver_wait *wait;
    struct resolver_wait *next;
    DL_FOREACH_SAFE(resolver->waits, wait, next) {
        struct name *name = wait->name;
        enum name_verdict verdict = name_judge(name, now_ms);
        bool late = now_ms >= wait->since_ms + LOOKUP_MOST_MS;
        if (verdict == NAME_WAIT && !late)
            continue;
        DL_DELETE(resolver->waits, wait);
        wait->name = NULL;
        if (verdict == NAME_KNOWN)
            wait_answer(wait, &name->answer);
        else
            wait_fail(wait, name->host, verdict == NAME_FAULTY ? name->fault : NAME_BUSY);
    }
}

// ---- queries

static enum name_fault fault_of(int status) {
    static const struct {
        int status;
        enum name_fault fault;
    } known[] = {
        {ARES_ENOTFOUND, NAME_NXDOMAIN}, {ARES_ENODATA, NAME_NODATA},     {ARES_ESERVFAIL, NAME_SERVFAIL},
        {ARES_EREFUSED, NAME_REFUSED},   {ARES_ENOTIMP, NAME_REFUSED},    {ARES_EFORMERR, NAME_REFUSED},
        {ARES_ETIMEOUT, NAME_TIMEOUT},   {ARES_EBADRESP, NAME_MALFORMED}, {ARES_ECONNREFUSED, NAME_UNREACHABLE},
        {ARES_EBADNAME, NAME_INVALID},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].status == status)
            return known[i].fault;
    return NAME_FAILED;
}

// Of two halves without an address the one that says more: a fault rather than "no address".
static enum name_fault query_fault(const struct query *query) {
    int first = query->halves[0].status, second = query->halves[1].status;
    return fault_of(first == ARES_ENODATA || (first == ARES_ENOTFOUND && second != ARES_ENODATA) ? second : first);
}

static void query_give_up(struct query *query, enum name_fault fault, uint64_t now_ms) {
    if (query->name)
        name_failed(&query->resolver->cache, query->name, fault, now_ms);
    query->name = NULL;
}

// Hands over what there is.
static void query_settle(struct query *query, uint64_t now_ms) {
    struct resolver *resolver = query->resolver;
    struct resolver_answer all = {0};
    uint64_t ttl_ms = UINT64_MAX;
    for (int i = 0; i < 2; i++) {
        const struct half *half = &query->halves[i];
        if (half->pending || half->status != ARES_SUCCESS)
            continue;
        // An answer of many IPv4 addresses leaves room for half as many others.
        size_t most = i == 0 ? RESOLVER_MAX_ADDRESSES * 3 / 4 : RESOLVER_MAX_ADDRESSES;
        for (size_t j = 0; j < half->answer.count && all.count < most; j++)
            all.addresses[all.count++] = half->answer.addresses[j];
        ttl_ms = half->ttl_ms < ttl_ms ? half->ttl_ms : ttl_ms;
    }
    struct name *name = query->name, *late = NULL;
    query->name = NULL;
    if (!name && (late = name_cache_find(&resolver->cache, query->host)) && late->state == NAME_LOOKING)
        late = NULL; // another query has it now
    if (all.count == 0 && name)
        name_failed(&resolver->cache, name, query_fault(query), now_ms);
    else if (all.count > 0 && (name || late))
        name_answered(&resolver->cache, name ? name : late, &all, ttl_ms, now_ms);
}

static void query_free(struct query *query) {
    DL_DELETE(query->resolver->queries, query);
    free(query);
}

static void half_ask(struct half *half);

static void half_read(struct half *half, const struct ares_addrinfo *found) {
    int ttl_s = INT32_MAX;
    for (const struct ares_addrinfo_node *node = found->nodes; node; node = node->ai_next) {
        if (node->ai_family != half->family || half->answer.count == RESOLVER_MAX_ADDRESSES)
            continue;
        union resolver_address *address = &half->answer.addresses[half->answer.count++];
        memcpy(address, node->ai_addr,
               half->family == AF_INET ? sizeof address->v4
                                       : sizeof address->v6); // c-ares allocates no more than these
        ttl_s = node->ai_ttl < ttl_s ? node->ai_ttl : ttl_s;
    }
    half->ttl_ms = ttl_s > 0 ? (uint64_t)ttl_s * 1000 : 0;
    if (half->answer.count == 0)
        half->status = ARES_ENODATA;
}

// Of c-ares. It must not ask c-ares to end channels, and it may come from inside of half_ask.
static void on_half(void *arg, int status, int timeouts, struct ares_addrinfo *found) {
    struct half *half = arg;
    struct query *query = half->query;
    struct resolver *resolver = query->resolver;
    half->pending = false;
    if (status == ARES_EDESTRUCTION) {
        half->unasked = true; // asked again by channels_renew, or freed by channels_close
        return;
    }
    half->status = status;
    if (status == ARES_SUCCESS)
        half_read(half, found);
    if (found)
        ares_freeaddrinfo(found);
    uint64_t now_ms = clock_ms();
    if (status == ARES_ECONNREFUSED && half->channel == CHANNEL_ANSWERS) {
        half->channel = CHANNEL_FAULTS;
        half_ask(half);
        return;
    }
    if (--query->pending == 0) {
        query_settle(query, now_ms);
        query_free(query);
        waits_settle(resolver, now_ms);
    } else if (half->status == ARES_SUCCESS) {
        query->half_ms = now_ms;
    }
}

static void half_ask(struct half *half) {
    struct resolver *resolver = half->query->resolver;
    struct ares_addrinfo_hints hints = {
        .ai_flags = ARES_AI_NOSORT, .ai_family = half->family, .ai_socktype = SOCK_STREAM};
    half->pending = true;
    half->unasked = false;
    if (resolver->channels[half->channel].ares)
        ares_getaddrinfo(resolver->channels[half->channel].ares, half->query->host, NULL, &hints, on_half, half);
    else
        on_half(half, ARES_ENOTINITIALIZED, 0, NULL);
}

static void on_tick(uv_timer_t *timer);

static void query_start(struct resolver *resolver, struct name *name, uint64_t now_ms) {
    static const int families[2] = {AF_INET, AF_INET6};
    struct query *query = memory_alloc(sizeof *query + strlen(name->host) + 1);
    memcpy(query->host, name->host, strlen(name->host) + 1);
    query->resolver = resolver;
    query->name = name;
    query->began_ms = now_ms;
    query->pending = 2;
    DL_APPEND(resolver->queries, query);
    for (int i = 0; i < 2; i++)
        query->halves[i] = (struct half){.query = query, .family = families[i], .pending = true};
    if (!uv_is_active((uv_handle_t *)&resolver->tick))
        uv_timer_start(&resolver->tick, on_tick, TICK_MS, TICK_MS);
    half_ask(&query->halves[0]);
    half_ask(&query->halves[1]); // the query lives: this half is pending
}

// ---- channels

// The handle of libuv goes first, since c-ares closes the socket next.
static void on_watch_closed(uv_handle_t *handle);

static void on_readable(uv_poll_t *poll, int status, int events);

static void on_socket(void *arg, ares_socket_t fd, int readable, int writable) {
    struct channel_of *channel = arg;
    struct resolver *resolver = channel->resolver;
    struct watch *watch;
    DL_SEARCH_SCALAR(resolver->watches, watch, fd, fd);
    int events = (readable ? UV_READABLE : 0) | (writable ? UV_WRITABLE : 0);
    if (!watch && events) {
        watch = memory_alloc(sizeof *watch);
        watch->resolver = resolver;
        watch->channel = (enum channel)(channel - resolver->channels);
        watch->fd = fd;
        watch->poll.data = watch;
        if (uv_poll_init(resolver->loop, &watch->poll, fd) != 0) { // then its queries end by time
            free(watch);
            return;
        }
        resolver->handles++;
        DL_APPEND(resolver->watches, watch);
    }
    if (watch && events) {
        uv_poll_start(&watch->poll, events, on_readable);
    } else if (watch) {
        DL_DELETE(resolver->watches, watch);
        uv_close((uv_handle_t *)&watch->poll, on_watch_closed);
    }
}

static void channel_open(struct resolver *resolver, enum channel which) {
    struct channel_of *channel = &resolver->channels[which];
    struct ares_options options = {
        .flags = ARES_FLAG_NOALIASES | (which == CHANNEL_FAULTS ? ARES_FLAG_NOCHECKRESP : 0),
        .timeout = TRY_MS,
        .tries = TRIES,
        .lookups = (char[]){"fb"}, // /etc/hosts, then the name servers
        .sock_state_cb = on_socket,
        .sock_state_cb_data = channel,
    };
    int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS | ARES_OPT_SOCK_STATE_CB;
#ifdef ARES_OPT_UDP_MAX_QUERIES // a new source port now and then
    options.udp_max_queries = 64;
    mask |= ARES_OPT_UDP_MAX_QUERIES;
#endif
#ifdef ARES_OPT_QUERY_CACHE // ours is the one
    mask |= ARES_OPT_QUERY_CACHE;
#endif
    channel->resolver = resolver;
    int status = ares_init_options(&channel->ares, &options, mask);
    if (status == ARES_SUCCESS && given_servers)
        status = ares_set_servers_ports_csv(channel->ares, given_servers);
    if (status == ARES_SUCCESS)
        return;
    log_error("dns_unusable", LOG_TEXT("reason", ares_strerror(status)));
    channel->ares = NULL;
}

static void channels_close(struct resolver *resolver) {
    for (int i = 0; i < CHANNELS; i++) {
        if (resolver->channels[i].ares)
            ares_destroy(resolver->channels[i].ares); // on_half with ARES_EDESTRUCTION for all that is in flight
        resolver->channels[i].ares = NULL;
    }
}

static void channels_open(struct resolver *resolver) {
    struct stat conf = {0};
    stat("/etc/resolv.conf", &conf);
    resolver->conf_changed = conf.st_mtim;
    resolver->conf_inode = conf.st_ino;
    for (int i = 0; i < CHANNELS; i++)
        channel_open(resolver, (enum channel)i);
}

// Follows a changed resolv.conf: what is in flight is asked again, of the new servers.
static void channels_renew(struct resolver *resolver, uint64_t now_ms) {
    struct stat conf = {0};
    if (now_ms < resolver->conf_looked_ms + CONF_LOOK_MS)
        return;
    resolver->conf_looked_ms = now_ms;
    stat("/etc/resolv.conf", &conf);
    if (conf.st_ino == resolver->conf_inode && conf.st_mtim.tv_sec == resolver->conf_changed.tv_sec &&
        conf.st_mtim.tv_nsec == resolver->conf_changed.tv_nsec)
        return;
    channels_close(resolver);
    channels_open(resolver);
    struct query *query;
    struct query *next;
    DL_FOREACH_SAFE(resolver->queries, query, next) {
        bool second = query->halves[1].unasked;
        if (query->halves[0].unasked)
            half_ask(&query->halves[0]);
        if (second)
            half_ask(&query->halves[1]); // it was pending, so the query lives
    }
}

// Starts what may start. Not from inside c-ares, which renewing ends.
static void pump(struct resolver *resolver) {
    if (resolver->pumping)
        return;
    resolver->pumping = true;
    uint64_t now_ms = clock_ms();
    channels_renew(resolver, now_ms);
    for (struct name *name; (name = name_cache_next(&resolver->cache, now_ms));)
        query_start(resolver, name, now_ms);
    resolver->pumping = false;
}

static void on_readable(uv_poll_t *poll, int status, int events) {
    struct watch *watch = poll->data;
    struct resolver *resolver = watch->resolver;
    ares_socket_t fd = watch->fd;
    bool readable = events & UV_READABLE || status < 0;
    bool writable = events & UV_WRITABLE || status < 0;
    ares_process_fd(resolver->channels[watch->channel].ares, readable ? fd : ARES_SOCKET_BAD,
                    writable ? fd : ARES_SOCKET_BAD);
    pump(resolver);
}

// For c-ares's timeouts, and for ours.
static void on_tick(uv_timer_t *timer) {
    struct resolver *resolver = timer->data;
    for (int i = 0; i < CHANNELS; i++)
        if (resolver->channels[i].ares)
            ares_process_fd(resolver->channels[i].ares, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    uint64_t now_ms = clock_ms();
    struct query *query;
    DL_FOREACH(resolver->queries, query) {
        if (query->name && query->half_ms && now_ms >= query->half_ms + HALF_MS)
            query_settle(query, now_ms);
        else if (query->name && now_ms >= query->began_ms + LOOKUP_MOST_MS)
            query_give_up(query, NAME_TIMEOUT, now_ms);
    }
    name_cache_tick(&resolver->cache, now_ms);
    waits_settle(resolver, now_ms);
    pump(resolver);
    if (!resolver->queries && !resolver->waits && !resolver->cache.queue && !resolver->cache.suspects)
        uv_timer_stop(timer);
}

// ---- asking

static bool parse_literal(const char *host, struct resolver_answer *ret_answer) {
    ret_answer->addresses[0] = (union resolver_address){0};
    ret_answer->count = 1;
    if (uv_ip4_addr(host, 0, &ret_answer->addresses[0].v4) == 0)
        return true;
    return strchr(host, ':') && uv_ip6_addr(host, 0, &ret_answer->addresses[0].v6) == 0;
}

// Addresses, and the names that RFC 6761 keeps for this machine.
static bool is_known(const char *host, struct resolver_answer *ret_answer) {
    static const char local[] = ".localhost";
    size_t length = strlen(host), least = sizeof local - 1;
    if (strcasecmp(host, local + 1) != 0 && (length < least || strcasecmp(host + length - least, local) != 0))
        return parse_literal(host, ret_answer);
    uv_ip6_addr("::1", 0, &ret_answer->addresses[1].v6);
    parse_literal("127.0.0.1", ret_answer);
    ret_answer->count = 2;
    return true;
}

// The name, asked for if it is due; NULL and the fault when it cannot be.
static struct name *name_want(struct resolver *resolver, const char *host, bool ours, enum name_fault *ret_fault) {
    size_t length = strlen(host);
    *ret_fault = NAME_INVALID;
    if (length == 0 || length > HOST_MOST_BYTES || strpbrk(host, " \t\r\n/\\%:@"))
        return NULL;
    *ret_fault = NAME_NXDOMAIN;
    if (length >= 8 && strcasecmp(host + length - 8, ".invalid") == 0) // RFC 6761
        return NULL;
    *ret_fault = NAME_BUSY;
    struct name *name = name_cache_add(&resolver->cache, host);
    if (!name)
        return NULL;
    name->used = true;
    name->ours |= ours;
    uint64_t now_ms = clock_ms();
    if (name_is_due(name, now_ms)) {
        name_queue(&resolver->cache, name, now_ms);
        pump(resolver);
    }
    return name;
}

struct resolver_wait *resolver_lookup(struct resolver *resolver, const char *host, bool ours, resolver_done *done,
                                      void *arg) {
    struct resolver_wait *wait = memory_alloc(sizeof *wait);
    *wait = (struct resolver_wait){.resolver = resolver, .done = done, .arg = arg, .since_ms = clock_ms()};
    struct resolver_answer known;
    enum name_fault fault;
    if (is_known(host, &known)) {
        wait_answer(wait, &known);
        return wait;
    }
    wait->name = name_want(resolver, host, ours, &fault);
    if (!wait->name) {
        wait_fail(wait, host, fault);
        return wait;
    }
    DL_APPEND(resolver->waits, wait);
    waits_settle(resolver, wait->since_ms);
    return wait;
}

void resolver_cancel(struct resolver_wait *wait) {
    if (!wait)
        return;
    if (wait->name)
        DL_DELETE(wait->resolver->waits, wait);
    else
        DL_DELETE(wait->resolver->ready, wait);
    free(wait);
}

bool resolver_peek(struct resolver *resolver, const char *host, struct resolver_answer *ret_answer) {
    if (is_known(host, ret_answer))
        return true;
    struct name *name = name_cache_find(&resolver->cache, host);
    uint64_t now_ms = clock_ms();
    if (!name || name_judge(name, now_ms) != NAME_KNOWN)
        return false;
    memcpy(ret_answer->addresses, name->answer.addresses, name->answer.count * sizeof *name->answer.addresses);
    ret_answer->count = name->answer.count;
    name->used = true;
    if (name_is_due(name, now_ms)) {
        name_queue(&resolver->cache, name, now_ms);
        pump(resolver);
    }
    return true;
}

unsigned resolver_wait_ms(struct resolver *resolver, const char *host) {
    struct resolver_answer known;
    enum name_fault fault;
    if (is_known(host, &known))
        return 0;
    struct name *name = name_want(resolver, host, false, &fault);
    if (!name)
        return fault == NAME_BUSY ? ASK_AGAIN_MOST_MS : 0;
    uint64_t now_ms = clock_ms();
    if (name_judge(name, now_ms) != NAME_WAIT)
        return 0;
    uint64_t age_ms = now_ms - name->since_ms;
    return age_ms < ASK_AGAIN_LEAST_MS  ? ASK_AGAIN_LEAST_MS
           : age_ms < ASK_AGAIN_MOST_MS ? (unsigned)age_ms
                                        : ASK_AGAIN_MOST_MS;
}

// ---- its life

static void resolver_free(struct resolver *resolver) {
    if (--resolver->handles == 0)
        free(resolver);
}

static void on_watch_closed(uv_handle_t *handle) {
    struct watch *watch = handle->data;
    struct resolver *resolver = watch->resolver;
    free(watch);
    resolver_free(resolver);
}

static void on_timer_closed(uv_handle_t *handle) {
    resolver_free(handle->data);
}

bool resolver_set_servers(const char *servers, struct error *ret_error) {
    ares_channel ares;
    free(given_servers);
    given_servers = NULL;
    if (!servers || !*servers)
        return true;
    bool good = ares_library_init(ARES_LIB_INIT_ALL) == ARES_SUCCESS &&
                ares_init_options(&ares, &(struct ares_options){0}, 0) == ARES_SUCCESS;
    if (!good)
        return error_set(ret_error, ERROR_IO, "c-ares does not start");
    good = ares_set_servers_ports_csv(ares, servers) == ARES_SUCCESS;
    ares_destroy(ares);
    if (!good)
        return error_set(ret_error, ERROR_USAGE,
                         "\"%.200s\" is not a list of name servers: ADDRESS or ADDRESS:PORT, "
                         "with commas between",
                         servers);
    given_servers = memory_copy_text(servers);
    return true;
}

struct resolver *resolver_get(uv_loop_t *loop) {
    struct resolver *resolver;
    LL_SEARCH_SCALAR(resolvers, resolver, loop, loop);
    if (!resolver) {
        ares_library_init(ARES_LIB_INIT_ALL); // counts, and on Linux does nothing else
        resolver = memory_alloc(sizeof *resolver);
        resolver->loop = loop;
        resolver->handles = 2;
        uv_timer_init(loop, &resolver->tick);
        uv_timer_init(loop, &resolver->ready_timer);
        resolver->tick.data = resolver->ready_timer.data = resolver;
        channels_open(resolver);
        LL_PREPEND(resolvers, resolver);
    }
    resolver->users++;
    return resolver;
}

void resolver_release(struct resolver *resolver) {
    if (!resolver || --resolver->users > 0)
        return;
    assert(!resolver->waits && !resolver->ready);
    LL_DELETE(resolvers, resolver);
    channels_close(resolver);
    struct query *query;
    struct query *next;
    DL_FOREACH_SAFE(resolver->queries, query, next)
    query_free(query);
    name_cache_close(&resolver->cache);
    uv_close((uv_handle_t *)&resolver->tick, on_timer_closed);
    uv_close((uv_handle_t *)&resolver->ready_timer, on_timer_closed);
}
