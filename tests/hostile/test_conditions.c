// A tenant's condition must not stop the fleet: what cannot be linear in the data is refused, whoever stores it; and if
// one is evaluated that is slow all the same, only its own subscription waits.
#include "tests/support/fixture.h"
#include <stdio.h>
#include <string.h>

static const char *const fast[] = {"--poll-ms", "20ms", NULL};

static PGconn *fresh(void) {
    fixture_database();
    PGconn *conn = fixture_connect();
    sql_run(conn, "select rowbell.declare_type('thing.happened', webhook => true)");
    return conn;
}

static void relay(void) {
    daemon_wait_log(daemon_start("rowbell-relay", fast), "relay_started", HANG_MS);
}

// As an application would: by a parameter.
static const char *add_error(PGconn *conn, const char *condition) {
    PGresult *result = PQexecParams(conn,
                                    "select rowbell.add_webhook('w' || nextval('pg_temp.n'), 'https://a.example/', "
                                    "'{*}', 't', jsonb_build_object('condition', $1::text))",
                                    1, NULL, (const char *const[]){condition}, NULL, NULL, 0);
    static char state[6];
    const char *field = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    snprintf(state, sizeof state, "%s", field ? field : "");
    PQclear(result);
    return state;
}

static PGconn *application(void) {
    PGconn *app = PQconnectdb(fixture_login("rowbell_app"));
    ck_assert_msg(PQstatus(app) == CONNECTION_OK, "%s", PQerrorMessage(app));
    return app;
}

#define NESTED_4 "exists($.** ? (exists($.** ? (exists($.** ? (exists($.** ? (@ == 12345))))))))"

START_TEST(what_is_not_linear_in_the_data_is_refused) {
    static const char *const hostile[] = {
        NESTED_4,
        "$.** == 1",
        "$.a.**{2 to last}.b == 1",
        "exists(strict $.**)",
        // Each with each.
        "$.a[*] == $.b[*]",
        "$.a == $.b", // lax takes arrays apart
        "strict $.a[*] == $.b[*]",
        "strict $.* < $.*",
        "strict $.a.size() == $.b[*].size()",
        "strict exists($.l[*] ? (@.a == @.b[*]))",
        "strict ($.a ? (@ > 1)) == $.b",
        // Everything again for each item.
        "exists($.a[*] ? ($.b[*] == 1))",
        "exists($.a[*] ? (@ == $.b))",
        "exists($.a[*] ? (exists(@.b[*] ? ($.c == 1))))",
        "exists($.a[*] ? (exists(@[*] ? (exists(@[*] ? (@ == 1))))))",
        "$.a ? ((@.b == 1) && ($.c == 1))",
        // One value many times.
        "$[0,0][0,0][0,0][0,0][0,0][0,0][0,0][0,0][0,0][0,0][0,0][0,0][0,0][0,0][0,0][0,0][0,0][0,0][0,0][0,0] == 1",
        "$.a[0 to last, 0 to last] == 1",
        "$.a[$.b] == 1",
        "$.a[last - 1] == 1",
        "$.a.keyvalue().value.keyvalue().value == 1",
        // Any time.
        "$.a like_regex \"(a+)+$\"",
        "$.a like_regex \"^(.*)\\\\1(.*)\\\\2$\" flag \"i\"",
        "$.a * $.a * $.a > 1e10",
        "-$.a == 1",
        "$.a.double() > 1",
        "$.a.datetime() < \"2020-01-01\".datetime()",
        "$.a == $x",
        "exists($.a ? (@ == $\"b c\"))",
        // Long.
        "$.a == 1e131000",
        "1 == 1",
        "$.a.size()",
        "not a jsonpath",
        "",
    };
    PGconn *admin = fresh(), *app = application();
    sql_run(app, "create temp sequence n");
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++)
        ck_assert_msg(strcmp(add_error(app, hostile[i]), "22023") == 0, "%s: '%s'", hostile[i],
                      add_error(app, hostile[i]));
    static const char *const generated[] = {
        "select repeat('exists($.** ? (', 18) || '@ == 1' || repeat('))', 18)", // 312 characters
        "select repeat('(', 400) || '$.a == 1' || repeat(')', 400) || repeat(' ', 1000)",
        "select '$.a == \"' || repeat('x', 1000000) || '\"'",
        "select string_agg('$.a == ' || i, ' || ') from generate_series(1, 17) i",
        "select '$' || string_agg('.a', '') || ' == 1' from generate_series(1, 400) i",
        "select repeat('/* */', 300) || '$.a == 1'",
    };
    for (size_t i = 0; i < sizeof generated / sizeof *generated; i++) {
        const char *condition = sql_text(app, generated[i]);
        ck_assert_msg(strcmp(add_error(app, condition), "22023") == 0, "%s", generated[i]);
    }
    // Neither by a change, nor by who writes the table; and what is wrong is said, and where.
    ck_assert_str_eq(add_error(app, "$.a == 1"), "");
    ck_assert_str_eq(sql_error(app, "select rowbell.set_webhook((select 'w' || last_value from pg_temp.n), "
                                    "'{\"condition\": \"$.a == $.b\"}')"),
                     "22023");
    ck_assert_str_eq(sql_error(admin, "insert into rowbell.subscriptions (name, kind, types, condition) values ('x', "
                                      "'webhook', '{*}', '$.** == 1')"),
                     "22023");
    ck_assert_str_eq(
        sql_error(admin, "update rowbell.subscriptions set condition = '$.** == 1' where kind = 'webhook'"), "22023");
    ck_assert_str_eq(
        sql_text(admin, "select rowbell.condition_problem('$.ok == 1 && exists($.list[*] ? (@.a == $.b))')"),
        "at $.\"b\"))): $ inside of a filter looks at everything again, for each item; use @");
    PQfinish(app);
}
END_TEST

START_TEST(what_people_write_is_allowed) {
    static const char *const allowed[] = {
        "$.plan == \"pro\"",
        "$.a.b.\"c d\"[0].e != null && !($.x starts with \"y\") || exists($.l[*] ? (@.a == 1 && @.b > -2.5))",
        "$.flag",
        "$.vip ? (@ == true)",
        "$.list.size() > 3 && $.list[*].type() == \"string\"",
        "\"x\" == $.a && -1 < $.a[last] && $.* == 1",
        "($.a == 1 || $.b == 2) && ($.c >= 1) is unknown",
        "strict $.old.status != $.new.status",
        "strict exists($.l[*] ? (@.a == @.b))",
        "$.text == \"&& || ? ( @ $ .** like_regex \\\" \\u0041\"",
        "$.country == \"DE\" || $.country == \"AT\" || $.country == \"CH\" || $.country == \"IT\"",
        "exists($.orders[*].items[*] ? (@.tags[*] == \"x\"))",
    };
    fresh();
    PGconn *app = application();
    sql_run(app, "create temp sequence n");
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
        const char *state = add_error(app, allowed[i]);
        ck_assert_msg(*state == 0, "%s: %s", allowed[i], state);
    }
    PQfinish(app);
}
END_TEST

// Random paths. One that is allowed yields no value twice, so at most as many as the document has: that, for each of
// its steps, is what makes a condition linear.
START_TEST(a_path_that_is_allowed_comes_to_no_value_twice) {
    PGconn *conn = fresh();
    sql_run(
        conn,
        "create function pg_temp.tried(most int, out allowed int, out refused int, out worst text)"
        " language plpgsql as $$ declare"
        "  step text[] := '{.a,.b,\"[*]\",.*,[0],[last],\"[0,0]\",\"[0 to last]\",\"[0 to last, 0 to last]\",.**,"
        "\".**{1 to 2}\",.keyvalue(),.keyvalue().value,\" ? (@.a == 1)\",\" ? (@ != 12345)\",\" ? ($.a != 12345)\",\" "
        "? (exists(@.a))\","
        "\" ? (exists(@.** ? (@ != 12345)))\",\" ? (@[*] == 1 && @.b == null)\",\"[$.a[0]]\",.size(),.type()}';"
        "  doc jsonb; nodes int; path text; yielded int;"
        " begin allowed := 0; refused := 0; perform setseed(0.42);"
        "  select jsonb_build_object('a', jsonb_agg(x), 'b', jsonb_agg(jsonb_build_object('a', x, 'b', "
        "jsonb_build_array(x, x))))"
        "    into doc from (select jsonb_build_object('a', jsonb_build_array(1, i, jsonb_build_object('a', 1)), "
        "'b', i) as x"
        "                     from generate_series(1, 12) i) t;"
        "  nodes := jsonb_array_length(jsonb_path_query_array(doc, 'strict $.**'));"
        "  for i in 1 .. most loop"
        "    path := case when random() < 0.3 then 'strict $' else '$' end || (select string_agg(step[1 + "
        "floor(random() * "
        "cardinality(step) + 0 * n)::int], '') from generate_series(1, 1 + i % 7) n);"
        // A path alone, and one that is compared.
        "    if random() < 0.5 then path := path || ' == 54321'; end if;"
        "    begin perform rowbell.condition_check(path); exception when invalid_parameter_value then refused := "
        "refused + 1; continue; end;"
        "    allowed := allowed + 1;"
        "    select count(*) into yielded from jsonb_path_query(doc, replace(path, ' == 54321', '')::jsonpath, "
        "'{}', true);"
        "    if yielded > nodes then worst := path || ' yields ' || yielded || ' of ' || nodes; return; end if;"
        "  end loop; end $$");
    ck_assert_str_eq(
        sql_text(conn, "select coalesce(worst, '') || (allowed > 500 and refused > 500) from pg_temp.tried(6000)"),
        "true");
}
END_TEST

// Its `**` and `$` inside of filters: steps to the power of six.
#define SLOW                                                                                                           \
    "exists($.** ? (exists($.** ? (exists($.** ? (exists($.** ? (exists($.** ? (exists($.** ? (@ == 12345))))))))))))"
#define EVIL_DATA "(select jsonb_build_object('a', jsonb_agg(i)) from generate_series(1, 100) i)"

static void add_slow_past_the_check(PGconn *admin) {
    sql_run(
        admin,
        "select rowbell.add_webhook('evil', 'https://evil.example/', '{*}', 'evil', '{\"condition\": \"$.a == 1\"}');"
        "select rowbell.set_subscription_owner('evil', 'rowbell_app');"
        "select rowbell.add_webhook('peer', 'https://peer.example/', '{*}', 'evil');"
        "select rowbell.add_webhook('victim', 'https://victim.example/', '{*}', 'good');"
        "select rowbell.add_webhook('chosen', 'https://victim.example/', '{*}', 'good', '{\"condition\": \"$.n != "
        "7\"}');"
        "alter table rowbell.subscriptions disable trigger condition_of_subscription;"
        "update rowbell.subscriptions set condition = '" SLOW "' where name = 'evil';"
        "alter table rowbell.subscriptions enable trigger condition_of_subscription");
}

#define RECORD(count, scope, data)                                                                                     \
    "select count(rowbell.record('thing.happened', 's', " data ", '" scope "')) from generate_series(1, " count ") i"
#define FANNED(scope) "select count(*) = 0 from rowbell.events where fanned_out_at is null and scope = '" scope "'"
#define JOBS(name)                                                                                                     \
    "select count(*) from rowbell.jobs j join rowbell.subscriptions s on s.id = j.subscription_id where s.name = "     \
    "'" name "'"

START_TEST(a_slow_condition_holds_its_own_subscription_alone) {
    PGconn *admin = fresh(), *app = application();
    add_slow_past_the_check(admin);
    sql_run(app, RECORD("10", "evil", EVIL_DATA));
    sql_run(app, RECORD("23", "good", "jsonb_build_object('n', i)"));
    relay();
    sql_wait(admin, HANG_MS, FANNED("good"));
    sql_wait(admin, HANG_MS, FANNED("evil"));
    ck_assert_int_eq(sql_int(admin, JOBS("victim")), 23);
    ck_assert_int_eq(sql_int(admin, JOBS("chosen")), 22);
    ck_assert_int_eq(sql_int(admin, JOBS("peer")), 10);
    ck_assert_int_eq(sql_int(admin, JOBS("evil")), 0);
    ck_assert_str_eq(
        sql_text(admin,
                 "select string_agg(distinct concat_ws(' ', s.name, w.state, w.last_class), ',') || count(*) from "
                 "rowbell.jobs_waiting w join rowbell.subscriptions s on s.id = w.subscription_id"),
        "evil poisoned condition10");
    // Three slow evaluations, and it is put aside.
    ck_assert_str_eq(sql_text(admin, "select state || condition_aside from rowbell.subscriptions where name = 'evil'"),
                     "disabledtrue");
    ck_assert_str_eq(
        sql_text(admin,
                 "select string_agg(distinct t.type || ' ' || e.subject, ', ' order by t.type || ' ' || e.subject) "
                 "from rowbell.events e join rowbell.event_types t on t.id = e.type_id where t.type like "
                 "'rowbell.%'"),
        "rowbell.job.poisoned subscription/evil, rowbell.subscription.disabled subscription/evil");
    ck_assert_int_eq(sql_int(admin, "select count(*) from rowbell.doctor() where problem = 'condition put aside' and "
                                    "subject = 'subscription evil'"),
                     1);
    ck_assert_int_eq(
        sql_int(admin, "select count(*) from rowbell.events where fanout_attempts > 0 or poisoned_at is not null"), 0);
    // It stays aside; requeued, its jobs have nothing to be asked; and it does not come back unmended.
    sql_run(app, RECORD("5", "evil", EVIL_DATA));
    sql_wait(admin, HANG_MS, FANNED("evil"));
    ck_assert_int_eq(sql_int(admin, "select rowbell.requeue_jobs(subscription => 'evil')"), 0);
    ck_assert_str_eq(sql_error(app, "select rowbell.set_subscription_state('evil', 'active')"), "22023");
    // Mended, those go out that the condition wants, and the others never were.
    sql_run(app, RECORD("1", "evil", "'{\"wanted\": 1}'"));
    sql_wait(admin, HANG_MS, FANNED("evil"));
    sql_run(app, "select rowbell.set_webhook('evil', '{\"condition\": \"$.wanted == 1\"}');"
                 "select rowbell.set_subscription_state('evil', 'active')");
    ck_assert_int_eq(sql_int(admin, "select rowbell.requeue_jobs(subscription => 'evil')"), 16);
    ck_assert_str_eq(
        sql_text(admin, "select string_agg(w.state || (e.data ->> 'wanted'), ' ') from rowbell.jobs_waiting w join "
                        "rowbell.events e on e.seq = w.event_seq"),
        "waiting1");
    ck_assert_int_eq(
        sql_int(admin, "select count(*) from rowbell.events e join rowbell.subscriptions s on s.id = any (e.fanout) "
                       "where s.name = 'evil'"),
        1);
    PQfinish(app);
}
END_TEST

START_TEST(who_holds_a_row_of_the_slow_subscription_keeps_nobody_waiting) {
    PGconn *admin = fresh(), *app = application(), *holder = application();
    add_slow_past_the_check(admin);
    sql_run(holder, "begin; select rowbell.set_webhook('evil', '{\"rate\": 5}')");
    sql_run(app, RECORD("10", "evil", EVIL_DATA));
    sql_run(app, RECORD("23", "good", "jsonb_build_object('n', i)"));
    relay();
    sql_wait(admin, HANG_MS, FANNED("good"));
    sql_wait(admin, HANG_MS, FANNED("evil"));
    ck_assert_str_eq(sql_text(admin, "select state || condition_aside from rowbell.subscriptions where name = 'evil'"),
                     "activefalse");
    ck_assert_int_eq(sql_int(admin, "select count(*) from rowbell.jobs_waiting where last_class = 'condition'"), 10);
    sql_run(holder, "rollback");
    sql_run(app, RECORD("1", "evil", EVIL_DATA));
    sql_wait(admin, HANG_MS, "select condition_aside from rowbell.subscriptions where name = 'evil'");
    PQfinish(app);
    PQfinish(holder);
}
END_TEST

// Stored by an earlier version: it is put aside by the migration. (A comparison of two paths cannot be cancelled, so no
// guard at run time would help.)
START_TEST(a_condition_of_before_the_rules_is_put_aside_by_migrate) {
    PGconn *admin = fresh(), *app = application();
    sql_run(admin, "alter table rowbell.subscriptions disable trigger condition_of_subscription;"
                   "insert into rowbell.subscriptions (name, kind, types, condition) values ('old', 'webhook', '{*}', "
                   "'$.a[*] == $.b[*]'), ('good', 'webhook', '{*}', '$.a[*] == 2');"
                   "alter table rowbell.subscriptions enable trigger condition_of_subscription;"
                   "update rowbell.migrations set checksum = 'of before' where name = 'functions/conditions'");
    const char *out, *err;
    ck_assert_int_eq(program_run("rowbell", (const char *const[]){"migrate", NULL}, &out, &err), 0);
    ck_assert_str_eq(
        sql_text(admin, "select string_agg(name || ' ' || state || ' ' || condition_aside, ', ' order by name) from "
                        "rowbell.subscriptions where kind = 'webhook'"),
        "good active false, old disabled true");
    ck_assert_str_eq(
        sql_text(admin, "select e.data ->> 'subscription' from rowbell.events e join rowbell.event_types t on t.id = "
                        "e.type_id where t.type = 'rowbell.subscription.disabled'"),
        "old");
    ck_assert_int_eq(
        sql_int(admin, "select count(*) from rowbell.doctor() where problem = 'condition put aside' and detail like "
                       "'it compares two paths%'"),
        1);
    sql_run(app, "select rowbell.record('thing.happened', 's', (select jsonb_build_object('a', jsonb_agg(1), 'b', "
                 "jsonb_agg(2)) from "
                 "generate_series(1, 40000)))");
    relay();
    sql_wait(admin, HANG_MS, "select count(*) = 0 from rowbell.events where fanned_out_at is null");
    ck_assert_str_eq(sql_text(admin, "select state || ' ' || last_class from rowbell.jobs_waiting"),
                     "poisoned condition");
    PQfinish(app);
}
END_TEST

// 20 events of 200 kB that a condition looks at, and one larger than the bound: several passes, each of about 1 MiB.
START_TEST(a_pass_looks_at_a_bounded_number_of_bytes) {
    PGconn *admin = fresh();
    sql_run(
        admin,
        "select rowbell.add_webhook('w', 'https://a.example/', '{*}', null, '{\"condition\": \"$.a == 1\"}');"
        "insert into rowbell.events (type_id, data) select t.id, jsonb_build_object('a', 1, 'b', (select "
        "string_agg(md5(random()::text || i), '') from generate_series(1, case n when 7 then 60000 else 6250 end) i)) "
        "from rowbell.event_types t, generate_series(1, 20) n where t.type = 'thing.happened' order by n");
    const char *out, *err;
    ck_assert_int_eq(program_run("rowbell-relay", (const char *const[]){"--once", NULL}, &out, &err), 0);
    ck_assert_int_eq(
        sql_int(admin, "select count(*) from rowbell.jobs j join rowbell.subscriptions s on s.id = j.subscription_id "
                       "where s.name = 'w'"),
        20);
    // At most the bound, and the event that reaches it.
    ck_assert_int_eq(
        sql_int(admin, "select count(*) from (select sum(pg_column_size(data)) - "
                       "(array_agg(pg_column_size(data) order by seq desc))[1] as before_last from rowbell.events "
                       "group by fanned_out_at) p where p.before_last >= 1048576"),
        0);
    ck_assert_int_ge(sql_int(admin, "select count(distinct fanned_out_at) from rowbell.events"), 4);
}
END_TEST

static void add_tests(Suite *suite) {
    const TTest *const tests[] = {
        what_is_not_linear_in_the_data_is_refused,
        what_people_write_is_allowed,
        a_path_that_is_allowed_comes_to_no_value_twice,
        a_slow_condition_holds_its_own_subscription_alone,
        who_holds_a_row_of_the_slow_subscription_keeps_nobody_waiting,
        a_condition_of_before_the_rules_is_put_aside_by_migrate,
        a_pass_looks_at_a_bounded_number_of_bytes,
    };
    TCase *tcase = suite_case(suite, "conditions", 180);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_test(tcase, tests[i]);
}

int main(void) {
    return suite_main("conditions", add_tests);
}
