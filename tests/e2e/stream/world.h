// The whole of Rowbell around a stream: relays, dispatchers and gateways on a database, Redis if wanted, and watchers,
// which do what EventSource does: take whole blocks, keep the last id, come back with it.
#pragma once
#include "tests/support/fixture.h"
#include "tests/support/gateway.h"
#include "tests/support/redis_server.h"
#include <stdbool.h>
#include <stdint.h>

enum { SOON_MS = HANG_MS };

void world_reset(void); // forgets the positions seen; call it first in every test
// A database with table posts (id text, tenant text) published, scope tenant; returns a connection to it.
PGconn *world_database(void);
void world_publish_posts(PGconn *conn);
void world_relay_and_dispatcher(const char *redis_url); // NULL: without Redis
// The database of conn by way of a proxy.
struct tcp_proxy *world_proxy(PGconn *conn, const char **ret_url);
// Inserts posts key..., each in a transaction of its own.
void post(PGconn *conn, const char *key);

// ---- watchers ----

struct seen {
    int64_t position;
    const char *data;   // as on the wire; kept until the test's end
    const char *reason; // of a reset; NULL: a change
};
struct watcher {
    const char *headers;       // more of the request, or NULL
    struct sse_client *client; // NULL: away
    size_t taken;              // bytes of its body
    int64_t last_id;           // 0: none yet
    struct seen *seen;
    int count;
    int before; // of `count`, what earlier connections saw
};
// Opens with the last id, if there is one. target: "/events?..."
void watcher_open(struct watcher *watcher, const struct gateway *gateway, const char *target);
void watcher_open_at(struct watcher *watcher, const struct gateway *gateway, int64_t last_id);
void watcher_leave(struct watcher *watcher);     // takes what has come, then closes
void watcher_break_off(struct watcher *watcher); // closes; what was not taken yet is lost
bool watcher_read(struct watcher *watcher);      // false: the stream has ended
void watcher_wait_open(struct watcher *watcher); // it has an id
void watcher_wait_key(struct watcher *watcher, const char *key);
void watcher_wait_reset(struct watcher *watcher, const char *reason); // on this connection
// Keys in the order of their arrival, with spaces between, a reset as !reason. Kept until the test's end.
const char *watcher_story(const struct watcher *watcher);
int64_t watcher_position_of(const struct watcher *watcher, const char *key); // 0: not seen
int watcher_count_key(const struct watcher *watcher, const char *key);
int watcher_resets(const struct watcher *watcher);
void watcher_free(struct watcher *watcher);

void failover_tests(Suite *suite);
void field_tests(Suite *suite);
void position_tests(Suite *suite);
void property_tests(Suite *suite);
