#include "tests/e2e/stream/world.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "tests/support/support.h"
#include "tests/support/tcp_proxy.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- G6: a position means one entry for ever, on whatever gateway it was seen ----

struct issued {
    int64_t position;
    const char *data;
};
static struct issued *issued; // rising
static size_t issued_count;

static void issued_note(int64_t position, const char *data) {
    size_t at = issued_count;
    while (at > 0 && issued[at - 1].position > position) {
        at--;
    }
    if (at > 0 && issued[at - 1].position == position) {
        ck_assert_msg(strcmp(issued[at - 1].data, data) == 0, "position %" PRId64 " was issued twice: %s and %s",
                      position, issued[at - 1].data, data);
        return;
    }
    struct issued *grown = reallocarray(issued, issued_count + 1, sizeof *issued);
    ck_assert_ptr_nonnull(grown);
    issued = grown;
    memmove(issued + at + 1, issued + at, (issued_count - at) * sizeof *issued);
    issued[at] = (struct issued){position, data};
    issued_count++;
}

void world_reset(void) {
    free(issued);
    issued = NULL;
    issued_count = 0;
}

// ---- the database ----

void world_publish_posts(PGconn *conn) {
    sql_run(conn, "create table posts (id text primary key, tenant text)");
    sql_run(conn, "select rowbell.publish('posts', scope => 'tenant')");
}

PGconn *world_database(void) {
    world_reset();
    fixture_database();
    PGconn *conn = fixture_connect();
    world_publish_posts(conn);
    return conn;
}

void world_relay_and_dispatcher(const char *redis_url) {
    daemon_start("rowbell-relay", NULL);
    daemon_start("rowbell-dispatcher",
                 redis_url ? WITH("--lanes", "sse", "--redis-url", redis_url) : WITH("--lanes", "sse"));
}

struct tcp_proxy *world_proxy(PGconn *conn, const char **ret_url) {
    char url[300];
    struct tcp_proxy *proxy = tcp_proxy_start(PQhost(conn), atoi(PQport(conn)));
    snprintf(url, sizeof url, "postgres://%s:%s@127.0.0.1:%d/%s?sslmode=disable", PQuser(conn), PQpass(conn),
             tcp_proxy_port(proxy), PQdb(conn));
    *ret_url = support_keep_text(url);
    return proxy;
}

void post(PGconn *conn, const char *key) {
    char sql[200];
    snprintf(sql, sizeof sql, "insert into posts values ('%s')", key);
    sql_run(conn, sql);
}

// ---- watchers ----

void watcher_open(struct watcher *watcher, const struct gateway *gateway, const char *target) {
    char headers[300] = "";
    if (watcher->last_id) {
        snprintf(headers, sizeof headers, "Last-Event-ID: %" PRId64 "\r\n", watcher->last_id);
    }
    strncat(headers, watcher->headers ? watcher->headers : "", sizeof headers - strlen(headers) - 1);
    watcher->client = sse_open(gateway->port, target, headers);
    watcher->taken = 0;
    watcher->before = watcher->count;
}

void watcher_open_at(struct watcher *watcher, const struct gateway *gateway, int64_t last_id) {
    watcher->last_id = last_id;
    watcher_open(watcher, gateway, "/events");
}

static void take_block(struct watcher *watcher, char *block) {
    struct seen seen = {0};
    bool change = false;
    bool reset = false;
    for (char *line = block, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next) {
            *next++ = '\0';
        }
        if (strncmp(line, "id: ", 4) == 0) {
            seen.position = strtoll(line + 4, NULL, 10);
        } else if (strncmp(line, "data: ", 6) == 0) {
            seen.data = support_keep_text(line + 6);
        } else if (strcmp(line, "event: change") == 0) {
            change = true;
        } else if (strcmp(line, "event: reset") == 0) {
            reset = true;
        }
    }
    if (seen.position == 0) {
        return;
    }
    if (change) {
        ck_assert_msg(seen.position > watcher->last_id, "%" PRId64 " after %" PRId64, seen.position, watcher->last_id);
        issued_note(seen.position, seen.data);
    } else if (reset) {
        char reason[64] = "";
        sscanf(seen.data, "{\"reason\":\"%60[a-z_]\"}", reason);
        seen.reason = support_keep_text(reason);
    }
    watcher->last_id = seen.position;
    if (change || reset) {
        watcher->seen = reallocarray(watcher->seen, (size_t)watcher->count + 1, sizeof *watcher->seen);
        watcher->seen[watcher->count++] = seen;
    }
}

bool watcher_read(struct watcher *watcher) {
    bool ended = sse_closed(watcher->client);
    const char *head_end = strstr(sse_bytes(watcher->client), "\r\n\r\n");
    if (!head_end) {
        return !ended;
    }
    const char *body = head_end + 4;
    const char *end;
    while ((end = strstr(body + watcher->taken, "\n\n")) != NULL) {
        char *block = strndup(body + watcher->taken, (size_t)(end - body) - watcher->taken);
        watcher->taken = (size_t)(end - body) + 2;
        take_block(watcher, block);
        free(block);
    }
    return !ended;
}

void watcher_break_off(struct watcher *watcher) {
    if (watcher->client) {
        sse_close(watcher->client);
        watcher->client = NULL;
    }
}

void watcher_leave(struct watcher *watcher) {
    if (watcher->client) {
        watcher_read(watcher);
        watcher_break_off(watcher);
    }
}

const char *watcher_story(const struct watcher *watcher) {
    struct buffer story = {0};
    for (int i = 0; i < watcher->count; i++) {
        const struct seen *seen = &watcher->seen[i];
        buffer_text(&story, i == 0 ? "" : " ");
        if (seen->reason) {
            buffer_format(&story, "!%s", seen->reason);
        } else {
            const char *key = strstr(seen->data, "\"key\":\"");
            ck_assert_ptr_nonnull(key);
            buffer_append(&story, key + 7, strcspn(key + 7, "\""));
        }
    }
    const char *kept = support_keep_text(story.bytes);
    buffer_free(&story);
    return kept;
}

static bool has_key(const struct seen *seen, const char *key) {
    char part[200];
    snprintf(part, sizeof part, "\"key\":\"%s\"", key);
    return !seen->reason && strstr(seen->data, part) != NULL;
}

int64_t watcher_position_of(const struct watcher *watcher, const char *key) {
    for (int i = watcher->count - 1; i >= 0; i--) {
        if (has_key(&watcher->seen[i], key)) {
            return watcher->seen[i].position;
        }
    }
    return 0;
}

int watcher_count_key(const struct watcher *watcher, const char *key) {
    int count = 0;
    for (int i = 0; i < watcher->count; i++) {
        count += has_key(&watcher->seen[i], key);
    }
    return count;
}

int watcher_resets(const struct watcher *watcher) {
    int count = 0;
    for (int i = 0; i < watcher->count; i++) {
        count += watcher->seen[i].reason != NULL;
    }
    return count;
}

static bool has_reset(const struct watcher *watcher, const char *reason) {
    for (int i = watcher->before; i < watcher->count; i++) {
        if (watcher->seen[i].reason && strcmp(watcher->seen[i].reason, reason) == 0) {
            return true;
        }
    }
    return false;
}

#define WAIT_UNTIL(watcher, condition, what)                                                                           \
    do {                                                                                                               \
        uint64_t end = clock_ms() + SOON_MS;                                                                           \
        for (;;) {                                                                                                     \
            bool alive = watcher_read(watcher);                                                                        \
            if (condition) {                                                                                           \
                break;                                                                                                 \
            }                                                                                                          \
            ck_assert_msg(alive, "the stream ended without %s:\n%s", what, sse_bytes((watcher)->client));              \
            ck_assert_msg(clock_ms() < end, "after %d ms no %s in:\n%s", SOON_MS, what, sse_bytes((watcher)->client)); \
            support_pause();                                                                                           \
        }                                                                                                              \
    } while (0)

void watcher_wait_open(struct watcher *watcher) {
    WAIT_UNTIL(watcher, watcher->last_id != 0, "id");
}

void watcher_wait_key(struct watcher *watcher, const char *key) {
    WAIT_UNTIL(watcher, watcher_position_of(watcher, key) != 0, key);
}

void watcher_wait_reset(struct watcher *watcher, const char *reason) {
    WAIT_UNTIL(watcher, has_reset(watcher, reason), reason);
}

void watcher_free(struct watcher *watcher) {
    watcher_leave(watcher);
    free(watcher->seen);
    *watcher = (struct watcher){0};
}
