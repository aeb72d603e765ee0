// Receipts with the real programs: a writer waits for its own changes by SQL, HTTP and nothing else (docs/receipts.md).
#include "common/clock.h"
#include "tests/support/fixture.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WAIT_MS = HANG_MS, CAP = 64, OVER = 6 };

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

// A waiter whose transaction does not end, for as long as the longest wait. Who came after it and is answered before it
// did not wait for the end of a wait.
static int open_endless(int port) {
    PGconn *conn = fixture_connect();
    sql_run(conn, "begin; select rowbell.record('thing.happened', 'endless')");
    return open_get(port, sql_text(conn, "select rowbell.receipt()"), "?wait=30s");
}

static const char *answer(int fd) {
    static char text[1000];
    ck_assert(answered(fd, WAIT_MS));
    ssize_t length = read(fd, text, sizeof text - 1);
    text[length > 0 ? length : 0] = '\0';
    close(fd);
    return text;
}

#define HAS(body, text) ck_assert_msg(strstr(body, text) != NULL, "%s lacks %s", body, text)

START_TEST(a_receipt_tells_what_became_of_a_transaction) {
    PGconn *conn = fresh();
    int port = start_gateway();
    const char *body, *receipt = write_post(conn, "insert into posts select generate_series(1, 3); "
                                                  "select rowbell.record('thing.happened', 'a')");
    ck_assert_int_eq(get(port, receipt, "", &body), 200);
    HAS(body, "\"state\":\"committed\",\"events\":4,\"pending\":4,\"poisoned\":0,\"fanned_out\":false");
    uint64_t began_ms = clock_ms();
    ck_assert_int_eq(get(port, receipt, "?wait=400ms", &body), 200); // nobody fans out: the wait ends
    ck_assert_uint_ge(clock_ms() - began_ms, 390);
    HAS(body, "\"fanned_out\":false");
    start_relay();
    ck_assert_int_eq(get(port, receipt, "?wait=30s", &body), 200);
    HAS(body, "\"pending\":0,\"poisoned\":0,\"fanned_out\":true,\"indexed\":true,\"open\":{\"webhook\":0,\"index\":0,"
              "\"sse\":3}");
    start_dispatcher();
    sql_wait(conn, WAIT_MS, "select count(*) = 0 from rowbell.jobs");
    ck_assert_int_eq(get(port, receipt, "", &body), 200);
    HAS(body, "\"sse\":0}");
    // A transaction that wrote nothing has nothing to wait for.
    receipt = write_post(conn, "select 1");
    ck_assert_int_eq(get(port, receipt, "?wait=30s", &body), 200);
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
    int endless = open_endless(port), waiting = open_get(port, receipt, "?wait=30s");
    ck_assert(!answered(waiting, 300));
    sql_run(conn, "rollback");
    ck_assert(answered(waiting, WAIT_MS));
    ck_assert(!answered(endless, 0));
    ck_assert_int_eq(get(port, receipt, "?wait=30s&for=index", &body), 200);
    HAS(body, "\"state\":\"aborted\"");
    // What a savepoint took back is not in it.
    receipt =
        write_post(conn, "savepoint s; insert into posts values (2); rollback to s; insert into posts values (3)");
    ck_assert_int_eq(get(port, receipt, "?wait=30s", &body), 200);
    HAS(body, "\"events\":1,");
    close(waiting);
    close(endless);
}
END_TEST

START_TEST(a_waiter_hears_of_the_index) {
    PGconn *conn = fresh();
    sql_run(conn, "select rowbell.add_index('i', '{posts.*}', null, '{\"target\": \"postgres\"}')");
    int port = start_gateway();
    start_relay();
    start_dispatcher();
    int endless = open_endless(port);
    const char *body;
    for (int i = 0; i < 5; i++) {
        char sql[100];
        snprintf(sql, sizeof sql, "insert into posts values (%d, 'x')", i);
        const char *receipt = write_post(conn, sql);
        ck_assert_int_eq(get(port, receipt, "?wait=30s&for=index", &body), 200);
        HAS(body, "\"indexed\":true");
        snprintf(sql, sizeof sql, "select count(*) from rowbell.search where key = '%d'", i);
        ck_assert_int_eq(sql_int(conn, sql), 1); // it is there: read your own write
    }
    ck_assert(!answered(endless, 0));
    close(endless);
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
    ck_assert_int_eq(get(port, first, "?wait=30s", &body), 200);
    HAS(body, "\"fanned_out\":true,\"indexed\":false"); // by the later event's job
    start_dispatcher();
    ck_assert_int_eq(get(port, first, "?wait=30s&for=index", &body), 200);
    HAS(body, "\"indexed\":true");
    ck_assert_str_eq(sql_text(conn, "select document ->> 'title' from rowbell.search"), "c");
}
END_TEST

static int answers(const int *waiters) {
    int count = 0;
    for (int i = 0; i < CAP + OVER; i++)
        count += answered(waiters[i], 0);
    return count;
}
static bool as_many_as_are_over(void *waiters) {
    return answers(waiters) >= OVER;
}
static bool all_of_them(void *waiters) {
    return answers(waiters) == CAP + OVER;
}

START_TEST(over_the_cap_the_answer_comes_at_once) {
    PGconn *conn = fresh();
    int port = start_gateway(), waiters[CAP + OVER];
    const char *receipt = write_post(conn, "insert into posts values (1)");
    for (int i = 0; i < CAP + OVER; i++)
        waiters[i] = open_get(port, receipt, "?wait=30s");
    wait_for(as_many_as_are_over, waiters, WAIT_MS, "answers to those who are too many");
    ck_assert_int_eq(answers(waiters), OVER); // the others still wait, though they all asked for as long
    ck_assert_int_eq(
        sql_int(conn, "select count(*) from pg_stat_activity where application_name = 'rowbell-gateway receipts' and "
                      "datname = current_database()"),
        1); // one LISTEN for all
    int over = 0;
    while (!answered(waiters[over], 0))
        over++;
    char text[1000] = "";
    ck_assert_int_gt(recv(waiters[over], text, sizeof text - 1, MSG_PEEK), 0);
    HAS(text, "\"fanned_out\":false");
    start_relay();
    wait_for(all_of_them, waiters, WAIT_MS, "answers to all");
    int fanned_out = 0; // what is not said when a wait ends
    for (int i = 0; i < CAP + OVER; i++)
        fanned_out += strstr(answer(waiters[i]), "\"fanned_out\":true") != NULL;
    ck_assert_int_eq(fanned_out, CAP);
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
    PGconn *gateway = PQconnectdb(fixture_login("rowbell_gateway"));
    ck_assert_str_eq(sql_error(gateway, "select rowbell.receipt_hash('x')"), "42501");
    PQfinish(gateway);
}
END_TEST

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
    ck_assert_int_eq(get(port, receipt, "?wait=30s&for=index", &body), 200);
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
    HAS(answer(waiting), "the gateway is restarting"); // and not what is said when a wait ends
    ck_assert_int_eq(daemon_wait_exit(daemon, WAIT_MS), 0);
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *receipts = suite_case(suite, "receipts", 60);
    tcase_add_test(receipts, a_receipt_tells_what_became_of_a_transaction);
    tcase_add_test(receipts, the_numbers_since_a_moment_are_found);
    tcase_add_test(receipts, a_rollback_and_a_running_transaction_are_told);
    tcase_add_test(receipts, a_waiter_hears_of_the_index);
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
