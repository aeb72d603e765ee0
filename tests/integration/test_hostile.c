// What a database user with no rights of ours may try: to run code with our rights, to change what is captured of other
// people's tables, to forge our own events, to widen a scope. One test for each way in that was open once.
#include "tests/support/fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A connection of a login that may publish what is its own, and nothing else.
static PGconn *hostile_connect(PGconn *admin) {
    const char *url = fixture_login("rowbell_publish");
    PGconn *conn = PQconnectdb(url);
    ck_assert_msg(PQstatus(conn) == CONNECTION_OK, "%s", PQerrorMessage(conn));
    char sql[400];
    snprintf(sql, sizeof sql, "create schema own authorization %s; grant usage on schema own to public", PQuser(conn));
    sql_run(admin, sql);
    return conn;
}

START_TEST(a_cast_of_the_table_owner_does_not_run_with_our_rights) {
    fixture_database();
    PGconn *admin = fixture_admin();
    PGconn *hostile = hostile_connect(admin);
    sql_run(hostile,
            "create table own.loot (who text); grant all on own.loot to public;"
            "create type own.bait as (x int);"
            "create function own.spring(own.bait) returns text language plpgsql as $$ begin"
            "  insert into own.loot values (current_user); return 't' || ($1).x; end $$;"
            "create cast (own.bait as text) with function own.spring(own.bait);"
            "create domain own.wrapped as own.bait;"
            "create table own.p (id int primary key, tenant own.bait);"
            "create table own.q (id own.bait primary key, tenant own.wrapped);"
            "select rowbell.publish('own.p', scope => 'tenant'); select rowbell.publish('own.q', scope => 'tenant');"
            "insert into own.p values (1, row(7)); update own.p set id = 2; delete from own.p;"
            "insert into own.q values (row(1), row(7))");
    ck_assert_str_eq(sql_text(admin, "select coalesce(string_agg(who, ' '), 'nothing') from own.loot"), "nothing");
    ck_assert_int_eq(sql_int(admin, "select count(*) from rowbell.events where scope = '(7)'"), 5);
    PQfinish(hostile);
}
END_TEST

START_TEST(an_index_that_a_superuser_analyzes_cannot_publish_a_table_of_somebody_else) {
    fixture_database();
    PGconn *admin = fixture_admin();
    sql_run(admin, "create table posts (id int primary key, tenant text, secret text);"
                   "select rowbell.publish('posts', scope => 'tenant')");
    PGconn *hostile = hostile_connect(admin);
    char sql[1200];
    snprintf(sql, sizeof sql,
             "create table own.t (i int); insert into own.t values (1);"
             "create function own.once(i int) returns int language plpgsql immutable as $$ begin return i; end $$;"
             "create index on own.t (own.once(i));"
             "create or replace function own.once(i int) returns int language plpgsql immutable as $$ begin"
             "  insert into rowbell.calls (name, arguments) values ('publish', jsonb_build_object('step', 'make', "
             "'relation',"
             "    'public.posts'::regclass::oid::bigint::text, 'scope', 'secret'));"
             "  return i; exception when others then return i; end $$");
    sql_run(hostile, sql);
    sql_run(admin, "analyze own.t; insert into posts values (1, 'mine', 'theirs')");
    ck_assert_str_eq(sql_text(admin, "select scope from rowbell.events"), "mine");
    ck_assert_str_eq(sql_text(admin, "select scope from rowbell.published"), "tenant");
    PQfinish(hostile);
}
END_TEST

START_TEST(nobody_publishes_a_table_that_is_not_theirs_or_not_there) {
    fixture_database();
    PGconn *admin = fixture_admin();
    sql_run(admin, "create table posts (id int primary key); grant all on posts to public;"
                   "select rowbell.publish('posts')");
    PGconn *hostile = hostile_connect(admin);
    static const char *const refused[] = {
        "select rowbell.publish('posts')",
        "select rowbell.unpublish('posts')",
        ("insert into rowbell.calls (name, arguments) values ('publish', jsonb_build_object('step', 'make', 'relation',"
         " 'posts'::regclass::oid::bigint::text))"),
        ("insert into rowbell.calls (name, arguments) values ('publish', jsonb_build_object('step', 'make', 'relation',"
         " '4242424'))"),
        ("insert into rowbell.calls (name, arguments) values ('unpublish', jsonb_build_object('relation',"
         " 'posts'::regclass::oid::bigint::text))"),
        "insert into rowbell.calls (name, arguments, caller) values ('publish', '{}', 'postgres')",
        "insert into rowbell.calls (name, arguments) values ('capture_create', '{}')",
        "insert into rowbell.calls (name, arguments) values (null, null)",
        "select rowbell.publish_as('postgres', '{}')",
        "select rowbell.unpublish_as('postgres', '{}')",
        ("create trigger t after insert on posts referencing new table as \"rowbell$new\""
         " for each statement execute function rowbell.capture_1_insert()"),
        "select rowbell.record('anything', 's')",
        "select seq from rowbell.events",
        "insert into rowbell.events (type_id) values (1)",
        "select rowbell.alert('rowbell.backlog', 's', '{}')",
        "select rowbell.capture_create(p) from rowbell.published p",
        "select rowbell.set_wake('poll')",
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const char *state = sql_error(hostile, refused[i]);
        ck_assert_msg(strcmp(state, "42501") == 0, "%s: %s", refused[i], state);
    }
    sql_run(admin, "insert into posts values (1)");
    ck_assert_int_eq(sql_int(admin, "select count(*) from rowbell.events"), 1);
    PQfinish(hostile);
}
END_TEST

START_TEST(an_application_cannot_forge_our_own_events) {
    fixture_database();
    PGconn *admin = fixture_admin();
    PGconn *app = PQconnectdb(fixture_login("rowbell_app"));
    ck_assert_str_eq(sql_error(app, "select rowbell.record('rowbell.job.poisoned', 'subscription/x')"), "42939");
    ck_assert_str_eq(sql_error(app, "select rowbell.record('rowbell.index.rebuild', 'x')"), "42939");
    ck_assert_int_eq(sql_int(admin, "select count(*) from rowbell.events"), 0);
    PQfinish(app);
}
END_TEST

START_TEST(an_empty_scope_is_not_every_scope) {
    fixture_database();
    PGconn *conn = fixture_connect();
    ck_assert_str_eq(sql_error(conn, "select rowbell.add_webhook('w', 'https://a.example/', '{*}', '')"), "22023");
    ck_assert_str_eq(sql_error(conn, "select rowbell.add_index('i', '{*}', '', '{\"target\": \"postgres\"}')"),
                     "22023");
    sql_run(conn, "select rowbell.add_webhook('w', 'https://a.example/', '{*}', 't1')");
    ck_assert_str_eq(sql_error(conn, "select rowbell.set_webhook('w', '{\"scope\": \"\"}')"), "22023");
    ck_assert_str_eq(sql_text(conn, "select scope from rowbell.subscriptions where name = 'w'"), "t1");
}
END_TEST

START_TEST(names_that_look_like_format_strings_are_only_names) {
    fixture_database();
    PGconn *conn = fixture_connect();
    sql_run(conn, "create table \"100%s\" (\"id%1$I\" int primary key, \"%s\" text, \"gone%\" text, \"w%L\" int);"
                  "select rowbell.publish('\"100%s\"', scope => '%s', soft_delete => 'gone%', watch => '{w%L}');"
                  "insert into \"100%s\" values (1, 't', null, 0); update \"100%s\" set \"w%L\" = 1;"
                  "update \"100%s\" set \"gone%\" = 'x'");
    ck_assert_str_eq(
        sql_text(conn, "select string_agg(concat_ws(' ', op, scope, subject), ', ' order by seq) from rowbell.events"),
        "create t 100%s/1, update t 100%s/1, delete t 100%s/1");
}
END_TEST

// A plain secret is for who may read the column, whoever's session it is.
START_TEST(a_superuser_lends_no_definer_function_the_secrets) {
    fixture_database();
    PGconn *admin = fixture_admin(), *operator= PQconnectdb(fixture_login("rowbell_operator"));
    char sql[800];
    snprintf(sql, sizeof sql,
             "select rowbell.add_webhook('w', 'https://a.example/', '{*}'); create schema trap authorization %s; grant "
             "usage "
             "on schema trap to public",
             PQuser(operator));
    sql_run(admin, sql);
    static const char *const form = "select coalesce(left(form, 12), 'none') from rowbell.subscription_secrets('w')";
    sql_run(operator, "create function trap.secret() returns text language sql security definer as $$ select form from "
                      "rowbell.subscription_secrets('w') $$; create view trap.secrets as select trap.secret() as form");
    ck_assert_str_eq(sql_text(operator, form), "none");
    ck_assert_str_eq(sql_text(admin, form), "plain:whsec_");
    ck_assert_str_eq(sql_text(admin, "select coalesce(trap.secret(), 'none')"), "none");
    ck_assert_str_eq(sql_text(admin, "select coalesce(form, 'none') from trap.secrets"), "none");
    snprintf(sql, sizeof sql, "set role %s", PQuser(operator));
    sql_run(admin, sql);
    ck_assert_str_eq(sql_text(admin, form), "none");
    PQfinish(operator);
}
END_TEST

static const struct {
    const char *lock, *says;
} locks[] = {
    {"(1919907683, 5)", "which of them has which subscriptions"},
    {"(1919907683, 133)", "which of them has which subscriptions"},
    {"_shared(1919907683, 64)", "which of them has which subscriptions"},
    {"(1919907684, 1)", "the stream: nothing is appended"},
    {"(1919907685, 0)", "publish, and changes of subscriptions"},
    {"_shared(1919907686, 0)", "sleeping relays only poll"},
    {"(1919907687, 77)", "leases of a dispatcher that died"},
    {"(1919907688, 0)", "nothing is pruned"},
    {"(32210705887620204)", "rowbell migrate"},
};

START_TEST(a_lock_of_ours_in_other_hands_is_named) {
    fixture_database();
    PGconn *admin = fixture_admin(), *hostile = hostile_connect(admin);
    PGconn *dispatcher = PQconnectdb(fixture_login("rowbell_dispatcher")),
           *relay = PQconnectdb(fixture_login("rowbell_relay"));
    static const char *const found = "select count(*) from rowbell.doctor() where problem = 'lock in other hands'";
    sql_run(hostile, "select pg_advisory_lock(1, 1), pg_advisory_lock(1919907682, 0)"); // an application's own
    sql_run(dispatcher, "select pg_advisory_lock_shared(1919907683, 64), pg_advisory_lock(1919907688, 0)");
    sql_run(relay, "select pg_advisory_lock_shared(1919907686, 0)");
    ck_assert_int_eq(sql_int(admin, found), 0);
    sql_run(dispatcher, "select pg_advisory_unlock_all()");
    sql_run(relay, "select pg_advisory_unlock_all()");
    char sql[400];
    snprintf(sql, sizeof sql, "select pg_advisory_lock%s", locks[_i].lock);
    sql_run(hostile, sql);
    ck_assert_int_eq(sql_int(admin, found), 1);
    snprintf(
        sql, sizeof sql,
        "select count(*) from rowbell.doctor() where problem = 'lock in other hands' and subject = 'pid %d' and detail "
        "like '%s stops %%%s%%' and remedy like 'select pg_terminate_backend(%d), and ask %s%%'",
        PQbackendPID(hostile), PQuser(hostile), locks[_i].says, PQbackendPID(hostile), PQuser(hostile));
    ck_assert_int_eq(sql_int(admin, sql), 1);
    PQfinish(hostile);
    PQfinish(dispatcher);
    PQfinish(relay);
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "hostile", 60);
    tcase_add_test(tcase, a_cast_of_the_table_owner_does_not_run_with_our_rights);
    tcase_add_test(tcase, an_index_that_a_superuser_analyzes_cannot_publish_a_table_of_somebody_else);
    tcase_add_test(tcase, nobody_publishes_a_table_that_is_not_theirs_or_not_there);
    tcase_add_test(tcase, an_application_cannot_forge_our_own_events);
    tcase_add_test(tcase, an_empty_scope_is_not_every_scope);
    tcase_add_test(tcase, a_superuser_lends_no_definer_function_the_secrets);
    tcase_add_loop_test(tcase, a_lock_of_ours_in_other_hands_is_named, 0, (int)(sizeof locks / sizeof *locks));
    tcase_add_test(tcase, names_that_look_like_format_strings_are_only_names);
}

int main(void) {
    return suite_main("hostile", add_tests);
}
