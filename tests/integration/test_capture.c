// Capture: which events a statement leaves in the outbox (G1). A step is a statement and the events it must leave, as
// "type scope key" lines in any order; "-" stands for NULL.
#include "tests/support/fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct step {
    const char *sql;
    const char *events;
};

static void play(PGconn *conn, const struct step *steps, size_t count) {
    for (size_t i = 0; i < count; i++) {
        int64_t before = sql_int(conn, "select coalesce(max(seq), 0) from rowbell.events");
        sql_run(conn, steps[i].sql);
        char query[500];
        snprintf(query, sizeof query,
                 "select coalesce(string_agg(line, E'\\n' order by line), '') from (select concat_ws(' ', t.type, "
                 "coalesce(e.scope, '-'), coalesce(e.key, '-')) as line from rowbell.events e "
                 "join rowbell.event_types t on t.id = e.type_id where e.seq > %lld) as lines",
                 (long long)before);
        const char *got = sql_text(conn, query);
        char *expected = PQescapeLiteral(conn, steps[i].events, strlen(steps[i].events));
        char sort[2000];
        snprintf(sort, sizeof sort,
                 "select coalesce(string_agg(line, E'\\n' order by line), '') from string_to_table(%s, E'\\n') as line",
                 expected);
        PQfreemem(expected);
        const char *wanted = sql_text(conn, sort);
        if (strcmp(got, wanted) != 0)
            ck_abort_msg("%s\n  left:\n%s\n  instead of:\n%s", steps[i].sql, got, wanted);
    }
}
#define PLAY(conn, ...)                                                                                                \
    play(conn, (const struct step[]){__VA_ARGS__}, sizeof((const struct step[]){__VA_ARGS__}) / sizeof(struct step))

static PGconn *fresh(const char *setup) {
    fixture_database();
    PGconn *conn = fixture_connect();
    // Every counter above what an int holds, and near what a browser's number holds.
    sql_run(conn, "alter sequence rowbell.events_seq_seq restart 9007199254000000");
    sql_run(conn, setup);
    return conn;
}

START_TEST(row_changes_have_key_op_and_scope) {
    PGconn *conn = fresh("create table posts (id int primary key, title text, tenant text);"
                         "select rowbell.publish('posts', scope => 'tenant')");
    PLAY(conn,
         {"insert into posts values (1, 'a', 't1'), (2, 'b', null), (3, 'c', '')",
          "posts.create t1 1\nposts.create - 2\nposts.create - 3"},
         {"update posts set title = 'x' where id = 1", "posts.update t1 1"}, {"update posts set title = title", ""},
         {"update posts set title = 'y' where false", ""}, {"delete from posts where id = 1", "posts.delete t1 1"},
         {"delete from posts where id = 1", ""},
         {"insert into posts values (4, 'd', '*')", "posts.create - 4"}, // the reserved scope is nobody's
         {"begin; insert into posts values (9, 'z', 't'); rollback", ""});
}
END_TEST

START_TEST(an_update_that_changes_nothing_watched_is_silent) {
    PGconn *conn = fresh("create table p (id int primary key, title text, seen int, extra json);"
                         "select rowbell.publish('p', watch => '{title}')");
    PLAY(conn, {"insert into p values (1, 'a', 0, '{}')", "p.create - 1"}, {"update p set seen = 1", ""},
         {"update p set extra = '{ }'", ""}, {"update p set title = 'b', seen = 2", "p.update - 1"},
         {"update p set id = 5", "p.delete - 1\np.create - 5"});
}
END_TEST

START_TEST(a_json_column_does_not_refuse_the_write) {
    PGconn *conn = fresh("create table p (id int primary key, extra json, pt point, x xml);"
                         "select rowbell.publish('p')");
    PLAY(conn, {"insert into p values (1, '{}', '(1,2)', '<a/>')", "p.create - 1"},
         {"update p set extra = '{\"a\": 1}'", "p.update - 1"}, {"update p set pt = pt, x = x, extra = extra", ""},
         {"update p set pt = '(1,3)'", "p.update - 1"});
}
END_TEST

START_TEST(a_changed_key_is_a_delete_and_a_create) {
    PGconn *conn = fresh("create table p (id int primary key, v int); select rowbell.publish('p');"
                         "insert into p select i, i from generate_series(1, 3) i");
    PLAY(conn, {"update p set id = 10 where id = 1", "p.delete - 1\np.create - 10"},
         // Keys that only change hands: each row that is there before and after is an update.
         {"begin; alter table p drop constraint p_pkey; alter table p add primary key (id) deferrable initially "
          "deferred;"
          "update p set id = 5 - id where id in (2, 3); commit",
          "p.update - 2\np.update - 3"});
}
END_TEST

START_TEST(a_changed_scope_is_a_delete_there_and_a_create_here) {
    PGconn *conn =
        fresh("create table p (id int primary key, tenant int); select rowbell.publish('p', scope => 'tenant');"
              "insert into p values (1, 7)");
    PLAY(conn, {"update p set tenant = 8", "p.delete 7 1\np.create 8 1"},
         {"update p set tenant = null", "p.delete 8 1\np.create - 1"},
         {"update p set id = 2, tenant = 9", "p.delete - 1\np.create 9 2"});
}
END_TEST

START_TEST(soft_delete_and_undelete) {
    PGconn *conn = fresh("create table p (id int primary key, tenant text, gone timestamptz, v int);"
                         "select rowbell.publish('p', scope => 'tenant', soft_delete => 'gone');"
                         "insert into p values (1, 'a', null, 0), (2, 'a', now(), 0)");
    PLAY(conn, {"update p set gone = now() where id = 1", "p.delete a 1"}, {"update p set v = v + 1", ""},
         {"update p set gone = gone + interval '1 s'", ""}, {"update p set gone = null where id = 1", "p.create a 1"},
         {"update p set gone = now(), tenant = 'b' where id = 1", "p.delete a 1"},
         {"update p set tenant = 'c' where id = 1", ""}, {"delete from p where id = 1", ""},
         {"update p set gone = null, tenant = 'z' where id = 2", "p.create z 2"}, {"delete from p", "p.delete z 2"});
}
END_TEST

// One row is told without the join that many rows need: both must tell the same.
START_TEST(an_update_of_one_row_and_of_many_tell_the_same) {
    PGconn *conn = fresh("create table p (id text primary key, v int, tenant text, gone timestamptz, other int);"
                         "select rowbell.publish('p', scope => 'tenant', soft_delete => 'gone', watch => '{v}');"
                         "insert into p select i, 1, 't', null, 1 from generate_series(1, 9) i");
    PLAY(conn, {"update p set other = 2", ""}, {"update p set other = 3 where id = '1'", ""},
         {"update p set v = 2 where id = '1'", "p.update t 1"}, {"update p set v = 2 where id < '3'", "p.update t 2"},
         {"update p set id = 'a' where id = '1'", "p.delete t 1\np.create t a"},
         {"update p set id = 'k' || id where id in ('2', '8')",
          "p.delete t 2\np.delete t 8\np.create t k2\np.create t k8"},
         {"update p set tenant = 'u' where id = '3'", "p.delete t 3\np.create u 3"},
         {"update p set tenant = 'u' where id = '3' or id = 'a'", "p.delete t a\np.create u a"},
         {"update p set tenant = '*' where id = '3'", "p.delete u 3\np.create - 3"},
         {"update p set tenant = null, v = 3 where id = '3'", "p.update - 3"},
         {"update p set gone = now() where id = '4'", "p.delete t 4"},
         {"update p set v = 9 where id = '4'", ""}, // it is gone
         {"update p set gone = null where id = '4'", "p.create t 4"},
         {"update p set gone = now() where id in ('4', '5')", "p.delete t 4\np.delete t 5"},
         {"update p set v = 9 where id in ('4', '6')", "p.update t 6"},
         {"update p set id = repeat('k', 1025) where id = '6'", "p.delete t 6\np.create t -"},
         {"update p set v = 10 where length(id) = 1025", "p.update t -"},
         {"update p set v = 11 where length(id) = 1025 or id = '7'", "p.update t -\np.update t 7"},
         {"delete from p where length(id) = 1025 or id = '7'", "p.delete t -\np.delete t 7"});
    // A key of 342 characters may have over 1,024 bytes when it is rendered, and has not.
    sql_run(conn, "insert into p values (repeat('~', 342), 1, 't')");
    ck_assert_int_eq(sql_int(conn, "select length(key) from rowbell.events order by seq desc limit 1"), 342);
}
END_TEST

// Moved to a partition that takes no row: there is an old row and no new one.
START_TEST(a_row_that_an_update_loses_is_deleted) {
    PGconn *conn =
        fresh("create table p (id int, part int, v int, primary key (id, part)) partition by list (part);"
              "create table p1 partition of p for values in (1); create table p2 partition of p for values in (2);"
              "create function nothing() returns trigger language plpgsql as $$ begin return null; end $$;"
              "insert into p values (1, 1), (2, 1), (3, 1);"
              "create trigger nothing before insert on p2 for each row execute function nothing();"
              "select rowbell.publish('p', key => '{id,part}')");
    PLAY(conn, {"update p set part = 2 where id = 1", "p.delete - 1/1"},
         {"update p set part = case id when 3 then 2 else 1 end", "p.delete - 3/1"});
}
END_TEST

START_TEST(truncate_names_the_collection_and_reaches_every_scope) {
    PGconn *conn =
        fresh("create table scoped (id int primary key, tenant text); create table plain (id int primary key);"
              "select rowbell.publish('scoped', scope => 'tenant'); select rowbell.publish('plain')");
    PLAY(conn, {"truncate scoped", "scoped.delete * -"}, {"truncate plain", "plain.delete - -"},
         {"truncate plain, scoped", "plain.delete - -\nscoped.delete * -"});
}
END_TEST

START_TEST(a_table_without_a_key_names_the_collection_once) {
    PGconn *conn = fresh("create table h (a int, tenant text); select rowbell.publish('h', scope => 'tenant')");
    PLAY(conn, {"insert into h select i, 't' || i % 2 from generate_series(1, 10) i", "h.create t0 -\nh.create t1 -"},
         {"update h set a = a", ""}, {"update h set a = a + 1 where tenant = 't1'", "h.update t1 -"},
         {"update h set tenant = 't2' where tenant = 't1'", "h.update t1 -\nh.update t2 -"},
         {"delete from h", "h.delete t0 -\nh.delete t2 -"}, {"delete from h", ""});
}
END_TEST

START_TEST(keys_are_rendered_as_a_url_path) {
    PGconn *conn = fresh("create table p (a text, b int, primary key (a, b)); create table bin (id bytea primary key);"
                         "create table u (id uuid primary key); create table d (id timestamptz primary key);"
                         "create table n (id numeric primary key);"
                         "select rowbell.publish(t) from unnest('{p,bin,u,d,n}'::regclass[]) t");
    PLAY(conn, {"insert into p values ('x', 1)", "p.create - x/1"},
         {"insert into p values ('a/b%c?d#e f~g_h.i-j', -1)", "p.create - a%2Fb%25c%3Fd%23e%20f~g_h.i-j/-1"},
         {"insert into p values ('é€😀', 2)", "p.create - %C3%A9%E2%82%AC%F0%9F%98%80/2"},
         {"insert into p values (E'a\\nb\\tc', 3)", "p.create - a%0Ab%09c/3"},
         {"insert into p values ('', 4)", "p.create - /4"},
         {"set bytea_output = 'escape'; insert into bin values ('\\x0001ff')", "bin.create - %5Cx0001ff"},
         {"insert into u values ('A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11')",
          "u.create - a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"},
         {"set datestyle = 'German'; set timezone = 'Asia/Tokyo'; insert into d values ('2026-01-02 03:04:05+00')",
          "d.create - 2026-01-02%2003%3A04%3A05%2B00"},
         {"insert into n values (1.50)", "n.create - 1.50"});
}
END_TEST

START_TEST(long_keys_name_the_collection_once_and_long_scopes_their_digest) {
    PGconn *conn =
        fresh("create table p (id text primary key, tenant text); select rowbell.publish('p', scope => 'tenant')");
    sql_run(conn, "insert into p values (repeat('x', 1024), 'a')");
    ck_assert_int_eq(sql_int(conn, "select length(key) from rowbell.events"), 1024);
    PLAY(conn,
         {"insert into p values (repeat('y', 1025), 'a'), (repeat('é', 200), 'a'), ('k', 'a')",
          "p.create a k\np.create a -"},
         {"update p set tenant = 'b' where length(id) = 1025", "p.delete a -\np.create b -"});
    sql_run(conn, "insert into p values ('z', repeat('s', 257))");
    ck_assert_str_eq(sql_text(conn, "select scope from rowbell.events where key = 'z'"),
                     sql_text(conn, "select 'sha256:' || encode(sha256(repeat('s', 257)::bytea), 'hex')"));
}
END_TEST

START_TEST(composite_quoted_and_foreign_identifiers) {
    PGconn *conn =
        fresh("create schema \"We ird\"; create table \"We ird\".\"Ünï\"\"table\" (\"k 1\" int, \"k'2\" text,"
              "\"select\" int, o int, n int, s int, e int, c int, \"rowbell\" text, primary key (\"k'2\", \"k 1\"));"
              "select rowbell.publish('\"We ird\".\"Ünï\"\"table\"', scope => 'select', watch => '{o,rowbell}',"
              "name => 'odd')");
    PLAY(conn, {"insert into \"We ird\".\"Ünï\"\"table\" values (1, 'a', 3, 0, 0, 0, 0, 0, 'r')", "odd.create 3 a/1"},
         {"update \"We ird\".\"Ünï\"\"table\" set o = 1", "odd.update 3 a/1"},
         {"update \"We ird\".\"Ünï\"\"table\" set n = 1, s = 1, e = 1, c = 1", ""});
}
END_TEST

START_TEST(copy_on_conflict_merge_and_cascades_are_captured) {
    PGconn *conn = fresh("create table a (id int primary key, v int);"
                         "create table b (id int primary key, a int references a on delete cascade on update cascade);"
                         "select rowbell.publish('a'); select rowbell.publish('b')");
    PLAY(conn,
         {"insert into a values (1, 1), (2, 2); insert into b values (10, 1), (20, 2)",
          "a.create - 1\na.create - 2\nb.create - 10\nb.create - 20"},
         {"insert into a values (1, 5), (3, 3) on conflict (id) do update set v = excluded.v",
          "a.create - 3\na.update - 1"},
         {"insert into a values (1, 5) on conflict do nothing", ""},
         {"merge into a using (values (1), (3), (4)) as s(id) on a.id = s.id when matched and s.id = 1 then update set "
          "v = 9 "
          "when matched then delete when not matched then insert values (s.id, 0)",
          "a.create - 4\na.update - 1\na.delete - 3"},
         {"update a set id = 100 where id = 1", "a.delete - 1\na.create - 100\nb.update - 10"},
         {"delete from a where id = 2", "a.delete - 2\nb.delete - 20"},
         {"with x as (insert into a values (7, 7) returning id) delete from a where id = 4",
          "a.create - 7\na.delete - 4"});
    int64_t before = sql_int(conn, "select max(seq) from rowbell.events");
    PGresult *result = PQexec(conn, "copy a from stdin");
    ck_assert_int_eq(PQresultStatus(result), PGRES_COPY_IN);
    PQclear(result);
    ck_assert_int_eq(PQputCopyData(conn, "50\t1\n51\t1\n", 10), 1);
    ck_assert_int_eq(PQputCopyEnd(conn, NULL), 1);
    PQclear(PQgetResult(conn));
    PQclear(PQgetResult(conn));
    ck_assert_int_eq(sql_int(conn, "select max(seq) from rowbell.events"), before + 2);
}
END_TEST

// PostgreSQL 17: MERGE says what it did, and has a branch for rows that have no source.
START_TEST(merge_with_returning_is_captured) {
    PGconn *conn = fresh("create table a (id int primary key, v int); select rowbell.publish('a');"
                         "insert into a values (1, 1), (2, 2), (3, 3)");
    if (PQserverVersion(conn) < 170000)
        return;
    PLAY(conn,
         {"with done as (merge into a using (values (1), (4)) as s(id) on a.id = s.id "
          "when matched then update set v = 9 when not matched then insert values (s.id, 0) "
          "when not matched by source and a.id = 2 then delete returning merge_action(), a.id) select * from done",
          "a.create - 4\na.update - 1\na.delete - 2"});
}
END_TEST

START_TEST(partitions_are_covered_written_directly_moved_and_truncated) {
    PGconn *conn =
        fresh("create table p (id int, k text, v int, primary key (id, k)) partition by list (k);"
              "create table p_a partition of p for values in ('a');"
              "create table p_bc partition of p for values in ('b', 'c') partition by list (k);"
              "create table p_b (v int, k text not null, id int not null);"
              "alter table p_bc attach partition p_b for values in ('b'); create table p_c partition of p_bc default;"
              "select rowbell.publish('p')");
    PLAY(conn, {"insert into p values (1, 'a', 0), (2, 'b', 0)", "p.create - 1/a\np.create - 2/b"},
         {"insert into p_b (id, k, v) values (3, 'b', 0)", "p.create - 3/b"},
         {"update p_b set v = 1 where id = 3", "p.update - 3/b"}, {"update p set v = 5 where id = 1", "p.update - 1/a"},
         {"update p set k = 'b' where id = 1", "p.delete - 1/a\np.create - 1/b"},
         {"delete from p_b where id = 3", "p.delete - 3/b"}, {"truncate p", "p.delete - -"},
         {"truncate p_bc", "p.delete - -"}, {"truncate p_a", "p.delete - -"},
         {"begin; truncate p; truncate p_a; commit", "p.delete - -\np.delete - -"},
         // A partition attached later is covered by another publish.
         {"create table p_d partition of p for values in ('d'); select rowbell.publish('p'); insert into p_d values "
          "(9, 'd', 1)",
          "p.create - 9/d"});
    // Moved between partitions without a change of the key: one update.
    PGconn *moved =
        fresh("create table m (id int not null, part int not null, v int) partition by list (part);"
              "create table m1 partition of m for values in (1); create table m2 partition of m for values in (2);"
              "alter table m1 add primary key (id); alter table m2 add primary key (id);"
              "create table q (id int primary key) partition by range (id);"
              "create table q1 partition of q for values from (0) to (10);"
              "create table q2 partition of q for values from (10) to (20); select rowbell.publish('q');"
              "insert into q values (1)");
    PLAY(moved, {"update q set id = 15", "q.delete - 1\nq.create - 15"});
}
END_TEST

START_TEST(inheritance_children_are_covered) {
    PGconn *conn =
        fresh("create table base (id int primary key, v int); create table child (extra text) inherits (base);"
              "alter table child add primary key (id); select rowbell.publish('base')");
    PLAY(conn, {"insert into child values (1, 1, 'x')", "base.create - 1"},
         {"insert into base values (2, 1)", "base.create - 2"},
         {"update base set v = 2", "base.update - 2\nbase.update - 1"}, {"truncate base", "base.delete - -"});
}
END_TEST

START_TEST(generated_columns_and_other_triggers) {
    PGconn *conn =
        fresh("create table p (id int primary key, v int, twice int generated always as (v * 2) stored);"
              "create function touch() returns trigger language plpgsql as $$ begin new.v := new.v + 1; return new; "
              "end $$; create trigger touch before update on p for each row execute function touch();"
              "select rowbell.publish('p', scope => 'twice', watch => '{v}'); insert into p values (1, 1)");
    PLAY(conn, {"update p set id = id", "p.delete 2 1\np.create 4 1"});
}
END_TEST

// PostgreSQL 18: no trigger sees what a virtual column is, so nothing may be taken from one.
START_TEST(virtual_generated_columns_are_never_read) {
    PGconn *conn = fresh("");
    if (PQserverVersion(conn) < 180000)
        return;
    sql_run(conn, "create table p (id int primary key, v int, odd int generated always as (v % 2) virtual)");
    ck_assert_str_eq(sql_error(conn, "select rowbell.publish('p', scope => 'odd')"), "0A000");
    ck_assert_str_eq(sql_error(conn, "select rowbell.publish('p', soft_delete => 'odd')"), "0A000");
    ck_assert_str_eq(sql_error(conn, "select rowbell.publish('p', watch => '{v,odd}')"), "0A000");
    sql_run(conn, "select rowbell.publish('p')");
    PLAY(conn, {"insert into p values (1, 1)", "p.create - 1"}, {"update p set v = 2", "p.update - 1"},
         {"update p set v = 2", ""}, {"update p set id = 2", "p.delete - 1\np.create - 2"});
    // A column that was not there when the table was published, under a watched name.
    sql_run(conn, "select rowbell.publish('p', watch => '{v}'); alter table p drop column odd, drop column v;"
                  "alter table p add v int generated always as (id + 1) virtual");
    ck_assert_str_eq(sql_error(conn, "select rowbell.publish('p', watch => '{v}')"), "0A000");
}
END_TEST

START_TEST(collection_mode_is_one_event_a_statement_op_and_scope) {
    PGconn *conn =
        fresh("create table p (id int primary key, tenant text); select rowbell.publish('p', scope => 'tenant')");
    PLAY(conn,
         {"begin; set local rowbell.capture = 'collection'; insert into p select i, 't' || i % 2 from "
          "generate_series(1, 1000) i;"
          "commit",
          "p.create t0 -\np.create t1 -"},
         {"insert into p values (0, 't0')", "p.create t0 0"},
         {"begin; set local rowbell.capture = 'collection'; update p set tenant = tenant; delete from p; commit",
          // It does not look whether rows have changed.
          "p.update t0 -\np.update t1 -\np.delete t0 -\np.delete t1 -"});
}
END_TEST

// A connection as a role of this name, which is made where it is missing.
static PGconn *connect_as(const char *role) {
    PGconn *conn = fixture_admin();
    char sql[300];
    snprintf(sql, sizeof sql,
             "do $$ begin create role %1$s; exception when duplicate_object or unique_violation then null; end $$;"
             "set role %1$s",
             role);
    sql_run(conn, sql);
    return conn;
}

START_TEST(writers_need_no_rights_of_ours) {
    PGconn *conn = fresh("create table p (id int primary key); select rowbell.publish('p')");
    PGconn *writer = connect_as("capture_writer");
    sql_run(conn, "grant insert on p to capture_writer");
    sql_run(writer, "insert into p values (1)");
    ck_assert_str_eq(sql_error(writer, "select count(*) from rowbell.events"), "42501");
    ck_assert_str_eq(sql_error(writer, "select rowbell.publish('p')"), "42501");
    ck_assert_str_eq(sql_error(writer, "select rowbell.unpublish('p')"), "42501");
    ck_assert_str_eq(sql_error(writer, "select rowbell.record('x', 'y')"), "42501");
    // A trigger of one's own on the capture function would forge events.
    sql_run(conn, "create schema theirs; grant all on schema theirs to capture_writer");
    sql_run(writer, "create table theirs.mine (id int)");
    ck_assert_str_eq(sql_error(writer,
                               "create trigger t after insert on theirs.mine referencing new table as "
                               "\"rowbell$new\" for each statement execute function rowbell.capture_1_insert()"),
                     "42501");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events"), 1);
}
END_TEST

START_TEST(a_table_owner_publishes_without_being_superuser) {
    PGconn *conn = fresh("create table theirs (id int)"), *owner = connect_as("capture_owner");
    sql_run(fixture_admin(), "create schema own authorization capture_owner");
    sql_run(fixture_has_roles() ? fixture_admin() : conn,
            fixture_has_roles() ? "grant rowbell_publish to capture_owner"
                                : "grant usage on schema rowbell to capture_owner;"
                                  "grant execute on function rowbell.publish, rowbell.unpublish to capture_owner");
    sql_run(owner, "create table own.p (id int primary key)");
    sql_run(owner, "select rowbell.publish('own.p'); insert into own.p values (1)");
    ck_assert_str_eq(sql_error(owner, "select rowbell.publish('theirs')"), "42501");
    // Again, with other options, and after a column was renamed.
    sql_run(owner, "alter table own.p add tenant text; select rowbell.publish('own.p', scope => 'tenant');"
                   "alter table own.p rename tenant to org");
    ck_assert_str_eq(sql_error(owner, "insert into own.p values (2, 'a')"), "42703");
    sql_run(owner, "select rowbell.publish('own.p', scope => 'org'); insert into own.p values (2, 'a')");
    ck_assert_str_eq(sql_text(owner, "select rowbell.unpublish('own.p')"), "t");
    sql_run(owner, "insert into own.p values (3)");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events"), 2);
}
END_TEST

START_TEST(publish_refuses_with_a_reason) {
    PGconn *conn =
        fresh("create table p (id int primary key, a int not null, b int unique, c int not null unique deferrable);"
              "create view v as select * from p; create table q (id int primary key);"
              "create table part (id int primary key) partition by range (id);"
              "create table part1 partition of part default; select rowbell.publish('q', name => 'taken');"
              "select rowbell.declare_type('dom.create')");
    const char *const refused[][2] = {
        {"select rowbell.publish('nothing')", "42P01"},
        {"select rowbell.publish(null)", "22004"},
        {"select rowbell.publish('v')", "42809"},
        {"select rowbell.publish('part1')", "42809"},
        {"select rowbell.publish('pg_class')", fixture_is_superuser() ? "42809" : "42501"},
        {"select rowbell.publish('rowbell.events')", "42809"},
        {"select rowbell.publish('p', scope => 'nope')", "42703"},
        {"select rowbell.publish('p', soft_delete => 'nope')", "42703"},
        {"select rowbell.publish('p', watch => '{a,nope}')", "42703"},
        {"select rowbell.publish('p', key => '{nope}')", "42703"},
        {"select rowbell.publish('p', key => '{a}')", "42P10"},
        {"select rowbell.publish('p', key => '{b}')", "23502"},
        {"select rowbell.publish('p', key => '{c}')", "42P10"},
        {"select rowbell.publish('p', name => 'taken')", "42710"},
        {"select rowbell.publish('p', name => 'dom')", "42710"},
        {"select rowbell.publish('p', name => 'rowbell')", "22023"},
        {"select rowbell.publish('p', name => 'a b')", "22023"},
        {"select rowbell.publish('p', name => '')", "22023"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        ck_assert_msg(strcmp(sql_error(conn, refused[i][0]), refused[i][1]) == 0, "%s: not %s", refused[i][0],
                      refused[i][1]);
    sql_run(conn, "insert into p values (1, 1, 1, 1)");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events"), 0);
}
END_TEST

START_TEST(publish_again_changes_options_and_unpublish_stops) {
    PGconn *conn =
        fresh("create table p (id int primary key, t text); select rowbell.publish('p'); select rowbell.publish('p')");
    PLAY(conn, {"insert into p values (1, 'x')", "p.create - 1"}, {"select rowbell.publish('p', scope => 't')", ""},
         {"insert into p values (2, 'x')", "p.create x 2"}, {"select rowbell.publish('p', name => 'other')", ""},
         {"insert into p values (3, 'x')", "other.create - 3"}, {"select rowbell.unpublish('p')", ""},
         {"insert into p values (4, 'x'); update p set t = 'y'; delete from p; truncate p", ""},
         {"select rowbell.publish('p')", ""}, {"insert into p values (5, 'x')", "p.create - 5"});
    ck_assert_str_eq(sql_text(conn, "select rowbell.unpublish('p')"), "t");
    ck_assert_str_eq(sql_text(conn, "select rowbell.unpublish('p')"), "f");
    ck_assert_int_eq(sql_int(conn, "select count(*) from pg_proc where proname like 'capture\\_%' and pronamespace = "
                                   "'rowbell'::regnamespace and prorettype = 'trigger'::regtype"),
                     0);
}
END_TEST

START_TEST(record_is_part_of_the_transaction) {
    PGconn *conn = fresh("select rowbell.declare_type('supplier.connected', 'a supplier', webhook => true)");
    sql_run(conn, "begin; select rowbell.record('supplier.connected', 's1'); rollback");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events"), 0);
    const char *id = sql_text(conn, "select rowbell.record('supplier.connected', 's1', '{\"a\": 1}', 'acme')");
    ck_assert_str_eq(id, sql_text(conn, "select rowbell.event_id(occurred_at, seq) from rowbell.events"));
    ck_assert_str_eq(sql_text(conn, "select data->>'a' || scope || subject from rowbell.events"), "1acmes1");
    ck_assert_str_eq(sql_error(conn, "select rowbell.record('not.declared', 's')"), "42704");
    ck_assert_str_eq(sql_error(conn, "select rowbell.record(null, 's')"), "42704");
    ck_assert_str_eq(sql_error(conn, "select rowbell.record('supplier.connected', repeat('x', 1025))"), "22001");
    ck_assert_str_eq(sql_error(conn, "select rowbell.declare_type('rowbell.mine')"), "42939");
    ck_assert_str_eq(sql_error(conn, "select rowbell.declare_type('with space')"), "22023");
    sql_run(conn, "select rowbell.record('supplier.connected', null, null, repeat('s', 300))");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events where scope like 'sha256:%' and data = '{}'"),
                     1);
}
END_TEST

START_TEST(event_ids_are_uuid_v7_and_name_the_seq) {
    PGconn *conn = fresh("");
    ck_assert_str_eq(sql_text(conn, "select rowbell.event_id('2026-11-29 20:00:00.123456+00', 42)"),
                     "01a228e4-9a7b-71c8-8000-00000000002a");
    ck_assert_int_eq(sql_int(conn,
                             "select count(*) from (values (1::bigint), (2147483648), (9007199254740993), "
                             "(4611686018427387903)) v(s) where rowbell.event_seq(rowbell.event_id(now(), s)) = s"),
                     4);
    ck_assert_str_eq(sql_text(conn, "select rowbell.event_seq(gen_random_uuid())"), "");
}
END_TEST

START_TEST(writers_do_not_wait_for_each_other) { // G8
    PGconn *first = fresh("create table p (id int primary key); select rowbell.publish('p');"
                          "select rowbell.declare_type('d.one')");
    PGconn *second = fixture_connect();
    sql_run(second, "set lock_timeout = '1s'; set statement_timeout = '5s'");
    sql_run(first, "begin; insert into p values (1); select rowbell.record('d.one', 's')");
    sql_run(second, "insert into p values (2); select rowbell.record('d.one', 's'); delete from p where id = 2");
    sql_run(first, "commit");
    ck_assert_int_eq(sql_int(first, "select count(*) from rowbell.events"), 5);
}
END_TEST

START_TEST(a_dropped_column_is_an_error_that_says_what_to_do) {
    PGconn *conn =
        fresh("create table p (id int primary key, tenant text); select rowbell.publish('p', scope => 'tenant');"
              "alter table p drop column tenant");
    PGresult *result = PQexec(conn, "insert into p values (1)");
    ck_assert_str_eq(PQresultErrorField(result, PG_DIAG_SQLSTATE), "42703");
    ck_assert_ptr_nonnull(strstr(PQresultErrorMessage(result), "rowbell.publish must be called again"));
    PQclear(result);
    sql_run(conn, "select rowbell.publish('p'); insert into p values (1)");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events"), 1);
}
END_TEST

START_TEST(with_the_event_trigger_migrations_of_the_application_are_followed) {
    PGconn *conn = fresh("create table p (id int primary key, tenant text, gone timestamptz, a int, b int);"
                         "select rowbell.publish('p', scope => 'tenant', soft_delete => 'gone', watch => '{a,b}');"
                         "create table q (id int, part int, primary key (id, part)) partition by list (part);"
                         "select rowbell.publish('q')");
    PGconn *admin = fixture_admin(); // an event trigger is a superuser's; it runs as whoever alters a table
    sql_run(admin, "select rowbell.follow_ddl()");
    PLAY(conn,
         {"alter table p rename column id to number; alter table p rename tenant to org; insert into p values (1, 'x', "
          "null, 1, 1)",
          "p.create x 1"},
         {"alter table p rename to renamed; update renamed set a = 2", "p.update x 1"},
         {"alter table renamed drop column b; alter table renamed drop column gone; update renamed set a = 3",
          "p.update x 1"},
         {"alter table renamed drop column org; update renamed set a = 4", "p.update - 1"},
         {"alter table renamed add column extra int; update renamed set extra = 1", ""},
         {"alter table renamed drop column number; update renamed set a = 5", "p.update - -"},
         {"create table q1 partition of q for values in (1); insert into q1 values (1, 1)", "q.create - 1/1"},
         {"create table q2 (part int not null, id int not null); alter table q attach partition q2 for values in (2);"
          "insert into q2 values (2, 7)",
          "q.create - 7/2"});
    // What cannot be followed never fails the application's command.
    sql_run(conn,
            "create table u (id int primary key, k int not null unique); select rowbell.publish('u', key => '{k}');"
            "alter table u drop constraint u_k_key; insert into u values (1, 1)");
    sql_run(admin, "select rowbell.follow_ddl(false)");
    ck_assert_int_eq(sql_int(conn, "select count(*) from pg_event_trigger"), 0);
}
END_TEST

static void add_tests(Suite *suite) {
    const TTest *const tests[] = {
        row_changes_have_key_op_and_scope,
        an_update_that_changes_nothing_watched_is_silent,
        a_json_column_does_not_refuse_the_write,
        a_changed_key_is_a_delete_and_a_create,
        a_changed_scope_is_a_delete_there_and_a_create_here,
        soft_delete_and_undelete,
        an_update_of_one_row_and_of_many_tell_the_same,
        a_row_that_an_update_loses_is_deleted,
        truncate_names_the_collection_and_reaches_every_scope,
        a_table_without_a_key_names_the_collection_once,
        keys_are_rendered_as_a_url_path,
        long_keys_name_the_collection_once_and_long_scopes_their_digest,
        composite_quoted_and_foreign_identifiers,
        copy_on_conflict_merge_and_cascades_are_captured,
        merge_with_returning_is_captured,
        partitions_are_covered_written_directly_moved_and_truncated,
        inheritance_children_are_covered,
        generated_columns_and_other_triggers,
        virtual_generated_columns_are_never_read,
        collection_mode_is_one_event_a_statement_op_and_scope,
        writers_need_no_rights_of_ours,
        a_table_owner_publishes_without_being_superuser,
        publish_refuses_with_a_reason,
        publish_again_changes_options_and_unpublish_stops,
        record_is_part_of_the_transaction,
        event_ids_are_uuid_v7_and_name_the_seq,
        writers_do_not_wait_for_each_other,
        a_dropped_column_is_an_error_that_says_what_to_do,
        with_the_event_trigger_migrations_of_the_application_are_followed,
    };
    TCase *tcase = suite_case(suite, "capture", 60);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_test(tcase, tests[i]);
}

int main(void) {
    return suite_main("capture", add_tests);
}
