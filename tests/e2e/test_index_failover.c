// The indexes of search engines across failovers that lose commits, with real streaming replication: documents of lost
// commits, and versions above those to come, must not stay (docs/indexing.md).
#include "tests/support/cluster.h"
#include "tests/support/fixture.h"
#include "tests/support/search_fake.h"
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { SERVERS = 3, WAIT_MS = HANG_MS, LOST = 200 };

#define WITH(...) ((const char *const[]){__VA_ARGS__, NULL})
#define LAST_SEQ "select last_value from rowbell.events_seq_seq"
#define QUIET                                                                                                          \
    "select not exists (select from rowbell.events where fanned_out_at is null) and not exists (select from "          \
    "rowbell.jobs j join rowbell.subscriptions s on s.id = j.subscription_id and s.kind = 'index') and not exists "    \
    "(select from rowbell.jobs_waiting where state = 'waiting')"
#define REBUILDS                                                                                                       \
    "select count(*) from rowbell.events e join rowbell.event_types t on t.id = e.type_id and t.type = "               \
    "'rowbell.index.rebuild'"

static const struct {
    const char *name;
    enum search_fake_kind kind;
} targets[] = {{"opensearch", FAKE_BULK}, {"meilisearch", FAKE_MEILISEARCH}};

static struct cluster *servers[SERVERS];
static const char *writable_url;
static struct search_fake *fake;

static struct daemon *start_dispatcher(void) {
    struct daemon *daemon = daemon_start(
        "rowbell-dispatcher", WITH("--database-url", writable_url, "--lanes", "index", "--allow-egress", "127.0.0.1"));
    daemon_wait_log(daemon, "dispatcher_started", WAIT_MS);
    return daemon;
}

static void kill_hard(struct daemon *daemon) {
    daemon_signal(daemon, SIGKILL);
    daemon_wait_exit(daemon, WAIT_MS);
}

// The first is the primary, the others are its standbys.
static PGconn *world_start(int target) {
    char sql[300];
    const char *out, *err;
    for (int i = 0; i < SERVERS; i++)
        servers[i] = cluster_new();
    cluster_start_primary(servers[0]);
    writable_url = clusters_url(servers, SERVERS, "read-write");
    ck_assert_msg(program_run("rowbell", WITH("migrate", "--database-url", writable_url), &out, &err) == 0, "%s", err);
    PGconn *conn = cluster_connect(servers[0]);
    fake = search_fake_start(targets[target].kind, NULL);
    snprintf(sql, sizeof sql,
             "select rowbell.add_index('i', '{posts.*}', null, '{\"target\": \"%s\", \"url\": \"%s\", \"allow_http\": "
             "true}')",
             targets[target].name, search_fake_url(fake));
    sql_run(conn, "create table posts (id text primary key, title text); select rowbell.publish('posts')");
    sql_run(conn, "insert into posts values ('same', 's'), ('changed', 'old'), ('removed', 'r')");
    sql_run(conn, sql);
    for (int i = 1; i < SERVERS; i++)
        cluster_start_standby(servers[i], servers[0]);
    daemon_start("rowbell-relay", WITH("--database-url", writable_url));
    return conn;
}

static bool as_wanted(void *arg) {
    const char *wanted = arg; // title of changed
    const char *title = search_fake_field(fake, "posts", "changed", "title");
    return title && strcmp(title, wanted) == 0;
}
static void wait_title(const char *title) {
    wait_for(as_wanted, (void *)title, WAIT_MS, title);
}

// What the standbys will not have: a new row, a removal, and many versions of one document.
static void write_and_lose(PGconn *conn, const char *name) {
    char sql[300];
    snprintf(sql, sizeof sql,
             "do $$ begin for i in 1..%d loop update posts set title = 'lost' || i where id = 'changed'; end loop; "
             "end $$; insert into posts values ('%s', 'l'); delete from posts where id = 'removed'",
             LOST, name);
    sql_run(conn, sql);
    snprintf(sql, sizeof sql, "lost%d", LOST);
    wait_title(sql);
    sql_wait(conn, WAIT_MS, QUIET);
    ck_assert_int_eq(search_fake_count(fake, "posts"), 3);
}

// The next server takes over, with a history that ends before what was lost.
static PGconn *fail_over(int from, int to, int64_t *ret_before) {
    PGconn *conn = cluster_connect(servers[to]);
    *ret_before = sql_int(conn, LAST_SEQ); // before a dispatcher that is quick raises it
    cluster_kill(servers[from]);
    cluster_promote(servers[to]);
    sql_run(conn, "update posts set title = 'new' where id = 'changed'"); // may be refused as stale, for now
    return conn;
}

static void check_index(PGconn *conn) {
    sql_wait(conn, WAIT_MS,
             "select timeline = substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) from rowbell.installation");
    sql_wait(conn, WAIT_MS, QUIET);
    wait_title("new");
    ck_assert_int_eq(search_fake_count(fake, "posts"), 3); // without the new row that was lost
    ck_assert_str_eq(search_fake_field(fake, "posts", "removed", "title"), "r");
    ck_assert_str_eq(search_fake_field(fake, "posts", "same", "title"), "s");
    // What comes now is never stale.
    sql_run(conn, "update posts set title = 'newer' where id = 'changed'");
    wait_title("newer");
    ck_assert_str_eq(search_fake_complaint(fake), "");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs_waiting where state = 'poisoned'"), 0);
}

// The second failover goes to a server that saw nothing of the first: it lost the raise of the sequence, too.
START_TEST(a_failover_that_loses_commits_rebuilds_the_index) {
    PGconn *conn = world_start(_i);
    struct daemon *daemons[2] = {start_dispatcher(), start_dispatcher()};
    int64_t before;
    wait_title("old");
    sql_wait(conn, WAIT_MS, QUIET);
    for (int i = 1; i < SERVERS; i++) {
        cluster_wait_caught_up(servers[i], servers[0]);
        cluster_detach(servers[i]);
    }
    write_and_lose(conn, "lost");
    int64_t lost = sql_int(conn, LAST_SEQ);
    conn = fail_over(0, 1, &before);
    ck_assert_int_lt(before, lost);
    check_index(conn);
    ck_assert_int_gt(sql_int(conn, LAST_SEQ), before + INT64_C(4294967296));
    ck_assert_int_eq(sql_int(conn, REBUILDS), 2); // that of add_index and one, though there are two dispatchers

    write_and_lose(conn, "lost too");
    lost = sql_int(conn, LAST_SEQ);
    for (int i = 0; i < 2; i++) // nobody remembers anything
        kill_hard(daemons[i]);
    conn = fail_over(1, 2, &before);
    ck_assert_int_lt(before, lost - INT64_C(4294967296));
    start_dispatcher();
    check_index(conn);
    ck_assert_int_eq(sql_int(conn, REBUILDS), 2);
}
END_TEST

#define FOLLOW "select rowbell.follow_failover()"
#define NOT_HERE "update rowbell.installation set timeline = 'FFFFFFFF'"

static bool is_done(void *arg) {
    PQconsumeInput(arg);
    return !PQisBusy(arg);
}

START_TEST(
    a_failover_is_followed_once) { // by whoever commits first; a housekeeper that dies in between has done nothing
    fixture_database();
    PGconn *conn = fixture_connect(), *other = fixture_connect();
    sql_run(conn, "create table posts (id int primary key); select rowbell.publish('posts');"
                  "create table keyless (v text); select rowbell.publish('keyless');"
                  "select rowbell.add_index('in', '{*}', null, '{\"target\": \"postgres\"}'), "
                  "rowbell.add_index('out', '{*}', null, '{\"target\": \"opensearch\", \"url\": \"https://a\"}'), "
                  "rowbell.add_index('and', '{*}', null, '{\"target\": \"meilisearch\", \"url\": \"https://a\"}')");
    int64_t before = sql_int(conn, LAST_SEQ), rebuilds = sql_int(conn, REBUILDS);
    ck_assert_int_eq(sql_int(conn, FOLLOW), 0); // what migrate found is what is here
    ck_assert_int_eq(sql_int(conn, LAST_SEQ), before);

    sql_run(conn, NOT_HERE);
    sql_run(conn, "begin");
    ck_assert_int_eq(sql_int(conn, FOLLOW), 2);
    sql_run(conn, "rollback");
    ck_assert_int_eq(sql_int(conn, REBUILDS), rebuilds);

    sql_run(conn, "begin");
    ck_assert_int_eq(sql_int(conn, FOLLOW), 2);
    int64_t raised = sql_int(conn, LAST_SEQ);
    ck_assert_int_gt(raised, before + INT64_C(4294967296));
    ck_assert_int_eq(PQsendQuery(other, FOLLOW), 1);
    sql_wait(conn, WAIT_MS, "select count(*) = 1 from pg_locks where locktype = 'transactionid' and not granted");
    sql_run(conn, "commit");
    wait_for(is_done, other, WAIT_MS, "the second");
    PGresult *result = PQgetResult(other);
    ck_assert_str_eq(PQgetvalue(result, 0, 0), "0");
    PQclear(result);
    ck_assert_int_eq(sql_int(conn, LAST_SEQ), raised);
    ck_assert_int_eq(sql_int(conn, REBUILDS), rebuilds + 2);

    sql_run(conn, "update rowbell.installation set system_identifier = 1"); // a dump in another cluster
    ck_assert_int_eq(sql_int(conn, FOLLOW), 2);
    // By hand, after a restore that left no trace. rowbell.search has no versions to be above.
    raised = sql_int(conn, LAST_SEQ);
    sql_run(conn, "select rowbell.rebuild_index('in')");
    ck_assert_int_eq(sql_int(conn, LAST_SEQ), raised + 1);
    sql_run(conn, "select rowbell.rebuild_index('out')");
    ck_assert_int_gt(sql_int(conn, LAST_SEQ), raised + INT64_C(4294967296));
}
END_TEST

START_TEST(raises_take_turns_and_never_go_back) { // a number that is given out twice would fail a writer
    fixture_database();
    PGconn *conn = fixture_connect(), *other = fixture_connect();
    sql_run(conn, "select rowbell.declare_type('thing.happened'); begin; select rowbell.raise_seq()");
    ck_assert_int_eq(PQsendQuery(other, "select rowbell.raise_seq()"), 1);
    sql_wait(conn, WAIT_MS, "select count(*) = 1 from pg_locks where locktype = 'transactionid' and not granted");
    sql_run(conn, "select rowbell.record('thing.happened', 'a')");
    int64_t first = sql_int(conn, LAST_SEQ);
    sql_run(conn, "commit");
    wait_for(is_done, other, WAIT_MS, "the second");
    ck_assert_int_ge(sql_int(conn, LAST_SEQ), first + INT64_C(4294967296));
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *failover = suite_case(suite, "failover", 240);
    tcase_add_loop_test(failover, a_failover_that_loses_commits_rebuilds_the_index, 0, 2);
    tcase_add_test(failover, a_failover_is_followed_once);
    tcase_add_test(failover, raises_take_turns_and_never_go_back);
}

int main(void) {
    return suite_main("index_failover", add_tests);
}
