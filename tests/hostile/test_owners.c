// What a role of the application may do to subscriptions, types and tenants that are not its own: nothing. Every
// attacker here is a login of its own with the rights that an application has.
#include "tests/support/fixture.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static PGconn *admin;
static const char *ann_name, *ben_name;

static PGconn *login(const char *role) {
    PGconn *conn = PQconnectdb(fixture_login(role));
    ck_assert_msg(PQstatus(conn) == CONNECTION_OK, "%s", PQerrorMessage(conn));
    PQclear(PQexec(conn, "set client_min_messages = warning"));
    return conn;
}

// Runs SQL made like printf.
static void run(PGconn *conn, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void run(PGconn *conn, const char *format, ...) {
    char sql[3000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sql, sizeof sql, format, arguments);
    va_end(arguments);
    sql_run(conn, sql);
}

static void set_up(void) {
    fixture_database();
    admin = fixture_connect();
    sql_run(admin,
            "create table posts (id int primary key, tenant text); select rowbell.publish('posts', scope => 'tenant')");
}

static void expect_error(PGconn *conn, const char *sql, const char *sqlstate) {
    const char *got = sql_error(conn, sql);
    ck_assert_msg(strcmp(got, sqlstate) == 0, "%s instead of %s: %s", got, sqlstate, sql);
}

static void expect(PGconn *conn, const char *sql, const char *text) {
    const char *got = sql_text(conn, sql);
    ck_assert_msg(strcmp(got, text) == 0, "'%.300s' instead of '%.300s': %s", got, text, sql);
}

// Everything that a role can call about a subscription, as somebody who may not: what it answers, or an SQLSTATE.
static const struct {
    const char *sql, *answer, *sqlstate;
} attempts_on_anns[] = {
    {"select rowbell.set_webhook('anns', '{\"url\": \"https://evil.example/\"}')", "f", NULL},
    {"select rowbell.remove_subscription('anns')", "f", NULL},
    {"select rowbell.set_subscription_state('anns', 'paused')", "f", NULL},
    {"select rowbell.set_subscription_owner('anns', current_user)", "f", NULL},
    {"select rowbell.rotate_secret('anns', '0')", NULL, "42704"},
    {"select rowbell.requeue_jobs('anns')", NULL, "42704"},
    {"select rowbell.requeue_jobs()", "0", NULL},
    {"select rowbell.retry_job('anns', 1)", NULL, "42704"},
    {"select rowbell.cancel_job('anns', 1)", NULL, "42704"},
    {"select queued from rowbell.replay('anns', '-infinity')", NULL, "42704"},
    {"select count(*) from rowbell.attempt_log('anns')", NULL, "42704"},
    {"select count(*) from rowbell.attempt_log()", "0", NULL},
    {"select count(*) from rowbell.subscription_secrets('anns')", NULL, "42501"},
    {"select rowbell.subscription_settings('anns')", NULL, "42501"},
    {"select count(*) from rowbell.subscriptions", NULL, "42501"},
    {"select rowbell.set_webhook_as('postgres', '{\"name\": \"anns\", \"changes\": {}}')", NULL, "42501"},
    {"select rowbell.subscription_find('postgres', 'anns')", NULL, "42501"},
};

static const char anns_state[] =
    "select concat_ws(' ', s.state, s.owner, s.settings, md5(s.secrets::text), (select string_agg(w.state, ',') from "
    "rowbell.jobs_waiting w)) from rowbell.subscriptions s where name = 'anns'";

static void attack(PGconn *attacker) {
    const char *before = sql_text(admin, anns_state);
    for (size_t i = 0; i < sizeof attempts_on_anns / sizeof *attempts_on_anns; i++) {
        if (attempts_on_anns[i].sqlstate != NULL)
            expect_error(attacker, attempts_on_anns[i].sql, attempts_on_anns[i].sqlstate);
        else
            expect(attacker, attempts_on_anns[i].sql, attempts_on_anns[i].answer);
        ck_assert_msg(strcmp(sql_text(admin, anns_state), before) == 0, "changed by: %s", attempts_on_anns[i].sql);
    }
}

// Ann's webhook, with a poisoned job and an attempt.
static PGconn *ann_with_webhook(void) {
    PGconn *ann = login("rowbell_app");
    ann_name = PQuser(ann);
    sql_run(ann, "select rowbell.add_webhook('anns', 'https://ann.example/', '{posts.*}', 't1')");
    sql_run(admin,
            "insert into posts values (1, 't1');"
            "update rowbell.events set fanned_out_at = now(), fanout = array(select id from rowbell.subscriptions "
            "where name = 'anns');"
            "insert into rowbell.jobs_waiting (subscription_id, event_seq, state, attempts) "
            "select s.id, e.seq, 'poisoned', 1 from rowbell.subscriptions s, rowbell.events e where s.name = 'anns';"
            "insert into rowbell.attempts (subscription_id, event_seq, attempt, started_at, class) "
            "select w.subscription_id, w.event_seq, 1, now(), 'http_5xx' from rowbell.jobs_waiting w");
    return ann;
}

START_TEST(a_role_does_not_reach_the_subscription_of_another) {
    set_up();
    PGconn *ann = ann_with_webhook(), *ben = login("rowbell_app");
    attack(ben);
    // Its own it may use in every way.
    expect(ann, "select count(*) from rowbell.attempt_log('anns')", "1");
    expect(ann, "select class from rowbell.attempt_log()", "http_5xx");
    expect(ann, "select rowbell.requeue_jobs('anns', dry_run => true)", "1");
    expect(ann, "select rowbell.retry_job('anns', (select seq from rowbell.attempt_log()))", "poisoned");
    expect(ann, "select rowbell.cancel_job('anns', (select seq from rowbell.attempt_log()))", "t");
    expect(ann, "select rowbell.requeue_jobs()", "1");
    expect(ann, "select looked_at from rowbell.replay('anns', '-infinity')", "1");
    expect(ann, "select rowbell.rotate_secret('anns') like 'whsec\\_%'", "t");
    expect(ann, "select rowbell.set_subscription_state('anns', 'paused')", "t");
    expect(ann, "select rowbell.set_webhook('anns', '{\"rate\": 5}')", "t");
    expect(ann, "select rowbell.remove_subscription('anns')", "t");
    // The stream belongs to the schema's owner.
    expect(ann, "select rowbell.set_subscription_state('stream', 'paused')", "f");
    PQfinish(ann);
    PQfinish(ben);
}
END_TEST

// Whoever's session it is: what counts is the role that runs the statement.
START_TEST(current_user_is_who_calls) {
    set_up();
    PGconn *ann = ann_with_webhook(), *ben = login("rowbell_app");
    ben_name = PQuser(ben);
    run(admin, "create schema ben authorization %s; grant usage on schema ben to public", ben_name);
    // A function of Ben's that a superuser calls; the same through SET ROLE.
    sql_run(ben, "create function ben.trap() returns boolean language sql security definer as $$ select "
                 "rowbell.remove_subscription('anns') $$");
    expect(admin, "select ben.trap()", "f");
    PGconn *superuser = fixture_connect();
    run(superuser, "set role %s", ben_name);
    attack(superuser);
    // An index of Ben's that a superuser analyzes.
    sql_run(ben, "create table ben.t (i int); insert into ben.t values (1);"
                 "create function ben.once(i int) returns int language plpgsql immutable as $$ begin return i; end $$;"
                 "create index on ben.t (ben.once(i));"
                 "create or replace function ben.once(i int) returns int language plpgsql immutable as $$ begin"
                 "  if rowbell.remove_subscription('anns') then raise warning 'gone'; end if;"
                 "  return i; exception when others then return i; end $$");
    sql_run(admin, "analyze ben.t");
    // What Ann lends to Ben by a function of hers is hers.
    run(admin, "create schema ann authorization %s; grant usage on schema ann to public", ann_name);
    expect(admin, "select count(*) from rowbell.subscriptions where name = 'anns'", "1");
    sql_run(ann, "create function ann.lent() returns boolean language sql security definer as $$ select "
                 "rowbell.set_subscription_state('anns', 'paused') $$");
    expect(ben, "select ann.lent()", "t");
    PQfinish(ann);
    PQfinish(ben);
}
END_TEST

START_TEST(calls_are_not_forged) {
    set_up();
    PGconn *ann = ann_with_webhook(), *ben = login("rowbell_app"), *nobody = login("pg_signal_backend");
    static const char remove[] = "insert into rowbell.calls (name, arguments) values ('remove_subscription', "
                                 "'{\"name\": \"anns\"}') returning result";
    expect_error(ben,
                 "insert into rowbell.calls (name, arguments, caller) values ('remove_subscription', '{\"name\": "
                 "\"anns\"}', 'postgres')",
                 "42501");
    expect(ben, remove, "false");
    expect_error(nobody, remove, "42501");
    expect_error(ben, "insert into rowbell.calls (name, arguments) values ('subscription_find', '{}')", "42501");
    expect_error(ben, "insert into rowbell.calls (name, arguments) values ('remove_subscription_as', '{}')", "42501");
    expect_error(
        ben, "create trigger t instead of insert on rowbell.calls for each row execute function rowbell.calls_run()",
        "42501");
    // What is missing or of another kind is an error or nothing.
    expect(ben, "insert into rowbell.calls (name, arguments) values ('remove_subscription', null) returning result",
           "false");
    expect_error(ben, "insert into rowbell.calls (name, arguments) values ('requeue_jobs', '{\"states\": {}}')",
                 "22023");
    // Who may fill every column is told by PostgreSQL all the same.
    run(admin, "grant insert on rowbell.calls to %s", PQuser(ben));
    expect(ben,
           "insert into rowbell.calls (name, arguments, caller) values ('remove_subscription', '{\"name\": "
           "\"anns\"}', 'postgres') returning result",
           "false");
    expect(admin, "select count(*) from rowbell.subscriptions where name = 'anns'", "1");
    PQfinish(ann);
    PQfinish(ben);
    PQfinish(nobody);
}
END_TEST

START_TEST(a_group_owns_what_its_members_share) {
    set_up();
    PGconn *ann = ann_with_webhook(), *ben = login("rowbell_app"), *operator= login("rowbell_operator");
    ben_name = PQuser(ben);
    run(operator, "select rowbell.set_subscription_owner('anns', '%s')", ben_name);
    expect(ben, "select rowbell.set_subscription_state('anns', 'paused')", "t");
    expect(ann, "select rowbell.set_subscription_state('anns', 'active')", "f");
    run(admin, "grant %s to %s", ben_name, ann_name);
    expect(ann, "select rowbell.set_subscription_state('anns', 'active')", "t");
    // A member who has put the group's rights aside has them when it says so.
    PGconn *carl = login("pg_signal_backend");
    run(admin,
        "alter role %1$s noinherit; grant %2$s to %1$s; grant usage on schema rowbell to %1$s; grant execute on "
        "function rowbell.set_subscription_state to %1$s",
        PQuser(carl), ben_name);
    expect(carl, "select rowbell.set_subscription_state('anns', 'paused')", "f");
    run(carl, "set role %s", ben_name);
    expect(carl, "select rowbell.set_subscription_state('anns', 'paused')", "t");
    expect(ann, "select rowbell.set_subscription_state('anns', 'active')", "t");
    PQfinish(carl);
    // Nobody is given what they did not ask for.
    expect_error(ben, "select rowbell.set_subscription_owner('anns', 'postgres')", "42501");
    expect_error(ben, "select rowbell.set_subscription_owner('anns', 'no such role')", "42704");
    // Its role is gone: for operators only. A name says nothing about a role that is made later with it, so doctor
    // tells.
    run(admin, "update rowbell.subscriptions set owner = 'gone_%s' where name = 'anns'", ben_name);
    expect(ann, "select rowbell.remove_subscription('anns')", "f");
    expect(operator, "select subject from rowbell.doctor() where problem = 'owner is gone'", "subscription anns");
    expect(operator, "select rowbell.remove_subscription('anns')", "t");
    PQfinish(ann);
    PQfinish(ben);
    PQfinish(operator);
}
END_TEST

// Each change begins with what the other left.
START_TEST(two_changes_are_made_one_after_the_other) {
    set_up();
    PGconn *ann = ann_with_webhook(), *again = fixture_connect();
    run(again, "set role %s", ann_name);
    sql_run(ann, "begin; select rowbell.set_webhook('anns', '{\"rate\": 5}')");
    ck_assert_int_eq(PQsendQuery(again, "select rowbell.set_webhook('anns', '{\"max_in_flight\": 3}')"), 1);
    sql_wait(admin, 60000,
             "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'");
    sql_run(ann, "commit");
    PGresult *result = PQgetResult(again);
    ck_assert_msg(PQresultStatus(result) == PGRES_TUPLES_OK, "%s", PQerrorMessage(again));
    PQclear(result);
    ck_assert_ptr_null(PQgetResult(again));
    expect(admin,
           "select concat_ws(' ', settings -> 'rate', settings -> 'max_in_flight') from rowbell.subscriptions "
           "where name = 'anns'",
           "5 3");
    PQfinish(ann);
}
END_TEST

START_TEST(no_name_means_every_scope) {
    set_up();
    PGconn *ann = login("rowbell_app"), *operator= login("rowbell_operator");
    run(admin, "select rowbell.declare_type('a.b'); grant rowbell_index to %s", PQuser(ann));
    static const char *const wrong[] = {"'*'", "''"};
    for (int i = 0; i < 2; i++) {
        char sql[300];
        PGconn *const callers[] = {ann, operator, admin };
        for (int c = 0; c < 3; c++) {
            snprintf(sql, sizeof sql, "select rowbell.add_webhook('w', 'https://a.example/', '{*}', %s)", wrong[i]);
            expect_error(callers[c], sql, "22023");
        }
        snprintf(sql, sizeof sql, "select rowbell.add_index('i', '{posts.*}', %s, '{\"target\": \"postgres\"}')",
                 wrong[i]);
        expect_error(admin, sql, "22023");
        snprintf(sql, sizeof sql, "select rowbell.record('a.b', 's', '{}', %s)", wrong[i]);
        expect_error(ann, sql, "22023");
    }
    sql_run(ann, "select rowbell.add_webhook('w', 'https://a.example/', '{*}', 't1')");
    expect_error(ann, "select rowbell.set_webhook('w', '{\"scope\": \"*\"}')", "22023");
    expect_error(ann, "select rowbell.set_webhook('w', '{\"scope\": \"\"}')", "22023");
    expect_error(ann, "select rowbell.set_webhook('w', '{\"scope\": null}')", "22023");
    expect_error(ann, "select rowbell.set_webhook('w', '{\"all_scopes\": true}')", "42501");
    expect_error(ann, "select rowbell.set_webhook('w', '{\"all_scopes\": false}')", "22023");
    // The tenant's name is lost.
    expect_error(ann, "select rowbell.add_webhook('x', 'https://a.example/', '{*}', null)", "22023");
    expect_error(ann, "select rowbell.add_webhook('x', 'https://a.example/', '{*}', all_scopes => null)", "22023");
    expect_error(ann, "select rowbell.add_webhook('x', 'https://a.example/', '{*}', all_scopes => true)", "42501");
    expect_error(ann, "select rowbell.add_webhook('x', 'https://a.example/', '{*}', 't1', all_scopes => true)",
                 "22023");
    expect(admin, "select string_agg(coalesce(scope, 'all'), ' ') from rowbell.subscriptions where kind <> 'sse'",
           "t1");
    // With the right it must still be said.
    run(admin, "grant execute on function rowbell.all_scopes() to %s", PQuser(ann));
    expect_error(ann, "select rowbell.add_webhook('x', 'https://a.example/', '{*}')", "22023");
    sql_run(ann, "select rowbell.add_webhook('x', 'https://a.example/', '{*}', all_scopes => true)");
    expect(ann, "select rowbell.set_webhook('w', '{\"all_scopes\": true}')", "t");
    sql_run(operator, "select rowbell.add_webhook('y', 'https://a.example/', '{*}')");
    expect(admin, "select string_agg(coalesce(scope, 'all'), ' ') from rowbell.subscriptions where kind <> 'sse'",
           "all all all");
    PQfinish(ann);
    PQfinish(operator);
}
END_TEST

START_TEST(a_type_is_its_declarers) {
    set_up();
    PGconn *ann = login("rowbell_app"), *ben = login("rowbell_app"), *operator= login("rowbell_operator");
    sql_run(ann, "select rowbell.declare_type('salary.paid', 'private')");
    expect_error(ben, "select rowbell.declare_type('salary.paid', 'private', webhook => true)", "42501");
    expect_error(ben, "select rowbell.declare_type('salary.paid', 'mine')", "42501");
    expect_error(ben, "select rowbell.declare_type('posts.update', '', true)", "42710");
    expect(ben, "select rowbell.declare_type('salary.paid', 'private') > 0", "t");
    expect(admin, "select concat_ws(' ', webhook, description) from rowbell.event_types where type = 'salary.paid'",
           "f private");
    sql_run(ann, "select rowbell.declare_type('salary.paid', 'told', true)");
    expect(admin, "select concat_ws(' ', webhook, description) from rowbell.event_types where type = 'salary.paid'",
           "t told");
    sql_run(operator, "select rowbell.declare_type('salary.paid', 'private')");
    expect_error(operator, "select rowbell.record('salary.paid', 's')",
                 "42501"); // administration is not the right to record
    PQfinish(ann);
    PQfinish(ben);
    PQfinish(operator);
}
END_TEST

START_TEST(one_role_does_not_fill_the_tables) {
    set_up();
    PGconn *ann = login("rowbell_app"), *ben = login("rowbell_app"), *operator= login("rowbell_operator");
    ben_name = PQuser(ben);
    sql_run(admin, "update rowbell.installation set most_per_owner = 2");
    sql_run(ann, "select rowbell.add_webhook('w' || i, 'https://a.example/', '{*}', 't1'), rowbell.declare_type('t' || "
                 "i) from generate_series(1, 2) i");
    expect_error(ann, "select rowbell.add_webhook('w3', 'https://a.example/', '{*}', 't1')", "53400");
    expect_error(ann, "select rowbell.declare_type('t3')", "53400");
    expect(ann, "select rowbell.declare_type('t2') > 0", "t");
    sql_run(ben, "select rowbell.add_webhook('b', 'https://a.example/', '{*}', 't1')");
    sql_run(operator, "select rowbell.add_webhook('o' || i, 'https://a.example/', '{*}') from generate_series(1, 3) i");
    run(operator, "select rowbell.set_subscription_owner('o1', '%s')", ben_name);
    char sql[200];
    snprintf(sql, sizeof sql, "select rowbell.set_subscription_owner('o2', '%s')", ben_name);
    expect_error(operator, sql, "53400");
    PQfinish(ann);
    PQfinish(ben);
    PQfinish(operator);
}
END_TEST

START_TEST(an_operator_sees_no_credentials) {
    set_up();
    PGconn *operator= login("rowbell_operator");
    sql_run(admin, "select rowbell.add_webhook('w', 'https://a.example/', '{*}', null, '{\"headers\": "
                   "{\"Authorization\": \"Bearer hush\"}}')");
    static const char *const refused[] = {
        "select settings from rowbell.subscriptions", "select secrets from rowbell.subscriptions",
        "select s from rowbell.subscriptions s",      "select receipt_key from rowbell.installation",
        "select document from rowbell.search",        "table rowbell.subscriptions"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        expect_error(operator, refused[i], "42501");
    expect(operator,
           "select settings -> 'headers' ->> 'Authorization' from rowbell.subscription_health where name = 'w'", "...");
    expect(operator, "select rowbell.subscription_settings('w') -> 'headers' ->> 'Authorization'", "...");
    expect(admin, "select rowbell.subscription_settings('w') -> 'headers' ->> 'Authorization'", "Bearer hush");
    const char *out, *err;
    const char *const test[] = {"subscription", "test", "w", "--database-url", fixture_login("rowbell_operator"), NULL};
    ck_assert_int_eq(program_run("rowbell", test, &out, &err), 1);
    ck_assert_ptr_nonnull(strstr(out, "its headers or its client key may be credentials"));
    ck_assert_ptr_null(strstr(out, "hush"));
    PQfinish(operator);
}
END_TEST

// tests/hostile/FILE, freed by the caller.
static char *read_file(const char *name) {
    char path[1000];
    snprintf(path, sizeof path, "%s/tests/hostile/%s", SOURCE_ROOT, name);
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "%s", path);
    char *text = calloc(1, 100001);
    ck_assert_ptr_nonnull(text);
    ck_assert_uint_lt(fread(text, 1, 100000, file), 100000);
    fclose(file);
    return text;
}

START_TEST(each_role_may_do_what_is_listed) {
    fixture_database();
    char *sql = read_file("rights.sql"), *listed = read_file("rights.txt");
    const char *actual = sql_text(fixture_connect(), sql);
    if (getenv("ROWBELL_TEST_WRITE_DOCS") != NULL) {
        FILE *file = fopen(SOURCE_ROOT "/tests/hostile/rights.txt", "w");
        ck_assert_ptr_nonnull(file);
        fputs(actual, file);
        fclose(file);
    } else {
        size_t line = 0, at = 0;
        for (; actual[at] != 0 && actual[at] == listed[at]; at++)
            if (actual[at] == '\n')
                line = at + 1;
        ck_assert_msg(actual[at] == listed[at],
                      "rights differ from tests/hostile/rights.txt: is\n%.*s\nlisted\n%.*s\nIf it is meant, run this "
                      "test with ROWBELL_TEST_WRITE_DOCS=1.",
                      (int)strcspn(actual + line, "\n"), actual + line, (int)strcspn(listed + line, "\n"),
                      listed + line);
    }
    free(sql);
    free(listed);
}
END_TEST

// The same schema, made by the owner of a database who can make no roles.
START_TEST(without_roles_everything_is_closed_too) {
    fixture_database();
    PGconn *with_roles = fixture_connect();
    const char *const open_functions =
        "select string_agg(oid::regprocedure::text, ' ' order by oid::regprocedure::text) from pg_proc where "
        "pronamespace = 'rowbell'::regnamespace and has_function_privilege('public', oid, 'execute')";
    const char *open_with_roles = sql_text(with_roles, open_functions);
    fixture_empty_database();
    admin = fixture_connect();
    const char *owner_url = fixture_login("pg_signal_backend");
    PGconn *owner = PQconnectdb(owner_url);
    run(admin, "alter database %s owner to %s", PQdb(owner), PQuser(owner));
    const char *out, *err;
    const char *const migrate[] = {"migrate", "--no-roles", "--database-url", owner_url, NULL};
    ck_assert_msg(program_run("rowbell", migrate, &out, &err) == 0, "%s", err);
    expect(admin, open_functions, open_with_roles);
    PGconn *app = login("rowbell_app"); // these groups belong to other databases of the cluster, and mean nothing here
    PGconn *operator= login("rowbell_operator");
    expect_error(app, "select rowbell.record('a', 'b')", "42501"); // of the schema
    run(owner, "grant usage on schema rowbell to %s, %s", PQuser(app), PQuser(operator));
    static const char *const refused[] = {"select rowbell.record('a', 'b')",
                                          "select rowbell.add_webhook('w', 'https://a.example/', '{*}', 't')",
                                          "select rowbell.subscription_secrets('w')",
                                          "select rowbell.hold_jobs(1)",
                                          "select rowbell.alert('rowbell.backlog', '', '{}')",
                                          "insert into rowbell.calls (name, arguments) values ('add_webhook', '{}')",
                                          "select 1 from rowbell.events",
                                          "select nextval('rowbell.events_seq_seq')",
                                          "create table rowbell.mine ()"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        expect_error(app, refused[i], "42501");
        expect_error(operator, refused[i], "42501");
    }
    // The owner does everything, and grants by hand.
    sql_run(
        owner,
        "create schema own; create table own.posts (id int primary key, tenant text); select "
        "rowbell.publish('own.posts', scope => 'tenant');"
        "select rowbell.add_webhook('owners', 'https://a.example/', '{*}'); insert into own.posts values (1, 't1')");
    expect(admin, open_functions, open_with_roles); // nor do those that publish made
    run(owner,
        "grant execute on function rowbell.record, rowbell.declare_type, rowbell.add_webhook, rowbell.set_webhook, "
        "rowbell.remove_subscription to %s",
        PQuser(app));
    sql_run(app, "select rowbell.declare_type('a.b'); select rowbell.record('a.b', 's'); select "
                 "rowbell.add_webhook('w', 'https://a.example/', '{*}', 't')");
    expect(app, "select rowbell.remove_subscription('owners')", "f");
    expect_error(app, "select rowbell.add_webhook('x', 'https://a.example/', '{*}', all_scopes => true)", "42501");
    expect(app, "select rowbell.remove_subscription('w')", "t");
    run(owner, "grant execute on function rowbell.administer, rowbell.all_scopes, rowbell.remove_subscription to %s",
        PQuser(operator));
    expect(operator, "select rowbell.remove_subscription('owners')", "t");
    PQfinish(owner);
    PQfinish(app);
    PQfinish(operator);
}
END_TEST

START_TEST(what_a_role_stores_is_bounded) {
    set_up();
    PGconn *ann = login("rowbell_app");
    expect_error(ann, "select rowbell.add_webhook('w', 'https://example.com/', array_fill('a.b'::text, '{1001}'), 't')",
                 "54000");
    run(ann, "select rowbell.add_webhook('w', 'https://example.com/', array_fill('a.b'::text, '{1000}'), 't')");
    expect_error(ann, "select rowbell.set_webhook('w', jsonb_build_object('types', array_fill('a.b'::text, '{1001}')))",
                 "54000");
    expect_error(ann, "select rowbell.declare_type('big.one', repeat('x', 10001))", "54000");
    PQfinish(ann);
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "owners", 60);
    tcase_add_test(tcase, what_a_role_stores_is_bounded);
    tcase_add_test(tcase, a_role_does_not_reach_the_subscription_of_another);
    tcase_add_test(tcase, current_user_is_who_calls);
    tcase_add_test(tcase, calls_are_not_forged);
    tcase_add_test(tcase, a_group_owns_what_its_members_share);
    tcase_add_test(tcase, two_changes_are_made_one_after_the_other);
    tcase_add_test(tcase, no_name_means_every_scope);
    tcase_add_test(tcase, a_type_is_its_declarers);
    tcase_add_test(tcase, one_role_does_not_fill_the_tables);
    tcase_add_test(tcase, an_operator_sees_no_credentials);
    tcase_add_test(tcase, each_role_may_do_what_is_listed);
    tcase_add_test(tcase, without_roles_everything_is_closed_too);
}

int main(void) {
    return suite_main("owners", add_tests);
}
