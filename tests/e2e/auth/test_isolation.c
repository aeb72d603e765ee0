// G7: nobody ever receives, live or by replay, what is not theirs.
#include "common/buffer.h"
#include "tests/e2e/auth/world.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- replay ----

START_TEST(a_quiet_tenant_is_replayed_its_few) {
    fresh_database();
    // The ring holds next to nothing, so that the log answers.
    struct gateway gateway =
        gateway_told_all(WITH("--auth", "header", "--trusted-peer", "127.0.0.1", "--ring", "4", "--max-replay", "50"));
    int64_t start = append("'acme'", "posts", "first-", 1);
    append("'globex'", "posts", "globex-", 5000);
    append("'acme'", "posts", "acme-", 20);
    append("null", "posts", "unscoped-", 500);
    append("'*'", "posts", "everyone-", 3);
    append("'globex'", "posts", "more-", 5000);
    wait_gateway(&gateway);
    struct sse_client *client =
        open_as(&gateway, "/events", "X-Rowbell-Scopes: acme\r\nLast-Event-ID: %" PRId64 "\r\n", start);
    sse_wait(client, "everyone-2", SOON_MS);
    ck_assert(has(client, "acme-0\"") && has(client, "acme-19\"") && has(client, "everyone-0\""));
    ck_assert(!has(client, "globex-") && !has(client, "unscoped-") && !has(client, "more-") && !has(client, "first-"));
    ck_assert(!has(client, "event: reset"));
    // A table in another case: none of its rows.
    client =
        open_as(&gateway, "/events?table=Posts", "X-Rowbell-Scopes: acme\r\nLast-Event-ID: %" PRId64 "\r\n", start);
    sse_wait(client, ": rowbell\n\n", SOON_MS);
    // A busy one is reset, and so is one whose scopes together have too many.
    client = open_as(&gateway, "/events", "X-Rowbell-Scopes: globex\r\nLast-Event-ID: %" PRId64 "\r\n", start);
    sse_wait(client, "replay_limit", SOON_MS);
    ck_assert(!has(client, "event: change"));
    append("'a'", "posts", "a-", 30);
    append("'b'", "posts", "b-", 30);
    append("'a'", "tags", "tags-", 4);
    append("'globex'", "posts", "rest-", 10);
    wait_gateway(&gateway);
    client = open_as(&gateway, "/events", "X-Rowbell-Scopes: a,b\r\nLast-Event-ID: %" PRId64 "\r\n", start);
    sse_wait(client, "replay_limit", SOON_MS);
    client = open_as(&gateway, "/events?table=tags", "X-Rowbell-Scopes: a,b\r\nLast-Event-ID: %" PRId64 "\r\n", start);
    sse_wait(client, "tags-3", SOON_MS);
    ck_assert(!has(client, "event: reset") && !has(client, "\"a-"));
    // In order.
    const char *bytes = strstr(sse_bytes(client), "tags-0");
    for (int i = 1; i < 4; i++) {
        char key[10];
        snprintf(key, sizeof key, "tags-%d", i);
        ck_assert_ptr_nonnull(bytes = strstr(bytes, key));
    }
}
END_TEST

START_TEST(replay_looks_at_a_bounded_number_of_rows) {
    fresh_database();
    struct gateway gateway = gateway_told_all(WITH("--auth", "header", "--trusted-peer", "127.0.0.1", "--ring", "4"));
    int64_t start = append("'acme'", "posts", "first-", 1);
    append("'acme'", "posts", "many-", 50000);
    append("'acme'", "tags", "tag-", 1);
    append("'globex'", "posts", "rest-", 10);
    wait_gateway(&gateway);
    struct sse_client *client =
        open_as(&gateway, "/events?table=tags", "X-Rowbell-Scopes: acme\r\nLast-Event-ID: %" PRId64 "\r\n", start);
    sse_wait(client, "replay_limit", 2 * SOON_MS);
    sql_run(db, "delete from rowbell.stream_log where key = 'many-0'");
    client = open_as(&gateway, "/events?table=tags", "X-Rowbell-Scopes: acme\r\nLast-Event-ID: %" PRId64 "\r\n", start);
    sse_wait(client, "tag-0", 2 * SOON_MS);
}
END_TEST

// ---- G7 ----

enum { TENANTS = 8, READERS = 16, ROUNDS = 30 };

struct reader {
    struct sse_client *client;
    unsigned scopes; // bits
    bool deliver;
    int64_t last;
    int64_t joined; // everything after this position is owed
    int table;      // -1: all
    char *got;      // what earlier connections received
};

static const char *const tables[] = {"posts", "tags"};

static void reader_open(const struct gateway *gateway, struct reader *reader) {
    char scopes[200] = "";
    char target[100];
    for (int t = 0; t < TENANTS; t++) {
        if (reader->scopes >> t & 1) {
            snprintf(scopes + strlen(scopes), sizeof scopes - strlen(scopes), "t%d,", t);
        }
    }
    snprintf(target, sizeof target, reader->table < 0 ? "/events" : "/events?table=%s", tables[reader->table & 1]);
    reader->client =
        open_as(gateway, target, "X-Rowbell-Scopes: %s\r\nLast-Event-ID: %" PRId64 "\r\n", scopes, reader->last);
    ck_assert_int_eq(status_of(reader->client), 200);
}

// Keeps what came, and where it stopped.
static void reader_close(struct reader *reader) {
    const char *bytes = sse_bytes(reader->client);
    const char *end = bytes;
    for (const char *at = bytes; (at = strstr(at, "\n\n")) != NULL; at += 2) {
        end = at + 2; // a partial frame is discarded
    }
    ck_assert_ptr_null(strstr(bytes, "event: reset"));
    for (const char *at = bytes; (at = strstr(at, "\nid: ")) != NULL && at < end; at++) {
        reader->last = strtoll(at + 5, NULL, 10);
    }
    size_t before = strlen(reader->got);
    reader->got = realloc(reader->got, before + (size_t)(end - bytes) + 1);
    memcpy(reader->got + before, bytes, (size_t)(end - bytes));
    reader->got[before + (size_t)(end - bytes)] = '\0';
    sse_close(reader->client);
    reader->client = NULL;
}

// Random tenants write, random readers come and go at where they stopped, with a ring so small that most of what they
// missed comes from the log. At the end each has got exactly what it may see, once, and no position of anything else.
START_TEST(nobody_ever_sees_anothers_events) {
    unsigned seed = (unsigned)_i + 1;
    bool deliver = _i % 2 == 1;
    fresh_database();
    struct gateway gateway =
        gateway_told_all(WITH("--auth", "header", "--trusted-peer", "127.0.0.1", "--ring", _i < 2 ? "16" : "16384",
                              "--unscoped", deliver ? "deliver" : "drop"));
    struct reader readers[READERS] = {0};
    int64_t begin = append("'t0'", "posts", "begin-", 1);
    for (int r = 0; r < READERS; r++) {
        readers[r] = (struct reader){.last = begin, .table = rand_r(&seed) % 4, .got = strdup("")};
        readers[r].table = readers[r].table > 1 ? -1 : readers[r].table;
        // About a quarter of them; the first reader has none.
        unsigned some = (unsigned)rand_r(&seed);
        readers[r].scopes = r == 0 ? 0 : some & (some >> TENANTS) & ((1u << TENANTS) - 1);
        reader_open(&gateway, &readers[r]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        int tenant = rand_r(&seed) % (TENANTS + 2);
        char scope[20];
        char prefix[40];
        snprintf(scope, sizeof scope, tenant == TENANTS ? "'*'" : tenant == TENANTS + 1 ? "null" : "'t%d'", tenant);
        snprintf(prefix, sizeof prefix, "r%d-of%d-", round, tenant);
        append_rows(scope, tables[rand_r(&seed) % 2], prefix, 1 + rand_r(&seed) % 12, rand_r(&seed) % 4 != 0);
        int r = rand_r(&seed) % READERS;
        if (readers[r].client) {
            reader_close(&readers[r]);
        } else {
            reader_open(&gateway, &readers[r]);
        }
    }
    append("'*'", "posts", "end-", 1);
    append("'*'", "tags", "end-", 1);
    wait_gateway(&gateway);
    for (int r = 0; r < READERS; r++) {
        if (!readers[r].client) {
            reader_open(&gateway, &readers[r]);
        }
        bool anything = readers[r].scopes != 0;
        if (anything) {
            sse_wait(readers[r].client, "\"end-0\"", SOON_MS);
            if (readers[r].table < 0) {
                sse_wait(readers[r].client, "{\"table\":\"tags\",\"key\":\"end-0\"", SOON_MS);
            }
        }
        reader_close(&readers[r]);
        // The expected list, by the database.
        char sql[1200];
        struct buffer got = {0};
        snprintf(sql, sizeof sql,
                 "select coalesce(string_agg(position::text, ' ' order by position), '') from rowbell.stream_log"
                 " where position > %" PRId64 " and %s and (%s or name = '%s')"
                 "   and (scope = '*' or (scope is null and %s)"
                 "        or (scope ~ '^t[0-9]$' and (%u >> substr(scope, 2)::int) & 1 = 1))",
                 begin, anything ? "true" : "false", readers[r].table < 0 ? "true" : "false",
                 tables[readers[r].table & 1], deliver ? "true" : "false", readers[r].scopes);
        for (const char *at = readers[r].got; (at = strstr(at, "event: change\nid: ")) != NULL; at++) {
            buffer_format(&got, "%s%" PRId64, got.length > 0 ? " " : "", (int64_t)strtoll(at + 18, NULL, 10));
        }
        ck_assert_msg(strcmp(buffer_cstr(&got), sql_text(db, sql)) == 0, "seed %d reader %d scopes %x table %d\n%s\n%s",
                      _i, r, readers[r].scopes, readers[r].table, buffer_cstr(&got), sql_text(db, sql));
        buffer_free(&got);
        free(readers[r].got);
    }
}
END_TEST

void isolation_tests(Suite *suite) {
    TCase *replay = suite_case(suite, "replay", 60);
    tcase_add_test(replay, a_quiet_tenant_is_replayed_its_few);
    tcase_add_test(replay, replay_looks_at_a_bounded_number_of_rows);
    TCase *isolation = suite_case(suite, "isolation", 60);
    tcase_add_loop_test(isolation, nobody_ever_sees_anothers_events, 0, 4);
}
