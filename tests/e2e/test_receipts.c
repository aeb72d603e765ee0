// Receipts with the real programs: a writer waits for its own changes by SQL, HTTP and nothing else (docs/receipts.md).
#include "tests/support/fixture.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_MS = 15000, CAP = 64 };

static PGconn *fresh(void) {
    fixture_database();
    PGconn *conn = fixture_connect();
    sql_run(conn, "alter sequence rowbell.events_seq_seq restart 9007199254000000;"
                  "create table posts (id int primary key, title text); select rowbell.publish('posts');"
                  "select rowbell.declare_type('thing.happened')");
    return conn;
}

static int start_gateway_with(const char *const *arguments) {
    struct daemon *daemon = daemon_start("rowbell-gateway", arguments);
    daemon_wait_log(daemon, "stream_ready", WAIT_MS);
    return daemon_log_port(daemon, "listen");
}
static int start_gateway(void) {
    return start_gateway_with((const char *const[]){"--listen", "127.0.0.1:0", "--auth", "none", NULL});
}
static struct daemon *start_relay(void) {
    struct daemon *daemon = daemon_start("rowbell-relay", (const char *const[]){NULL});
    daemon_wait_log(daemon, "relay_started", WAIT_MS);
    return daemon;
}
static struct daemon *start_dispatcher(void) {
    struct daemon *daemon = daemon_start("rowbell-dispatcher", (const char *const[]){NULL});
    daemon_wait_log(daemon, "dispatcher_started", WAIT_MS);
    return daemon;
}

static const char *write_post(PGconn *conn, const char *sql) {
    sql_run(conn, "begin");
    sql_run(conn, sql);
    const char *receipt = sql_text(conn, "select rowbell.receipt()");
    sql_run(conn, "commit");
    return receipt;
}

static int get(int port, const char *receipt, const char *query, const char **ret_body) {
    char url[500];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/receipts/%s%s", port, receipt, query);
    return http_get(url, ret_body);
}

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1000 + (double)now.tv_nsec / 1e6;
}

// A request in flight on a socket of its own.
static int open_get_with(int port, const char *receipt, const char *query, const char *headers) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_gt(dprintf(fd, "GET /receipts/%s%s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", receipt, query, headers),
                     0);
    return fd;
}
static int open_get(int port, const char *receipt, const char *query) {
    return open_get_with(port, receipt, query, "");
}
static bool answered(int fd, unsigned wait_ms) {
    return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, (int)wait_ms) > 0;
}

#define HAS(body, text) ck_assert_msg(strstr(body, text) != NULL, "%s lacks %s", body, text)

START_TEST(a_receipt_tells_what_became_of_a_transaction) {
    PGconn *conn = fresh();
    int port = start_gateway();
    const char *body, *receipt = write_post(conn, "insert into posts select generate_series(1, 3); "
                                                  "select rowbell.record('thing.happened', 'a')");
    ck_assert_int_eq(get(port, receipt, "", &body), 200);
    HAS(body, "\"state\":\"committed\",\"events\":4,\"pending\":4,\"poisoned\":0,\"fanned_out\":false");
    double began = now_ms();
    ck_assert_int_eq(get(port, receipt, "?wait=400ms", &body), 200); // nobody fans out: the wait ends
    ck_assert(now_ms() - began >= 390 && now_ms() - began < 3000);
    HAS(body, "\"fanned_out\":false");
    start_relay();
    ck_assert_int_eq(get(port, receipt, "?wait=10s", &body), 200);
    HAS(body, "\"pending\":0,\"poisoned\":0,\"fanned_out\":true,\"indexed\":true,\"open\":{\"webhook\":0,\"index\":0,"
              "\"sse\":3}");
    start_dispatcher();
    sql_wait(conn, WAIT_MS, "select count(*) = 0 from rowbell.jobs");
    ck_assert_int_eq(get(port, receipt, "", &body), 200);
    HAS(body, "\"sse\":0}");
    // A transaction that wrote nothing has nothing to wait for.
    receipt = write_post(conn, "select 1");
    ck_assert_int_eq(get(port, receipt, "?wait=10s", &body), 200);
    HAS(body, "\"events\":0,\"pending\":0,\"poisoned\":0,\"fanned_out\":true");
}
END_TEST

// What lets writers know nothing of receipts: the bound is below all events since a moment, whatever the order of
// times, and close.
START_TEST(the_numbers_since_a_moment_are_found) {
    PGconn *conn = fresh();
    sql_run(conn, "insert into posts select generate_series(1, 20000); delete from rowbell.events where seq % 7 = 0;"
                  "update rowbell.events set occurred_at = '2026-01-01'::timestamptz + seq * interval '1 ms'");
    static const char missed[] = "select count(*) from generate_series(-5, 21000, 487) i cross join lateral (select "
                                 "'2026-01-01'::timestamptz + i * interval '1 ms' as moment) m cross join lateral "
                                 "(select rowbell.seq_before(m.moment) as low) l join rowbell.events e on "
                                 "e.seq <= l.low and e.occurred_at >= m.moment";
    ck_assert_int_eq(sql_int(conn, missed), 0);
    ck_assert_int_eq(sql_int(conn,
                             "select count(*) from generate_series(-5, 21000, 487) i cross join lateral (select "
                             "count(*) as more from rowbell.events e where e.occurred_at < '2026-01-01'::timestamptz "
                             "+ i * interval '1 ms' and e.seq > rowbell.seq_before('2026-01-01'::timestamptz + i * "
                             "interval '1 ms')) m where m.more > 200"),
                     0);
    // A time long after its number (a writer that was stopped in between) costs a longer look, never an event.
    sql_run(conn, "update rowbell.events set occurred_at = occurred_at + interval '15 s' where seq % 3 = 0");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events e where e.seq % 3 <> 0 and e.occurred_at >= "
                                   "'2026-01-01 00:00:10Z' and e.seq <= rowbell.seq_before('2026-01-01 00:00:10Z')"),
                     0);
}
END_TEST

START_TEST(a_rollback_and_a_running_transaction_are_told) {
    PGconn *conn = fresh();
    int port = start_gateway();
    start_relay();
    const char *body;
    sql_run(conn, "begin; insert into posts values (1)");
    const char *receipt = sql_text(conn, "select rowbell.receipt()");
    ck_assert_int_eq(get(port, receipt, "", &body), 200);
    HAS(body, "\"state\":\"in_progress\"");
    int waiting = open_get(port, receipt, "?wait=20s");
    ck_assert(!answered(waiting, 300));
    sql_run(conn, "rollback");
    ck_assert(answered(waiting, 2000));
    ck_assert_int_eq(get(port, receipt, "?wait=10s&for=index", &body), 200);
    HAS(body, "\"state\":\"aborted\"");
    // What a savepoint took back is not in it.
    receipt =
        write_post(conn, "savepoint s; insert into posts values (2); rollback to s; insert into posts values (3)");
    ck_assert_int_eq(get(port, receipt, "?wait=10s", &body), 200);
    HAS(body, "\"events\":1,");
    close(waiting);
}
END_TEST

START_TEST(a_waiter_hears_of_the_index_within_50_ms) {
    PGconn *conn = fresh();
    sql_run(conn, "select rowbell.add_index('i', '{posts.*}', null, '{\"target\": \"postgres\"}')");
    int port = start_gateway();
    start_relay();
    start_dispatcher();
    const char *body;
    int in_a_row =
        0; // five: on a busy machine some are late, and who only looked now and then would not be in time so often
    for (int i = 0; i < 100 && in_a_row < 5; i++) {
        char sql[100];
        snprintf(sql, sizeof sql, "insert into posts values (%d, 'x')", i);
        const char *receipt = write_post(conn, sql);
        ck_assert_int_eq(get(port, receipt, "?wait=10s&for=index", &body), 200);
        double now = (double)sql_int(conn, "select (extract(epoch from clock_timestamp()) * 1000000)::bigint") / 1000;
        HAS(body, "\"indexed\":true");
        snprintf(sql, sizeof sql,
                 "select (extract(epoch from indexed_at) * 1000000)::bigint from rowbell.search where key = '%d'", i);
        double late = now - (double)sql_int(conn, sql) / 1000; // it is there: read your own write
        in_a_row = late < 50 ? in_a_row + 1 : 0;
        fprintf(stderr, "%.1f ms after the index was written\n", late);
    }
    ck_assert_int_eq(in_a_row, 5);
}
END_TEST

START_TEST(coalesced_changes_are_waited_for) {
    PGconn *conn = fresh();
    sql_run(conn, "select rowbell.add_index('i', '{posts.*}', null, '{\"target\": \"postgres\"}'); insert into posts "
                  "values (1, 'a')");
    int port = start_gateway();
    const char *body, *first = write_post(conn, "update posts set title = 'b'");
    write_post(conn, "update posts set title = 'c'");
    start_relay();
    ck_assert_int_eq(get(port, first, "?wait=10s", &body), 200);
    HAS(body, "\"fanned_out\":true,\"indexed\":false"); // by the later event's job
    start_dispatcher();
    ck_assert_int_eq(get(port, first, "?wait=10s&for=index", &body), 200);
    HAS(body, "\"indexed\":true");
    ck_assert_str_eq(sql_text(conn, "select document ->> 'title' from rowbell.search"), "c");
}
END_TEST

START_TEST(over_the_cap_the_answer_comes_at_once) {
    PGconn *conn = fresh();
    int port = start_gateway(), waiters[CAP];
    const char *receipt = write_post(conn, "insert into posts values (1)");
    for (int i = 0; i < CAP; i++)
        waiters[i] = open_get(port, receipt, "?wait=20s");
    const char *body;
    // Each of the 64 has arrived once the 65th does not wait.
    for (double began = now_ms(), elapsed = 1000; elapsed > 500;) {
        double asked = now_ms();
        ck_assert_int_eq(get(port, receipt, "?wait=600ms", &body), 200);
        elapsed = now_ms() - asked;
        ck_assert(now_ms() - began < WAIT_MS);
    }
    double asked = now_ms();
    ck_assert_int_eq(get(port, receipt, "?wait=20s", &body), 200);
    ck_assert(now_ms() - asked < 500);
    HAS(body, "\"fanned_out\":false");
    ck_assert_int_eq(
        sql_int(conn, "select count(*) from pg_stat_activity where application_name = 'rowbell-gateway receipts' and "
                      "datname = current_database()"),
        1); // one LISTEN for all
    for (int i = 0; i < CAP; i++)
        ck_assert(!answered(waiters[i], 0));
    start_relay();
    for (int i = 0; i < CAP; i++) {
        ck_assert(answered(waiters[i], 3000));
        close(waiters[i]);
    }
}
END_TEST

START_TEST(what_is_no_receipt_is_refused) {
    PGconn *conn = fresh();
    int port = start_gateway();
    const char *body, *receipt = write_post(conn, "insert into posts values (1)");
    char changed[300];
    snprintf(changed, sizeof changed, "%s", receipt);
    char *last = changed + strlen(changed) - 1;
    *last = *last == '0' ? '1' : '0';
    ck_assert_int_eq(get(port, changed, "", &body), 404);
    ck_assert_int_eq(get(port, "r2.0.1.1.1.00000000000000000000000000000000", "", &body), 404);
    ck_assert_int_eq(get(port, "nonsense", "", &body), 404);
    ck_assert_int_eq(get(port, "", "", &body), 404);
    ck_assert_int_eq(get(port, receipt, "?wait=soon", &body), 400);
    ck_assert_int_eq(get(port, receipt, "?for=ever", &body), 400);
    ck_assert_int_eq(get(port, receipt, "?waits=2s", &body), 400);
    ck_assert_int_eq(get(port, receipt, "?_=1764446400123&colour=red", &body), 200); // not ours: ignored
    // A receipt names no subscription and cannot be made by a client.
    ck_assert_str_eq(sql_error(conn, "set role rowbell_gateway; select rowbell.receipt_hash('x')"), "42501");
}
END_TEST

static const char *answer(int fd) {
    static char text[1000];
    ck_assert(answered(fd, WAIT_MS));
    ssize_t length = read(fd, text, sizeof text - 1);
    text[length > 0 ? length : 0] = '\0';
    close(fd);
    return text;
}

START_TEST(who_may_not_subscribe_learns_nothing) {
    PGconn *conn = fresh();
    int port = start_gateway_with((const char *const[]){"--listen", "127.0.0.1:0", "--auth", "header", "--trusted-peer",
                                                        "127.0.0.1", "--cors-origin", "https://app.example", NULL});
    const char *receipt = write_post(conn, "insert into posts values (1)"),
               *page = "Origin: https://app.example\r\nX-Rowbell-Scopes: t1\r\n";
    const char *text = answer(open_get(port, receipt, ""));
    HAS(text, "HTTP/1.1 401 ");
    ck_assert_ptr_null(strstr(text, "committed"));
    text = answer(open_get_with(port, receipt, "", page));
    HAS(text, "HTTP/1.1 200 ");
    HAS(text, "\"state\":\"committed\"");
    HAS(text, "Access-Control-Allow-Origin: https://app.example");
}
END_TEST

START_TEST(a_transaction_that_a_failover_took_back_is_aborted) {
    PGconn *conn = fresh();
    int port = start_gateway();
    const char *body, *receipt = sql_text(conn, "select b || '.' || rowbell.receipt_hash(b) from (select format("
                                                "'r2.%s.%s.7.8', id, pg_current_xact_id()::text::bigint + 1000) as b "
                                                "from rowbell.installation) as its_body");
    ck_assert_int_eq(get(port, receipt, "?wait=10s&for=index", &body), 200);
    HAS(body, "\"state\":\"aborted\"");
}
END_TEST

START_TEST(the_gateway_ends_with_waiters) {
    PGconn *conn = fresh();
    struct daemon *daemon = daemon_start(
        "rowbell-gateway", (const char *const[]){"--listen", "127.0.0.1:0", "--auth", "none", "--drain", "1s",
                                                 "--database-url", fixture_login("rowbell_gateway"), NULL});
    daemon_wait_log(daemon, "stream_ready", WAIT_MS);
    int port = daemon_log_port(daemon, "listen");
    const char *body, *receipt = write_post(conn, "insert into posts values (1)");
    ck_assert_int_eq(get(port, receipt, "", &body), 200); // with the rights of its role
    int waiting = open_get(port, receipt, "?wait=30s");
    ck_assert(!answered(waiting, 200));
    daemon_signal(daemon, SIGTERM);
    ck_assert(answered(waiting, 5000));
    ck_assert_int_eq(daemon_wait_exit(daemon, WAIT_MS), 0);
    close(waiting);
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *receipts = suite_case(suite, "receipts", 60);
    tcase_add_test(receipts, a_receipt_tells_what_became_of_a_transaction);
    tcase_add_test(receipts, the_numbers_since_a_moment_are_found);
    tcase_add_test(receipts, a_rollback_and_a_running_transaction_are_told);
    tcase_add_test(receipts, a_waiter_hears_of_the_index_within_50_ms);
    tcase_add_test(receipts, coalesced_changes_are_waited_for);
    tcase_add_test(receipts, over_the_cap_the_answer_comes_at_once);
    tcase_add_test(receipts, what_is_no_receipt_is_refused);
    tcase_add_test(receipts, who_may_not_subscribe_learns_nothing);
    tcase_add_test(receipts, a_transaction_that_a_failover_took_back_is_aborted);
    tcase_add_test(receipts, the_gateway_ends_with_waiters);
}

int main(void) {
    return suite_main("receipts", add_tests);
}
