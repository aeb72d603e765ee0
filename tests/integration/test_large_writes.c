// Large statements: what capture adds to PostgreSQL's temporary files, and a limit on them.
#include "tests/support/fixture.h"
#include <stdio.h>
#include <string.h>

// Bytes of temporary files that the statements of this session have written.
static int64_t temp_bytes(PGconn *conn, const char *sql) {
    static const char *const so_far = "select temp_bytes from pg_stat_database where datname = current_database()";
    sql_run(conn, "select pg_stat_force_next_flush()");
    int64_t before = sql_int(conn, so_far);
    sql_run(conn, sql);
    sql_run(conn, "select pg_stat_force_next_flush()");
    return sql_int(conn, so_far) - before;
}

enum { ROWS = 20000, ROW_BYTES = 700 };

// Two tables alike, of 14 MB; in `bare` nothing is captured, but PostgreSQL stores the changed rows as for a captured
// one.
static PGconn *fresh(const char *options) {
    fixture_database();
    PGconn *conn = fixture_connect();
    char sql[1500];
    snprintf(
        sql, sizeof sql,
        "set work_mem = '64kB'; set max_parallel_workers_per_gather = 0;"
        "create table big (id int primary key, tenant int, n int, body text);"
        "insert into big select i, i %% 5, 0, repeat(md5(i::text), 20) from generate_series(1, %d) i;"
        "create table bare (like big including all); insert into bare select * from big;"
        "create function nothing() returns trigger language plpgsql as $$ begin return null; end $$;"
        "create trigger i after insert on bare referencing new table as n for each statement execute function "
        "nothing();"
        "create trigger u after update on bare referencing old table as o new table as n for each statement execute "
        "function nothing();"
        "create trigger d after delete on bare referencing old table as o for each statement execute function "
        "nothing();"
        "vacuum analyze big",
        ROWS);
    // VACUUM is no part of a transaction.
    char *vacuum = strstr(sql, "vacuum analyze");
    *vacuum = '\0';
    sql_run(conn, sql);
    sql_run(conn, "vacuum analyze big");
    sql_run(conn, "vacuum analyze bare");
    snprintf(sql, sizeof sql, "select rowbell.publish('big', scope => 'tenant'%s)", options);
    sql_run(conn, sql);
    return conn;
}

static const char *const statements[] = {
    "insert into ? select id + 100000, tenant, n, body from ?",
    "update ? set n = n + 1 where id < 100000",
    "update ? set n = n where id < 100000",
    "update ? set id = -id where id < 100000",
    "update ? set tenant = tenant + 1",
    "begin; set local rowbell.capture = 'collection'; update ? set n = 7; commit",
    "delete from ?",
};

// Puts the table in each place of a `?`.
static void fill_in(char *sql, const char *statement, const char *table) {
    char *end = sql;
    for (const char *at = statement; *at != '\0'; at++)
        end = *at == '?' ? stpcpy(end, table) : stpncpy(end, at, 1);
    *end = '\0';
}

START_TEST(capture_stores_the_changed_rows_once) {
    PGconn *conn = fresh("");
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        char bare[300], big[300];
        fill_in(bare, statements[i], "bare");
        fill_in(big, statements[i], "big");
        int64_t unavoidable = temp_bytes(conn, bare), written = temp_bytes(conn, big);
        ck_assert_int_gt(unavoidable, (int64_t)ROWS * ROW_BYTES / 2);
        // Addresses, not rows: some 60 bytes each, a few times.
        ck_assert_msg(written - unavoidable < (int64_t)2 * ROWS * 300, "%s: %lld bytes instead of %lld", big,
                      (long long)written, (long long)unavoidable);
    }
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events where key is not null and op = 'update'"),
                     ROWS);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events where key is null"), 5);
}
END_TEST

// Of values that are stored out of line the transition tables have pointers, and capture copies none of the values.
START_TEST(values_out_of_line_are_not_copied) {
    fixture_database();
    PGconn *conn = fixture_connect();
    sql_run(conn,
            "set work_mem = '64kB'; create table docs (id int primary key, n int, body text); alter table docs alter "
            "body set storage external;"
            "insert into docs select i, 0, repeat(md5(i::text), 1500) from generate_series(1, 300) i;" // 14 MB
            "create table keyless (n int, body text); alter table keyless alter body set storage external;"
            "insert into keyless select n, body from docs; select rowbell.publish('docs'), rowbell.publish('keyless')");
    ck_assert_int_lt(temp_bytes(conn, "update docs set n = n + 1"), 1000000);
    ck_assert_int_lt(temp_bytes(conn, "update docs set n = n"), 1000000);
    ck_assert_int_lt(temp_bytes(conn, "update keyless set n = n + 1"), 1000000);
    ck_assert_int_lt(temp_bytes(conn, "delete from docs"), 1000000);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events"), 300 + 1 + 300);
}
END_TEST

START_TEST(a_collection_writes_no_temporary_files) {
    PGconn *conn = fresh(", capture => 'collection'"), *admin = fixture_admin();
    ck_assert_int_eq(
        sql_int(conn, "select count(*) from pg_trigger where tgrelid = 'big'::regclass and (tgoldtable is not null "
                      "or tgnewtable is not null)"),
        0);
    ck_assert_int_eq(sql_int(conn, "select count(*) from pg_trigger where tgrelid = 'big'::regclass"), 4);
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        char sql[300];
        fill_in(sql, statements[i], "big");
        ck_assert_msg(temp_bytes(conn, sql) == 0, "%s", sql);
    }
    // One event for each statement, to every scope.
    ck_assert_str_eq(
        sql_text(conn, "select string_agg(concat_ws(' ', op, key, scope, subject), ', ' order by seq) from "
                       "rowbell.events"),
        "create * big, update * big, update * big, update * big, update * big, update * big, delete * big");
    // Not even where none may be written.
    sql_run(admin, "set temp_file_limit = 0; set work_mem = '64kB'");
    sql_run(admin, "insert into big select * from bare limit 5000; update big set n = 2; "
                   "delete from big; truncate big");
    // As rows again.
    sql_run(conn, "select rowbell.publish('big', scope => 'tenant'); truncate rowbell.events; insert into big values "
                  "(1, 4, 1, 'x')");
    ck_assert_str_eq(sql_text(conn, "select concat_ws(' ', op, key, scope) from rowbell.events"), "create 1 4");
}
END_TEST

START_TEST(a_collection_of_any_table) {
    fixture_database();
    PGconn *conn = fixture_connect();
    sql_run(
        conn,
        "create table plain (id int primary key); create table keyless (n int);"
        "create table p (id int primary key) partition by range (id); create table p1 partition of p for values from "
        "(0) to (10); create table p2 partition of p for values from (10) to (20);"
        "select rowbell.publish(t::regclass, capture => 'collection') from unnest('{plain,keyless,p}'::text[]) t;"
        "insert into plain values (1); update keyless set n = 1; update p set id = 12 where id = 3; insert into p1 "
        "values (1); merge into p using (values (1)) v(i) on p.id = v.i when matched then delete; truncate p");
    ck_assert_str_eq(sql_text(conn, "select string_agg(concat_ws(' ', subject, op, coalesce(key, '-'), coalesce(scope, "
                                    "'-')), ', ' order by seq) "
                                    "from rowbell.events"),
                     "plain create - -, keyless update - -, p update - -, p create - -, p delete - -, p delete - -");
    ck_assert_str_eq(sql_error(conn, "select rowbell.publish('plain', capture => 'nothing')"), "22023");
    sql_run(
        conn,
        "select rowbell.publish('plain', capture => 'rows'); truncate rowbell.events; insert into plain values (2)");
    ck_assert_str_eq(sql_text(conn, "select key from rowbell.events"), "2");
    // What doctor says to run keeps the option.
    sql_run(conn, "alter table keyless disable trigger \"~rowbell_insert\"");
    ck_assert_str_eq(sql_text(fixture_admin(), "select remedy from rowbell.doctor() where subject = 'public.keyless'"),
                     "select rowbell.publish('public.keyless', name => 'keyless', capture => 'collection')");
}
END_TEST

// Old and new rows are paired by their places. Where these are not the same, it is still each row's own change.
START_TEST(rows_that_are_not_in_one_order_are_found_by_their_keys) {
    fixture_database();
    PGconn *conn = fixture_connect();
    sql_run(conn, "create table p (id int, part int, v int, primary key (id, part)) partition by list (part);"
                  "create table p1 partition of p for values in (1); create table p2 partition of p for values in (2);"
                  "create function nothing() returns trigger language plpgsql as $$ begin return null; end $$;"
                  "create trigger nothing before insert on p2 for each row execute function nothing();"
                  "insert into p select i, 1, 0 from generate_series(1, 1000) i; select rowbell.publish('p')");
    // The first row is lost on its way; each other one has the place of its neighbour.
    sql_run(conn, "update p set part = case id when 1 then 2 else 1 end, v = 1");
    ck_assert_str_eq(
        sql_text(conn,
                 "select string_agg(op || ' ' || n, ', ' order by op) from (select op, count(distinct key) n from "
                 "rowbell.events group by op) c"),
        "delete 1, update 999");
    // Keys that are handed on.
    sql_run(conn,
            "truncate rowbell.events; create table s (id int, v int); insert into s select i, i from "
            "generate_series(1, 100) i;"
            "alter table s add primary key (id); select rowbell.publish('s');"
            "alter table s drop constraint s_pkey; alter table s add primary key (id) deferrable initially deferred;"
            "begin; update s set id = id % 100 + 2; commit");
    ck_assert_str_eq(
        sql_text(conn,
                 "select string_agg(op || ' ' || n, ', ' order by op) from (select op, count(distinct key) n from "
                 "rowbell.events group by op) c"),
        "create 1, delete 1, update 99");
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "large_writes", 240);
    tcase_add_test(tcase, capture_stores_the_changed_rows_once);
    tcase_add_test(tcase, values_out_of_line_are_not_copied);
    tcase_add_test(tcase, a_collection_writes_no_temporary_files);
    tcase_add_test(tcase, a_collection_of_any_table);
    tcase_add_test(tcase, rows_that_are_not_in_one_order_are_found_by_their_keys);
}

int main(void) {
    return suite_main("large_writes", add_tests);
}
