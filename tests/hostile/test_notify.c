// Any login of a database may NOTIFY on any channel. One that has nothing but CONNECT floods all of ours: real work
// goes on, and the number of looks at the database does not follow that of the notifications.
#include "common/clock.h"
#include "tests/e2e/delivery.h"
#include "tests/support/gateway.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOTIFICATIONS = 200000, SOON_MS = 60000 };

static struct {
    PGconn *conn;
    pthread_t thread;
    atomic_bool end;
    atomic_int sent;
} flood;

// Hints that are understood, for work that is not there, and others. No two are the same: PostgreSQL sends those once.
static const char flood_sql[] =
    "do $$ begin for i in 1..1000 loop "
    "perform pg_notify('rowbell_events', 'x' || random()), pg_notify('rowbell_stream', (9e15::bigint + i * "
    "random())::text), "
    "pg_notify('rowbell_fanned', '1 9223372036854775807 ' || random()), pg_notify('rowbell_jobs', case i % 4 "
    "when 0 then 'junk ' || random() when 1 then format('webhook %s %s', i % 64, trunc(random() * 1e9)) "
    "when 2 then format('sse %s %s webhook %s 0', i % 64, trunc(random() * 1e9), i % 61) "
    "else format('webhook 99 %s', random()) end); end loop; end $$";

static void *flood_run(void *arg) {
    while (!atomic_load(&flood.end)) {
        PGresult *result = PQexec(flood.conn, flood_sql);
        if (PQresultStatus(result) != PGRES_COMMAND_OK)
            abort();
        PQclear(result);
        atomic_fetch_add(&flood.sent, 4000);
    }
    return arg;
}

static bool enough_was_sent(void *arg) {
    return atomic_load(&flood.sent) >= *(const int *)arg;
}

static void flood_start(void) {
    flood.conn = PQconnectdb(fixture_login("rowbell_trusted")); // which may nothing
    ck_assert_int_eq(PQstatus(flood.conn), CONNECTION_OK);
    ck_assert_int_eq(pthread_create(&flood.thread, NULL, flood_run, NULL), 0);
    wait_for(enough_was_sent, &(int){4000}, SOON_MS, "the flood begins");
}

static void flood_end(void) {
    wait_for(enough_was_sent, &(int){NOTIFICATIONS}, 10 * SOON_MS, "the flood");
    atomic_store(&flood.end, true);
    pthread_join(flood.thread, NULL);
    PQfinish(flood.conn);
}

// Each look at the table is a scan or two; backends tell what they did when they end.
static int64_t scans(PGconn *conn, const char *table) {
    char sql[200];
    snprintf(sql, sizeof sql,
             "select coalesce(seq_scan, 0) + coalesce(idx_scan, 0) from pg_stat_user_tables where schemaname = "
             "'rowbell' and "
             "relname = '%s'",
             table);
    return sql_int(conn, sql);
}

START_TEST(a_flood_of_notifications_costs_few_looks_and_delays_nobody) {
    PGconn *conn = fresh(), *open = fixture_connect();
    struct receiver *receiver = receiver_start();
    webhook(conn, "w", receiver, "");
    sql_run(conn, "select rowbell.set_wake('notify')");
    struct daemon *relay = daemon_start("rowbell-relay", (const char *const[]){NULL}), *dispatcher = start(plain);
    daemon_wait_log(relay, "listen_working", SOON_MS);
    struct gateway gateway = gateway_start(NULL);
    struct sse_client *client = sse_open(gateway.port, "/events", NULL);
    sse_wait(client, "\nid: ", SOON_MS);
    // Somebody waits for a transaction that does not end.
    char target[300];
    sql_run(open, "begin; select rowbell.record('thing.happened', 'a/1')");
    snprintf(target, sizeof target, "/receipts/%s?wait=30s", sql_text(open, "select rowbell.receipt()"));
    sse_open(gateway.port, target, NULL);

    uint64_t began_ms = clock_ms();
    flood_start();
    for (int i = 1; i <= 20; i++) {
        char text[100];
        snprintf(text, sizeof text, "insert into posts values (%d, 'x')", i);
        sql_run(conn, text);
        receiver_wait(receiver, i, SOON_MS);
        snprintf(text, sizeof text, "\"key\":\"%d\"", i);
        sse_wait(client, text, SOON_MS);
    }
    flood_end();
    stop(dispatcher);
    stop(relay);
    stop(gateway.daemon);
    sql_wait(conn, SOON_MS,
             "select count(*) = 0 from pg_stat_activity where application_name like 'rowbell-%' and datname = "
             "current_database()");
    // The paces are 5, 20 and 100 looks a second, of a few scans each; the real work needs some, too.
    int64_t seconds = (int64_t)(clock_ms() - began_ms) / 1000 + 1, most = 400 * seconds + 2000;
    static const char *const tables[] = {"stream_log", "events", "jobs", "subscriptions", "installation"};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        int64_t made = scans(conn, tables[i]);
        ck_assert_msg(made < most, "%lld scans of %s in %lld s", (long long)made, tables[i], (long long)seconds);
    }
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "hostile_notify", 600);
    tcase_add_test(tcase, a_flood_of_notifications_costs_few_looks_and_delays_nobody);
}

int main(void) {
    return suite_main("hostile_notify", add_tests);
}
