// Whole dumps and dumps in part, where every number is another one.
#include "tests/e2e/restore/world.h"
#include "tests/support/cluster.h"
#include "tests/support/support.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    // Columns have other numbers, too: a renamed one is not taken for another one.
    sql_run(conn, "alter table app.posts rename tenant to org");
    ck_assert_str_eq(remedies(conn, "column is gone"), publish_posts);
    sql_run(conn, "alter table app.posts rename org to tenant");
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
    daemon_signal(dispatcher, SIGTERM);
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

// The schema rowbell alone, before the tables are there: its rows are whole, and tell what is to be published.
START_TEST(our_schema_alone) {
    PGconn *source = furnished();
    const char *dump = dump_file();
    static const char *const rows = "select concat_ws(' ', (select count(*) from rowbell.published), (select count(*) "
                                    "from rowbell.event_types), (select "
                                    "count(*) from rowbell.routes), (select count(*) from rowbell.events))";
    const char *before = sql_text(source, rows);
    SHELL("pg_dump -Fc -n rowbell -f %s '%s'", dump, support_database_url());
    SHELL("pg_dump --schema-only -n app -f %s.sql '%s'", dump, support_database_url());
    const char *url = fixture_empty_database();
    SHELL("pg_restore -e -d '%s' %s", url, dump);
    PGconn *conn = fixture_connect();
    ck_assert_str_eq(sql_text(conn, rows), before);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.doctor() where problem = 'table is gone'"), 4);
    // As somebody makes the tables, without triggers.
    SHELL("sed -i '/CREATE TRIGGER/d' %s.sql; psql -X -q -v ON_ERROR_STOP=1 -f %s.sql '%s'; rm %s.sql", dump, dump, url,
          dump);
    char remedy[1000];
    snprintf(remedy, sizeof remedy, "%s; %s; %s", publish_named, publish_parted, publish_posts);
    ck_assert_str_eq(remedies(conn, "not captured"), remedy);
    sql_run(conn, remedy);
    expect_captured(conn);
    // A copy sends nothing to the endpoints of production.
    sql_run(conn,
            "select rowbell.set_subscription_state(name, 'paused') from rowbell.subscriptions where kind <> 'sse';"
            "update rowbell.installation set id = replace(gen_random_uuid()::text, '-', '')");
    ck_assert_int_eq(
        sql_int(conn, "select count(*) from rowbell.subscriptions where kind <> 'sse' and state = 'active'"), 0);
    unlink(dump);
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

void add_dumps(Suite *suite) {
    TCase *tcase = suite_case(suite, "dumps", 180);
    tcase_add_loop_test(tcase, a_whole_dump_in_a_new_cluster, 0, 2);
    tcase_add_test(tcase, a_dispatcher_follows_a_restore);
    tcase_add_test(tcase, tables_restored_into_their_own_database);
    tcase_add_test(tcase, tables_restored_into_another_installation);
    tcase_add_loop_test(tcase, data_of_the_application_alone, 0, 3);
    tcase_add_test(tcase, structure_and_data_apart);
    tcase_add_test(tcase, our_schema_alone);
    tcase_add_test(tcase, no_column_is_a_number_of_this_database);
}
