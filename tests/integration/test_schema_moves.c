// The application's schema moves on under a published table: columns and tables are renamed, dropped, added again,
// given other types and collations. Capture goes on, or the write fails with an error that says what to do: an address
// never goes to a scope that is not its own. doctor names what drifted, with the command that mends it; the event
// trigger runs that command itself.
#include "tests/support/fixture.h"
#include <stdio.h>
#include <string.h>

static const char *told(PGconn *conn) {
    const char *events =
        sql_text(conn, "select string_agg(concat_ws(' ', op, coalesce(scope, '-'), coalesce(key, '-')), ', ' "
                       "order by seq) from rowbell.events");
    sql_run(conn, "delete from rowbell.events");
    return events;
}

static const char *remedies(PGconn *conn) {
    return sql_text(
        conn,
        "select coalesce(string_agg(distinct remedy, '; '), 'none') from rowbell.doctor() where problem not in ('no "
        "process', 'backlog', 'prepared transactions may fail')");
}

// Values that mean something as an address, once they are text: key and scope.
static const struct {
    const char *sql, *key, *scope;
} values[] = {{"'*'", "%2A", "-"},
              {"''", "", "-"},
              {"'a/b'", "a%2Fb", "a/b"},
              {"'%'", "%25", "%"},
              {"'a b?#'", "a%20b%3F%23", "a b?#"},
              {"'%2F'", "%252F", "%2F"},
              {"'é'", "%C3%A9", "é"}};

START_TEST(numbers_become_texts) {
    fixture_database();
    PGconn *conn = fixture_connect();
    char sql[500], expected[300];
    // Published again by nobody, by the event trigger, by hand.
    for (int way = 0; way < 3; way++) {
        sql_run(fixture_admin(), way == 1 ? "select rowbell.follow_ddl()" : "select rowbell.follow_ddl(false)");
        sql_run(
            conn,
            "create table t (id int primary key, tenant int, v int); select rowbell.publish('t', scope => 'tenant');"
            "insert into t values (1, 7, 0); alter table t alter id type text, alter tenant type text");
        ck_assert_str_eq(
            remedies(conn),
            way == 1 ? "none" : "select rowbell.publish('public.t', scope => 'tenant', key => '{id}', name => 't')");
        if (way == 2)
            sql_run(conn, remedies(conn));
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
            sql_run(conn, "truncate t; insert into t values ('1', '7', 0)");
            told(conn);
            snprintf(sql, sizeof sql, "update t set id = %1$s, tenant = %1$s", values[i].sql);
            sql_run(conn, sql);
            snprintf(expected, sizeof expected, "delete 7 1, create %s %s", values[i].scope, values[i].key);
            ck_assert_str_eq(told(conn), expected);
            snprintf(sql, sizeof sql,
                     "update t set v = v + 1; insert into t values ('x', %1$s, 0); delete from t where id = 'x'; "
                     "delete from t",
                     values[i].sql);
            sql_run(conn, sql);
            snprintf(expected, sizeof expected, "update %1$s %2$s, create %1$s x, delete %1$s x, delete %1$s %2$s",
                     values[i].scope, values[i].key);
            ck_assert_str_eq(told(conn), expected);
        }
        sql_run(conn, "select rowbell.unpublish('t'); drop table t");
    }
}
END_TEST

#define COMMAND(table, scope, gone, watch, key)                                                                        \
    "select rowbell.publish('" table "'" scope gone watch ", key => '{" key "}', name => 't')"
#define SCOPE(name) ", scope => '" name "'"
#define GONE(name) ", soft_delete => '" name "'"
#define WATCH(names) ", watch => '{" names "}'"
#define AS_BEFORE COMMAND("public.t", SCOPE("tenant"), GONE("gone"), WATCH("v,w"), "id")

// t (id int, tenant text, gone timestamptz, v int, w int) has a row 1, acme. `write` gives `events`; where capture
// cannot know, before it is published again, it fails. `remedy` is doctor's; none: nothing is wrong. followed: the
// events with the event trigger, where they differ.
static const struct {
    const char *change, *write, *events;
    bool fails;
    const char *remedy, *followed;
} moves[] = {
    {"alter table t rename tenant to org", "update t set org = 'b', v = 1", "delete acme 1, create b 1", true,
     COMMAND("public.t", SCOPE("org"), GONE("gone"), WATCH("v,w"), "id"), NULL},
    {"alter table t rename id to number", "update t set number = 2", "delete acme 1, create acme 2", true,
     COMMAND("public.t", SCOPE("tenant"), GONE("gone"), WATCH("v,w"), "number"), NULL},
    {"alter table t rename gone to removed", "update t set removed = now()", "delete acme 1", true,
     COMMAND("public.t", SCOPE("tenant"), GONE("removed"), WATCH("v,w"), "id"), NULL},
    {"alter table t rename v to u", "update t set u = 5", "update acme 1", true,
     COMMAND("public.t", SCOPE("tenant"), GONE("gone"), WATCH("u,w"), "id"), NULL},
    {"alter table t drop v", "update t set w = 5", "update acme 1", true,
     COMMAND("public.t", SCOPE("tenant"), GONE("gone"), WATCH("w"), "id"), NULL},
    {"alter table t drop v, drop w", "update t set other = 5", "update acme 1", true,
     COMMAND("public.t", SCOPE("tenant"), GONE("gone"), "", "id"), ""},
    {"alter table t drop gone", "update t set v = 5", "update acme 1", true,
     COMMAND("public.t", SCOPE("tenant"), "", WATCH("v,w"), "id"), NULL},
    // Another column of the same name is what the application means by it.
    {"alter table t drop v; alter table t add v bigint", "update t set v = 5", "update acme 1", false, "none", ""},
    {"alter table t drop v, add v bigint", "update t set v = 5", "update acme 1", false, "none", NULL},
    {"alter table t drop tenant, add tenant text default 'b'", "update t set v = 5; update t set tenant = '*'",
     "update b 1, delete b 1, create - 1", false, "none", NULL},
    {"alter table t add org text; update t set org = 'b'; alter table t drop tenant; alter table t rename org to "
     "tenant",
     "update t set v = 5", "update b 1", false, "none", "update - 1"},
    {"alter table t alter gone type date using gone::date", "update t set gone = '2026-12-01'", "delete acme 1", false,
     "none", NULL},
    {"alter table t alter gone type boolean using null", "update t set gone = false", "delete acme 1", false, "none",
     NULL},
    {"alter table t alter tenant type varchar(20)", "update t set tenant = '*', v = 5", "delete acme 1, create - 1",
     false, AS_BEFORE, NULL},
    {"alter table t alter tenant type char(6)", "update t set v = 5; update t set tenant = '*'",
     "update acme 1, delete acme 1, create - 1", false, AS_BEFORE, NULL},
    {"alter table t alter tenant type int using 4", "update t set v = 5", "update 4 1", false, AS_BEFORE, NULL},
    {"create domain kind as text check (value <> ''); alter table t alter tenant type kind",
     "update t set tenant = '*', v = 5", "delete acme 1, create - 1", false, AS_BEFORE, NULL},
    {"create type colour as enum ('red', '*'); alter table t alter tenant type colour using 'red'",
     "update t set v = 5; update t set tenant = '*'", "update red 1, delete red 1, create - 1", false, AS_BEFORE, NULL},
    {"create type colour as enum ('red', 'blue'); alter table t alter tenant type colour using 'red'; alter type "
     "colour rename value 'red' to '*'",
     "update t set v = 5", "update - 1", false, AS_BEFORE, NULL},
    {"create type pair as (a text, b int); alter table t alter tenant type pair using row(tenant, null)::pair",
     "update t set v = 5", "update (acme,) 1", false, AS_BEFORE, NULL},
    {"alter table t alter tenant type text[] using array[tenant]", "update t set v = 5", "update {acme} 1", false,
     AS_BEFORE, NULL},
    {"alter table t alter tenant type json using to_json(tenant)", "update t set v = 5", "update \"acme\" 1", false,
     AS_BEFORE, NULL},
    {"alter table t alter id type date using '2026-12-01'", "set datestyle = 'German'; update t set v = 5",
     "update acme 2026-12-01", false, AS_BEFORE, NULL},
    {"create collation ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false); alter table t alter "
     "tenant type text collate ci",
     "update t set tenant = 'ACME'", "delete acme 1, create ACME 1", false, "none", NULL},
    {"alter table t drop tenant, add tenant text generated always as ('s' || v) stored", "update t set v = 5",
     "delete s0 1, create s5 1", false, "none", NULL},
    {"alter table t rename to things", "update things set v = 5", "update acme 1", false,
     COMMAND("public.things", SCOPE("tenant"), GONE("gone"), WATCH("v,w"), "id"), NULL},
    {"alter table t set schema app", "update app.t set v = 5", "update acme 1", false,
     COMMAND("app.t", SCOPE("tenant"), GONE("gone"), WATCH("v,w"), "id"), NULL},
    {"alter table t drop constraint t_pkey", "update t set v = 5", "update acme 1", false,
     "add a unique constraint on these columns, or publish with another key", NULL},
    {"alter table t drop constraint t_pkey; alter table t add unique (id), alter id drop not null",
     "update t set v = 5", "update acme 1", false, "set these columns not null, or publish with another key", NULL},
    {"alter table t add x int, alter v set default 3, alter w set statistics 5; create index on t (v)",
     "update t set v = 5", "update acme 1", false, "none", NULL},
};

static void move(PGconn *conn, size_t i) {
    sql_run(conn, "reset all; select rowbell.unpublish(p.relation) from rowbell.published_tables() p; drop schema "
                  "public, app cascade; create schema public;"
                  "create schema app; create table t (id int primary key, tenant text, gone timestamptz, v int, w int, "
                  "other int);"
                  "select rowbell.publish('t', scope => 'tenant', soft_delete => 'gone', watch => '{v,w}');"
                  "insert into t values (1, 'acme', null, 0, 0, 0)");
    sql_run(conn, moves[i].change);
    told(conn);
}

static PGconn *fresh(bool follow) {
    fixture_database();
    PGconn *conn = fixture_connect();
    sql_run(conn, "create schema app");
    if (follow)
        sql_run(fixture_admin(), "select rowbell.follow_ddl()");
    return conn;
}

static void expect(size_t i, const char *what, const char *got, const char *wanted) {
    ck_assert_msg(strcmp(got, wanted) == 0, "%s\n%s:\n%s\ninstead of:\n%s", moves[i].change, what, got, wanted);
}

START_TEST(what_drifted_is_named_and_mended) {
    PGconn *conn = fresh(false);
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        move(conn, i);
        expect(i, "doctor", remedies(conn), moves[i].remedy);
        if (moves[i].fails) {
            expect(i, "error", sql_error(conn, moves[i].write), "42703");
            ck_assert_ptr_nonnull(strstr(PQerrorMessage(conn), "rowbell.publish must be called again"));
            expect(i, "the write that failed", told(conn), "");
            sql_run(conn, moves[i].remedy);
        }
        sql_run(conn, moves[i].write);
        expect(i, "events", told(conn), moves[i].events);
        if (strncmp(moves[i].remedy, "select ", 7) == 0) {
            sql_run(conn, moves[i].remedy);
            expect(i, "doctor", remedies(conn), "none");
            expect(i, "the remedy", told(conn), "");
        }
    }
}
END_TEST

START_TEST(what_drifted_is_followed) {
    PGconn *conn = fresh(true);
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        move(conn, i);
        sql_run(conn, moves[i].write);
        expect(i, "events", told(conn), moves[i].followed ? moves[i].followed : moves[i].events);
        if (strncmp(moves[i].remedy, "select ", 7) == 0)
            expect(i, "doctor", remedies(conn), "none");
    }
}
END_TEST

// A scope that is gone is not left out by doctor's command: addresses would go to others. With the event trigger, which
// must let the application go on, events have no scope.
START_TEST(a_scope_that_is_gone_is_for_people_to_say) {
    fixture_database();
    PGconn *conn = fixture_connect();
    sql_run(conn, "create table t (id int primary key, tenant text, org text); select rowbell.publish('t', scope => "
                  "'tenant'); alter table t drop tenant");
    ck_assert_str_eq(sql_error(conn, "insert into t values (1)"), "42703");
    ck_assert_str_eq(sql_text(conn, "select detail from rowbell.doctor() where problem = 'column is gone'"),
                     "tenant: choose another scope; without one, addresses go to whoever gets those without a scope");
    ck_assert_str_eq(remedies(conn),
                     "select rowbell.publish('public.t', scope => 'tenant', key => '{id}', name => 't')");
    ck_assert_str_eq(sql_error(conn, remedies(conn)), "42703");
    sql_run(conn, "select rowbell.publish('t', scope => 'org')");
    sql_run(fixture_admin(), "select rowbell.follow_ddl()");
    sql_run(conn, "alter table t drop org; insert into t values (1)");
    ck_assert_str_eq(told(conn), "create - 1");
}
END_TEST

// A composite value is there, and is another one than NULL, also where its fields are NULL.
START_TEST(composite_values_are_values) {
    fixture_database();
    PGconn *conn = fixture_connect();
    sql_run(conn, "create type pair as (a int, b int);"
                  "create table t (id pair primary key, tenant pair, gone pair); select rowbell.publish('t', scope => "
                  "'tenant', soft_delete => 'gone');"
                  "insert into t values (row(1, null), row(null, null), null), (row(2, 2), null, null);"
                  "update t set gone = row(null, 1) where id = row(2, 2)::pair;"
                  "update t set gone = row(null, null) where id is distinct from row(2, 2)::pair; update t set gone = "
                  "null where id is distinct from row(2, 2)::pair;"
                  "update t set gone = null");
    ck_assert_str_eq(told(conn), "create (,) %281%2C%29, create - %282%2C2%29, delete - %282%2C2%29, delete (,) "
                                 "%281%2C%29, create (,) %281%2C%29, "
                                 "create - %282%2C2%29");
    sql_run(conn, "select rowbell.add_index('i', '{t.*}', options => "
                  "'{\"target\": \"postgres\"}', all_scopes => "
                  "true)");
    static const char *const read =
        "select string_agg(k.key || ' ' || (r.document is not null), ', ' order by k.key) from rowbell.subscriptions "
        "s, "
        "unnest(array['%281%2C%29', '%282%2C2%29']) as k(key), rowbell.published_tables() p, "
        "rowbell.index_read_rows(s, p, array[k.key]) r where s.name = 'i'";
    ck_assert_str_eq(sql_text(conn, read), "%281%2C%29 true, %282%2C2%29 true");
    sql_run(conn, "update t set gone = row(null, null)");
    ck_assert_str_eq(sql_text(conn, read), "%281%2C%29 false, %282%2C2%29 false");
}
END_TEST

// Children have their columns in any order, and more of them.
START_TEST(a_child_with_its_columns_in_another_order) {
    fixture_database();
    PGconn *conn = fixture_connect();
    sql_run(
        conn,
        "create table base (id int primary key, tenant text, v int);"
        "create table child (v int, extra text, gap int, tenant text, id int primary key); alter table child drop gap;"
        "alter table child inherit base; select rowbell.publish('base', scope => 'tenant', watch => '{v}');"
        "create table p (id int, tenant text, v int, primary key (id)) partition by range (id);"
        "create table p_1 (v int, gap int, tenant text, id int not null); alter table p_1 drop gap;"
        "alter table p attach partition p_1 default; select rowbell.publish('p', scope => 'tenant', watch => '{v}')");
    sql_run(conn, "insert into child values (0, 'x', 'acme', 1); update base set v = 1; update child set v = 2; update "
                  "child set extra = 'y';"
                  "update base set tenant = 'b'; delete from base");
    ck_assert_str_eq(told(conn), "create acme 1, update acme 1, update acme 1, delete acme 1, create b 1, delete b 1");
    sql_run(conn, "insert into p values (2, 'acme', 0); update p_1 set v = 1; update p set v = 2; update p_1 set "
                  "tenant = 'b'; delete from p_1");
    ck_assert_str_eq(told(conn), "create acme 2, update acme 2, update acme 2, delete acme 2, create b 2, delete b 2");
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "schema_moves", 120);
    tcase_add_test(tcase, numbers_become_texts);
    tcase_add_test(tcase, what_drifted_is_named_and_mended);
    tcase_add_test(suite_long_case(suite, "followed", 120), what_drifted_is_followed);
    tcase_add_test(tcase, a_scope_that_is_gone_is_for_people_to_say);
    tcase_add_test(tcase, composite_values_are_values);
    tcase_add_test(tcase, a_child_with_its_columns_in_another_order);
}

int main(void) {
    return suite_main("schema_moves", add_tests);
}
