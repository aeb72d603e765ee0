#include "common/db_target.h"
#include "common/buffer.h"
#include "common/db_url.h"
#include "common/memory.h"
#include "common/resolver.h"
#include <arpa/inet.h>
#include <assert.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PARAMETERS = 96, MAX_ADDRESS_BYTES = 64 };

struct db_target {
    uv_loop_t *loop;
    struct resolver *resolver;
    PQconninfoOption *options; // NULL: the URL cannot be read, for url_error
    struct error url_error;
    struct resolver_wait *wait;
    db_target_started *started;
    void *arg;
    unsigned attempts;

    // While hosts are looked up: the lists of the URL, and what they come to.
    char *host_list, *address_list, *port_list;
    int index, places; // of the host; found so far
    struct buffer hosts, addresses, ports;
    struct error error; // of the last host that has no address
};

struct db_target *db_target_new(uv_loop_t *loop, const char *url) {
    struct db_target *target = memory_alloc(sizeof(*target));
    target->loop = loop;
    target->resolver = resolver_get(loop);
    target->options = db_url_read(url, &target->url_error);
    return target;
}

// What libpq would take where the URL says nothing: variables, and the service file.
static PQconninfoOption *defaults_read(const struct db_target *target) {
    const char *service = db_url_value(target->options, "service");
    char *before = memory_copy_text(getenv("PGSERVICE"));
    if (service)
        setenv("PGSERVICE", service, 1);
    PQconninfoOption *defaults = PQconndefaults();
    if (service && before)
        setenv("PGSERVICE", before, 1);
    else if (service)
        unsetenv("PGSERVICE");
    free(before);
    return defaults;
}

static char *list_copy(const struct db_target *target, const PQconninfoOption *defaults, const char *keyword) {
    const char *given = db_url_value(target->options, keyword);
    return memory_copy_text(given ? given : db_url_value(defaults, keyword));
}

// The item of a list with commas; "" where it has none.
static void list_item(const char *list, int index, char *ret_item, size_t size) {
    for (; list && index > 0; index--) {
        list = strchr(list, ',');
        list = list ? list + 1 : NULL;
    }
    snprintf(ret_item, size, "%.*s", list ? (int)strcspn(list, ",") : 0, list ? list : "");
}

static void lists_free(struct db_target *target) {
    free(target->host_list);
    free(target->address_list);
    free(target->port_list);
    target->host_list = target->address_list = target->port_list = NULL;
    buffer_free(&target->hosts);
    buffer_free(&target->addresses);
    buffer_free(&target->ports);
}

// The lists say "192.0.2.1,192.0.2.2" with hosts "db,db" (libpq wants one host for each, to check certificates
// against); empty ones leave it to the URL.
static void handshake_start(struct db_target *target) {
    const char *hosts = target->places > 0 ? buffer_cstr(&target->hosts) : NULL;
    const char *addresses = hosts ? buffer_cstr(&target->addresses) : NULL;
    const char *ports = hosts && target->port_list ? buffer_cstr(&target->ports) : NULL;
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
    // The last of two equal keywords wins. No application_name: a transaction pooler would leave it behind.
    const char *const ours[][2] = {
        {"client_encoding", "UTF8"},
        {"gssencmode", "disable"}, // its negotiation blocks
        {"host", hosts},
        {"hostaddr", addresses},
        {"port", ports},
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
    lists_free(target);
    if (pg) {
        target->started(target->arg, pg, NULL);
        return;
    }
    struct error error;
    error_set(&error, ERROR_CONNECT, "libpq has no memory for a connection");
    target->started(target->arg, NULL, &error);
}

static void place_add(struct db_target *target, const char *host, const char *address) {
    const char *comma = target->places++ > 0 ? "," : "";
    char port[16];
    list_item(target->port_list, strchr(target->port_list ? target->port_list : "", ',') ? target->index : 0, port,
              sizeof port);
    buffer_format(&target->hosts, "%s%s", comma, host);
    buffer_format(&target->addresses, "%s%s", comma, address);
    buffer_format(&target->ports, "%s%s", comma, port);
}

static void hosts_look_up(struct db_target *target);

static void on_looked_up(void *arg, const struct resolver_answer *answer, const struct error *error) {
    struct db_target *target = arg;
    char host[NI_MAXHOST];
    target->wait = NULL;
    list_item(target->host_list, target->index, host, sizeof host);
    if (error)
        target->error = *error;
    // Each try starts with another address: a black-holed first one must not hide the second behind our timer for ever.
    for (size_t i = 0; answer && i < answer->count; i++) {
        const union resolver_address *address = &answer->addresses[(i + target->attempts) % answer->count];
        char text[MAX_ADDRESS_BYTES];
        socklen_t size = address->any.sa_family == AF_INET6 ? sizeof address->v6 : sizeof address->v4;
        if (getnameinfo(&address->any, size, text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0)
            place_add(target, host, text);
    }
    target->index++;
    hosts_look_up(target);
}

static int list_count(const char *list) {
    int count = 1;
    for (; *list; list++)
        count += *list == ',';
    return count;
}

// Neither a socket's directory nor an address.
static bool is_name(const char *host) {
    unsigned char address[sizeof(struct in_addr)];
    return *host && *host != '/' && *host != '@' && !strchr(host, ':') && inet_pton(AF_INET, host, address) != 1;
}

// Goes on with the next of the list that is a name.
static void hosts_look_up(struct db_target *target) {
    for (int count = list_count(target->host_list); target->index < count; target->index++) {
        char host[NI_MAXHOST], address[MAX_ADDRESS_BYTES];
        list_item(target->host_list, target->index, host, sizeof host);
        list_item(target->address_list, target->index, address, sizeof address);
        if (!*address && is_name(host)) {
            target->wait = resolver_lookup(target->resolver, host, true, on_looked_up, target);
            return;
        }
        place_add(target, host, address);
    }
    target->attempts++;
    if (target->places > 0) {
        handshake_start(target);
        return;
    }
    lists_free(target);
    target->started(target->arg, NULL, &target->error);
}

static bool any_name(const struct db_target *target) {
    int count = target->host_list ? list_count(target->host_list) : 0;
    for (int i = 0; i < count; i++) {
        char host[NI_MAXHOST], address[MAX_ADDRESS_BYTES];
        list_item(target->host_list, i, host, sizeof host);
        list_item(target->address_list, i, address, sizeof address);
        if (!*address && is_name(host))
            return true;
    }
    return false;
}

void db_target_connect(struct db_target *target, db_target_started *started, void *arg) {
    assert(!target->wait);
    target->started = started;
    target->arg = arg;
    if (!target->options) {
        started(arg, NULL, &target->url_error);
        return;
    }
    PQconninfoOption *defaults = defaults_read(target);
    target->host_list = list_copy(target, defaults, "host");
    target->address_list = list_copy(target, defaults, "hostaddr");
    target->port_list = list_copy(target, defaults, "port");
    PQconninfoFree(defaults);
    target->index = target->places = 0;
    if (any_name(target))
        hosts_look_up(target);
    else
        handshake_start(target);
}

void db_target_cancel(struct db_target *target) {
    resolver_cancel(target->wait);
    target->wait = NULL;
    lists_free(target);
}

void db_target_free(struct db_target *target) {
    if (!target)
        return;
    db_target_cancel(target);
    resolver_release(target->resolver);
    PQconninfoFree(target->options);
    free(target);
}
