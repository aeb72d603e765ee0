// Readers that come, go, read slowly, break off in the middle of a block and come back to any gateway, while rows are
// written in small and large transactions, some of which commit late or never, and while Redis is flushed or killed and
// our processes are killed. In the end each reader has everything that it may see, or a reset covers it (G5), and
// nothing else (G7); the log has each committed row exactly once (G1 to G4).
//
// ROWBELL_TEST_SEED=N runs one seed.
#include "common/clock.h"
#include "tests/e2e/stream/world.h"
#include "tests/support/support.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { READERS = 8, TENANTS = 4, STEPS = 220, LATE = 3, KILLS_MOST = 8 };

static unsigned seed;
static unsigned roll(unsigned sides) {
    return (unsigned)rand_r(&seed) % sides;
}

static PGconn *db;
static struct redis redis;
static struct gateway gateways[2];
static struct daemon *relays[2];
static struct daemon *dispatchers[2];
static PGconn *late[LATE];
static bool late_open[LATE];
static int rows;

// A reader sees tenants [0, TENANTS) whose bit is set.
static struct watcher readers[READERS];
static unsigned sees[READERS];
static int64_t opened_at[READERS];

static struct daemon *relay_start(void) {
    return daemon_start("rowbell-relay", NULL);
}
static struct daemon *dispatcher_start(void) {
    return daemon_start("rowbell-dispatcher", WITH("--lanes", "sse", "--redis-url", redis.url));
}
// Two gateways that are not alike: one has a short memory.
static struct gateway gateway_of(int g) {
    return gateway_start(WITH("--redis-url", redis.url, "--auth", "header", "--trusted-peer", "127.0.0.0/8",
                              "--max-replay", "60", "--buffer", "61", "--ring", g == 0 ? "40" : "2000"));
}

static void write_rows(PGconn *conn, unsigned count) {
    char sql[300];
    unsigned tenant = roll(TENANTS);
    snprintf(sql, sizeof sql,
             "insert into posts select 't%u-' || i || repeat('x', %u), 't%u' from generate_series(%d, %d) i", tenant,
             roll(400), tenant, rows, rows + (int)count - 1);
    rows += (int)count;
    sql_run(conn, sql);
}

static void write_late(void) {
    unsigned i = roll(LATE);
    if (!late_open[i]) {
        sql_run(late[i], "begin");
        write_rows(late[i], 1 + roll(5));
    } else {
        sql_run(late[i], roll(4) == 0 ? "rollback" : "commit");
    }
    late_open[i] = !late_open[i];
}

static void reader_step(void) {
    unsigned r = roll(READERS);
    struct watcher *reader = &readers[r];
    if (!reader->client) {
        watcher_open(reader, &gateways[roll(2)], "/events");
    } else if (roll(3) == 0 || (roll(3) != 0 && !watcher_read(reader))) {
        watcher_break_off(reader);
    }
}

static void kill_and_restart(struct daemon **daemon, struct daemon *(*start)(void)) {
    daemon_signal(*daemon, SIGKILL);
    daemon_wait_exit(*daemon, SOON_MS);
    *daemon = start();
}

static void break_something(void) {
    int g = (int)roll(2);
    switch (roll(6)) {
    case 0:
        redis_command(&redis, "FLUSHALL");
        break;
    case 1:
        redis_kill(&redis);
        redis_start(&redis);
        break;
    case 2:
        kill_and_restart(&relays[roll(2)], relay_start);
        break;
    case 3:
        kill_and_restart(&dispatchers[roll(2)], dispatcher_start);
        break;
    case 4:
        for (int r = 0; r < READERS; r++) {
            watcher_leave(&readers[r]);
        }
        gateway_kill(&gateways[g]);
        gateways[g] = gateway_of(g);
        break;
    default:
        // Not of a program that is still starting: it says that it has no database, and ends, as it should.
        sql_run(db, "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()"
                    " and application_name like 'rowbell%' and backend_start < now() - interval '2 s'");
    }
}

static int compare_positions(const void *a, const void *b) {
    int64_t left = ((const struct seen *)a)->position;
    int64_t right = ((const struct seen *)b)->position;
    return (left > right) - (left < right);
}

static bool may_see(int r, const char *key) {
    return key[0] == 't' && (sees[r] >> (key[1] - '0') & 1);
}

// The newest position that reader r may see.
static int64_t last_seen_by(int r, PGresult *log) {
    int64_t last = 0;
    for (int row = 0; row < PQntuples(log); row++) {
        if (may_see(r, PQgetvalue(log, row, 1))) {
            last = strtoll(PQgetvalue(log, row, 0), NULL, 10);
        }
    }
    return last;
}

// What reader r has against what the log says.
static void check_reader(int r, PGresult *log, unsigned first_seed) {
    struct watcher *reader = &readers[r];
    int64_t covered = 0;
    for (int i = 0; i < reader->count; i++) {
        if (reader->seen[i].reason && reader->seen[i].position > covered) {
            covered = reader->seen[i].position;
        }
    }
    qsort(reader->seen, (size_t)reader->count, sizeof reader->seen[0], compare_positions);
    int expected = 0;
    for (int row = 0; row < PQntuples(log); row++) {
        struct seen wanted = {.position = strtoll(PQgetvalue(log, row, 0), NULL, 10)};
        const char *key = PQgetvalue(log, row, 1);
        bool allowed = may_see(r, key);
        const struct seen *found = reader->count == 0 ? NULL
                                                      : bsearch(&wanted, reader->seen, (size_t)reader->count,
                                                                sizeof wanted, compare_positions);
        bool seen = found && !found->reason;
        ck_assert_msg(allowed || !seen, "seed %u: reader %d saw %.20s, which is not its tenant's (G7)", first_seed, r,
                      key);
        ck_assert_msg(!allowed || seen || wanted.position <= opened_at[r] || wanted.position <= covered,
                      "seed %u: reader %d has neither %.20s at %" PRId64 " nor a reset after it (G5)", first_seed, r,
                      key, wanted.position);
        expected += seen;
    }
    int changes = reader->count - watcher_resets(reader);
    ck_assert_msg(changes == expected, "seed %u: reader %d saw %d changes, the log has %d of them", first_seed, r,
                  changes, expected);
}

static void start_all(void) {
    db = world_database();
    redis = (struct redis){0};
    rows = 0;
    redis_start(&redis);
    for (int i = 0; i < 2; i++) {
        relays[i] = relay_start();
        dispatchers[i] = dispatcher_start();
        gateways[i] = gateway_of(i);
    }
    for (int i = 0; i < LATE; i++) {
        late[i] = fixture_connect();
        late_open[i] = false;
    }
    for (int r = 0; r < READERS; r++) {
        char headers[100];
        char *scopes = headers + snprintf(headers, sizeof headers, "X-Rowbell-Scopes: ");
        sees[r] = 1 + roll((1 << TENANTS) - 1);
        for (int t = 0; t < TENANTS; t++) {
            scopes += sees[r] >> t & 1 ? sprintf(scopes, "%st%d", scopes[-1] == ' ' ? "" : ",", t) : 0;
        }
        strcpy(scopes, "\r\n");
        readers[r] = (struct watcher){.headers = support_keep_text(headers)};
        watcher_open(&readers[r], &gateways[r % 2], "/events");
        watcher_wait_open(&readers[r]);
        opened_at[r] = readers[r].last_id;
    }
}

START_TEST(received_is_expected_or_a_reset_covers_it) { // field failures 5 and 12
    const char *chosen = getenv("ROWBELL_TEST_SEED");
    unsigned first_seed = chosen ? (unsigned)strtoul(chosen, NULL, 10) : (unsigned)clock_ms() * 8 + (unsigned)_i;
    printf("stream property: ROWBELL_TEST_SEED=%u\n", first_seed);
    fflush(stdout);
    seed = first_seed;
    start_all();
    int kills = 0;
    for (int step = 0; step < STEPS; step++) {
        unsigned what = roll(100);
        if (what < 35) {
            write_rows(db, roll(8) == 0 ? 20 + roll(120) : 1 + roll(4));
        } else if (what < 45) {
            write_late();
        } else if (what < 96 || kills == KILLS_MOST) {
            reader_step();
        } else {
            kills++;
            break_something();
        }
    }
    for (int i = 0; i < LATE; i++) {
        if (late_open[i]) {
            sql_run(late[i], "commit");
        }
    }
    // The end: everything is in the log, then one row more for each tenant, which tells that a reader has all.
    for (int t = 0; t < TENANTS; t++) {
        char sql[100];
        snprintf(sql, sizeof sql, "insert into posts values ('t%d-end', 't%d')", t, t);
        sql_run(db, sql);
    }
    sql_wait(db, SOON_MS,
             "select (select count(*) from posts) = (select count(*) from rowbell.stream_log where name = 'posts')");
    sql_wait(db, SOON_MS,
             "select count(*) = (select count(*) from posts) from (select distinct key from rowbell.stream_log"
             " where name = 'posts') k");
    PGresult *log = PQexec(db, "select position, key, scope from rowbell.stream_log where name = 'posts' order by 1");
    for (int r = 0; r < READERS; r++) {
        uint64_t end_ms = clock_ms() + SOON_MS;
        int64_t goal = last_seen_by(r, log); // by an event, or by a reset that covers it
        // Slow ones may be sent away and come back.
        for (;;) {
            if (!readers[r].client) {
                watcher_open(&readers[r], &gateways[roll(2)], "/events");
            }
            bool open = watcher_read(&readers[r]);
            bool done = readers[r].last_id >= goal;
            if (done) {
                break;
            }
            ck_assert_msg(clock_ms() < end_ms, "seed %u: reader %d does not reach the end", first_seed, r);
            if (!open) {
                watcher_break_off(&readers[r]);
            }
            support_pause();
        }
        watcher_leave(&readers[r]);
        check_reader(r, log, first_seed);
        free(readers[r].seen);
    }
    PQclear(log);
    redis_stop(&redis);
}
END_TEST

void property_tests(Suite *suite) {
    TCase *property = suite_case(suite, "property", 180);
    tcase_add_loop_test(property, received_is_expected_or_a_reset_covers_it, 0, 3);
}
