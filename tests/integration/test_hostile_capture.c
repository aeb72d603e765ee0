// Capture among logins that do not trust each other: whatever the owner of a published table does to it later, none of
// their code runs with our rights, no other table rings under its name, and no address reaches a scope that it does not
// belong to.
#include "tests/support/fixture.h"
#include <stdio.h>
#include <string.h>

// A login that may publish its own tables, with a schema of its own.
static PGconn *publisher_connect(void) {
    PGconn *conn = PQconnectdb(fixture_login("rowbell_publish"));
    ck_assert_msg(PQstatus(conn) == CONNECTION_OK, "%s", PQerrorMessage(conn));
    char sql[400];
    snprintf(sql, sizeof sql, "create schema own authorization %s; grant usage on schema own to public", PQuser(conn));
    sql_run(fixture_admin(), sql);
    return conn;
}

// Types with functions that note who runs them: casts to text and to what capture might look for, implicit ones too,
// and operators.
static const char *const traps =
    "create table own.loot (who text); grant all on own.loot to public;"
    "create type own.colour as enum ('red', 'blue', '*'); create type own.pair as (x int);"
    "create function own.note() returns boolean language plpgsql as $$ begin insert into own.loot values "
    "(current_user);"
    "  return true; end $$;"
    "create function own.colour_text(own.colour) returns text language plpgsql as $$ begin perform own.note(); return "
    "'x'; "
    "end $$;"
    "create function own.pair_text(own.pair) returns text language plpgsql as $$ begin perform own.note(); return 'x'; "
    "end $$;"
    "create function own.pair_int(own.pair) returns int language plpgsql as $$ begin perform own.note(); return 1; end "
    "$$;"
    "create function own.pair_bool(own.pair) returns boolean language plpgsql as $$ begin return own.note(); end $$;"
    "create function own.pair_json(own.pair) returns json language plpgsql as $$ begin perform own.note(); return '1'; "
    "end $$;"
    "create function own.pair_same(own.pair, own.pair) returns boolean language plpgsql as $$ begin return own.note(); "
    "end $$;"
    "create cast (own.colour as text) with function own.colour_text(own.colour) as implicit;"
    "create cast (own.pair as text) with function own.pair_text(own.pair) as implicit;"
    "create cast (own.pair as int) with function own.pair_int(own.pair) as implicit;"
    "create cast (own.pair as boolean) with function own.pair_bool(own.pair) as implicit;"
    "create cast (own.pair as json) with function own.pair_json(own.pair) as implicit;"
    "create operator own.= (leftarg = own.pair, rightarg = own.pair, function = own.pair_same);"
    "create operator own.*= (leftarg = own.pair, rightarg = own.pair, function = own.pair_same);"
    "create operator own.|| (leftarg = own.pair, rightarg = own.pair, function = own.pair_same);"
    "create domain own.checked as int check (own.note());";

// The type of the columns at publish, and the one that they are given afterwards.
static const struct {
    const char *before, *value, *after, *cast, *rendered;
} changes[] = {
    {"int", "1", "own.pair", "row(k)::own.pair", "%281%29"},
    {"bigint", "1", "own.pair", "row(k)::own.pair", "%281%29"},
    {"uuid", "'1b4e28ba-2fa1-11d2-883f-0016d3cca427'", "own.pair", "row(1)::own.pair", "%281%29"},
    {"boolean", "true", "own.pair", "row(1)::own.pair", "%281%29"},
    {"text", "'red'", "own.colour", "k::own.colour", "red"},
    {"text", "'red'", "own.colour[]", "array[k::own.colour]", "%7Bred%7D"},
    {"numeric", "1", "own.pair[]", "array[row(k::int)::own.pair]", "%7B%281%29%7D"},
    {"date", "'2026-11-30'", "own.pair", "row(1)::own.pair", "%281%29"},
    {"bpchar(4)", "'red'", "own.colour", "rtrim(k)::own.colour", "red"},
    {"int", "1", "text", "'/*' || k", "%2F%2A1"},
    {"text", "'1'", "int", "k::int", "1"},
};

START_TEST(a_type_that_a_column_is_given_later_runs_no_code) {
    fixture_database();
    PGconn *admin = fixture_connect(), *owner = publisher_connect();
    char sql[1500];
    sql_run(owner, traps);
    snprintf(sql, sizeof sql,
             "create table own.t (k %1$s primary key, s %1$s, gone %1$s, n int); select rowbell.publish('own.t', scope "
             "=> 's', "
             "soft_delete => 'gone');"
             "insert into own.t values (%2$s, %2$s, null, 0); update own.t set n = 1; grant all on own.t to public",
             changes[_i].before, changes[_i].value);
    sql_run(owner, sql);
    snprintf(sql, sizeof sql,
             "alter table own.t alter k type %1$s using %2$s, alter s type %1$s using null, alter gone type %1$s using "
             "null; "
             "update own.t set s = k; delete from own.loot",
             changes[_i].after, changes[_i].cast);
    sql_run(owner, sql);
    sql_run(admin, "truncate rowbell.events");
    // A superuser and the owner write: one row, several, a soft delete, an ordinary one.
    static const char *const writes =
        "update own.t set n = n + 1; update own.t set gone = k; update own.t set gone = null, n = 7;"
        "update own.t set s = null; update own.t set s = k; delete from own.t";
    sql_run(admin, writes);
    ck_assert_str_eq(sql_text(admin, "select coalesce(string_agg(who, ' '), 'nothing') from own.loot"), "nothing");
    ck_assert_str_eq(sql_text(admin, "select string_agg(op, ' ' order by seq) from rowbell.events"),
                     "update delete create delete create delete create delete");
    ck_assert_str_eq(sql_text(admin, "select string_agg(distinct key, ' ') from rowbell.events"), changes[_i].rendered);
    ck_assert_int_eq(sql_int(admin, "select count(*) from rowbell.events where scope in ('*', '')"), 0);
    // Published again it is rendered in the same way.
    sql_run(owner, "select rowbell.publish('own.t', scope => 's', soft_delete => 'gone')");
    sql_run(admin, "truncate rowbell.events");
    snprintf(sql, sizeof sql, "insert into own.t (k, s) select %2$s, %2$s from (select %1$s as k) v", changes[_i].value,
             changes[_i].cast);
    sql_run(owner, sql);
    sql_run(admin, "delete from own.loot");
    sql_run(admin, writes);
    ck_assert_str_eq(sql_text(admin, "select coalesce(string_agg(who, ' '), 'nothing') from own.loot"), "nothing");
    ck_assert_str_eq(sql_text(admin, "select string_agg(distinct key, ' ') from rowbell.events"), changes[_i].rendered);
    PQfinish(owner);
}
END_TEST

// What a transaction's snapshot shows of the columns may be older than the table that it writes.
static const char *const old_snapshot_casts[] = {
    // Run with the row.
    "create function own.look(own.colour) returns text language plpgsql as $$ begin perform own.note(); return 'x'; "
    "end $$",
    // Evaluated by the planner, which inlines it: in a branch that is never taken, too.
    "create function own.early() returns text language plpgsql immutable as $$ begin perform own.note(); return 'x'; "
    "end $$; create function own.look(own.colour) returns text language sql immutable as 'select own.early()'",
};
static const char *const old_snapshot_types[] = {"own.colour", "own.of_colour"};

START_TEST(a_snapshot_that_is_older_than_the_table_runs_no_code) {
    fixture_database();
    PGconn *admin = fixture_connect(), *owner = publisher_connect();
    char sql[1000];
    sql_run(owner, traps);
    snprintf(sql, sizeof sql,
             "drop cast (own.colour as text); %s; create cast (own.colour as text) with function own.look(own.colour);"
             "create domain own.of_colour as own.colour; create table own.t (k int primary key, s int, n int);"
             "select rowbell.publish('own.t', scope => 's')",
             old_snapshot_casts[_i % 2]);
    sql_run(owner, sql);
    PGconn *old = fixture_admin();
    snprintf(sql, sizeof sql, "set session authorization %s", PQuser(owner));
    sql_run(old, sql);
    sql_run(old, "begin isolation level repeatable read; select from pg_class limit 1");
    snprintf(sql, sizeof sql,
             "alter table own.t drop column k, drop column s; alter table own.t add k %1$s primary key, add s %1$s",
             old_snapshot_types[_i / 2]);
    sql_run(owner, sql);
    sql_run(old, "insert into own.t (k, s) values ('red', 'blue'); update own.t set n = 1; commit");
    ck_assert_str_eq(sql_text(admin, "select coalesce(string_agg(who, ' '), 'nothing') from own.loot"), "nothing");
    ck_assert_str_eq(
        sql_text(admin, "select string_agg(concat_ws(' ', op, key, scope), ', ' order by seq) from rowbell.events"),
        "create red blue, update red blue");
    PQfinish(owner);
}
END_TEST

START_TEST(a_domain_with_a_check_and_a_stranger_s_image_run_no_code) {
    fixture_database();
    PGconn *admin = fixture_connect(), *owner = publisher_connect();
    sql_run(owner, traps);
    sql_run(owner, "create table own.t (k own.checked primary key, s own.checked, p own.pair, j json, n int);"
                   "select rowbell.publish('own.t', scope => 's', watch => '{p,j,n}');"
                   "insert into own.t values (1, 1, row(1), '{}', 0), (2, 1, row(1), '{}', 0);"
                   "grant all on own.t to public; delete from own.loot");
    sql_run(admin, "update own.t set n = n where k = 1; update own.t set j = '{ }' where k = 2; delete from own.t");
    ck_assert_str_eq(sql_text(admin, "select coalesce(string_agg(who, ' '), 'nothing') from own.loot"), "nothing");
    ck_assert_str_eq(sql_text(admin, "select string_agg(op || key, ' ' order by seq) from rowbell.events"),
                     "create1 create2 update2 delete1 delete2");
    PQfinish(owner);
}
END_TEST

START_TEST(a_capture_function_captures_its_own_table_alone) {
    fixture_database();
    PGconn *admin = fixture_connect(), *owner = publisher_connect();
    sql_run(owner, "create table own.t (id int primary key); select rowbell.publish('own.t');"
                   "create table own.other (id int); create temp table mine (id int)");
    // The owner may have EXECUTE on it, as publish has while it makes the triggers, and keep it.
    sql_run(owner, "insert into rowbell.calls (name, arguments) values ('publish', '{\"step\": \"lend\", \"id\": 1}');"
                   "create trigger t after insert on own.other referencing new table as \"rowbell$new\" for each "
                   "statement execute function rowbell.capture_1_insert();"
                   "create trigger t after insert on mine referencing new table as \"rowbell$new\" for each "
                   "statement execute function rowbell.capture_1_insert();"
                   "create trigger u after truncate on own.other execute function rowbell.capture_1_truncate();"
                   "insert into own.other values (1); insert into mine values (1); truncate own.other;"
                   "insert into own.t values (5)");
    ck_assert_str_eq(sql_text(admin, "select string_agg(subject, ' ') from rowbell.events"), "t/5");
    ck_assert_int_eq(
        sql_int(admin,
                "select count(*) from rowbell.doctor() where problem = 'triggers of a table that is not published'"),
        3);
    // Somebody else's are not lent.
    sql_run(admin, "create table posts (id int primary key); select rowbell.publish('posts')");
    sql_run(owner, "insert into rowbell.calls (name, arguments) values ('publish', '{\"step\": \"lend\", \"id\": 2}')");
    ck_assert_str_eq(sql_error(owner,
                               "create trigger u after insert on own.other referencing new table as \"rowbell$new\" "
                               "for each statement execute function rowbell.capture_2_insert()"),
                     "42501");
    PQfinish(owner);
}
END_TEST

START_TEST(a_former_owner_changes_nothing) {
    fixture_database();
    PGconn *admin = fixture_connect(), *owner = publisher_connect();
    sql_run(owner, "create table own.t (id int primary key, tenant text, other text);"
                   "select rowbell.publish('own.t', scope => 'tenant', webhook => false)");
    // Its snapshot is older than the change.
    sql_run(owner, "begin isolation level repeatable read; select 1");
    sql_run(fixture_admin(), "alter table own.t owner to current_user");
    static const char *const calls[] = {
        ("insert into rowbell.calls (name, arguments) select 'publish', jsonb_build_object('step', 'make', 'relation', "
         "p.oid::bigint::text, 'scope', 'other') from pg_class p where p.oid = 'own.t'::regclass"),
        ("insert into rowbell.calls (name, arguments) select 'unpublish', jsonb_build_object('relation', "
         "p.oid::bigint::text) from pg_class p where p.oid = 'own.t'::regclass"),
        "select rowbell.publish('own.t', scope => 'other')",
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        sql_run(owner, "savepoint s");
        ck_assert_str_eq(sql_error(owner, calls[i]), "42501");
        sql_run(owner, "rollback to s");
    }
    sql_run(owner, "insert into rowbell.calls (name, arguments) values ('publish', '{\"step\": \"lend\", \"id\": 1}');"
                   "commit");
    ck_assert_int_eq(sql_int(admin, "select count(*) from pg_proc where proname like 'capture\\_1\\_%' and "
                                    "array_length(proacl, 1) > 1"),
                     0);
    ck_assert_str_eq(sql_text(admin, "select scope || webhook from rowbell.published"), "tenantfalse");
    PQfinish(owner);
}
END_TEST

START_TEST(publishing_is_a_grant_of_its_own) {
    fixture_database();
    PGconn *admin = fixture_connect(), *stranger = PQconnectdb(fixture_login("pg_signal_backend"));
    char sql[400];
    snprintf(sql, sizeof sql, "create schema own authorization %s", PQuser(stranger));
    sql_run(fixture_admin(), sql);
    sql_run(stranger, "create table own.t (id int primary key)");
    ck_assert_str_eq(sql_error(stranger, "select rowbell.publish('own.t')"), "42501");
    ck_assert_str_eq(sql_error(stranger,
                               "insert into rowbell.calls (name, arguments) select 'publish', jsonb_build_object("
                               "'step', 'make', 'relation', 'own.t'::regclass::oid::bigint::text)"),
                     "42501");
    ck_assert_int_eq(sql_int(admin, "select count(*) from rowbell.published"), 0);
    PQfinish(stranger);
}
END_TEST

START_TEST(temporary_tables_are_not_published) {
    fixture_database();
    PGconn *admin = fixture_connect(), *owner = publisher_connect();
    sql_run(owner, "create temp table t (id int primary key)");
    ck_assert_str_eq(sql_error(owner, "select rowbell.publish('t')"), "42809");
    ck_assert_str_eq(sql_error(owner,
                               "insert into rowbell.calls (name, arguments) select 'publish', jsonb_build_object("
                               "'step', 'make', 'relation', 't'::regclass::oid::bigint::text)"),
                     "42809");
    // A temporary child of a table is somebody's own; it has no triggers of ours.
    sql_run(owner, "create table own.p (id int primary key); create temp table c () inherits (own.p);"
                   "select rowbell.publish('own.p'); insert into c values (1); insert into own.p values (2)");
    ck_assert_str_eq(sql_text(admin, "select string_agg(subject, ' ') from rowbell.events"), "p/2");
    PQfinish(owner);
}
END_TEST

START_TEST(no_setting_hides_a_truncate) {
    fixture_database();
    PGconn *admin = fixture_connect();
    sql_run(admin, "create table p (id int, k text, primary key (id, k)) partition by list (k);"
                   "create table p_a partition of p for values in ('a');"
                   "create table p_b partition of p for values in ('b') partition by range (id);"
                   "create table p_b1 partition of p_b for values from (0) to (10); select rowbell.publish('p')");
    char sql[300];
    snprintf(sql, sizeof sql, "set rowbell.truncating_%lld = '9'; set rowbell.truncating_1 = '9'",
             (long long)sql_int(admin, "select 'p'::regclass::oid"));
    sql_run(admin, sql);
    static const char *const truncates[] = {"truncate p",
                                            "truncate p_a",
                                            "truncate p_b",
                                            "truncate p_b1",
                                            "begin; truncate p; truncate p; truncate p_a; commit",
                                            "begin; truncate p; rollback"};
    static const int events[] = {1, 1, 1, 1, 3, 0};
    for (size_t i = 0; i < sizeof truncates / sizeof *truncates; i++) {
        sql_run(admin, "delete from rowbell.events");
        sql_run(admin, truncates[i]);
        ck_assert_msg(sql_int(admin, "select count(*) from rowbell.events where key is null and op = 'delete'") ==
                          events[i],
                      "%s", truncates[i]);
        ck_assert_int_eq(sql_int(admin, "select count(*) from rowbell.truncating"), 0);
    }
}
END_TEST

START_TEST(scopes_are_compared_byte_by_byte) {
    fixture_database();
    PGconn *admin = fixture_connect();
    sql_run(admin, "create collation ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"
                   "create table t (id text collate ci primary key, tenant text collate ci, v int);"
                   "select rowbell.publish('t', scope => 'tenant');"
                   "insert into t values ('a', 'acme', 1), ('b c', '*', 1), ('c', '', 1);"
                   "update t set tenant = 'ACME' where id = 'a'; update t set id = 'A' where id = 'a'");
    ck_assert_str_eq(
        sql_text(
            admin,
            "select string_agg(concat_ws(' ', op, key, coalesce(scope, '-')), ', ' order by seq) from rowbell.events "
            "where seq <= 5"),
        "create a acme, create b%20c -, create c -, delete a acme, create a ACME");
}
END_TEST

// Settings that a session or a role may have, and that change what statements inside of functions do.
static const char *const settings[] = {
    "plpgsql.extra_errors = 'all'",
    "plpgsql.extra_warnings = 'all'",
    "plpgsql.check_asserts = off",
    "search_path = own, pg_catalog",
    "row_security = off",
    "transform_null_equals = on",
    "standard_conforming_strings = off",
    "backslash_quote = off",
    "quote_all_identifiers = on",
    "array_nulls = off",
    "datestyle = 'German'",
    "intervalstyle = 'sql_standard'",
    "timezone = 'Asia/Tokyo'",
    "extra_float_digits = -15",
    "bytea_output = 'escape'",
    "xmlbinary = 'hex'",
    "lc_monetary = 'C'",
    "client_encoding = 'LATIN1'",
    "default_transaction_isolation = 'serializable'",
    "default_transaction_deferrable = on",
    "constraint_exclusion = on",
    "plan_cache_mode = force_generic_plan",
    "plan_cache_mode = force_custom_plan",
    "force_parallel_mode = on",
    "jit_above_cost = 0",
    "enable_hashjoin = off; set enable_mergejoin = off; set enable_nestloop = off",
    "enable_seqscan = off",
    "work_mem = '64kB'",
    "check_function_bodies = off",
    "client_min_messages = debug1",
    "exit_on_error = on",
    "synchronous_commit = off",
    "cursor_tuple_fraction = 0",
    "default_tablespace = ''",
    "gin_fuzzy_search_limit = 1",
};

START_TEST(no_setting_of_a_writer_changes_what_is_captured) {
    fixture_database();
    PGconn *admin = fixture_connect();
    sql_run(
        admin,
        "create schema own; create table t (id int, d timestamptz, e float8, b bytea, i interval, tenant date, n int, "
        "primary key (id, d, e, b, i)); select rowbell.publish('t', scope => 'tenant');"
        "create table own.notes (who text)");
    sql_run(fixture_admin(), "create function own.concat(variadic \"any\") returns text language internal as "
                             "'text_concat'");
    char sql[300];
    bool renamed = PQserverVersion(admin) >= 160000 && strcmp(settings[_i], "force_parallel_mode = on") == 0;
    snprintf(sql, sizeof sql, "set %s", renamed ? "debug_parallel_query = on" : settings[_i]);
    sql_run(admin, sql);
    sql_run(admin,
            "insert into public.t select i, '2026-11-30 12:00Z', 0.1, decode('00ff', 'hex'), '1 day 2 hours', "
            "'2026-11-30', 0 from "
            "generate_series(1, 3) i;"
            "update public.t set n = 1 where id = 1; update public.t set n = 2; delete from public.t where id > 1;"
            "update public.t set n = 3 where id > 100");
    sql_run(admin, "reset all");
    ck_assert_str_eq(sql_text(admin, "select string_agg(op || left(key, 1), ' ' order by op, key) from rowbell.events"),
                     "create1 create2 create3 delete2 delete3 update1 update1 update2 update3");
    ck_assert_str_eq(
        sql_text(admin, "select string_agg(distinct substr(key, 3) || ' ' || scope, ', ') from rowbell.events"),
        "2026-11-30%2012%3A00%3A00%2B00/0.1/%5Cx00ff/P1DT2H 2026-11-30");
}
END_TEST

START_TEST(a_detached_partition_captures_nothing_and_is_written_as_before) {
    fixture_database();
    PGconn *admin = fixture_connect();
    sql_run(admin, "create table p (id int primary key) partition by range (id);"
                   "create table p_1 partition of p for values from (0) to (10);"
                   "create table p_2 partition of p for values from (10) to (20); select rowbell.publish('p');"
                   "insert into p values (1), (11); alter table p detach partition p_2;"
                   "insert into p_2 values (12); update p_2 set id = 13 where id = 12; delete from p_2; truncate p_2;"
                   "insert into p_1 values (2)");
    ck_assert_str_eq(sql_text(admin, "select string_agg(subject, ' ' order by seq) from rowbell.events"),
                     "p/1 p/11 p/2");
    ck_assert_int_eq(sql_int(admin, "select count(*) from rowbell.doctor() where subject = 'public.p_2'"), 4);
    ck_assert_str_eq(sql_text(admin, "select rowbell.unpublish('p')"), "t");
    ck_assert_int_eq(sql_int(admin, "select count(*) from pg_trigger where tgname like '~rowbell%'"), 0);
    ck_assert_int_eq(sql_int(admin, "select count(*) from pg_proc where proname like 'capture\\_1\\_%'"), 0);
}
END_TEST

START_TEST(a_drifted_table_is_named_with_the_command_that_mends_it) {
    fixture_database();
    PGconn *admin = fixture_connect();
    sql_run(admin, "create table posts (a int, b text, org text, gone date, v int, w int, unique (b, a)); alter table "
                   "posts alter a "
                   "set not null, alter b set not null;"
                   "select rowbell.publish('posts', scope => 'org', soft_delete => 'gone', watch => '{w,v}', key => "
                   "'{b,a}', name => "
                   "'articles', webhook => false);"
                   "alter table posts rename org to tenant; alter table posts alter v type bigint, alter a type text");
    static const char *const remedy =
        "select coalesce(string_agg(distinct remedy, '; '), 'none') from rowbell.doctor() where subject "
        "= 'public.posts'";
    ck_assert_str_eq(sql_text(admin, remedy), "select rowbell.publish('public.posts', scope => 'tenant', soft_delete "
                                              "=> 'gone', watch => '{v,w}', key => '{b,a}', "
                                              "name => 'articles', webhook => false)");
    sql_run(admin, sql_text(admin, remedy));
    ck_assert_str_eq(sql_text(admin, remedy), "none");
    sql_run(admin, "insert into posts values ('1', '/', 'acme')");
    ck_assert_str_eq(sql_text(admin, "select subject || ' ' || scope from rowbell.events"), "articles/%2F/1 acme");
}
END_TEST

START_TEST(follow_ddl_fails_nobody_s_command) {
    fixture_database();
    PGconn *admin = fixture_connect(), *stranger = PQconnectdb(fixture_login("pg_monitor"));
    ck_assert_msg(PQstatus(stranger) == CONNECTION_OK, "%s", PQerrorMessage(stranger));
    // As where roles are not wanted: the schema is closed to others.
    sql_run(admin, "revoke usage on schema rowbell from public");
    sql_run(fixture_admin(), "select rowbell.follow_ddl()");
    sql_run(stranger, "create temp table t (id int); alter table t add n int");
    sql_run(admin, "grant usage on schema rowbell to public; revoke all on rowbell.calls from public");
    sql_run(stranger, "create temp table u (id int); alter table u add n int");
    PQfinish(stranger);
}
END_TEST

START_TEST(the_data_of_an_event_is_bounded) {
    fixture_database();
    PGconn *admin = fixture_connect();
    sql_run(admin, "select rowbell.declare_type('big.one', webhook => true);"
                   "select rowbell.record('big.one', 's', jsonb_build_object('v', repeat('x', 262000)))");
    static const char *const too_big =
        "select rowbell.record('big.one', 's', jsonb_build_object('v', repeat('x', 262144)))";
    ck_assert_str_eq(sql_error(admin, too_big), "54000");
    ck_assert_ptr_nonnull(strstr(PQerrorMessage(admin), "more than 262144"));
    // Compressed in a table it is small.
    sql_run(admin, "create table big as select jsonb_build_object('v', repeat('x', 10000000)) as v");
    ck_assert_str_eq(sql_error(admin, "select rowbell.record('big.one', 's', v) from big"), "54000");
    sql_run(admin, "update rowbell.installation set event_bytes = 1000000");
    sql_run(admin, too_big);
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "hostile_capture", 120);
    tcase_add_loop_test(tcase, a_type_that_a_column_is_given_later_runs_no_code, 0,
                        (int)(sizeof changes / sizeof *changes));
    tcase_add_loop_test(tcase, a_snapshot_that_is_older_than_the_table_runs_no_code, 0, 4);
    tcase_add_test(tcase, a_domain_with_a_check_and_a_stranger_s_image_run_no_code);
    tcase_add_test(tcase, a_capture_function_captures_its_own_table_alone);
    tcase_add_test(tcase, a_former_owner_changes_nothing);
    tcase_add_test(tcase, publishing_is_a_grant_of_its_own);
    tcase_add_test(tcase, temporary_tables_are_not_published);
    tcase_add_test(tcase, no_setting_hides_a_truncate);
    tcase_add_test(tcase, scopes_are_compared_byte_by_byte);
    tcase_add_loop_test(tcase, no_setting_of_a_writer_changes_what_is_captured, 0,
                        (int)(sizeof settings / sizeof *settings));
    tcase_add_test(tcase, a_detached_partition_captures_nothing_and_is_written_as_before);
    tcase_add_test(tcase, a_drifted_table_is_named_with_the_command_that_mends_it);
    tcase_add_test(tcase, follow_ddl_fails_nobody_s_command);
    tcase_add_test(tcase, the_data_of_an_event_is_bounded);
}

int main(void) {
    return suite_main("hostile_capture", add_tests);
}
