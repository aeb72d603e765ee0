// Partitions and children that come and go under a published table: what subscribers are told of the rows that come and
// go with them, and that the host's commands never fail because of us.
#include "tests/support/fixture.h"
#include <stdio.h>
#include <string.h>

// What the outbox got since the last call, oldest first: "delete * -, create acme 7".
static const char *told(PGconn *conn) {
    const char *events =
        sql_text(conn, "select string_agg(concat_ws(' ', op, coalesce(scope, '-'), coalesce(key, '-')), ', ' "
                       "order by seq) from rowbell.events");
    sql_run(conn, "delete from rowbell.events");
    return events;
}

static const char *problems(PGconn *conn) {
    return sql_text(
        conn,
        "select coalesce(string_agg(distinct concat_ws(' ', problem, subject), ', '), 'none') from rowbell.doctor() "
        "where problem not in ('no process', 'backlog', 'prepared transactions may fail')");
}

// A tree with rows in p_1, p_2 and, two levels down, p_31; p_4 is empty.
static const char *const tree =
    "create table p (id int primary key, tenant text, v int) partition by range (id);"
    "create table p_1 partition of p for values from (0) to (10);"
    "create table p_2 partition of p for values from (10) to (20);"
    "create table p_3 partition of p for values from (20) to (30) partition by range (id);"
    "create table p_31 partition of p_3 for values from (20) to (25);"
    "create table p_4 partition of p for values from (30) to (40);"
    "create schema elsewhere; create table elsewhere.p_6 partition of p for values from (50) to (60);"
    "create table base (id int primary key, tenant text, v int); create table child (extra text) inherits (base);"
    "create table filled (id int primary key, tenant text, v int); insert into filled values (45, 'a', 0);"
    "create table filled_child (v int, extra int, tenant text, id int primary key); insert into filled_child values "
    "(1, 1, 'a', 1);"
    "create table bare (id int primary key, tenant text, v int);"
    "select rowbell.publish('p', scope => 'tenant'); select rowbell.publish('base');"
    "insert into p values (1, 'a', 0), (11, 'a', 0), (21, 'b', 0), (51, 'b', 0); insert into child values (1, 'a', 0)";

static const struct {
    const char *command, *told;
} moves[] = {
    {"alter table p detach partition p_2", "delete * -"},
    {"alter table p detach partition p_2 concurrently", "delete * -"},
    {"alter table p detach partition p_3", "delete * -"},
    {"alter table p_3 detach partition p_31", "delete * -"},
    {"alter table p detach partition p_4", "delete * -"}, // nobody knows how long it has been empty
    {"drop table p_2", "delete * -"},
    {"drop table p_3 cascade", "delete * -"},
    {"drop table p_1, p_2, p_4", "delete * -"},
    {"drop schema elsewhere cascade", "delete * -"},
    {"begin; alter table p detach partition p_1; alter table p detach partition p_2; commit", "delete * -, delete * -"},
    {"begin; alter table p detach partition p_2; rollback", ""},
    {"begin; drop table p_2; rollback", ""},
    {"begin; savepoint s; drop table p_2; rollback to s; drop table p_1; commit", "delete * -"},
    {"alter table p attach partition filled for values from (40) to (50)", "create * -"},
    {"alter table p attach partition bare for values from (40) to (50)", ""},
    {"create table p_5 partition of p for values from (40) to (50)", ""},
    {"alter table p_1 rename to q_1; alter table p_1_pkey rename to q_1_key; alter table p rename to q", ""},
    {"alter table p_1 set schema elsewhere; alter schema elsewhere rename to nowhere; alter table p add w int", ""},
    {"create index on p (v); alter table p alter v set statistics 10; alter table p_1 add check (v > -1)", ""},
    {"begin; alter table p detach partition p_2; alter table p attach partition p_2 for values from (10) to (20); "
     "commit",
     "delete * -, create * -"},
    {"alter table child no inherit base", "delete - -"},
    {"drop table child", "delete - -"},
    {"alter table filled_child inherit base", "create - -"},
    {"alter table bare inherit base", ""},
    {"create table grandchild () inherits (child)", ""},
    {"create temp table passing () inherits (base); insert into passing values (9); drop table passing", ""},
    {"drop table filled, bare", ""},
    {"drop table p cascade", ""}, // its subscribers have no collection to fetch any more
};

// pg_inherits, not statements, says what changed, so psql's way (one statement at a time) is taken: CONCURRENTLY needs
// it.
static void run_each(PGconn *conn, const char *commands) {
    char copy[400];
    snprintf(copy, sizeof copy, "%s", commands);
    for (char *rest = copy, *one = strsep(&rest, ";"); one; one = rest ? strsep(&rest, ";") : NULL)
        sql_run(conn, one);
}

// Only a superuser may: the others who own a database go without, or ask.
static void follow(void) {
    sql_run(fixture_admin(), "select rowbell.follow_ddl()");
}

START_TEST(partitions_that_come_and_go_are_told) {
    fixture_database();
    PGconn *owner = fixture_connect();
    follow();
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        sql_run(owner,
                "select rowbell.unpublish(p.relation) from rowbell.published_tables() p where p.relation is not null;"
                "drop schema if exists elsewhere, nowhere cascade; drop schema public cascade; create schema public; "
                "delete from rowbell.published");
        sql_run(owner, tree);
        told(owner);
        run_each(owner, moves[i].command);
        const char *got = told(owner);
        ck_assert_msg(strcmp(got, moves[i].told) == 0, "%s:\n%s\ninstead of\n%s", moves[i].command, got, moves[i].told);
        if (!strstr(moves[i].command, "drop table p cascade"))
            ck_assert_msg(strcmp(problems(owner), "none") == 0, "%s: %s", moves[i].command, problems(owner));
    }
}
END_TEST

// Without the event trigger doctor says it, and its remedy tells what was not told.
START_TEST(what_is_not_followed_doctor_names) {
    fixture_database();
    PGconn *owner = fixture_connect();
    sql_run(owner, tree);
    told(owner);
    sql_run(owner, "begin; alter table p detach partition p_2; commit");
    sql_run(owner, "drop table p_3; alter table p attach partition filled for values from (40) to (50); alter table "
                   "child no inherit base");
    ck_assert_str_eq(told(owner), "");
    ck_assert_str_eq(sql_text(owner, "select string_agg(concat_ws(' ', subject, detail), '; ' order by subject) from "
                                     "rowbell.doctor() where problem = "
                                     "'partitions changed'"),
                     "public.base gone: public.child: subscribers were not told of their rows; public.p came: "
                     "public.filled; gone: public.p_2, "
                     "public.p_3, public.p_31: subscribers were not told of their rows");
    // A partition that takes the place of another one, under its name.
    sql_run(owner,
            "alter table p_1 rename to old_1; create table p_1 (like old_1 including all); insert into p_1 values (2, "
            "'z', 0);"
            "alter table p detach partition old_1; alter table p attach partition p_1 for values from (0) to (10)");
    sql_run(owner,
            sql_text(owner,
                     "select string_agg(distinct remedy, '; ' order by remedy) from rowbell.doctor() where problem = "
                     "'partitions changed'"));
    ck_assert_str_eq(told(owner), "delete - -, delete * -, create * -");
    ck_assert_str_eq(
        sql_text(
            owner,
            "select string_agg(distinct problem || ' ' || subject, ', ') from rowbell.doctor() where problem not in "
            "('no process', 'backlog', 'prepared transactions may fail')"),
        "triggers of a table that is not published public.child, triggers of a table that is not published "
        "public.old_1, triggers of a table that is not published public.p_2");
    sql_run(owner, "insert into filled values (46, 'x', 0); insert into p_1 values (3, 'x', 0)");
    ck_assert_str_eq(told(owner), "create x 46, create x 3");
    sql_run(owner, "select rowbell.publish('p', scope => 'tenant')");
    ck_assert_str_eq(told(owner), "");
}
END_TEST

START_TEST(what_was_detached_rings_no_more) {
    fixture_database();
    PGconn *owner = fixture_connect();
    sql_run(owner, tree);
    if (_i == 1)
        follow();
    sql_run(
        owner,
        "alter table p detach partition p_2; alter table p detach partition p_3; alter table child no inherit base");
    told(owner);
    sql_run(owner, "insert into p_2 values (12, 'a', 1); update p_2 set v = 2; delete from p_2; truncate p_2;"
                   "insert into p_31 values (22, 'a', 1); insert into p_3 values (23, 'a', 1); truncate p_3; insert "
                   "into child values (2)");
    ck_assert_str_eq(told(owner), "");
    ck_assert_int_eq(
        sql_int(owner, "select count(*) from pg_trigger where tgname like '~rowbell%' and tgrelid in ('p_2'::regclass, "
                       "'p_3'::regclass, 'child'::regclass)"),
        _i == 1 ? 0 : 13);
    // Back again, it rings.
    sql_run(owner, "alter table p attach partition p_2 for values from (10) to (20); select rowbell.publish('p', scope "
                   "=> 'tenant');"
                   "insert into p_2 values (13, 'a', 1)");
    ck_assert_str_eq(told(owner), _i == 1 ? "create a 13" : "delete * -, create a 13");
}
END_TEST

// DETACH CONCURRENTLY that is broken off between its two transactions: readers of the table do not see the partition
// any more.
START_TEST(a_detachment_that_is_broken_off) {
    fixture_database();
    PGconn *owner = fixture_connect(), *reader = fixture_connect();
    follow();
    sql_run(owner, tree);
    told(owner);
    sql_run(reader, "begin; select from p");
    sql_run(owner, "set statement_timeout = '1s'");
    ck_assert_str_eq(sql_error(owner, "alter table p detach partition p_2 concurrently"), "57014");
    sql_run(owner, "reset statement_timeout");
    sql_run(reader, "commit");
    sql_run(owner, "insert into p_2 values (14, 'a', 1); truncate p_2");
    ck_assert_str_eq(told(owner), "");
    ck_assert_int_eq(sql_int(owner, "select count(*) from rowbell.doctor() where problem = 'partitions changed'"), 1);
    sql_run(owner, "insert into p_1 values (4, 'a', 0); alter table p detach partition p_2 finalize");
    ck_assert_str_eq(told(owner), "create a 4, delete * -");
    ck_assert_str_eq(problems(owner), "none");
}
END_TEST

// The rows of a partition that went are found no more.
START_TEST(the_index_follows) {
    fixture_database();
    PGconn *owner = fixture_connect();
    follow();
    sql_run(owner, tree);
    sql_run(owner,
            "select rowbell.add_index('search', '{p.*}', options => '{\"target\": \"postgres\"}', all_scopes => true)");
    static const char *const walk = "select (rowbell.index_walk_step(s.id, (select max(e.seq) from rowbell.events e "
                                    "where e.key is null), 'p', 100)).phase = "
                                    "'done' from rowbell.subscriptions s where s.name = 'search'";
    static const char *const found = "select string_agg(key, ' ' order by key) from rowbell.search";
    sql_wait(owner, 60000, walk);
    ck_assert_str_eq(sql_text(owner, found), "1 11 21 51");
    sql_run(owner, "alter table p detach partition p_2; drop table elsewhere.p_6; alter table p attach partition "
                   "filled for values from (40) to (50)");
    sql_wait(owner, 60000, walk);
    ck_assert_str_eq(sql_text(owner, found), "1 21 45");
}
END_TEST

// Who may drop a partition need not own the table, nor have any right to our schema.
START_TEST(a_partition_of_another_owner) {
    fixture_database();
    PGconn *owner = fixture_connect(), *other = PQconnectdb(fixture_login("pg_monitor"));
    char sql[300];
    follow();
    sql_run(owner, tree);
    snprintf(sql, sizeof sql,
             "alter table p_2 owner to %1$s; alter table p_1 owner to %1$s; alter table child owner to %1$s",
             PQuser(other));
    sql_run(fixture_admin(), sql);
    told(owner);
    // Where roles are not wanted, others have no right to the schema from the start.
    sql_run(owner, "grant usage on schema rowbell to public");
    sql_run(other, "drop table p_2; drop table child");
    ck_assert_str_eq(told(owner), "delete * -, delete - -");
    sql_run(owner, "revoke usage on schema rowbell from public");
    sql_run(other, "drop table p_1");
    ck_assert_str_eq(told(owner), "");
    ck_assert_str_eq(problems(owner), "partitions changed public.p");
    // Nobody makes us tell what is not so.
    sql_run(owner, "grant usage on schema rowbell to public; select rowbell.publish('p', scope => 'tenant')");
    told(owner);
    sql_run(other, "select from rowbell.published_now(array(select oid from pg_class))");
    ck_assert_str_eq(told(owner), "");
    PQfinish(other);
}
END_TEST

// What cannot be told is a warning, never an error of the application's command.
START_TEST(no_command_fails_because_of_us) {
    fixture_database();
    PGconn *owner = fixture_connect();
    follow();
    sql_run(owner, tree);
    sql_run(
        owner,
        "create function rowbell.fault() returns trigger language plpgsql as $$ begin raise 'a fault of ours'; end $$;"
        "create trigger fault before insert or update on rowbell.events for each row execute function rowbell.fault();"
        "create trigger fault before update on rowbell.published for each row execute function rowbell.fault()");
    sql_run(owner, "alter table p detach partition p_2; drop table p_3; alter table p attach partition filled for "
                   "values from (40) to (50);"
                   "alter table child no inherit base; alter table base rename tenant to org");
}
END_TEST

// ---- foreign tables

static void far(PGconn *owner) {
    char sql[600];
    snprintf(sql, sizeof sql,
             "create extension postgres_fdw; create server far foreign data wrapper postgres_fdw options (host '%s', "
             "port '%s', dbname '%s'); grant usage on foreign server far to public;"
             "create user mapping for public server far options (user '%s', password '%s')",
             PQhost(owner), PQport(owner), PQdb(owner), PQuser(owner), PQpass(owner));
    sql_run(fixture_admin(), sql);
    sql_run(owner, "create schema remote; create table remote.rows (id int, tenant text, v int)");
}

static const char *const foreign_columns = "server far options (schema_name 'remote', table_name 'rows')";

static const char *const foreign_writes =
    "insert into p values (1, 'a', 0), (11, 'a', 0); update p set v = 1; delete from p where id > 10;"
    "insert into p_1 values (2, 'b', 0); truncate p";

// Before it is published, after that with the event trigger, and after that by hand.
START_TEST(a_foreign_partition_is_written_as_before) {
    fixture_database();
    PGconn *owner = fixture_connect();
    char attach[300];
    far(owner);
    snprintf(attach, sizeof attach, "create foreign table p_far partition of p for values from (10) to (20) %s",
             foreign_columns);
    sql_run(owner, "create table p (id int, tenant text, v int) partition by range (id); create table p_1 partition of "
                   "p for values "
                   "from (0) to (10)");
    if (_i == 0)
        sql_run(owner, attach);
    else if (_i == 1)
        follow();
    sql_run(owner, "select rowbell.publish('p', scope => 'tenant')");
    if (_i > 0)
        sql_run(owner, attach);
    if (_i == 2) {
        // PostgreSQL lets it be attached, and then refuses the statements that reach it.
        ck_assert_str_eq(sql_error(owner, "insert into p values (11, 'a', 0)"), "0A000");
        static const char *const named =
            "select count(*) from rowbell.doctor() where problem = 'not captured' and subject = 'public.p' and "
            "detail like 'it has a foreign table below%'";
        ck_assert_int_eq(sql_int(owner, named), 1);
        sql_run(owner, sql_text(owner, "select remedy from rowbell.doctor() where subject = 'public.p' limit 1"));
    }
    told(owner);
    sql_run(owner, foreign_writes);
    // Of statements on p the whole collection is told, of those on p_1 the rows (it has no key).
    ck_assert_str_eq(told(owner), "create * -, update * -, delete * -, create b -, delete * -");
    ck_assert_str_eq(problems(owner), "none");
    // Without it all is as before.
    sql_run(owner, "drop foreign table p_far");
    if (_i != 1)
        sql_run(owner, "select rowbell.publish('p', scope => 'tenant')");
    told(owner);
    sql_run(owner, "insert into p values (3, 'c', 0)");
    ck_assert_str_eq(told(owner), "create c -");
}
END_TEST

START_TEST(a_foreign_child_is_written_as_before) {
    fixture_database();
    PGconn *owner = fixture_connect();
    char sql[300];
    far(owner);
    follow();
    sql_run(owner, "create table base (id int primary key, tenant text, v int); select "
                   "rowbell.publish('base', scope => 'tenant')");
    snprintf(sql, sizeof sql, "create foreign table base_far () inherits (base) %s", foreign_columns);
    sql_run(owner, sql);
    sql_run(owner, "insert into remote.rows values (11, 'a', 0)");
    told(owner);
    sql_run(owner, "insert into base values (1, 'a', 0); update base set v = 1; delete from base; insert into base_far "
                   "values (12)");
    ck_assert_str_eq(told(owner), "create * -, update * -, delete * -");
    sql_run(owner, "alter foreign table base_far no inherit base");
    told(owner);
    sql_run(owner, "insert into base values (2, 'a', 0)");
    ck_assert_str_eq(told(owner), "create a 2");
}
END_TEST

// A table with a key has a unique index, and PostgreSQL itself refuses foreign partitions of such a table.
START_TEST(a_table_with_a_key_gets_no_foreign_partition) {
    fixture_database();
    PGconn *owner = fixture_connect();
    char sql[300];
    far(owner);
    sql_run(owner, tree);
    snprintf(sql, sizeof sql, "create foreign table p_far partition of p for values from (60) to (70) %s",
             foreign_columns);
    ck_assert_str_eq(sql_error(owner, sql), "42809");
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "partitions", 120);
    tcase_add_test(tcase, partitions_that_come_and_go_are_told);
    tcase_add_test(tcase, what_is_not_followed_doctor_names);
    tcase_add_loop_test(tcase, what_was_detached_rings_no_more, 0, 2);
    tcase_add_test(tcase, a_detachment_that_is_broken_off);
    tcase_add_test(tcase, the_index_follows);
    tcase_add_test(tcase, a_partition_of_another_owner);
    tcase_add_test(tcase, no_command_fails_because_of_us);
    tcase_add_loop_test(tcase, a_foreign_partition_is_written_as_before, 0, 3);
    tcase_add_test(tcase, a_foreign_child_is_written_as_before);
    tcase_add_test(tcase, a_table_with_a_key_gets_no_foreign_partition);
}

int main(void) {
    return suite_main("partitions", add_tests);
}
