// fixture: what a test stands on: a database of its own, real Redis, our binaries, a webhook receiver, a deadline.
//
// `dev/test` starts one PostgreSQL and one Redis and sets ROWBELL_TEST_PG (a superuser URL without a database name),
// ROWBELL_TEST_REDIS (redis://...) and ROWBELL_TEST_BIN (the build directory). Every function fails the test
// (ck_abort_msg) when it cannot do what it says.
//
// Suites that install, publish or change anything run three times (tests/meson.build): as a superuser, as a login that
// owns its databases and is nothing more (the shape of hosted PostgreSQL), and as such a login on a server without
// roles of ours, with `migrate --no-roles`. What needs a superuser there is done by fixture_admin.
#pragma once
#include <check.h>
#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

// How long anything is waited for. It ends what hangs and tests nothing: on a slow machine everything takes its time.
enum { HANG_MS = 60000 };

// A database cloned from the migrated template; dropped by fixture_close. Returns a URL (owned by the fixture).
const char *fixture_database(void);
const char *fixture_empty_database(void); // not migrated
const char *fixture_redis(void); // a database number of its own is not enough for pub/sub: channels are by installation
PGconn *fixture_connect(void);   // blocking, on the newest fixture_database, whose owner it is; closed by fixture_close
PGconn *fixture_admin(void);     // the same as a superuser, whoever owns the database
bool fixture_is_superuser(void); // fixture_connect is one
bool fixture_has_roles(void);    // false: the schema was made with --no-roles
// A URL of the newest fixture_database for a login of its own that has this role's rights and no others
// ("rowbell_relay"). Without roles these rights are granted to it by hand.
const char *fixture_login(const char *role);
void fixture_close(void); // teardown: kills daemons, closes connections, drops databases

// Runs SQL, fails the test on error; sql_* return the first column of the first row.
void sql_run(PGconn *conn, const char *sql);
int64_t sql_int(PGconn *conn, const char *sql);
const char *sql_text(PGconn *conn, const char *sql);  // owned by the fixture; "" for NULL or no row
const char *sql_error(PGconn *conn, const char *sql); // must fail: returns its SQLSTATE

// True as soon as the query's first column is `t` or a number above zero; fails the test after deadline_ms.
void sql_wait(PGconn *conn, unsigned deadline_ms, const char *sql);
// Waits for condition(arg) in the same way.
void wait_for(bool (*condition)(void *arg), void *arg, unsigned deadline_ms, const char *what);

// One of our programs, run with these arguments (NULL-terminated, without argv[0]) plus --database-url unless given.
struct daemon {
    pid_t pid;
    int log_fd;
    char *log; // everything that it wrote to stderr so far
    size_t log_length;
    int exit_status; // -1 while it runs
};
struct daemon *daemon_start(const char *binary, const char *const *arguments);
void daemon_wait_log(struct daemon *daemon, const char *text, unsigned deadline_ms); // a line holds text
int daemon_log_port(struct daemon *daemon, const char *key); // "listen" -> the port in `listen=127.0.0.1:40001`
void daemon_signal(struct daemon *daemon, int signal);
int daemon_wait_exit(struct daemon *daemon, unsigned deadline_ms); // its status; 128 + signal when killed
// Runs to the end; stdout and stderr are owned by the fixture.
int program_run(const char *binary, const char *const *arguments, const char **ret_stdout, const char **ret_stderr);

// A real HTTP receiver on 127.0.0.1, in a thread of its own.
struct receiver;
struct received {
    char *path;
    char *headers; // lower-case names, "name: value\n" lines
    char *body;
    uint64_t at_ms;
};
struct receiver *receiver_start(void);
const char *receiver_url(const struct receiver *receiver); // "http://127.0.0.1:PORT"
// What the next requests are answered: status, extra header lines (CRLF) or NULL, delay. Repeats until changed.
void receiver_answer(struct receiver *receiver, int status, const char *headers, unsigned delay_ms);
// Requests from now on whose path or body holds text ("": all) wait for their answer until receiver_release.
void receiver_hold(struct receiver *receiver, const char *text);
void receiver_release(struct receiver *receiver);
int receiver_count(struct receiver *receiver);
void receiver_wait(struct receiver *receiver, int count, unsigned deadline_ms);
struct received receiver_get(struct receiver *receiver, int index); // views, valid until fixture_close
const char *received_header(const struct received *received, const char *lower_case_name); // NULL if absent
int receiver_max_in_flight(struct receiver *receiver);
int receiver_connections(struct receiver *receiver); // accepted so far

// A plain HTTP GET (blocking): status, and the body in *ret_body (owned by the fixture).
int http_get(const char *url, const char **ret_body);

// An SSE client on a plain socket, for tests that look at bytes.
struct sse_client;
struct sse_client *sse_open(int port, const char *target, const char *extra_headers);
// Everything received so far contains text; fails after the deadline. Returns all bytes received so far.
const char *sse_wait(struct sse_client *client, const char *text, unsigned deadline_ms);
const char *sse_bytes(struct sse_client *client); // drains what is there
bool sse_closed(struct sse_client *client);
void sse_close(struct sse_client *client);

// A test case of the suite, with fixture_close as its teardown. A test that runs longer than timeout_s, or than ten
// minutes where that is more, hangs.
// Add tests with tcase_add_test. CK_RUN_CASE=name runs one case.
TCase *suite_case(Suite *suite, const char *name, double timeout_s);
// The same for tests that are long by nature: run by dev/test --long, which CI does, and where a suite or a test is
// named.
TCase *suite_long_case(Suite *suite, const char *name, double timeout_s);

// A test program's main: suite name is "relay", "gateway", ...; returns the exit status.
//   static void add_tests(Suite *suite) { TCase *claim = suite_case(suite, "claim", 20); tcase_add_test(claim, ...); }
//   int main(void) { return suite_main("relay", add_tests); }
int suite_main(const char *suite_name, void (*add_tests)(Suite *suite));
