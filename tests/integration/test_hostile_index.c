// What a database user may try by way of an index: to read what it may not, in a document or a search, and to have code
// of its own run by the dispatcher that reads its table. The attackers are logins.
#include "tests/support/fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static PGconn *login(const char *role) {
    PGconn *conn = PQconnectdb(fixture_login(role));
    ck_assert_msg(PQstatus(conn) == CONNECTION_OK, "%s", PQerrorMessage(conn));
    return conn;
}

// As the administrator, with %s for a login's name.
static void give(PGconn *admin, const char *statement, PGconn *conn) {
    const char *place = strstr(statement, "%s");
    char sql[1000];
    snprintf(sql, sizeof sql, "%.*s%s%s", (int)(place - statement), statement, PQuser(conn), place + 2);
    sql_run(admin, sql);
}

// A login that has a schema, and in it the table loot and the function spring, which writes down whose rights it runs
// with.
static PGconn *hostile_connect(PGconn *admin, const char *role) {
    PGconn *conn = login(role);
    give(admin, "create schema own authorization %s; grant usage on schema own to public", conn);
    sql_run(conn,
            "create table own.loot (who text); grant all on own.loot to public;"
            "create function own.note() returns boolean language plpgsql as $$ begin insert into own.loot values "
            "(current_user); return true; end $$;"
            "create function own.spring(i int) returns boolean language plpgsql immutable as $$ begin return true; "
            "end $$");
    return conn;
}
// From now on spring notes. (Who makes an index runs its functions, too.)
static void arm(PGconn *hostile) {
    sql_run(hostile, "delete from own.loot; create or replace function own.spring(i int) returns boolean language "
                     "plpgsql immutable as $$ begin perform own.note(); return true; end $$");
}
static void assert_no_loot(PGconn *admin) {
    ck_assert_str_eq(sql_text(admin, "select coalesce(string_agg(who, ' '), 'nothing') from own.loot"), "nothing");
}

// What a dispatcher runs for every event; says what was refused.
static const char *index_all(PGconn *dispatcher) {
    return sql_text(
        dispatcher,
        "select string_agg(distinct w.problem, '; ') from rowbell.subscriptions s, rowbell.index_write(s.id, "
        "array(select seq from rowbell.events)) w where s.kind = 'index'");
}
static const char *const keys_next =
    "select string_agg(k, ' ') from rowbell.published_tables() p, rowbell.subscriptions s, unnest(rowbell.index_next_keys(s, p, "
    "null, 10)) k where s.kind = 'index'";

static const char *const add_posts =
    "select rowbell.add_index('i', '{posts.*}', null, '{\"target\": \"postgres\"}', true)";

START_TEST(a_table_that_its_owner_may_not_read_becomes_no_document) {
    fixture_database();
    PGconn *admin = fixture_admin(), *mallory = login("rowbell_index"), *dispatcher = login("rowbell_dispatcher");
    sql_run(admin, "grant execute on function rowbell.all_scopes() to rowbell_index");
    sql_run(admin, "create table salaries (id int primary key, name text, pay int);"
                   "select rowbell.publish('salaries'); grant select on salaries to rowbell_dispatcher;"
                   "insert into salaries values (1, 'ada', 100000)");
    static const char *const refused[] = {
        "select * from salaries",
        "select rowbell.add_index('i', '{salaries.*}', null, '{\"target\": \"postgres\"}')",
        "select rowbell.add_index('i', '{*}', null, '{\"target\": \"postgres\"}')",
        "select rowbell.add_index('i', '{*.create}', 't1', '{\"target\": \"postgres\", \"columns\": [\"pay\"]}')",
        "insert into rowbell.calls (name, arguments) values ('add_index', '{\"name\": \"i\", \"types\": [\"*\"], "
        "\"options\": {\"target\": \"postgres\"}}')",
        "select rowbell.add_index_as('postgres', '{\"name\": \"i\", \"types\": [\"*\"], \"options\": {\"target\": "
        "\"postgres\"}}')",
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const char *state = sql_error(mallory, refused[i]);
        ck_assert_msg(strcmp(state, "42501") == 0, "%s: %s", refused[i], state);
    }
    // Column by column.
    give(admin, "grant select (id, name) on salaries to %s", mallory);
    ck_assert_str_eq(sql_error(mallory, refused[1]), "42501");
    sql_run(mallory, "select rowbell.add_index('names', '{salaries.*}', null, '{\"target\": \"postgres\", \"columns\": "
                     "[\"name\"]}', true)");
    ck_assert_str_eq(index_all(dispatcher), "");
    static const char *const search =
        "select string_agg(document::text, ' ') from rowbell.search_documents('ada or 100000')";
    ck_assert_str_eq(sql_text(mallory, search), "{\"name\": \"ada\"}");
    // What was granted is looked at again, by each reading and each search.
    give(admin, "revoke select (name) on salaries from %s", mallory);
    char expected[300], doctor[400];
    snprintf(expected, sizeof expected,
             "role %s, who owns the subscription, may not read column name of table public.salaries: grant select on "
             "public.salaries "
             "to %s",
             PQuser(mallory), PQuser(mallory));
    snprintf(doctor, sizeof doctor, "subscription names: %s", expected);
    ck_assert_str_eq(index_all(dispatcher), expected);
    ck_assert_str_eq(sql_text(admin,
                              "select subject || ': ' || detail from rowbell.doctor() where problem = 'index is not "
                              "read'"),
                     doctor);
    ck_assert_str_eq(sql_text(mallory, search), "");
    give(admin, "grant select on salaries to %s", mallory);
    sql_run(admin, "alter table salaries enable row level security");
    ck_assert_str_eq(sql_text(mallory, search), "");
    sql_run(admin, "alter role rowbell_dispatcher bypassrls");
    ck_assert_ptr_nonnull(strstr(index_all(dispatcher), "row level security restricts what role"));
    sql_run(admin, "alter role rowbell_dispatcher nobypassrls");
    PQfinish(mallory);
    PQfinish(dispatcher);
}
END_TEST

START_TEST(documents_are_found_by_members_of_their_owner) {
    fixture_database();
    PGconn *admin = fixture_admin(), *ada = login("rowbell_index"), *bob = login("rowbell_app"),
           *operator= login("rowbell_operator"), *dispatcher = login("rowbell_dispatcher");
    sql_run(admin, "grant execute on function rowbell.all_scopes() to rowbell_index");
    sql_run(admin,
            "create table posts (id int primary key, title text, tenant text); select rowbell.publish('posts', scope "
            "=> 'tenant'); grant select on posts to rowbell_dispatcher; insert into posts values (1, 'secret', "
            "'t1')");
    give(admin, "grant select on posts to %s", ada);
    sql_run(ada, add_posts);
    ck_assert_str_eq(index_all(dispatcher), "");
    static const char *const found = "select count(*) from rowbell.search_documents('secret')";
    ck_assert_int_eq(sql_int(ada, found), 1);
    ck_assert_int_eq(sql_int(bob, found), 0);
    ck_assert_int_eq(sql_int(operator, found), 0);
    static const char *const refused[] = {
        "select * from rowbell.search",
        "select * from rowbell.caller_key",
        "select rowbell.search_documents_of('postgres', 'x', 'secret', null, 20)",
        "select rowbell.search_documents_of('postgres', null, 'secret', null, 20)",
        "select rowbell.search_documents_of('postgres', ticket, 'secret', null, 20) from rowbell.caller",
        "select rowbell.rebuild_index('i')",
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const char *state = sql_error(bob, refused[i]);
        ck_assert_msg(strcmp(state, "42501") == 0, "%s: %s", refused[i], state);
    }
    ck_assert_str_eq(sql_error(operator, refused[0]), "42501");
    ck_assert_str_eq(sql_error(operator, refused[1]), "42501");
    // A ticket is good for its transaction only.
    char sql[400];
    snprintf(sql, sizeof sql, "select rowbell.search_documents_of('%s', '%s', 'secret', null, 20)", PQuser(ada),
             sql_text(ada, "select ticket from rowbell.caller"));
    ck_assert_str_eq(sql_error(bob, sql), "42501");
    ck_assert_str_eq(sql_error(ada, sql), "42501");
    // Nothing is written: a standby and a read-only transaction can search.
    sql_run(ada, "begin read only");
    ck_assert_int_eq(sql_int(ada, found), 1);
    sql_run(ada, "rollback");
    PGconn *carl = login("rowbell_index");
    ck_assert_str_eq(sql_error(carl, "select rowbell.rebuild_index('i')"), "42704");
    ck_assert_int_eq(sql_int(carl, found), 0);
    snprintf(sql, sizeof sql, "grant %s to %s", PQuser(ada), PQuser(carl));
    sql_run(admin, sql);
    ck_assert_int_eq(sql_int(carl, found), 1);
    ck_assert_int_eq(sql_int(carl, "select count(*) from rowbell.rebuild_index('i')"), 1);
    ck_assert_int_eq(sql_int(operator, "select count(*) from rowbell.rebuild_index('i')"), 1);
    // Bounds, and scopes that are none.
    ck_assert_str_eq(sql_error(ada, "select rowbell.search_documents(repeat('x', 1001))"), "22023");
    ck_assert_str_eq(sql_error(ada, "select rowbell.search_documents('x', null, 1001)"), "22023");
    ck_assert_str_eq(sql_error(ada, "select rowbell.search_documents('x', '*')"), "22023");
    ck_assert_str_eq(sql_error(ada, "select rowbell.search_documents('x', '')"), "22023");
    ck_assert_str_eq(sql_error(ada, "select rowbell.add_index('j', '{posts.*}', '*', '{\"target\": \"postgres\"}')"),
                     "22023");
    PQfinish(ada);
    PQfinish(bob);
    PQfinish(carl);
    PQfinish(operator);
    PQfinish(dispatcher);
}
END_TEST

START_TEST(a_table_of_a_stranger_is_not_read_for_an_index) {
    fixture_database();
    // Whoever may add an index may not run code by it.
    PGconn *admin = fixture_admin(), *hostile = hostile_connect(admin, "rowbell_index");
    sql_run(admin, "grant execute on function rowbell.all_scopes() to rowbell_index");
    PGconn *dispatcher = login("rowbell_dispatcher");
    give(admin, "grant rowbell_app to %s", hostile);
    sql_run(hostile, "create table own.posts (id int primary key, v text); grant select on own.posts to public");
    sql_run(admin, "select rowbell.publish('own.posts')");
    sql_run(hostile, add_posts);
    // PostgreSQL computes an index's predicate while it plans a query of the table.
    sql_run(hostile, "create index on own.posts (id) where own.spring(1)");
    arm(hostile);
    sql_run(admin, "insert into rowbell.events (type_id, subject, key, op) select id, 'posts/1', '1', 'create' from "
                   "rowbell.event_types where type = 'posts.create'");
    char problem[300];
    snprintf(
        problem, sizeof problem,
        "rowbell: the owner of table own.posts is not trusted: grant rowbell_trusted to %s, if code of theirs may run "
        "with the rights of a dispatcher",
        PQuser(hostile));
    ck_assert_str_eq(index_all(dispatcher), problem);
    ck_assert_str_eq(sql_error(dispatcher, keys_next), "55000");
    ck_assert_str_eq(sql_error(dispatcher, "select rowbell.index_walk_rows(id, 'posts', null, 10) from "
                                           "rowbell.subscriptions where kind = 'index'"),
                     "55000");
    ck_assert_str_eq(sql_error(dispatcher, "select rowbell.index_read_keys(id, 'posts', '{1}') from "
                                           "rowbell.subscriptions where kind = 'index'"),
                     "55000");
    assert_no_loot(admin);
    // Trusted, it is a table like any other.
    give(admin, "drop index own.posts_id_idx; grant rowbell_trusted to %s", hostile);
    sql_run(admin, "alter table own.posts disable trigger user; insert into own.posts values (1, 'x')");
    ck_assert_str_eq(index_all(dispatcher), "");
    ck_assert_str_eq(sql_text(admin, "select document ->> 'v' from rowbell.search"), "x");
    PQfinish(hostile);
    PQfinish(dispatcher);
}
END_TEST

// Each makes the table posts of somebody who is trusted, in which code of a stranger is named.
static const struct {
    const char *make, *named; // NULL: it is named, and not run
} traps[] = {
    {"create table posts (id int primary key, v text); create index on posts (id) where own.spring(1)", "function"},
    {"create table posts (id int primary key, v text); create index on posts ((own.spring(1) and id > 0))", "function"},
    {"create table posts (id int primary key, v text); create statistics s on (own.spring(1) and id > 0), id from "
     "posts",
     "function"},
    {"create table base (id int, v text) partition by list ((own.spring(1) and id > 0)); create table posts (id int "
     "primary key, "
     "v "
     "text); alter table base attach partition posts for values in (true)",
     "function"},
    {"create table posts (id int primary key, v text); create index on posts (id) where 1 operator(own.~~~) 2",
     "operator"},
    {"create table posts (id int primary key, v text); create table child (check (own.spring(1))) inherits (posts)",
     NULL},
};

START_TEST(a_stranger_s_function_does_not_run_while_a_trusted_table_is_read) {
    fixture_database();
    PGconn *admin = fixture_admin(), *hostile = hostile_connect(admin, "rowbell_index");
    PGconn *dispatcher = login("rowbell_dispatcher");
    sql_run(hostile,
            "create function own.compare(int, int) returns boolean language sql immutable return own.spring(1);"
            "create operator own.~~~ (leftarg = int, rightarg = int, function = own.compare)");
    sql_run(admin, traps[_i].make);
    sql_run(admin, "select rowbell.publish('posts') where not exists (select from pg_class where relname = 'posts' and "
                   "relispartition)");
    if (sql_int(admin, "select count(*) from rowbell.published") == 0) // it became a partition after it was published
        sql_run(admin, "alter table base detach partition posts; select rowbell.publish('posts'); alter table posts "
                       "disable trigger user; alter table base attach partition posts for values in (true)");
    sql_run(admin, "grant select on posts to rowbell_dispatcher");
    sql_run(admin, add_posts);
    sql_run(admin, "insert into rowbell.events (type_id, subject, key, op) select id, 'posts/1', '1', 'create' from "
                   "rowbell.event_types where type = 'posts.create'");
    arm(hostile);
    const char *said = index_all(dispatcher);
    char expected[100];
    snprintf(expected, sizeof expected, "rowbell: the owner of %s own.", traps[_i].named);
    if (traps[_i].named)
        ck_assert_msg(strncmp(said, expected, strlen(expected)) == 0, "%s", said);
    else
        ck_assert_str_eq(said, "");
    assert_no_loot(admin);
    PQfinish(hostile);
    PQfinish(dispatcher);
}
END_TEST

START_TEST(a_view_in_the_place_of_a_table_is_not_read) {
    fixture_database();
    PGconn *admin = fixture_admin(), *hostile = hostile_connect(admin, "rowbell_trusted");
    PGconn *dispatcher = login("rowbell_dispatcher");
    sql_run(admin, "grant usage on schema own to rowbell_owner");
    sql_run(hostile, "create table own.posts (id int primary key, v text); grant select on own.posts to public");
    sql_run(admin, "select rowbell.publish('own.posts')");
    sql_run(admin, add_posts);
    sql_run(admin, "insert into rowbell.events (type_id, subject, key, op) select id, 'posts/1', '1', 'create' from "
                   "rowbell.event_types where type = 'posts.create'");
    arm(hostile);
    // Under its name.
    sql_run(hostile, "begin; alter table own.posts rename to hidden; create view own.posts as select 1 as id, "
                     "own.note()::text as v; grant select on own.posts to public; commit");
    ck_assert_str_eq(index_all(dispatcher), "");
    assert_no_loot(admin);
    // A FROM clause that was made before it took the place.
    ck_assert_str_eq(sql_error(dispatcher, "begin; select rowbell.index_lock(s, p) from rowbell.subscriptions s, "
                                           "rowbell.published_tables() p where s.kind = 'index'; select * from own.posts"),
                     "55000");
    sql_run(dispatcher, "rollback");
    assert_no_loot(admin);
    // The table itself.
    sql_run(hostile,
            "do $$ declare t name; begin for t in select tgname from pg_trigger where tgrelid = "
            "'own.hidden'::regclass and not tgisinternal loop execute format('drop trigger %I on own.hidden', t); "
            "end loop; end $$; alter table own.hidden drop constraint posts_pkey, alter id drop not null");
    if (PQserverVersion(hostile) < 160000) {
        sql_run(hostile, "vacuum own.hidden"); // which sees that it has no triggers any more
        sql_run(hostile,
                "create rule \"_RETURN\" as on select to own.hidden do instead select 1 as id, own.note()::text "
                "as v");
        ck_assert_str_eq(index_all(dispatcher), "table posts is gone");
    }
    assert_no_loot(admin);
    PQfinish(hostile);
    PQfinish(dispatcher);
}
END_TEST

START_TEST(a_stranger_s_types_run_no_code_for_an_index) {
    fixture_database();
    PGconn *admin = fixture_admin(), *hostile = hostile_connect(admin, "rowbell_index");
    PGconn *dispatcher = login("rowbell_dispatcher");
    sql_run(
        hostile,
        "create type own.colour as enum ('red', 'blue'); create type own.pair as (x int);"
        "create domain own.number as int check (own.note());"
        "create function own.to_json(own.colour) returns json language plpgsql as $$ begin perform own.note(); return "
        "'1'; end $$; create cast (own.colour as json) with function own.to_json(own.colour);"
        "create function own.to_jsonb(own.colour) returns jsonb language plpgsql as $$ begin perform own.note(); "
        "return "
        "'1'; end $$; create cast (own.colour as jsonb) with function own.to_jsonb(own.colour);"
        "create function own.to_text(own.colour) returns text language plpgsql as $$ begin perform own.note(); return "
        "'red'; end $$; create cast (own.colour as text) with function own.to_text(own.colour) as implicit;"
        "create function own.of_text(text) returns own.colour language plpgsql as $$ begin perform own.note(); return "
        "null; end $$; create cast (text as own.colour) with function own.of_text(text);"
        "create function own.equal(own.colour, text) returns boolean language plpgsql as $$ begin return own.note(); "
        "end "
        "$$; create operator own.= (leftarg = own.colour, rightarg = text, function = own.equal)");
    // Types of a superuser, made of types of a stranger.
    sql_run(
        admin,
        "create type wrap as (c own.colour); create domain wrapped as wrap; create domain several as own.colour[];"
        "create type range as range (subtype = own.colour);"
        "create table paints (c own.colour, n own.number, s own.colour[], p own.pair, w wrap, ws wrap[], d wrapped, "
        "a several, g range, j json, k int[], v text, primary key (c, n));"
        "select rowbell.publish('paints'); grant select on paints to rowbell_dispatcher;"
        "select rowbell.add_index('i', '{paints.*}', null, '{\"target\": \"postgres\"}');"
        "insert into paints values ('red', 7, '{red,null,blue}', row(3), row('red'), array[row('blue')::wrap], "
        "row('red'), '{blue}', '[red,blue]', '{\"x\": [1]}', '{1,2}', 'x'), ('blue', 8, null, null, null, null, null, "
        "null, null, null, null, 'y');"
        "delete from own.loot");
    ck_assert_str_eq(index_all(dispatcher), "");
    ck_assert_str_eq(
        sql_text(admin, "select string_agg(key || ' ' || document, ', ' order by key) from rowbell.search where key = "
                        "'red/7'"),
        "red/7 {\"a\": [\"blue\"], \"c\": \"red\", \"d\": \"(red)\", \"g\": \"[red,blue]\", \"j\": {\"x\": [1]}, "
        "\"k\": "
        "[1, 2], \"n\": 7, \"p\": \"(3)\", \"s\": [\"red\", null, \"blue\"], \"v\": \"x\", \"w\": \"(red)\", \"ws\": "
        "[\"(blue)\"]}");
    ck_assert_str_eq(sql_text(dispatcher,
                              "select string_agg(r.key || ' ' || (r.document::jsonb ->> 'v'), ' ' order by "
                              "r.key) from rowbell.subscriptions s, rowbell.index_walk_rows(s.id, 'paints', "
                              "'blue/8', 10) r where s.kind = 'index'"),
                     "red/7 x");
    assert_no_loot(admin);
    PQfinish(hostile);
    PQfinish(dispatcher);
}
END_TEST

START_TEST(a_type_that_changes_after_publish_runs_no_code) {
    fixture_database();
    PGconn *admin = fixture_admin(), *hostile = hostile_connect(admin, "rowbell_trusted");
    PGconn *dispatcher = login("rowbell_dispatcher");
    sql_run(hostile, "create table own.posts (id text primary key, v text); grant select on own.posts to public");
    sql_run(admin, "select rowbell.publish('own.posts')");
    sql_run(admin, add_posts);
    sql_run(hostile,
            "create type own.bait as (x text);"
            "create function own.to_text(own.bait) returns text language plpgsql as $$ begin perform own.note(); "
            "return ($1).x; end $$;"
            "create cast (own.bait as text) with function own.to_text(own.bait) as implicit;"
            "alter table own.posts disable trigger user; insert into own.posts values ('a', 'b');"
            "alter table own.posts alter id type own.bait using row(id)::own.bait, alter v type own.bait using "
            "row(v)::own.bait; delete from own.loot");
    sql_run(admin,
            "insert into rowbell.events (type_id, subject, key, op) select id, 'posts/a', '%28a%29', 'create' from "
            "rowbell.event_types where type = 'posts.create'");
    ck_assert_str_eq(index_all(dispatcher), "");
    ck_assert_str_eq(sql_text(admin, "select document::text from rowbell.search"), "{\"v\": \"(b)\", \"id\": \"(a)\"}");
    assert_no_loot(admin);
    PQfinish(hostile);
    PQfinish(dispatcher);
}
END_TEST

START_TEST(rows_that_cannot_be_documents_are_given_up_alone) {
    fixture_database();
    PGconn *admin = fixture_admin(), *dispatcher = login("rowbell_dispatcher");
    sql_run(admin,
            "create table posts (id int primary key, title text, extra json, more jsonb); select "
            "rowbell.publish('posts'); grant select on posts to rowbell_dispatcher;"
            "insert into posts select i, 'row ' || i from generate_series(1, 20) i;"
            "update posts set extra = '\"\\u0000\"' where id = 3;"
            "update posts set title = (select string_agg(md5(i::text), ' ') from generate_series(1, 31000) i) where "
            "id = 7;"
            "update posts set title = repeat('x', 100000000) where id = 11;"
            "update posts set more = to_jsonb(repeat('y ', 700000)) where id = 13");
    sql_run(admin, "select rowbell.add_index('i', '{posts.*}', null, '{\"target\": \"postgres\"}')");
    ck_assert_int_eq(sql_int(dispatcher, "select count(*) from rowbell.subscriptions s, rowbell.index_write(s.id, "
                                         "array(select seq from rowbell.events where op = 'create')) w where s.kind = "
                                         "'index' and w.state = '55000'"),
                     4);
    ck_assert_int_eq(sql_int(admin, "select count(*) from rowbell.search"), 16);
    // A walk finishes, and lists them.
    sql_run(admin, "delete from rowbell.search");
    sql_wait(
        dispatcher, 60000,
        "select w.phase = 'done' from rowbell.subscriptions s, rowbell.events e, rowbell.index_walk_step(s.id, e.seq, "
        "'posts', 500) w where s.kind = 'index' and e.data ->> 'table' = 'posts'");
    ck_assert_int_eq(sql_int(admin, "select count(*) from rowbell.search"), 16);
    ck_assert_int_eq(sql_int(admin, "select refused from rowbell.index_walks"), 4);
    ck_assert_str_eq(sql_text(admin,
                              "select string_agg(split_part(r, ': ', 1), ' ' order by r) from rowbell.index_walks, "
                              "unnest(refused_rows) r"),
                     "11 13 3 7");
    // For an engine, as they are read.
    ck_assert_str_eq(sql_text(dispatcher,
                              "select string_agg(r.key, ' ' order by r.key) || ' of ' || (select count(*) from "
                              "rowbell.subscriptions s, rowbell.index_walk_rows(s.id, 'posts', null, 500) where "
                              "s.kind = 'index') from rowbell.subscriptions s, rowbell.index_walk_rows(s.id, "
                              "'posts', null, 500) r where s.kind = 'index' and r.problem is not null and "
                              "r.document is null"),
                     "11 13 3 of 20");
    PQfinish(dispatcher);
}
END_TEST

START_TEST(one_reading_has_a_bound_in_bytes) {
    fixture_database();
    PGconn *admin = fixture_admin(), *dispatcher = login("rowbell_dispatcher");
    sql_run(
        admin,
        "create table posts (id int primary key, title text); select rowbell.publish('posts'); grant select on "
        "posts to rowbell_dispatcher; insert into posts select i, repeat('x', 500000) from generate_series(1, 50) i");
    sql_run(admin, add_posts);
    ck_assert_str_eq(
        sql_text(dispatcher,
                 "select count(*) || ' ' || count(r.document) || ' ' || (min(r.key::int) filter (where "
                 "r.postponed) = max(r.key::int) filter (where not r.postponed) + 1) from "
                 "rowbell.subscriptions s, rowbell.index_walk_rows(s.id, 'posts', null, 500) r where s.kind = "
                 "'index'"),
        "50 34 true");
    ck_assert_str_eq(sql_text(dispatcher, "select count(*) || ' ' || count(r.document) || ' ' || count(r.state) from "
                                          "rowbell.subscriptions s, rowbell.index_read(s.id, array(select seq from "
                                          "rowbell.events where op = 'create')) r where s.kind = 'index'"),
                     "50 34 16");
    ck_assert_int_eq(sql_int(dispatcher,
                             "select count(*) from rowbell.subscriptions s, rowbell.index_read_keys(s.id, "
                             "'posts', array(select i::text from generate_series(1, 60) i)) r where s.kind = "
                             "'index' and r.is_there"),
                     50);
    PQfinish(dispatcher);
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "hostile_index", 60);
    tcase_add_test(tcase, a_table_that_its_owner_may_not_read_becomes_no_document);
    tcase_add_test(tcase, documents_are_found_by_members_of_their_owner);
    tcase_add_test(tcase, a_table_of_a_stranger_is_not_read_for_an_index);
    tcase_add_loop_test(tcase, a_stranger_s_function_does_not_run_while_a_trusted_table_is_read, 0,
                        (int)(sizeof traps / sizeof *traps));
    tcase_add_test(tcase, a_view_in_the_place_of_a_table_is_not_read);
    tcase_add_test(tcase, a_stranger_s_types_run_no_code_for_an_index);
    tcase_add_test(tcase, a_type_that_changes_after_publish_runs_no_code);
    tcase_add_test(tcase, rows_that_cannot_be_documents_are_given_up_alone);
    tcase_add_test(tcase, one_reading_has_a_bound_in_bytes);
}

int main(void) {
    return suite_main("hostile_index", add_tests);
}
