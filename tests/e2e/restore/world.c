#include "tests/e2e/restore/world.h"
#include "tests/support/support.h"
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *out, *err;

int run(const char *const *arguments) {
    return program_run("rowbell", arguments, &out, &err);
}

void expect_status(int status, int expected) {
    ck_assert_msg(status == expected, "status %d instead of %d\n%.1500s%.1500s", status, expected, out, err);
}

void expect_text(const char *text, const char *part) {
    ck_assert_msg(strstr(text, part) != NULL, "no '%s' in:\n%.2000s", part, text);
}

// A program of PostgreSQL's; its status. What it prints is in `said`.
char said[4000];

int shell(const char *format, ...) {
    char *command = NULL, *whole = NULL;
    va_list list;
    va_start(list, format);
    ck_assert_int_gt(vasprintf(&command, format, list), 0);
    va_end(list);
    ck_assert_int_gt(asprintf(&whole, "(%s) 2>&1", command), 0);
    FILE *pipe = popen(whole, "r");
    ck_assert_ptr_nonnull(pipe);
    size_t length = fread(said, 1, sizeof said - 1, pipe);
    said[length] = 0;
    while (fgetc(pipe) != EOF)
        ;
    free(command);
    free(whole);
    return pclose(pipe);
}

// A file for a dump, gone with the test.
const char *dump_file(void) {
    static char path[64];
    snprintf(path, sizeof path, "/tmp/rowbell-dump-%d", (int)getpid());
    unlink(path);
    return path;
}

static char owner[100];

const char *owner_url(const char *url) {
    PGconn *admin = fixture_admin();
    char sql[300], *other = NULL;
    snprintf(owner, sizeof owner, "owner_of_%s", PQdb(admin));
    snprintf(sql, sizeof sql, "create role %s login password 'x'; alter database %s owner to %s", owner, PQdb(admin),
             owner);
    sql_run(admin, sql);
    ck_assert_int_gt(asprintf(&other, "%s%cuser=%s&password=x", url, strchr(url, '?') ? '&' : '?', owner), 0);
    return support_keep(other);
}

void owner_gone(void) {
    char sql[300];
    snprintf(sql, sizeof sql, "reassign owned by %s to current_user; drop role %s", owner, owner);
    sql_run(fixture_admin(), sql);
}

// Tables whose columns have gaps in their numbers, a detached partition, a table that was dropped and one that was
// renamed.
const char *const furniture =
    "create schema app; set search_path = app;"
    "create table posts (id int primary key, gap1 int, tenant text, gap2 text, gone date, body text, other text);"
    "alter table posts drop column gap1, drop column gap2;"
    "create table parted (id int primary key, v text) partition by range (id);"
    "create table parted_1 partition of parted for values from (0) to (100);"
    "create table parted_2 partition of parted for values from (100) to (200);"
    "create table parted_3 partition of parted for values from (200) to (300);"
    "create table dropped (id int primary key); create table old_name (id int primary key);"
    "create table treasure (id int primary key, tenant text, gone date, body text, other text);"
    "select rowbell.publish('app.posts', scope => 'tenant', soft_delete => 'gone', watch => '{body}'), "
    "rowbell.publish('app.parted'),"
    "  rowbell.publish('app.dropped'), rowbell.publish('app.old_name', name => 'named');"
    "drop table app.dropped; alter table app.parted detach partition app.parted_3; alter table app.old_name rename to "
    "new_name;"
    "select rowbell.publish('app.parted'), rowbell.publish('app.new_name', name => 'named');"
    "insert into app.posts values (1, 't1', null, 'one', 'x'); insert into app.parted values (5, 'five'), (105, "
    "'more');"
    "insert into app.treasure values (1, 't1', null, 'gold', 'x'); reset search_path";

const char *const publish_posts =
    "select rowbell.publish('app.posts', scope => 'tenant', soft_delete => 'gone', watch => '{body}', key => '{id}', "
    "name => 'posts')";
const char *const publish_parted = "select rowbell.publish('app.parted', key => '{id}', name => 'parted')";
const char *const publish_named = "select rowbell.publish('app.new_name', key => '{id}', name => 'named')";

PGconn *furnished(void) {
    fixture_database();
    PGconn *conn = fixture_connect();
    sql_run(conn, furniture);
    sql_run(conn, "select rowbell.add_index('search', '{posts.*,parted.*,named.*}', options => '{\"target\": "
                  "\"postgres\"}', all_scopes => true)");
    return conn;
}

const char *remedies(PGconn *conn, const char *problem) {
    char sql[300];
    snprintf(sql, sizeof sql,
             "select coalesce(string_agg(distinct remedy, '; ' order by remedy), 'none') from rowbell.doctor() where "
             "problem like '%s'",
             problem);
    return sql_text(conn, sql);
}

// Every kind of statement is captured under the right name and scope.
void expect_captured(PGconn *conn) {
    sql_run(conn, "delete from app.posts where id > 1; delete from app.parted where id in (6, 7, 8); delete from "
                  "app.new_name; delete from app.parted_3; delete "
                  "from app.treasure where id > 1");
    int64_t newest = sql_int(conn, "select coalesce(max(seq), 0) from rowbell.events");
    sql_run(conn, "insert into app.posts values (100, 't1', null, 'hundred', 'x'); update app.posts set other = 'y'; "
                  "update app.posts set body = 'b' where "
                  "id = 100; update app.posts set gone = now() where id = 100; insert into app.parted values (6, "
                  "'six'); insert into app.parted_1 values (7, "
                  "'seven'); insert into app.parted_3 values (205, 'no'); insert into app.new_name values (8); insert "
                  "into app.treasure values (9)");
    char sql[400];
    snprintf(sql, sizeof sql,
             "select string_agg(concat_ws(' ', op, scope, subject), ', ' order by seq) from rowbell.events where op is "
             "not null and seq > %lld",
             (long long)newest);
    ck_assert_str_eq(sql_text(conn, sql), "create t1 posts/100, update t1 posts/100, delete t1 posts/100, create "
                                          "parted/6, create parted/7, create named/8");
}

// Our programs work what waits, and the rows are found: of published tables, and no others.
void expect_indexed(PGconn *conn, const char *url) {
    const char *arguments[] = {"--once", "--database-url", url, NULL};
    ck_assert_int_eq(program_run("rowbell-relay", arguments, &out, &err), 0);
    struct daemon *dispatcher = daemon_start("rowbell-dispatcher", (const char *const[]){"--database-url", url, NULL});
    sql_wait(conn, 60000,
             "select string_agg(name || key, ' ' order by name, key) = 'named8 parted105 parted5 parted6 parted7 "
             "posts1' from rowbell.search");
    daemon_signal(dispatcher, SIGTERM);
    ck_assert_int_eq(daemon_wait_exit(dispatcher, 30000), 0);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs_waiting where state = 'poisoned'"), 0);
}

void expect_unpublished(PGconn *conn) {
    ck_assert_str_eq(sql_text(conn, "select concat(rowbell.unpublish('app.posts'), rowbell.unpublish('app.parted'), "
                                    "rowbell.unpublish('app.new_name'))"),
                     "ttt");
    ck_assert_int_eq(sql_int(conn, "select count(*) from pg_trigger where tgname like '~rowbell%'"), 0);
}

PGconn *connect_url(const char *url) {
    PGconn *conn = PQconnectdb(url);
    ck_assert_msg(PQstatus(conn) == CONNECTION_OK, "%s", PQerrorMessage(conn));
    sql_run(conn, "set client_min_messages = warning");
    return conn;
}
