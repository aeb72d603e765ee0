// Silent and dead name servers beside healthy endpoints, with the real programs.
#include "tests/e2e/delivery.h"
#include "tests/support/dns_server.h"
#include "tests/support/support.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SILENT = 20, HEALTHY = 5 };

static struct dns_server *server;
static char database_url[500];

static bool all_are_asked(void *arg) {
    return dns_server_count(server, "*.silent.test") >= *(const int *)arg;
}

// Webhooks prefix1 to prefixN, at HOST with %d for the number; the port is the receiver's.
static void webhooks(PGconn *conn, const char *prefix, int count, const char *host, struct receiver *receiver) {
    char sql[500];
    snprintf(sql, sizeof sql,
             "select count(*) from (select rowbell.add_webhook('%s' || i, 'http://' || replace('%s', '#', i::text) || "
             "':%s/%s' || i, '{*}', null, '{\"allow_http\": true}') from generate_series(1, %d) i) added",
             prefix, host, strrchr(receiver_url(receiver), ':') + 1, prefix, count);
    sql_run(conn, sql);
}

// The database too is reached by a name.
static void set_up(void) {
    server = dns_server_start();
    dns_server_set(server, "*.silent.test", DNS_SILENT, NULL, 0);
    dns_server_set(server, "healthy.test", DNS_ANSWER, "127.0.0.1", 60);
    dns_server_set(server, "database.test", DNS_ANSWER, "127.0.0.1", 0);
}

static void dispatcher_start(void) {
    const char *url = support_database_url();
    const char *host = strstr(url, "@127.0.0.1:");
    ck_assert_ptr_nonnull(host);
    snprintf(database_url, sizeof database_url, "%.*s@database.test%s", (int)(host - url), url,
             host + strlen("@127.0.0.1"));
    start((const char *const[]){"--allow-egress", "127.0.0.1", "--lanes", "webhook", "--dns-servers",
                                dns_server_address(server), "--database-url", database_url, NULL});
}

static void cut_sessions(PGconn *conn) {
    sql_run(conn,
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> "
            "pg_backend_pid() and application_name like 'rowbell%'");
}

START_TEST(silent_name_servers_starve_nobody) {
    set_up();
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    webhooks(conn, "dead", SILENT, "n#.silent.test", receiver);
    webhooks(conn, "good", HEALTHY, "healthy.test", receiver);
    queue_matching(conn, "dead%", 40); // 800 jobs: more than a dispatcher has slots
    dispatcher_start();
    int asked = SILENT;
    wait_for(all_are_asked, &asked, HANG_MS, "questions about the silent names");
    for (int round = 1; round <= 3; round++) {
        queue_matching(conn, "good%", 20);
        receiver_wait(receiver, 20 * HEALTHY * round, HANG_MS);
        cut_sessions(conn); // its own reconnect needs a name, too
    }
    sql_wait(conn, HANG_MS,
             "select count(*) = 300 from rowbell.attempts a join rowbell.subscriptions s on s.id = a.subscription_id "
             "where s.name like 'good%' and class = 'delivered'");
    sql_wait(conn, HANG_MS, "select count(*) >= 20 from rowbell.attempts where class = 'dns'");
    // Nobody pays for another's name server, and who has a silent one is told so.
    ck_assert_str_eq(sql_text(conn,
                              "select string_agg(distinct left(name, 4) || ' ' || class || coalesce(' ' || "
                              "split_part(response_head, ':', 1), ''), ', ' order by left(name, 4) || ' ' || class || "
                              "coalesce(' ' || split_part(response_head, ':', 1), '')) from rowbell.attempts a join "
                              "rowbell.subscriptions s on s.id = a.subscription_id where class <> 'lost'"),
                     "dead dns dns timeout, good delivered ok");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.attempts where class in ('timeout', 'connect')"), 0);
    dns_server_stop(server);
}
END_TEST

START_TEST(with_dead_name_servers_known_addresses_serve) {
    set_up();
    dns_server_set(server, "healthy.test", DNS_ANSWER, "127.0.0.1", 0);
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    webhooks(conn, "good", 1, "healthy.test", receiver);
    queue_matching(conn, "good%", 1);
    dispatcher_start();
    receiver_wait(receiver, 1, HANG_MS);
    dns_server_set(server, "healthy.test", DNS_SILENT, NULL, 0);
    dns_server_set(server, "database.test", DNS_SERVFAIL, NULL, 0);
    sql_run(conn, "create table since as select clock_timestamp() at");
    sql_wait(conn, HANG_MS, "select clock_timestamp() > at + interval '6 s' from since"); // the least TTL is 5 s
    cut_sessions(conn);
    queue_matching(conn, "good%", 5);
    receiver_wait(receiver, 6, HANG_MS);
    sql_wait(conn, HANG_MS, NO_JOBS);
    ck_assert_int_eq(attempts(conn, "delivered"), 6);
    dns_server_stop(server);
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "dns", 180);
    tcase_add_test(tcase, silent_name_servers_starve_nobody);
    tcase_add_test(tcase, with_dead_name_servers_known_addresses_serve);
}

int main(void) {
    return suite_main("dns", add_tests);
}
