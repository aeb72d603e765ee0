// Dumps: what is restored, wholly or in part, where every number is another one. PostgreSQL's own pg_dump and
// pg_restore, and our programs.
#include "tests/support/cluster.h"
#include "tests/support/fixture.h"
#include "tests/support/support.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RUN(...) run((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static const char *out, *err;

static int run(const char *const *arguments) {
    return program_run("rowbell", arguments, &out, &err);
}

static void expect_status(int status, int expected) {
    ck_assert_msg(status == expected, "status %d instead of %d\n%.1500s%.1500s", status, expected, out, err);
}

static void expect_text(const char *text, const char *part) {
    ck_assert_msg(strstr(text, part) != NULL, "no '%s' in:\n%.2000s", part, text);
}

// A program of PostgreSQL's; its status. What it prints is in `said`.
static char said[4000];
__attribute__((format(printf, 1, 2))) static int shell(const char *format, ...) {
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
#define SHELL(...) ck_assert_msg(shell(__VA_ARGS__) == 0, "%s", said)

// A file for a dump, gone with the test.
static const char *dump_file(void) {
    static char path[64];
    snprintf(path, sizeof path, "/tmp/rowbell-dump-%d", (int)getpid());
    unlink(path);
    return path;
}

// The same server and database as somebody else.
static const char *url_as(const char *url, const char *user) {
    char *other = NULL;
    ck_assert_int_gt(asprintf(&other, "%s%cuser=%s&password=x", url, strchr(url, '?') ? '&' : '?', user), 0);
    return support_keep(other);
}

// Tables whose columns have gaps in their numbers, a detached partition, a table that was dropped and one that was
// renamed.
static const char *const furniture =
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

static const char *const publish_posts =
    "select rowbell.publish('app.posts', scope => 'tenant', soft_delete => 'gone', watch => '{body}', key => '{id}', "
    "name => 'posts')";
static const char *const publish_parted = "select rowbell.publish('app.parted', key => '{id}', name => 'parted')";
static const char *const publish_named = "select rowbell.publish('app.new_name', key => '{id}', name => 'named')";

static PGconn *furnished(void) {
    fixture_database();
    PGconn *conn = fixture_connect();
    sql_run(conn, furniture);
    sql_run(conn, "select rowbell.add_index('search', '{posts.*,parted.*,named.*}', options => '{\"target\": "
                  "\"postgres\"}', all_scopes => true)");
    return conn;
}

static const char *remedies(PGconn *conn, const char *problem) {
    char sql[300];
    snprintf(sql, sizeof sql,
             "select coalesce(string_agg(distinct remedy, '; ' order by remedy), 'none') from rowbell.doctor() where "
             "problem like '%s'",
             problem);
    return sql_text(conn, sql);
}

// Every kind of statement is captured under the right name and scope.
static void expect_captured(PGconn *conn) {
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
static void expect_indexed(PGconn *conn, const char *url) {
    const char *arguments[] = {"--once", "--database-url", url, NULL};
    ck_assert_int_eq(program_run("rowbell-relay", arguments, &out, &err), 0);
    struct daemon *dispatcher = daemon_start("rowbell-dispatcher", (const char *const[]){"--database-url", url, NULL});
    sql_wait(conn, 60000,
             "select string_agg(name || key, ' ' order by name, key) = 'named8 parted105 parted5 parted6 parted7 "
             "posts1' from rowbell.search");
    daemon_signal(dispatcher, 15);
    ck_assert_int_eq(daemon_wait_exit(dispatcher, 30000), 0);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs_waiting where state = 'poisoned'"), 0);
}

static void expect_unpublished(PGconn *conn) {
    ck_assert_str_eq(sql_text(conn, "select concat(rowbell.unpublish('app.posts'), rowbell.unpublish('app.parted'), "
                                    "rowbell.unpublish('app.new_name'))"),
                     "ttt");
    ck_assert_int_eq(sql_int(conn, "select count(*) from pg_trigger where tgname like '~rowbell%'"), 0);
}

static PGconn *connect_url(const char *url) {
    PGconn *conn = PQconnectdb(url);
    ck_assert_msg(PQstatus(conn) == CONNECTION_OK, "%s", PQerrorMessage(conn));
    sql_run(conn, "set client_min_messages = warning");
    return conn;
}

START_TEST(a_whole_dump_in_a_new_cluster) {
    furnished();
    const char *dump = dump_file();
    SHELL("pg_dump -F%c -f %s '%s'", _i == 0 ? 'c' : 'p', dump, support_database_url());
    struct cluster *cluster = cluster_new();
    cluster_start_primary(cluster);
    PGconn *first = cluster_connect(cluster);
    // Roles belong to the cluster; some tables, so that numbers differ.
    const char *other = clusters_url(&cluster, 1, "any");
    expect_status(RUN("migrate", "--database-url", other), 0);
    sql_run(first, "create database restored");
    char url[200];
    snprintf(url, sizeof url, "postgresql://postgres@127.0.0.1:%d/restored", cluster_port(cluster));
    PGconn *conn = connect_url(url);
    sql_run(conn, "create table one (); create table two (); create table three ()");
    if (_i == 0)
        SHELL("pg_restore -e -d %s %s", url, dump);
    else
        SHELL("psql -X -q -v ON_ERROR_STOP=1 -f %s %s", dump, url);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.published p where p.relation_oid in (select oid from "
                                   "pg_class where relname = p.relation_name)"),
                     0);
    // A number that is another table's by now.
    sql_run(conn,
            "update rowbell.published set relation_oid = 'app.treasure'::regclass where name in ('posts', 'dropped')");
    ck_assert_str_eq(
        sql_text(conn,
                 "select string_agg(name || ' ' || relation, ', ' order by name) from rowbell.published_tables()"),
        "named app.new_name, parted app.parted, posts app.posts");
    expect_captured(conn);
    ck_assert_str_eq(remedies(conn, "table is gone"), "delete from rowbell.published where id = 3, if it was dropped");
    sql_run(conn, remedies(conn, "captured as it was"));
    ck_assert_str_eq(remedies(conn, "captured as it was"), "none");
    expect_captured(conn);
    expect_indexed(conn, url);
    sql_run(conn, "delete from rowbell.published where name = 'dropped'");
    expect_unpublished(conn);
    PQfinish(conn);
    unlink(dump);
}
END_TEST

// A dispatcher finds out by itself that numbers are others, and writes the functions anew.
START_TEST(a_dispatcher_follows_a_restore) {
    furnished();
    const char *dump = dump_file();
    SHELL("pg_dump -Fc -f %s '%s'", dump, support_database_url());
    const char *url = fixture_empty_database();
    SHELL("pg_restore -e -d '%s' %s", url, dump);
    PGconn *conn = fixture_connect();
    ck_assert_str_ne(remedies(conn, "captured as it was"), "none");
    struct daemon *dispatcher = daemon_start("rowbell-dispatcher", (const char *const[]){"--database-url", url, NULL});
    sql_wait(conn, 60000, "select count(*) = 0 from rowbell.doctor() where problem = 'captured as it was'");
    daemon_signal(dispatcher, 15);
    ck_assert_int_eq(daemon_wait_exit(dispatcher, 30000), 0);
    // Columns are followed by their new numbers.
    sql_run(conn, "alter table app.posts rename tenant to org; alter table app.posts rename body to text");
    ck_assert_str_eq(remedies(conn, "column is gone"),
                     "select rowbell.publish('app.posts', scope => 'org', soft_delete => 'gone', watch => '{text}', "
                     "key => '{id}', name => 'posts')");
    unlink(dump);
}
END_TEST

// The application's schema alone, back into its database: its triggers come with it.
START_TEST(tables_restored_into_their_own_database) {
    PGconn *conn = furnished();
    const char *url = support_database_url(), *dump = dump_file();
    SHELL("pg_dump -Fc -n app -f %s '%s'", dump, url);
    sql_run(conn, "drop schema app cascade");
    SHELL("pg_restore -e -d '%s' %s", url, dump);
    expect_captured(conn);
    expect_indexed(conn, url);
    // Without triggers nothing is captured, nor indexed, and doctor names each table.
    sql_run(conn, "drop schema app cascade");
    SHELL("pg_restore -l %s | grep -v ' TRIGGER ' > %s.list; pg_restore -e -L %s.list -d '%s' %s; rm %s.list", dump,
          dump, dump, url, dump, dump);
    int64_t newest = sql_int(conn, "select max(seq) from rowbell.events");
    sql_run(conn, "insert into app.posts values (2)");
    ck_assert_int_eq(sql_int(conn, "select max(seq) from rowbell.events where op is not null"), newest);
    char remedy[1000];
    snprintf(remedy, sizeof remedy, "%s; %s; %s", publish_named, publish_parted, publish_posts);
    ck_assert_str_eq(remedies(conn, "not captured"), remedy);
    ck_assert_str_eq(
        sql_text(conn,
                 "select string_agg(w.state || ' ' || w.problem, ', ') from rowbell.subscriptions s cross join "
                 "rowbell.index_write(s.id, "
                 "(select array_agg(seq) from rowbell.events where subject = 'posts/1')) w where s.name = 'search'"),
        "42P01 table posts is not captured: it must be published again, see rowbell doctor");
    sql_run(conn, remedy);
    expect_captured(conn);
    expect_unpublished(conn);
    unlink(dump);
}
END_TEST

// Into the database of another installation, where publications have other numbers: triggers of one table call the
// function of another.
START_TEST(tables_restored_into_another_installation) {
    furnished();
    const char *dump = dump_file();
    SHELL("pg_dump -Fc -n app -f %s '%s'", dump, support_database_url());
    const char *url = fixture_database();
    PGconn *conn = fixture_connect();
    sql_run(conn, "create schema app; create table app.parted (id int primary key, v text);"
                  "create table app.posts (id int primary key, tenant text, gone date, body text, other text);"
                  "select rowbell.publish('app.parted'), rowbell.publish('app.posts', scope => 'tenant', soft_delete "
                  "=> 'gone', watch => '{body}');"
                  "drop schema app cascade");
    // Some triggers have no function here.
    ck_assert_int_ne(shell("pg_restore -d '%s' %s", url, dump), 0);
    sql_run(conn, "insert into app.posts values (2, 't1', null, 'b', 'x'); insert into app.parted values (8, 'v'); "
                  "insert into app.new_name values (1)");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events"), 0);
    char remedy[1000];
    snprintf(remedy, sizeof remedy, "%s; %s", publish_parted, publish_posts);
    ck_assert_str_eq(remedies(conn, "not captured"), remedy);
    sql_run(conn, remedy);
    sql_run(conn, "select rowbell.publish('app.new_name', name => 'named')");
    ck_assert_str_eq(remedies(conn, "%captured%"), "none");
    expect_captured(conn);
    expect_unpublished(conn);
    unlink(dump);
}
END_TEST

// structure.sql of web frameworks, loaded by the owner of the database.
START_TEST(a_dump_without_data) {
    PGconn *source = furnished();
    const char *dump = dump_file();
    SHELL("pg_dump --schema-only --no-owner --no-privileges -f %s '%s'", dump, support_database_url());
    const char *rows = "select string_agg(concat_ws(' ', t.type, t.description, t.webhook), ', ' order by t.type) || "
                       "(select string_agg(concat_ws(' ', s.name, "
                       "s.kind, s.types), ', ') from rowbell.subscriptions s where s.kind = 'sse') || (select count(*) "
                       "from rowbell.streams t join "
                       "rowbell.stream_log l on l.stream_id = t.id and l.prev = 0) || (select count(*) from "
                       "rowbell.stream_keys) || (select count(*) from "
                       "rowbell.caller_key) from rowbell.event_types t where t.type like 'rowbell.%'";
    const char *original = sql_text(source, rows),
               *records = "select string_agg(concat_ws(' ', name, version, compatible_from, checksum), ', ' order by "
                          "version) from rowbell.migrations where version is not null";
    const char *recorded = sql_text(source, records);
    const char *url = fixture_empty_database();
    PGconn *superuser = fixture_connect();
    const char *database = PQdb(superuser);
    char sql[300];
    snprintf(sql, sizeof sql, "create role o_%s login password 'x'; alter database %s owner to o_%s", database,
             database, database);
    sql_run(superuser, sql);
    snprintf(sql, sizeof sql, "o_%s", database);
    const char *owner = url_as(url, sql);
    SHELL("psql -X -q -v ON_ERROR_STOP=1 -f %s '%s'", dump, owner);
    PGconn *conn = connect_url(owner);
    // The application works at once; nothing is captured.
    sql_run(conn, "insert into app.posts values (1, 't1', null, 'one', 'x'); update app.posts set body = 'x'; delete "
                  "from app.posts; truncate app.posts");
    ck_assert_int_eq(
        program_run("rowbell-relay", (const char *const[]){"--once", "--database-url", owner, NULL}, &out, &err), 4);
    expect_text(err, "rowbell.migrations is empty, as after a dump without data was loaded: run `rowbell migrate`");
    expect_status(RUN("migrate", "--database-url", owner), 4);
    expect_text(err, "give --no-roles again");
    expect_status(RUN("migrate", "--no-roles", "--status", "--database-url", owner), 0);
    expect_status(RUN("migrate", "--no-roles", "--database-url", owner), 0);
    ck_assert_ptr_null(strstr(out, "0001_outbox"));
    ck_assert_str_eq(sql_text(conn, rows), original);
    ck_assert_str_eq(sql_text(conn, records), recorded);
    expect_status(RUN("migrate", "--no-roles", "--database-url", owner), 0);
    expect_text(out, "nothing to do");
    // What was published is in the dump, too; a table of that name or of another.
    char remedy[1000];
    snprintf(remedy, sizeof remedy, "%s; %s; %s; select rowbell.unpublish('app.parted_3')", publish_named,
             publish_parted, publish_posts);
    ck_assert_str_eq(remedies(conn, "not published"), remedy);
    sql_run(conn, remedy);
    ck_assert_str_eq(remedies(conn, "%publish%"), "none");
    expect_captured(conn);
    ck_assert_int_eq(
        program_run("rowbell-relay", (const char *const[]){"--once", "--database-url", owner, NULL}, &out, &err), 0);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs j join rowbell.subscriptions s on s.id = "
                                   "j.subscription_id where s.kind = 'sse'"),
                     6);
    expect_unpublished(conn);
    PQfinish(conn);
    snprintf(sql, sizeof sql, "reassign owned by o_%s to current_user; drop role o_%s", database, database);
    sql_run(superuser, sql);
    unlink(dump);
}
END_TEST

// The script of --print does the same. Without comments nobody knows which version it was.
START_TEST(a_dump_without_data_by_print_and_without_comments) {
    furnished();
    const char *dump = dump_file();
    SHELL("pg_dump --schema-only -f %s '%s'", dump, support_database_url());
    const char *url = fixture_empty_database();
    SHELL("psql -X -q -v ON_ERROR_STOP=1 -f %s '%s'", dump, url);
    expect_status(RUN("migrate", "--print"), 0);
    FILE *script = fopen(dump, "w");
    ck_assert_ptr_nonnull(script);
    fputs(out, script);
    fclose(script);
    SHELL("psql -X -q -f %s '%s'", dump, url);
    expect_status(RUN("migrate"), 0);
    expect_text(out, "nothing to do");
    SHELL("pg_dump --schema-only --no-comments -f %s '%s'", dump, url);
    url = fixture_empty_database();
    SHELL("psql -X -q -v ON_ERROR_STOP=1 -f %s '%s'", dump, url);
    expect_status(RUN("migrate"), 4);
    expect_text(err, "drop schema rowbell cascade");
    PGconn *conn = fixture_connect();
    sql_run(conn, "drop schema rowbell cascade");
    expect_status(RUN("migrate"), 0);
    sql_run(conn, publish_posts);
    sql_run(conn, "insert into app.posts values (1, 't1')");
    ck_assert_str_eq(sql_text(conn, "select subject from rowbell.events"), "posts/1");
    unlink(dump);
}
END_TEST

// The data of the application alone, into tables that are published: it is captured as any write. As docs/operating.md
// says it.
START_TEST(data_of_the_application_alone) {
    furnished();
    const char *dump = dump_file();
    SHELL("pg_dump -Fc --data-only -N rowbell -f %s '%s'", dump, support_database_url());
    static const char *const options[] = {"", "PGOPTIONS='-c rowbell.capture=collection'",
                                          "PGOPTIONS='-c session_replication_role=replica'"};
    static const char *const events[] = {"create parted/105, create parted/5, create t1 posts/1",
                                         "create parted, create parted, create t1 posts", ""};
    const char *url = fixture_database();
    PGconn *conn = fixture_connect();
    sql_run(conn, furniture);
    sql_run(conn,
            "delete from app.posts; delete from app.parted; delete from app.treasure; delete from rowbell.events");
    SHELL("%s pg_restore -e -d '%s' %s", options[_i], url, dump);
    ck_assert_str_eq(
        sql_text(conn,
                 "select string_agg(concat_ws(' ', op, scope, subject), ', ' order by subject) from rowbell.events"),
        events[_i]);
    unlink(dump);
}
END_TEST

// In two steps, structure first: triggers would fire while rowbell's own rows are still missing.
START_TEST(structure_and_data_apart) {
    furnished();
    const char *dump = dump_file();
    SHELL("pg_dump -Fc -f %s '%s'", dump, support_database_url());
    const char *url = fixture_empty_database();
    SHELL("pg_restore -e --schema-only -d '%s' %s", url, dump);
    SHELL("PGOPTIONS='-c session_replication_role=replica' pg_restore -e --data-only -d '%s' %s", url, dump);
    PGconn *conn = fixture_connect();
    expect_status(RUN("migrate"), 0);
    expect_text(out, "nothing to do");
    expect_captured(conn);
    expect_indexed(conn, url);
    expect_unpublished(conn);
    unlink(dump);
}
END_TEST

// ---- a dump of version 13 and of version 6, whose publications are kept by numbers

static const char *file_of(const char *name) {
    char path[400];
    snprintf(path, sizeof path, "%s/migrations/%s", SOURCE_ROOT, name);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    char *text = NULL;
    size_t size = 0;
    ck_assert_int_gt(getdelim(&text, &size, 0, file), 0);
    fclose(file);
    return support_keep(text);
}

// Its tables, with what publish had left: rows, types, functions and triggers.
static void make_old(PGconn *conn, PGconn *current, int version) {
    sql_run(conn, "set rowbell.no_roles = 'on'; create schema app; create table app.posts (id int primary key, gap "
                  "int, tenant text); alter table app.posts "
                  "drop gap; create table app.dropped (id int primary key); create table app.treasure (id int primary "
                  "key, tenant text)");
    sql_run(conn, file_of("bootstrap.sql"));
    char sql[1500];
    snprintf(sql, sizeof sql,
             "select string_agg(name, ' ' order by version) from rowbell.migrations where version <= %d", version);
    char *names = strdup(sql_text(current, sql));
    for (char *rest = names, *name = strsep(&rest, " "); name; name = rest ? strsep(&rest, " ") : NULL) {
        char file[100];
        snprintf(file, sizeof file, "%s.sql", name);
        sql_run(conn, file_of(file));
    }
    free(names);
    snprintf(sql, sizeof sql,
             "select string_agg(format('insert into rowbell.migrations (name, version, compatible_from, checksum) "
             "values (%%L, %%s, %%s, %%L)', name, version, "
             "compatible_from, checksum), '; ') from rowbell.migrations where version <= %d",
             version);
    sql_run(conn, sql_text(current, sql));
    sql_run(conn, "insert into rowbell.published (relation, name, key, scope, attnums, webhook) select c.oid, "
                  "c.relname, '{id}', case c.relname when 'posts' then "
                  "'tenant' end, '{\"id\": 1, \"tenant\": 3}', true from pg_class c where c.relname in ('posts', "
                  "'dropped') order by c.relname desc;"
                  "insert into rowbell.event_types (type, relation, webhook) select p.name || '.' || op, p.relation, "
                  "true from rowbell.published p, "
                  "unnest(array['create', 'update', 'delete']) op");
    snprintf(
        sql, sizeof sql,
        "do $$ declare p record; op text; begin for p in select %s as id, o.* from rowbell.published o loop "
        "foreach op in array array['insert', 'update', 'delete', 'truncate'] loop "
        "execute format('create function rowbell.%%I() returns trigger language plpgsql as ''begin return null; "
        "end''', 'capture_' || p.id || '_' || op);"
        "execute format('revoke execute on function rowbell.%%I() from current_user', 'capture_' || p.id || '_' || op);"
        "execute format('grant execute on function rowbell.%%1$I() to current_user', 'capture_' || p.id || '_' || op);"
        "execute format('create trigger %%I after %%s on %%s %%s for each statement execute function rowbell.%%I()', "
        "'~rowbell_' || op, op, "
        "p.relation::oid::regclass, case op when 'insert' then 'referencing new table as \"rowbell$new\"' when "
        "'delete' then 'referencing old table as "
        "\"rowbell$old\"' when 'update' then 'referencing old table as \"rowbell$old\" new table as \"rowbell$new\"' "
        "end, 'capture_' || p.id || '_' || op);"
        "execute format('revoke execute on function rowbell.%%I() from current_user', 'capture_' || p.id || '_' || op);"
        "end loop; end loop; end $$; drop table app.dropped",
        version < 7 ? "o.relation" : "o.id");
    sql_run(conn, sql);
}

START_TEST(an_older_dump_restored_by_the_owner) {
    int version = _i == 0 ? 6 : 13;
    fixture_database();
    PGconn *current = fixture_connect();
    fixture_empty_database();
    PGconn *old = fixture_connect();
    make_old(old, current, version);
    const char *dump = dump_file();
    SHELL("pg_dump -Fc -f %s '%s'", dump, support_database_url());
    const char *url = fixture_empty_database();
    PGconn *superuser = fixture_connect();
    const char *database = PQdb(superuser);
    char sql[300];
    snprintf(sql, sizeof sql, "create role o_%s login password 'x'; alter database %s owner to o_%s", database,
             database, database);
    sql_run(superuser, sql);
    snprintf(sql, sizeof sql, "o_%s", database);
    const char *owner = url_as(url, sql);
    SHELL("pg_restore -e --no-owner --no-privileges -d '%s' %s", owner, dump);
    PGconn *conn = connect_url(owner);
    // The number of the table that was dropped is another one's.
    sql_run(conn, "update rowbell.published set relation = 'app.treasure'::regclass where name = 'dropped'");
    expect_status(RUN("migrate", "--no-roles", "--database-url", owner), 0);
    ck_assert_str_eq(sql_text(conn, "select string_agg(concat_ws(' ', name, relation, attnums), ', ' order by name) "
                                    "from rowbell.published_tables()"),
                     "dropped {}, posts app.posts {\"id\": 1, \"tenant\": 2}");
    ck_assert_str_eq(sql_text(conn, "select string_agg(distinct concat_ws(' ', problem, subject), ', ') from "
                                    "rowbell.doctor() where problem not in ('no "
                                    "process', 'owner is gone')"),
                     "table is gone dropped");
    sql_run(conn, "insert into app.posts values (1, 'acme'); insert into app.treasure values (1, 'gold'); update "
                  "app.posts set tenant = 'b'");
    ck_assert_str_eq(sql_text(conn, "select string_agg(concat_ws(' ', op, scope, subject), ', ' order by seq) from "
                                    "rowbell.events where op is not null"),
                     "create acme posts/1, delete acme posts/1, create b posts/1");
    ck_assert_str_eq(sql_text(conn, "select rowbell.unpublish('app.posts')"), "t");
    ck_assert_int_eq(sql_int(conn, "select count(*) from pg_trigger where tgname like '~rowbell%'"), 0);
    PQfinish(conn);
    snprintf(sql, sizeof sql, "reassign owned by o_%s to current_user; drop role o_%s", database, database);
    sql_run(superuser, sql);
    unlink(dump);
}
END_TEST

// In place, too.
START_TEST(an_older_version_migrated_in_place) {
    fixture_database();
    PGconn *current = fixture_connect();
    fixture_empty_database();
    PGconn *conn = fixture_connect();
    make_old(conn, current, _i == 0 ? 6 : 13);
    expect_status(RUN("migrate", "--no-roles"), 0);
    sql_run(conn, "insert into app.posts values (1, 'acme')");
    ck_assert_str_eq(sql_text(conn, "select scope || ' ' || subject from rowbell.events where op is not null"),
                     "acme posts/1");
    sql_run(conn, "alter table app.posts rename tenant to org");
    ck_assert_str_eq(remedies(conn, "column is gone"),
                     "select rowbell.publish('app.posts', scope => 'org', key => '{id}', name => 'posts')");
}
END_TEST

// What pg_upgrade refuses, and what a dump does not keep: numbers in columns of ours, except where their use is
// checked.
START_TEST(no_column_is_a_number_of_this_database) {
    fixture_database();
    PGconn *conn = fixture_connect();
    sql_run(conn, furniture);
    ck_assert_str_eq(
        sql_text(
            conn,
            "select string_agg(concat_ws('.', c.relname, a.attname), ' ' order by c.relname, a.attname) from pg_class "
            "c join pg_attribute a on a.attrelid = "
            "c.oid and a.attnum > 0 join pg_type t on t.oid = a.atttypid left join pg_type e on e.oid = t.typelem "
            "where c.relkind = 'r' and "
            "c.relnamespace = 'rowbell'::regnamespace and (t.typname ~ '^(oid$|reg)' or e.typname ~ '^(oid$|reg)')"),
        "event_types.relation published.function_oid published.relation published.relation_oid");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.published where relation is not null") +
                         sql_int(conn, "select count(*) from rowbell.event_types where relation is not null"),
                     0);
    ck_assert_int_eq(sql_int(conn, "select count(*) from pg_proc f where f.pronamespace = 'rowbell'::regnamespace and "
                                   "f.proname ~ '^capture_[0-9]+' and "
                                   "substring(f.proname, '[0-9]+')::int not in (select id from rowbell.published)"),
                     0);
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "restore", 180);
    tcase_add_loop_test(tcase, a_whole_dump_in_a_new_cluster, 0, 2);
    tcase_add_test(tcase, a_dispatcher_follows_a_restore);
    tcase_add_test(tcase, tables_restored_into_their_own_database);
    tcase_add_test(tcase, tables_restored_into_another_installation);
    tcase_add_test(tcase, a_dump_without_data);
    tcase_add_test(tcase, a_dump_without_data_by_print_and_without_comments);
    tcase_add_loop_test(tcase, data_of_the_application_alone, 0, 3);
    tcase_add_test(tcase, structure_and_data_apart);
    tcase_add_loop_test(tcase, an_older_dump_restored_by_the_owner, 0, 2);
    tcase_add_loop_test(tcase, an_older_version_migrated_in_place, 0, 2);
    tcase_add_test(tcase, no_column_is_a_number_of_this_database);
}

int main(void) {
    return suite_main("restore", add_tests);
}
