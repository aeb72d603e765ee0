#include "common/db_target.h"
#include "common/buffer.h"
#include "common/memory.h"
#include <arpa/inet.h>
#include <assert.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ADDRESSES = 8, MAX_PARAMETERS = 96 };

// A lookup outlives its target when it cannot be cancelled any more: then target is NULL.
struct lookup {
    uv_getaddrinfo_t request;
    struct db_target *target;
};

struct db_target {
    uv_loop_t *loop;
    char *application_name;
    PQconninfoOption *options; // NULL: the URL cannot be read
    struct lookup *lookup;
    db_target_started *started;
    void *arg;
    unsigned attempts;
};

static const char *option_value(const struct db_target *target, const char *keyword) {
    for (const PQconninfoOption *option = target->options; option->keyword; option++) {
        if (strcmp(option->keyword, keyword) == 0)
            return option->val && *option->val ? option->val : NULL;
    }
    return NULL;
}

// libpq quotes a bad port, and in "postgres://user:pass/word@host" that is half a password.
static bool port_is_readable(const char *port) {
    return !port || port[strspn(port, "0123456789,")] == '\0';
}

struct db_target *db_target_new(uv_loop_t *loop, const char *url, const char *application_name) {
    struct db_target *target = memory_alloc(sizeof(*target));
    target->loop = loop;
    target->application_name = memory_copy_text(application_name ? application_name : "rowbell");
    // libpq's message may quote the URL with its password, so it is not used.
    target->options = PQconninfoParse(url ? url : "", NULL);
    if (target->options && !port_is_readable(option_value(target, "port"))) {
        PQconninfoFree(target->options);
        target->options = NULL;
    }
    return target;
}

// The one name that has to be resolved, or NULL.
static const char *host_to_resolve(const struct db_target *target) {
    if (option_value(target, "hostaddr") || option_value(target, "service") || getenv("PGHOSTADDR"))
        return NULL;
    const char *host = option_value(target, "host");
    if (!host)
        host = getenv("PGHOST");
    unsigned char address[sizeof(struct in6_addr)];
    if (!host || !*host || *host == '/' || *host == '@' || strchr(host, ',') ||
        inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
        return NULL;
    return host;
}

// addresses "192.0.2.1,192.0.2.2" with hosts "db,db" (libpq wants one host for each, to check certificates against), or
// both NULL.
static void handshake_start(struct db_target *target, const char *addresses, const char *hosts) {
    const char *keywords[MAX_PARAMETERS];
    const char *values[MAX_PARAMETERS];
    int count = 0;
    for (const PQconninfoOption *option = target->options; option->keyword; option++) {
        if (option->val) {
            assert(count < MAX_PARAMETERS - 8);
            keywords[count] = option->keyword;
            values[count++] = option->val;
        }
    }
    // The last of two equal keywords wins.
    const char *const ours[][2] = {
        {"fallback_application_name", target->application_name},
        {"client_encoding", "UTF8"},
        {"gssencmode", "disable"}, // its negotiation blocks
        {"host", hosts},
        {"hostaddr", addresses},
    };
    for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++) {
        if (ours[i][1]) {
            keywords[count] = ours[i][0];
            values[count++] = ours[i][1];
        }
    }
    keywords[count] = NULL;
    values[count] = NULL;
    PGconn *pg = PQconnectStartParams(keywords, values, 0);
    if (pg) {
        target->started(target->arg, pg, NULL);
        return;
    }
    struct error error;
    error_set(&error, ERROR_CONNECT, "libpq has no memory for a connection");
    target->started(target->arg, NULL, &error);
}

static void on_looked_up(uv_getaddrinfo_t *request, int status, struct addrinfo *found) {
    struct lookup *lookup = (struct lookup *)request;
    struct db_target *target = lookup->target;
    free(lookup);
    if (!target) {
        uv_freeaddrinfo(found);
        return;
    }
    target->lookup = NULL;
    const char *host = host_to_resolve(target);
    if (status < 0) {
        struct error error;
        error_set(&error, ERROR_CONNECT, "resolve host \"%s\": %s", host, uv_strerror(status));
        target->started(target->arg, NULL, &error);
        return;
    }
    char texts[MAX_ADDRESSES][NI_MAXHOST];
    unsigned count = 0;
    for (const struct addrinfo *entry = found; entry && count < MAX_ADDRESSES; entry = entry->ai_next) {
        if (getnameinfo(entry->ai_addr, entry->ai_addrlen, texts[count], NI_MAXHOST, NULL, 0, NI_NUMERICHOST) == 0)
            count++;
    }
    uv_freeaddrinfo(found);
    // Each try starts with another address: a black-holed first one must not hide the second behind our timer for ever.
    struct buffer addresses = {0}, hosts = {0};
    for (unsigned i = 0; i < count; i++) {
        buffer_format(&addresses, "%s%s", i ? "," : "", texts[(i + target->attempts) % count]);
        buffer_format(&hosts, "%s%s", i ? "," : "", host);
    }
    target->attempts++;
    handshake_start(target, count ? addresses.bytes : NULL, count ? hosts.bytes : NULL);
    buffer_free(&addresses);
    buffer_free(&hosts);
}

void db_target_connect(struct db_target *target, db_target_started *started, void *arg) {
    assert(!target->lookup);
    target->started = started;
    target->arg = arg;
    struct error error;
    if (!target->options) {
        error_set(&error, ERROR_USAGE,
                  "the database URL is malformed: expected postgres://user:password@host:port/database, with special "
                  "characters of user and password percent-encoded");
        started(arg, NULL, &error);
        return;
    }
    const char *host = host_to_resolve(target);
    if (!host) {
        handshake_start(target, NULL, NULL);
        return;
    }
    struct lookup *lookup = memory_alloc(sizeof(*lookup));
    lookup->target = target;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    int status = uv_getaddrinfo(target->loop, &lookup->request, on_looked_up, host, NULL, &hints);
    if (status < 0) {
        free(lookup);
        error_set(&error, ERROR_CONNECT, "resolve host \"%s\": %s", host, uv_strerror(status));
        started(arg, NULL, &error);
        return;
    }
    target->lookup = lookup;
}

void db_target_cancel(struct db_target *target) {
    if (!target->lookup)
        return;
    target->lookup->target = NULL;
    uv_cancel((uv_req_t *)&target->lookup->request);
    target->lookup = NULL;
}

void db_target_free(struct db_target *target) {
    if (!target)
        return;
    db_target_cancel(target);
    PQconninfoFree(target->options);
    free(target->application_name);
    free(target);
}
