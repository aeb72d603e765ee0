// The index lane with the real programs on real PostgreSQL. The search engines are strict fakes
// (tests/support/search_fake.h). Each target must end up equal to the tables, whatever happens on the way.
#include "tests/support/fixture.h"
#include "tests/support/search_fake.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_MS = HANG_MS, WRITERS = 8, ROWS = 50 };

// Nothing is left to do for an index subscription; what was given up, or is held, is not waited for.
#define QUIET                                                                                                          \
    "select not exists (select from rowbell.events where fanned_out_at is null) and not exists (select from "          \
    "rowbell.jobs j join rowbell.subscriptions s on s.id = j.subscription_id and s.kind = 'index') and not exists "    \
    "(select from rowbell.jobs_waiting where state = 'waiting')"
#define POISONED "select count(*) from rowbell.jobs_waiting where state = 'poisoned'"

static const struct target {
    const char *name;
    bool fake;
    enum search_fake_kind kind;
    const char *authorization;
} targets[] = {
    {"postgres", false, FAKE_BULK, NULL},
    {"opensearch", true, FAKE_BULK, "Basic dTpw"},
    {"elasticsearch", true, FAKE_BULK, "ApiKey abc"},
    {"meilisearch", true, FAKE_MEILISEARCH, "Bearer master"},
};
enum { POSTGRES, OPENSEARCH, ELASTICSEARCH, MEILISEARCH, TARGETS };

static PGconn *fresh(void) {
    fixture_database();
    PGconn *conn = fixture_connect();
    sql_run(conn, "alter sequence rowbell.events_seq_seq restart 4294967296;"
                  "create table posts (id text primary key, title text, tenant text, deleted_at timestamptz, n int8);"
                  "select rowbell.publish('posts', scope => 'tenant', soft_delete => 'deleted_at')");
    return conn;
}

static struct daemon *start(const char *program, const char *const *arguments) {
    struct daemon *daemon = daemon_start(program, arguments);
    daemon_wait_log(daemon, strcmp(program, "rowbell-relay") == 0 ? "relay_started" : "dispatcher_started", WAIT_MS);
    return daemon;
}
static struct daemon *start_dispatcher(void) {
    return start("rowbell-dispatcher",
                 (const char *const[]){"--lanes", "index", "--lease", "25s", "--allow-egress", "127.0.0.1", NULL});
}
static void start_relay(void) {
    start("rowbell-relay", (const char *const[]){NULL});
}

static void kill_hard(struct daemon *daemon) {
    daemon_signal(daemon, SIGKILL);
    daemon_wait_exit(daemon, WAIT_MS);
}

// A subscription of every change of posts. more_options begins with a comma.
static struct search_fake *add_index(PGconn *conn, int target, const char *scope, const char *more_options) {
    const struct target *t = &targets[target];
    char sql[800], url[200] = "";
    struct search_fake *fake = t->fake ? search_fake_start(t->kind, t->authorization) : NULL;
    if (fake)
        snprintf(url, sizeof url, ", \"allow_http\": true, \"url\": \"%s\", \"authorization\": \"%s\"",
                 search_fake_url(fake), t->authorization);
    snprintf(sql, sizeof sql, "select rowbell.add_index('%s', '{posts.*}', %s, '{\"target\": \"%s\"%s%s}')", t->name,
             scope, t->name, url, more_options);
    sql_run(conn, sql);
    return fake;
}

static int documents(PGconn *conn, int target, struct search_fake *fake) {
    char sql[200];
    snprintf(sql, sizeof sql,
             "select count(*) from rowbell.search d join rowbell.subscriptions s on s.id = d.subscription_id and "
             "s.name = '%s'",
             targets[target].name);
    return fake ? search_fake_count(fake, "posts") : (int)sql_int(conn, sql);
}

// The documents are exactly the living rows of the scope (NULL: all), with their present columns.
static void compare(PGconn *conn, int target, struct search_fake *fake, const char *scope) {
    char sql[800];
    snprintf(
        sql, sizeof sql,
        "select r.id, rowbell.percent_encode(r.id), coalesce(r.title, ''), coalesce(r.tenant, ''), coalesce(r.n::text, "
        "''), d.document ->> 'title', "
        "coalesce(d.scope, '') from posts r left join (rowbell.search d join rowbell.subscriptions s on s.id = "
        "d.subscription_id and s.name = '%s') on d.key = rowbell.percent_encode(r.id) where r.deleted_at is null and "
        "(%s::text is null or r.tenant = %s::text)",
        targets[target].name, scope, scope);
    PGresult *rows = PQexec(conn, sql);
    ck_assert_msg(PQresultStatus(rows) == PGRES_TUPLES_OK, "%s", PQerrorMessage(conn));
    for (int i = 0; i < PQntuples(rows); i++) {
        const char *key = PQgetvalue(rows, i, 1), *title = PQgetvalue(rows, i, 2), *tenant = PQgetvalue(rows, i, 3);
        if (!fake) {
            ck_assert_msg(!PQgetisnull(rows, i, 5) || !title[0], "%s: no document of %s", targets[target].name, key);
            ck_assert_str_eq(PQgetvalue(rows, i, 5), title);
            ck_assert_str_eq(PQgetvalue(rows, i, 6), tenant);
            continue;
        }
        const char *found = search_fake_field(fake, "posts", key, "title");
        ck_assert_msg(found != NULL, "%s: no document of %s", targets[target].name, key);
        ck_assert_msg(strcmp(found, title) == 0, "%s: %s is '%s' and not '%s'", targets[target].name, key, found,
                      title);
        ck_assert_str_eq(search_fake_field(fake, "posts", key, "rowbell_scope"), tenant);
        ck_assert_str_eq(search_fake_field(fake, "posts", key, "n"), PQgetvalue(rows, i, 4));
    }
    ck_assert_int_eq(documents(conn, target, fake), PQntuples(rows));
    PQclear(rows);
    if (fake)
        ck_assert_str_eq(search_fake_complaint(fake), "");
}

struct expectation {
    PGconn *conn;
    int target, count;
    struct search_fake *fake;
};
static bool has_documents(void *arg) {
    const struct expectation *e = arg;
    return documents(e->conn, e->target, e->fake) == e->count;
}
static void wait_documents(PGconn *conn, int target, struct search_fake *fake, int count) {
    struct expectation expectation = {conn, target, count, fake};
    wait_for(has_documents, &expectation, WAIT_MS, "the documents");
}

static int64_t attempts_of_index(PGconn *conn) {
    return sql_int(conn,
                   "select count(*) from rowbell.attempts a join rowbell.subscriptions s on s.id = a.subscription_id "
                   "and s.kind = 'index'");
}

START_TEST(an_import_is_searchable_in_seconds) { // at most one job a row; updates in one batch become one job a row
    PGconn *conn = fresh();
    struct search_fake *fake = add_index(conn, _i, "null", "");
    start_relay();
    start_dispatcher();
    sql_wait(conn, WAIT_MS, QUIET);
    int64_t before = attempts_of_index(conn);
    sql_run(conn, "insert into posts select 'r' || i, 'row ' || i, 't' || i % 3, null, 9007199254740993 + i "
                  "from generate_series(1, 2000) i");
    struct expectation all = {conn, _i, 2000, fake};
    wait_for(has_documents, &all, HANG_MS, "2,000 documents, in seconds");
    sql_wait(conn, WAIT_MS, QUIET);
    ck_assert_int_le(attempts_of_index(conn) - before, 2000);
    compare(conn, _i, fake, "null");
    before = attempts_of_index(conn);
    sql_run(conn, "begin; do $$ begin for i in 1..5 loop update posts set title = title || '+' where id in "
                  "(select 'r' || k from generate_series(1, 40) k); end loop; end $$; commit");
    sql_wait(conn, WAIT_MS, QUIET);
    ck_assert_int_lt(attempts_of_index(conn) - before, 200);
    compare(conn, _i, fake, "null");
    if (fake)
        ck_assert_int_gt(search_fake_largest_batch(fake), 20);
    ck_assert_int_eq(sql_int(conn, POISONED), 0);
}
END_TEST

START_TEST(rows_that_go_take_their_documents_along) {
    PGconn *conn = fresh();
    sql_run(conn, "insert into posts select 'a/b ü' || i, 'row ' || i, 't' || i % 2 from generate_series(1, 10) i");
    struct search_fake *fake = add_index(conn, _i, "'t1'", "");
    start_relay();
    struct daemon *daemon = start_dispatcher();
    wait_documents(conn, _i, fake, 5); // what was there before, of this scope
    sql_run(conn, "delete from posts where id = 'a/b ü1'; update posts set deleted_at = now() where id = 'a/b ü3'");
    wait_documents(conn, _i, fake, 3);
    sql_run(conn, "update posts set tenant = 't0' where id = 'a/b ü5'; update posts set tenant = 't1' where id in "
                  "('a/b ü2', 'a/b ü4');"
                  "update posts set id = 'moved/' where id = 'a/b ü7'; update posts set deleted_at = null");
    sql_wait(conn, WAIT_MS, QUIET);
    compare(conn, _i, fake, "'t1'");
    ck_assert_int_eq(documents(conn, _i, fake), 5);
    daemon_signal(daemon, SIGTERM);
    ck_assert_int_eq(daemon_wait_exit(daemon, WAIT_MS), 0);
}
END_TEST

START_TEST(one_bad_document_does_not_fail_its_batch) {
    PGconn *conn = fresh();
    struct search_fake *fake = add_index(conn, _i, "null", "");
    start_relay();
    start_dispatcher();
    sql_wait(conn, WAIT_MS, QUIET);
    sql_run(conn, "insert into posts select 'r' || i, case when i <> 50 then 'row ' || i else 'unindexable' end "
                  "from generate_series(1, 100) i");
    if (!fake) // more words than a tsvector can hold
        sql_run(conn,
                "update posts set title = (select string_agg(md5(i::text), ' ') from generate_series(1, 60000) i) "
                "where id = 'r50'");
    sql_wait(conn, WAIT_MS, POISONED);
    sql_wait(conn, WAIT_MS, QUIET);
    ck_assert_int_eq(
        sql_int(
            conn,
            "select count(distinct e.subject) from rowbell.jobs_waiting w join rowbell.events e on e.seq = w.event_seq "
            "where w.state = 'poisoned' and e.subject = 'posts/r50'"),
        1);
    ck_assert_int_ge(documents(conn, _i, fake), 99);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.attempts where class = 'rejected' and attempt > 1"),
                     0);
    if (fake)
        ck_assert_str_eq(search_fake_complaint(fake), "");
}
END_TEST

START_TEST(too_many_and_too_large_are_handled) { // 429 waits, 413 is sent in halves
    PGconn *conn = fresh();
    struct search_fake *fake = add_index(conn, _i, "null", "");
    start_relay();
    start_dispatcher();
    sql_wait(conn, WAIT_MS, QUIET);
    search_fake_busy(fake, 2);
    search_fake_limit(fake, 4000);
    sql_run(conn, "insert into posts select 'r' || i, repeat('x', 100) from generate_series(1, 200) i;"
                  "insert into posts values ('huge', repeat('y', 5000))");
    wait_documents(conn, _i, fake, 200);
    sql_wait(conn, WAIT_MS, QUIET);
    ck_assert_int_eq(sql_int(conn, POISONED), 1); // the one that never fits
    ck_assert_int_ge(sql_int(conn, "select count(*) from rowbell.attempts where status = 429"), 1);
    ck_assert_str_eq(search_fake_complaint(fake), "");
}
END_TEST

START_TEST(what_is_too_much_for_one_reading_comes_with_the_next) { // a walk, and then a batch
    PGconn *conn = fresh();
    static const char *const rows =
        "insert into posts select '%s' || i, repeat('x', 600000) from generate_series(1, 60) i";
    char sql[200];
    snprintf(sql, sizeof sql, rows, "walk");
    sql_run(conn, sql);
    struct search_fake *fake = add_index(conn, _i, "null", "");
    start_relay();
    start_dispatcher();
    wait_documents(conn, _i, fake, 60);
    sql_wait(conn, WAIT_MS, QUIET); // the walk is over, so that it does not meet the huge row, too
    snprintf(sql, sizeof sql, rows, "batch");
    sql_run(conn, sql);
    wait_documents(conn, _i, fake, 120);
    sql_run(conn, "insert into posts values ('huge', repeat('x', 100000000))"); // 100 MB, beside which the others live
    sql_wait(conn, WAIT_MS, POISONED);
    sql_run(conn, "insert into posts values ('after', 'x')");
    wait_documents(conn, _i, fake, 121);
    sql_wait(conn, WAIT_MS, QUIET);
    ck_assert_int_eq(sql_int(conn, POISONED), 1);
    ck_assert_str_eq(search_fake_complaint(fake), "");
}
END_TEST

START_TEST(without_versions_one_write_at_a_time) {
    PGconn *conn = fresh();
    struct search_fake *fake = add_index(conn, MEILISEARCH, "null", "");
    search_fake_jitter(fake, 50, 1);
    start_relay();
    start_dispatcher();
    for (int i = 0; i < 200 || search_fake_requests(fake) <= 2; i++) { // until there were writes that could overlap
        char sql[200];
        snprintf(sql, sizeof sql,
                 "insert into posts values ('r%d', '%d') on conflict (id) do update set title = excluded.title", i % 20,
                 i);
        sql_run(conn, sql);
    }
    sql_wait(conn, WAIT_MS, QUIET);
    compare(conn, MEILISEARCH, fake, "null");
    ck_assert_int_gt(search_fake_requests(fake), 2);
    // One whose answer was not waited for to the end, on a machine that stood still, may be open when the next one
    // comes.
    ck_assert_int_le(search_fake_most_open(fake),
                     sql_int(conn, "select count(*) from rowbell.attempts where class <> 'delivered'"));
}
END_TEST

START_TEST(one_job_per_subject_is_in_flight) { // others are: versions are not all that keeps order
    PGconn *conn = fresh();
    struct search_fake *fake = add_index(conn, _i, "null", "");
    search_fake_jitter(fake, 200, 1);
    start_relay();
    start_dispatcher();
    sql_wait(conn, WAIT_MS, QUIET);
    for (int i = 0; i < 600; i++) {
        char sql[200];
        snprintf(sql, sizeof sql,
                 "insert into posts values ('r%d', '%d') on conflict (id) do update set title = excluded.title",
                 i % 3 ? i % 5 : i, i);
        sql_run(conn, sql);
    }
    sql_wait(conn, WAIT_MS, QUIET);
    compare(conn, _i, fake, "null");
    ck_assert_int_eq(search_fake_overlaps(fake), 0);
    ck_assert_int_gt(search_fake_most_requests(fake), 1);
}
END_TEST

// A minute (ROWBELL_TEST_DOWN_S=60) is only more waiting than these seconds: pauses grow to 15 s and stay there.
START_TEST(a_target_that_is_away_is_waited_for) {
    PGconn *conn = fresh();
    const char *down_s = getenv("ROWBELL_TEST_DOWN_S");
    struct timespec down = {.tv_sec = down_s ? atoi(down_s) : 5};
    struct search_fake *fake = add_index(conn, _i, "null", ", \"max_in_flight\": 50");
    start_relay();
    start_dispatcher();
    sql_wait(conn, WAIT_MS, QUIET);
    search_fake_down(fake, true);
    sql_run(conn, "insert into posts select 'r' || i, 'row ' || i from generate_series(1, 400) i");
    sql_wait(conn, WAIT_MS,
             "select failing_since is not null and last_error <> '' from rowbell.subscription_state st join "
             "rowbell.subscriptions s on s.id = st.subscription_id and s.kind = 'index'");
    nanosleep(&down, NULL); // this is what the test is about
    sql_run(
        conn,
        "update posts set title = title || '!' where n is null and id like '%7'; delete from posts where id like '%3'");
    int64_t tried = attempts_of_index(conn);
    // It is left alone in between: a batch at the start, then after 0.5, 1, 2, 4, 8, 15, 15, ... s.
    int64_t most = 50 * (6 + down.tv_sec / 10);
    ck_assert_msg(tried <= most, "%lld attempts while it was away, more than %lld", (long long)tried, (long long)most);
    search_fake_down(fake, false);
    sql_wait(conn, WAIT_MS + 15000, QUIET);
    compare(conn, _i, fake, "null");
    ck_assert_int_eq(sql_int(conn, POISONED), 0);
    ck_assert_str_eq(
        sql_text(conn, "select failing_since is null from rowbell.subscription_state st join rowbell.subscriptions s "
                       "on s.id = st.subscription_id and s.kind = 'index'"),
        "t");
}
END_TEST

START_TEST(a_wrong_authorization_says_so) {
    PGconn *conn = fresh();
    struct search_fake *fake = add_index(conn, _i, "null", "");
    sql_run(conn, "update rowbell.subscriptions set secrets = '{plain:wrong}' where kind = 'index'");
    start_relay();
    start_dispatcher();
    sql_run(conn, "insert into posts values ('a', 'b')");
    sql_wait(conn, WAIT_MS,
             "select last_error like '%401%refuses our authorization%' from rowbell.subscription_state st join "
             "rowbell.subscriptions s on s.id = st.subscription_id and s.kind = 'index'");
    char sql[200];
    snprintf(sql, sizeof sql, "update rowbell.subscriptions set secrets = array['plain:%s'] where kind = 'index'",
             targets[_i].authorization);
    sql_run(conn, sql);
    wait_documents(conn, _i, fake, 1);
    ck_assert_int_eq(sql_int(conn, POISONED), 0);
}
END_TEST

START_TEST(the_command_line_seals_indexes_and_rebuilds) {
    PGconn *conn = fresh();
    sql_run(conn, "insert into posts select 'r' || i, 'row ' || i from generate_series(1, 1500) i");
    struct search_fake *fake = search_fake_start(targets[_i].kind, targets[_i].authorization);
    char file[] = "/tmp/rowbell-authorization-XXXXXX";
    int fd = mkstemp(file);
    ck_assert_int_gt(dprintf(fd, "%s\n", targets[_i].authorization), 0);
    close(fd);
    setenv("ROWBELL_SECRET_KEY", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", 1); // of the daemons, too
    const char *out, *err;
    int status = program_run("rowbell",
                             (const char *const[]){"subscription", "add", "index", targets[_i].name, "--target",
                                                   targets[_i].name, "--url", search_fake_url(fake), "--type",
                                                   "posts.*", "--authorization-file", file, "--allow-http", NULL},
                             &out, &err);
    unlink(file);
    ck_assert_msg(status == 0, "%s", err);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.subscriptions where kind = 'index' and "
                                   "secrets[1] like 'sealed:2:%' and settings::text not like '%uthorization%'"),
                     1);
    start_relay();
    start_dispatcher();
    wait_documents(conn, _i, fake, 1500);
    sql_run(conn, "alter table posts disable trigger user; delete from posts where id = 'r7'");
    const char *const rebuild[] = {"index", "rebuild", targets[_i].name, "--json", NULL};
    ck_assert_msg(program_run("rowbell", rebuild, &out, &err) == 0, "%s", err);
    ck_assert_msg(strstr(err, "1500 of about 1500 rows, 1 of 1 tables ready") ||
                      strstr(err, "1499 of about 1499 rows, 1 of 1 tables ready"),
                  "%s", err);
    ck_assert_msg(strstr(out, "\"posts\"") != NULL, "%s", out);
    compare(conn, _i, fake, "null");
    ck_assert_int_eq(program_run("rowbell", (const char *const[]){"index", "rebuild", "nobody", NULL}, &out, &err), 1);
    ck_assert_ptr_nonnull(strstr(err, "no subscription named 'nobody'"));
}
END_TEST

START_TEST(a_truncate_clears_and_a_collection_event_reindexes) {
    PGconn *conn = fresh();
    struct search_fake *fake = add_index(conn, _i, "null", "");
    start_relay();
    start_dispatcher();
    sql_run(conn, "insert into posts select 'r' || i, 'row ' || i from generate_series(1, 700) i");
    wait_documents(conn, _i, fake, 700);
    sql_run(conn, "begin; truncate posts; insert into posts values ('kept', 'k'); commit");
    wait_documents(conn, _i, fake, 1);
    sql_run(conn,
            "begin; set local rowbell.capture = 'collection'; insert into posts select 'c' || i, 'row ' || i from "
            "generate_series(1, 1200) i; commit");
    wait_documents(conn, _i, fake, 1201);
    sql_wait(conn, WAIT_MS, QUIET);
    compare(conn, _i, fake, "null");
}
END_TEST

START_TEST(a_rebuild_begins_anew_and_survives_a_kill) {
    PGconn *conn = fresh(), *admin = fixture_admin();
    sql_run(conn, "insert into posts select 'r' || i, 'row ' || i from generate_series(1, 1300) i");
    struct search_fake *fake = add_index(conn, _i, "null", "");
    char sql[400];
    // Its second step ends when this lock is free.
    sql_run(admin,
            "select pg_advisory_lock(77); create function hold() returns trigger language plpgsql as 'begin perform "
            "pg_advisory_xact_lock_shared(77); return new; end'; create trigger hold before update on "
            "rowbell.index_walks for each row when (old.rows_done >= 500) execute function hold()");
    static const char *const held = "select count(*) from pg_locks l join pg_database d on d.oid = l.database and "
                                    "d.datname = current_database() where l.objid = 77 and not l.granted";
    start_relay();
    struct daemon *daemon = start_dispatcher();
    sql_wait(admin, WAIT_MS, held);
    kill_hard(daemon);
    int64_t done = sql_int(conn, "select rows_done from rowbell.index_walks");
    sql_run(admin, "select pg_terminate_backend(l.pid) from pg_locks l join pg_database d on d.oid = l.database and "
                   "d.datname = current_database() where l.objid = 77 and not l.granted");
    snprintf(sql, sizeof sql, "select not exists (%s having count(*) > 0)", held);
    sql_wait(admin, WAIT_MS, sql);
    sql_run(admin, "select pg_advisory_unlock(77); drop trigger hold on rowbell.index_walks");
    sql_run(
        conn,
        "update rowbell.jobs set lease_until = now() where lease_token is not null"); // as when the lease has run out
    start_dispatcher();
    sql_wait(conn, WAIT_MS, "select phase = 'done' from rowbell.index_walks");
    sql_wait(conn, WAIT_MS, QUIET);
    compare(conn, _i, fake, "null");
    // It went on where it was, but for the step that was cut off.
    ck_assert_int_lt(done, 1300);
    ck_assert_int_eq(sql_int(conn, "select rows_done from rowbell.index_walks"), 1300);
    // Documents that should not be there, and rows that are not: only a rebuild finds them.
    sql_run(
        conn,
        "alter table posts disable trigger user; delete from posts where id like '%7'; update posts set title = 'new' "
        "where id like '%1'; insert into posts values ('silent', 's'); alter table posts enable trigger user");
    snprintf(sql, sizeof sql, "select count(*) from rowbell.rebuild_index('%s')", targets[_i].name);
    ck_assert_int_eq(sql_int(conn, sql), 1);
    sql_wait(conn, WAIT_MS,
             "select phase = 'done' and covered_to >= (select max(seq) from rowbell.events) from rowbell.index_walks");
    sql_wait(conn, WAIT_MS, QUIET);
    compare(conn, _i, fake, "null");
    ck_assert_int_eq(sql_int(conn, POISONED), 0);
}
END_TEST

START_TEST(search_finds_ranks_and_escapes) {
    PGconn *conn = fresh();
    sql_run(conn, "insert into posts (id, title, tenant) values ('1', 'Running <b>shoes</b> & more', 't1'), ('2', "
                  "'Shoe polish', 't2'), "
                  "('3', 'a run in the park', 't1')");
    add_index(conn, POSTGRES, "null", ", \"columns\": [\"title\", \"tenant\"], \"language\": \"english\"");
    start_relay();
    start_dispatcher();
    wait_documents(conn, POSTGRES, NULL, 3);
    ck_assert_str_eq(sql_text(conn, "select string_agg(key, ' ' order by key) from rowbell.search_documents('shoes')"),
                     "1 2");
    ck_assert_str_eq(sql_text(conn, "select string_agg(key, ' ') from rowbell.search_documents('shoe', 't2')"), "2");
    ck_assert_str_eq(sql_text(conn, "select string_agg(key, ' ') from rowbell.search_documents('run -park', 't1')"),
                     "1");
    ck_assert_str_eq(
        sql_text(
            conn,
            "select string_agg(key, ' ') from rowbell.search_documents('\"shoe polish\" or park') where key <> '3'"),
        "2");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.search_documents('shoes', null, 1)"), 1);
    const char *headline = sql_text(conn, "select headline from rowbell.search_documents('running') where key = '1'");
    ck_assert_ptr_nonnull(strstr(headline, "<mark>Running</mark>"));
    ck_assert_ptr_null(strstr(headline, "<b>"));
    ck_assert_str_eq(sql_text(conn, "select document::text from rowbell.search where key = '2'"),
                     "{\"title\": \"Shoe polish\", \"tenant\": \"t2\"}");
    // Removing the subscription removes its documents.
    sql_run(conn, "select rowbell.remove_subscription('postgres')");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.search"), 0);
}
END_TEST

START_TEST(a_missing_grant_is_named_and_healed) { // least privilege is enough, too
    PGconn *conn = fresh();
    sql_run(conn, "insert into posts values ('a', 'b')");
    add_index(conn, POSTGRES, "null", "");
    start_relay();
    start("rowbell-dispatcher",
          (const char *const[]){"--lanes", "index", "--database-url", fixture_login("rowbell_dispatcher"), NULL});
    sql_run(conn, "update posts set title = 'c'");
    sql_wait(
        conn, WAIT_MS,
        "select last_error like '%permission denied for table posts: grant select on public.posts to%' from "
        "rowbell.subscription_state st join rowbell.subscriptions s on s.id = st.subscription_id and s.kind = 'index'");
    sql_run(conn, sql_text(conn, "select substring(last_error from 'grant select on .*') from "
                                 "rowbell.subscription_state where last_error is not null"));
    wait_documents(conn, POSTGRES, NULL, 1);
    sql_wait(conn, WAIT_MS, QUIET);
    ck_assert_int_eq(sql_int(conn, POISONED), 0);
}
END_TEST

START_TEST(keys_of_every_type_find_their_row) {
    PGconn *conn = fresh();
    sql_run(conn,
            "create table odd (a numeric, b timestamptz, c bytea, d bool, e char(5), primary key (a, b, c, d, e));"
            "create table part (id int, at date, v text, primary key (id, at)) partition by range (at);"
            "create table part_1 partition of part for values from ('2026-01-01') to ('2027-01-01');"
            "select rowbell.publish('odd'), rowbell.publish('part');"
            "select rowbell.add_index('i', '{odd.*,part.*}', null, '{\"target\": \"postgres\"}')");
    start_relay();
    start_dispatcher();
    sql_wait(conn, WAIT_MS, QUIET);
    sql_run(conn, "set timezone = 'Asia/Tokyo'; insert into odd values (1.50, '2026-01-01 00:00:00.123456+09', "
                  "'\\x00ff', true, 'ä/'), "
                  "('NaN', 'infinity', '', false, '%2F'); insert into part values (1, '2026-05-05', 'x'); insert into "
                  "part_1 values (2, '2026-05-06', 'y')");
    sql_wait(conn, WAIT_MS, "select count(*) = 4 from rowbell.search");
    sql_run(conn, "delete from odd where a = 'NaN'; update part set id = 3 where id = 1");
    sql_wait(conn, WAIT_MS,
             "select count(*) = 3 and count(*) filter (where key = '3/2026-05-05') = 1 from rowbell.search");
    ck_assert_str_eq(sql_text(conn, "select document ->> 'a' from rowbell.search where name = 'odd'"), "1.50");
}
END_TEST

static PGconn *send_alone(const char *sql) {
    PGconn *conn = fixture_connect();
    ck_assert_int_eq(PQsendQuery(conn, sql), 1);
    return conn;
}
static bool is_done(void *arg) {
    PQconsumeInput(arg);
    return !PQisBusy(arg);
}

START_TEST(who_read_first_never_writes_last) { // two dispatchers at once, as after a lost session
    PGconn *conn = fresh(), *other = fixture_connect();
    add_index(conn, POSTGRES, "null", "");
    char write[200];
    sql_run(conn, "insert into posts values ('a', 'there')");
    snprintf(write, sizeof write,
             "select rowbell.index_write((select id from rowbell.subscriptions where kind = 'index'), "
             "array(select seq from rowbell.events where key = 'a'))");
    // The first has read the row, and cannot write: somebody holds the document's place.
    sql_run(other, "begin; insert into rowbell.search select id, 'posts', 'a', null, '{}', '', 0 from "
                   "rowbell.subscriptions where kind = 'index'");
    PGconn *first = send_alone(write);
    sql_wait(conn, WAIT_MS, "select count(*) = 1 from pg_locks where locktype = 'transactionid' and not granted");
    sql_run(conn, "delete from posts");
    PGconn *second = send_alone(write); // reads: gone. Its work may not be done before the first one's
    sql_wait(conn, WAIT_MS,
             "select count(*) = 1 from pg_locks where locktype = 'advisory' and not granted and database = "
             "(select oid from pg_database where datname = current_database())");
    sql_run(other, "rollback");
    wait_for(is_done, first, WAIT_MS, "the first");
    wait_for(is_done, second, WAIT_MS, "the second");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.search"), 0);
}
END_TEST

START_TEST(bad_options_are_refused) {
    PGconn *conn = fresh();
    sql_run(conn, "create table keyless (v text); select rowbell.publish('keyless')");
    static const char *const bad[] = {
        "'i', '{posts.*}'",
        "'i', '{posts.*}', null, '{\"target\": \"solr\"}'",
        "'i', '{posts.*}', null, '{\"target\": \"opensearch\"}'",
        "'i', '{posts.*}', null, '{\"target\": \"opensearch\", \"url\": \"http://a\"}'",
        "'i', '{posts.*}', null, '{\"target\": \"opensearch\", \"url\": \"https://u:p@a\"}'",
        "'i', '{posts.*}', null, '{\"target\": \"opensearch\", \"url\": \"https://a\", \"index\": \"all\"}'",
        "'i', '{posts.*}', null, '{\"target\": \"postgres\", \"url\": \"https://a\"}'",
        "'i', '{posts.*}', null, '{\"target\": \"postgres\", \"language\": \"klingon\"}'",
        "'i', '{posts.*}', null, '{\"target\": \"postgres\", \"columns\": []}'",
        "'i', '{posts.*}', null, '{\"target\": \"postgres\", \"colour\": 1}'",
        "'i', '{posts.*}', null, '{\"target\": \"meilisearch\", \"url\": \"https://a\", \"authorization\": \"a\\nb\"}'",
        "'i', '{keyless.*}', null, '{\"target\": \"postgres\"}'",
        "'not a name', '{posts.*}', null, '{\"target\": \"postgres\"}'",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char sql[400];
        snprintf(sql, sizeof sql, "select rowbell.add_index(%s)", bad[i]);
        ck_assert_str_eq(sql_error(conn, sql), "22023");
    }
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.subscriptions where kind = 'index'"), 0);
}
END_TEST

// ---- Random interleaving

struct writer {
    pthread_t thread;
    char url[400];
    unsigned seed;
};

enum { CHANGES = 70 }; // of each writer, and more until the kills are over
static atomic_bool kills_are_over;

static void *write_at_random(void *arg) {
    struct writer *writer = arg;
    static const char *const operations[] = {
        "insert into posts values ('k%d', 'v%d', 't%d', null, %d) on conflict do nothing",
        "update posts set title = 'v%2$d', n = %4$d where id = 'k%1$d'",
        "update posts set tenant = 't%3$d' where id = 'k%1$d'",
        "delete from posts where id = 'k%1$d'",
        "update posts set id = 'k%4$d' where id = 'k%1$d'",
        "update posts set deleted_at = case when deleted_at is null then now() end where id = 'k%1$d'",
        "begin; update posts set title = 'never' where id = 'k%1$d'; rollback",
        ("begin; update posts set title = 'a%2$d' where id = 'k%1$d'; update posts set title = 'b%2$d' where id = "
         "'k%1$d'; commit"),
    };
    PGconn *conn = PQconnectdb(writer->url);
    for (int changes = 0; changes < CHANGES || !atomic_load(&kills_are_over); changes++) {
        int which = rand_r(&writer->seed) % 11;
        char sql[300];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(sql, sizeof sql, operations[which < 8 ? which : which % 2], rand_r(&writer->seed) % ROWS,
                 rand_r(&writer->seed), rand_r(&writer->seed) % 3, rand_r(&writer->seed) % ROWS);
#pragma GCC diagnostic pop
        PQclear(PQexec(conn, sql)); // a key that is taken, or a deadlock, is part of the game
        if (PQtransactionStatus(conn) != PQTRANS_IDLE)
            PQclear(PQexec(conn, "rollback"));
        // However fast the machine is: what is left to do in the end must be done in time.
        struct timespec pause = {.tv_nsec = 5000000L};
        nanosleep(&pause, NULL);
    }
    PQfinish(conn);
    return NULL;
}

START_TEST(whatever_happens_the_index_equals_the_tables) {
    PGconn *conn = fresh();
    static struct writer writers[WRITERS];
    struct search_fake *fakes[TARGETS];
    struct daemon *daemons[2];
    const char *given = getenv("ROWBELL_TEST_SEED");
    unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    fprintf(stderr, "ROWBELL_TEST_SEED=%u\n", seed);
    for (int target = 0; target < TARGETS; target++) {
        fakes[target] = add_index(conn, target, target == ELASTICSEARCH ? "'t1'" : "null", "");
        if (fakes[target]) // so that requests overtake each other
            search_fake_jitter(fakes[target], 100, seed);
    }
    sql_run(
        conn,
        "update rowbell.subscriptions set settings = settings || "
        "'{\"retry\": [1000, 2000, 2000, 2000, 2000, 2000, 2000]}' where kind = 'index'"); // quiet comes after the last
    start_relay();
    for (int i = 0; i < 2; i++)
        daemons[i] = start_dispatcher();
    for (int i = 0; i < WRITERS; i++) {
        snprintf(writers[i].url, sizeof writers[i].url, "postgresql://%s@%s:%s/%s", PQuser(conn), PQhost(conn),
                 PQport(conn), PQdb(conn));
        if (PQpass(conn) && PQpass(conn)[0])
            snprintf(writers[i].url, sizeof writers[i].url, "postgresql://%s:%s@%s:%s/%s", PQuser(conn), PQpass(conn),
                     PQhost(conn), PQport(conn), PQdb(conn));
        writers[i].seed = seed + (unsigned)i;
        ck_assert_int_eq(pthread_create(&writers[i].thread, NULL, write_at_random, &writers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        struct timespec pause = {.tv_nsec = 1000000L * (400 + rand_r(&seed) % 600)};
        nanosleep(&pause, NULL); // between two kills
        kill_hard(daemons[i % 2]);
        if (i == 2) { // an event of the whole table in the middle of it
            PQclear(PQexec(conn, "begin; set local rowbell.capture = 'collection'; update posts set n = 0; commit"));
            if (PQtransactionStatus(conn) != PQTRANS_IDLE)
                PQclear(PQexec(conn, "rollback"));
        }
        daemons[i % 2] = start_dispatcher();
    }
    atomic_store(&kills_are_over, true);
    for (int i = 0; i < WRITERS; i++)
        pthread_join(writers[i].thread, NULL);
    sql_wait(conn, HANG_MS, QUIET); // the leases of those that were killed run out first
    fprintf(stderr, "attempts: %s\n",
            sql_text(conn, "select string_agg(c.class || ' ' || c.n, ', ') from (select class, count(*) as n from "
                           "rowbell.attempts group by class) c"));
    ck_assert_int_eq(sql_int(conn, POISONED), 0);
    for (int target = 0; target < TARGETS; target++)
        compare(conn, target, fakes[target], target == ELASTICSEARCH ? "'t1'" : "null");
}
END_TEST

// A step of a walk has the walk's row, and writes documents, for which PostgreSQL locks the subscription.
START_TEST(a_subscription_is_removed_beside_a_walk) {
    PGconn *conn = fresh(), *walk = fixture_connect();
    sql_run(conn, "insert into posts values ('a', 'there')");
    add_index(conn, POSTGRES, "null", "");
    static const char *const open =
        "select rowbell.index_walk_open(s.id, (select max(seq) from rowbell.events), 'posts') from "
        "rowbell.subscriptions s where s.kind = 'index'";
    sql_run(walk, open);
    sql_run(walk, "begin");
    sql_run(walk, open);
    PGconn *remove = send_alone("select rowbell.remove_subscription('postgres')");
    sql_wait(conn, WAIT_MS, "select count(*) = 1 from pg_locks where locktype = 'transactionid' and not granted");
    sql_run(walk,
            "insert into rowbell.search select id, 'posts', 'a', null, '{}', '', 0 from rowbell.subscriptions where "
            "kind = 'index'; commit");
    wait_for(is_done, remove, WAIT_MS, "the removal");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.subscriptions where kind = 'index'"), 0);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.search"), 0);
}
END_TEST

// Transactions that were open when it began keep a walk waiting; the job is given back.
START_TEST(a_walk_that_waits_lets_the_process_end) {
    PGconn *conn = fresh(), *other = fixture_connect();
    sql_run(other, "begin; select pg_current_xact_id()");
    sql_run(
        conn,
        "select rowbell.add_index('search', '{posts.*}', options => '{\"target\": \"postgres\"}', all_scopes => true)");
    struct daemon *dispatcher = start_dispatcher();
    sql_wait(conn, WAIT_MS, "select count(*) from rowbell.index_walks where phase = 'waiting'");
    daemon_signal(dispatcher, SIGTERM);
    ck_assert_int_eq(daemon_wait_exit(dispatcher, WAIT_MS), 0);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs j join rowbell.subscriptions s on s.id = "
                                   "j.subscription_id where s.name = 'search'"),
                     1);
}
END_TEST

static void add_tests(Suite *suite) {
    // Who owns the database has no part in what an engine answers: as a further login one of them is enough.
    bool all = fixture_is_superuser();
    int last = all ? TARGETS : ELASTICSEARCH;
    TCase *targets_case = suite_case(suite, "targets", 60);
    tcase_add_loop_test(targets_case, an_import_is_searchable_in_seconds, 0, last);
    tcase_add_loop_test(targets_case, rows_that_go_take_their_documents_along, 0, last);
    tcase_add_loop_test(targets_case, one_bad_document_does_not_fail_its_batch, 0, last);
    tcase_add_loop_test(targets_case, a_truncate_clears_and_a_collection_event_reindexes, 0, last);
    tcase_add_loop_test(targets_case, a_rebuild_begins_anew_and_survives_a_kill, 0, last);
    TCase *engines = suite_case(suite, "engines", 150);
    tcase_add_loop_test(engines, the_command_line_seals_indexes_and_rebuilds, OPENSEARCH, last);
    tcase_add_loop_test(engines, a_wrong_authorization_says_so, OPENSEARCH, last);
    TCase *postgres = suite_case(suite, "postgres", 60);
    tcase_add_test(postgres, search_finds_ranks_and_escapes);
    tcase_add_test(postgres, a_missing_grant_is_named_and_healed);
    tcase_add_test(postgres, keys_of_every_type_find_their_row);
    tcase_add_test(postgres, who_read_first_never_writes_last);
    tcase_add_test(postgres, bad_options_are_refused);
    tcase_add_test(postgres, a_subscription_is_removed_beside_a_walk);
    tcase_add_test(postgres, a_walk_that_waits_lets_the_process_end);
    if (!all)
        return;
    tcase_add_loop_test(engines, too_many_and_too_large_are_handled, OPENSEARCH, TARGETS);
    tcase_add_test(engines, without_versions_one_write_at_a_time);
    tcase_add_loop_test(engines, one_job_per_subject_is_in_flight, OPENSEARCH, MEILISEARCH);
    tcase_add_loop_test(engines, a_target_that_is_away_is_waited_for, OPENSEARCH, TARGETS);
    TCase *large = suite_long_case(suite, "large", 150);
    tcase_add_loop_test(large, what_is_too_much_for_one_reading_comes_with_the_next, OPENSEARCH, TARGETS);
    TCase *property = suite_long_case(suite, "property", 200);
    tcase_add_test(property, whatever_happens_the_index_equals_the_tables);
}

int main(void) {
    return suite_main("index", add_tests);
}
