// Settings of the writer's session or role must not reach our code, and our code leaves none behind.
#include "tests/support/fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Every setting that a session or a role may have is tried: a boolean both ways, each word of an enumeration, the least
// and the greatest number. Here are the texts, other numbers worth a try, and what is not tried, with the reason (value
// NULL).
static const struct {
    const char *name, *value, *reason;
} values[] = {
    {"application_name", "it's \\ %s", NULL},
    {"backtrace_functions", "lastval", NULL},
    {"client_encoding", "LATIN1", NULL},
    {"client_encoding", "SQL_ASCII", NULL},
    {"createrole_self_grant", "set, inherit", NULL},
    {"DateStyle", "German", NULL},
    {"DateStyle", "SQL, DMY", NULL},
    {"default_table_access_method", "heap", NULL},
    {"default_tablespace", "pg_default", NULL},
    {"default_text_search_config", "german", NULL},
    {"dynamic_library_path", "/nowhere", NULL},
    {"extension_destdir", "/nowhere", NULL}, // Debian's
    {"extension_control_path", "/nowhere", NULL},
    {"jit_above_cost", "0", NULL},
    {"jit_inline_above_cost", "0", NULL},
    {"lc_messages", "C", NULL},
    {"lc_monetary", "C", NULL},
    {"lc_numeric", "C", NULL},
    {"lc_time", "C", NULL},
    {"plpgsql.extra_errors", "all", NULL},
    {"plpgsql.extra_warnings", "all", NULL},
    {"restrict_nonsystem_relation_kind", "view, foreign-table", NULL},
    {"rowbell.capture", "nonsense", NULL},
    {"rowbell.lastval", ":1:nonsense", NULL},
    {"search_path", "evil, pg_catalog", NULL},
    {"session_replication_role", "local", NULL},
    {"temp_tablespaces", "nowhere", NULL},
    {"TimeZone", "Asia/Kathmandu", NULL},
    {"timezone_abbreviations", "India", NULL},
    {"wal_consistency_checking", "all", NULL},
    {"event_source", NULL, "of Windows"},
    {"local_preload_libraries", NULL, "a library that is missing refuses the login"},
    {"session_preload_libraries", NULL, "a library that is missing refuses the login"},
    {"default_transaction_read_only", NULL, "nothing is written"},
    {"session_replication_role=replica", NULL, "triggers are off: docs/capture.md"},
    {"transaction_read_only", NULL, "of one transaction"},
    {"transaction_deferrable", NULL, "of one transaction"},
    {"transaction_isolation", NULL, "of one transaction"},
    {"max_stack_depth", NULL, "what is too little for PostgreSQL itself"},
    {"temp_file_limit", NULL, "tests/integration/test_large_writes.c"},
    {"commit_delay", NULL, "only slow"},
    {"trace_sort", NULL, "only talk"},
};
enum { VALUES = sizeof values / sizeof *values };

static const char *const tables =
    "create table p (id int primary key, tenant text, gone timestamptz, n int, f float8);"
    "create table t (at timestamptz, span interval, bin bytea, class regclass, price money, f float8, list text[], "
    "primary key (at, span, bin, class, price, f, list));"
    "create table i (id bigint generated always as identity primary key, n int);"
    "create table h (a int, tenant regtype);"
    "create table parted (id int, part int, n int, primary key (id, part)) partition by list (part);"
    "create table parted1 partition of parted for values in (1); create table parted2 partition of parted for values "
    "in "
    "(2);"
    "create table c (id int primary key, tenant text);"
    "create table \"Select\" (id int primary key);"
    "select rowbell.publish('p', scope => 'tenant', soft_delete => 'gone'), rowbell.publish('t', scope => 'class'),"
    "rowbell.publish('i'), rowbell.publish('h', scope => 'tenant'), rowbell.publish('parted'),"
    "rowbell.publish('c', scope => 'tenant', capture => 'collection');"
    "select rowbell.declare_type('it.happened');"
    "grant all on all tables in schema public to public; grant usage on all sequences in schema public to public;"
    // What a search_path may put before our names.
    "create schema evil; grant usage on schema evil to public;"
    "create function evil.lastval() returns bigint language sql as 'select 666::bigint';"
    "create function evil.nextval(regclass) returns bigint language plpgsql as $$ begin raise 'evil'; end $$;"
    "create function evil.concat(oid, text, bigint) returns text language plpgsql as $$ begin raise 'evil'; end $$;"
    "create function evil.current_setting(text) returns text language plpgsql as $$ begin raise 'evil'; end $$;"
    "create function evil.same(text, text) returns boolean language plpgsql as $$ begin raise 'evil'; end $$;"
    "create operator evil.= (leftarg = text, rightarg = text, function = evil.same);"
    "create operator evil.|| (leftarg = text, rightarg = text, function = evil.same);";

// Names have their schema, and values their form, so that a statement means one thing whatever is set.
static const char *const writes[] = {
    "insert into public.p values (1, 'a', null, 1, 1)",
    "insert into public.p select n, 'a', null, n, 0.1 from generate_series(2, 9) n",
    "update public.p set n = n + 1 where id = 1",
    "update public.p set n = n + 1",
    "update public.p set n = n",
    "update public.p set f = f + 1e-15",
    "update public.p set id = id + 100 where id > 5",
    "update public.p set tenant = 'b' where id < 4",
    "update public.p set gone = timestamptz '2026-12-01 00:00:00+00' where id < 3",
    "delete from public.p where id > 3",
    ("insert into public.t values ('2026-12-01 12:34:56.789+00', 'P1M2DT3H', E'\\\\x00ff'::bytea, "
     "'pg_catalog.pg_class'::regclass, 12.5::numeric::money, 0.1::float8 + 0.2::float8, array['a', 'NULL', "
     "null]::text[])"),
    ("insert into public.t values ('2026-06-01 12:34:56+00', 'P1D', E'\\\\x5c'::bytea, 'public.\"Select\"'::regclass, "
     "1::numeric::money, 1e20::float8, array[]::text[])"),
    "update public.t set price = 7::numeric::money",
    "delete from public.t",
    "insert into public.i (n) values (1), (2) returning id",
    "update public.i set n = 3",
    "insert into public.h values (1, 'pg_catalog.int4'::regtype), (2, 'pg_catalog.timestamptz'::regtype)",
    "update public.h set a = 5",
    "delete from public.h",
    "insert into public.parted values (1, 1), (2, 2)",
    "insert into public.parted1 values (3, 1)",
    "update public.parted set part = 2 where id = 1",
    "update public.parted set n = 5",
    "insert into public.c values (1, 'a'), (2, 'b')",
    "update public.c set tenant = 'z'",
    "truncate public.p",
    "truncate public.parted",
    "select rowbell.record('it.happened', 'one', '{\"a\": [1.50, null]}', 'acme')",
    "select count(rowbell.record('it.happened', 'n' || n)) from generate_series(1, 3) n",
};
enum { WRITES = sizeof writes / sizeof *writes };

static int warnings;
static char last_warning[500];
static void on_notice(void *arg, const PGresult *result) {
    (void)arg;
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    if (severity && strcmp(severity, "WARNING") == 0) {
        warnings++;
        snprintf(last_warning, sizeof last_warning, "%s", PQresultErrorMessage(result));
    }
}

// What the writes leave in the outbox, and how they end, for a session as it is when it logs in.
static const char *events_of(PGconn *owner, PGconn *admin, const char *url, const char *what) {
    sql_run(admin, "truncate public.p, public.t, public.h, public.parted, public.c; delete from public.i; "
                   "alter table public.i alter id restart; truncate rowbell.events");
    PGconn *conn = PQconnectdb(url);
    ck_assert_msg(PQstatus(conn) == CONNECTION_OK, "%s: %s", what, PQerrorMessage(conn));
    PQsetNoticeReceiver(conn, on_notice, NULL);
    for (int i = 0; i < WRITES; i++) {
        PGresult *result = PQexec(conn, writes[i]);
        ck_assert_msg(PQresultStatus(result) == PGRES_COMMAND_OK || PQresultStatus(result) == PGRES_TUPLES_OK,
                      "%s: %s\n%s", what, writes[i], PQresultErrorMessage(result));
        PQclear(result);
    }
    PQfinish(conn);
    return sql_text(owner,
                    "select string_agg(concat_ws(' ', t.type, coalesce(e.scope, '-'), coalesce(e.key, '-'), e.subject, "
                    "e.data), e'\\n' order by t.type, e.scope, e.key, e.subject, e.data::text) "
                    "from rowbell.events e join rowbell.event_types t on t.id = e.type_id");
}

// Each setting with each value that is tried, as name, value, whether it may talk; the texts come from the table above.
static const char *const settings_sql =
    "select s.name, v.value from pg_settings s cross join lateral ("
    "  select case s.setting when 'on' then 'off' else 'on' end where s.vartype = 'bool'"
    "  union all select e from unnest(s.enumvals) e where s.vartype = 'enum' and e <> s.setting"
    "  union all select m from unnest(array[s.min_val, s.max_val]) m where s.vartype in ('integer', 'real')"
    "  union all select null where s.vartype = 'string') as v(value)"
    " where s.context in ('user', 'superuser') order by s.name, v.value";

static bool left_out(const char *name, const char *value) {
    char both[200];
    snprintf(both, sizeof both, "%s=%s", name, value ? value : "");
    for (int i = 0; i < VALUES; i++)
        if (values[i].value == NULL && (strcmp(values[i].name, name) == 0 || strcmp(values[i].name, both) == 0))
            return true;
    return false;
}

static int tried;
static void try_value(PGconn *owner, PGconn *admin, const char *url, const char *login, const char *name,
                      const char *value, const char *expected) {
    char what[300], *literal = PQescapeLiteral(owner, value, strlen(value));
    char sql[500];
    snprintf(what, sizeof what, "%s = %s", name, literal);
    // A list is a list of names.
    bool list =
        strcmp(name, "search_path") == 0 || strcmp(name, "temp_tablespaces") == 0 || strcmp(name, "DateStyle") == 0;
    snprintf(sql, sizeof sql, "alter role %s set %s = %s", login, name, list ? value : literal);
    PQfreemem(literal);
    sql_run(admin, sql);
    warnings = 0;
    const char *got = events_of(owner, admin, url, what);
    ck_assert_msg(strcmp(got, expected) == 0, "%s:\n%s\ninstead of:\n%s", what, got, expected);
    ck_assert_msg(warnings == 0, "%s: %s", what, last_warning);
    snprintf(sql, sizeof sql, "alter role %s reset all", login);
    sql_run(admin, sql);
    tried++;
}

// In a few parts, for the time that it takes.
enum { PARTS = 4 };
START_TEST(every_setting_leaves_the_same_events) {
    fixture_database();
    PGconn *owner = fixture_connect();
    sql_run(owner, tables);
    const char *url = fixture_login("rowbell_record");
    PQconninfoOption *options = PQconninfoParse(url, NULL);
    const char *login = NULL;
    for (PQconninfoOption *option = options; option->keyword; option++)
        if (strcmp(option->keyword, "user") == 0)
            login = option->val;
    PGconn *admin = fixture_admin();
    const char *expected = events_of(owner, admin, url, "nothing set");
    ck_assert_ptr_nonnull(strstr(expected, "t.create pg_class 2026-12-01%2012%3A34%3A56.789%2B00"));
    sql_run(admin, "do $$ begin end $$"); // plpgsql brings its settings
    PGresult *settings = PQexec(admin, settings_sql);
    ck_assert_int_eq(PQresultStatus(settings), PGRES_TUPLES_OK);
    int rows = PQntuples(settings);
    ck_assert_int_gt(rows, 200);
    for (int row = _i; row < rows; row += PARTS) {
        const char *name = PQgetvalue(settings, row, 0), *value = PQgetvalue(settings, row, 1);
        if (PQgetisnull(settings, row, 1)) { // a text: must be in the table
            bool known = left_out(name, NULL);
            for (int i = 0; i < VALUES; i++)
                known |= strcmp(values[i].name, name) == 0;
            ck_assert_msg(known, "%s: add a hostile value to the table", name);
        } else if (!left_out(name, value)) {
            try_value(owner, admin, url, login, name, value, expected);
        }
    }
    for (int i = _i; i < VALUES; i += PARTS) {
        char known[200];
        snprintf(known, sizeof known, "select count(*) from pg_settings where name = '%s'", values[i].name);
        if (values[i].value && (strncmp(values[i].name, "rowbell.", 8) == 0 || sql_int(admin, known) == 1))
            try_value(owner, admin, url, login, values[i].name, values[i].value, expected);
    }
    ck_assert_int_gt(tried, 200 / PARTS / 2);
    PQclear(settings);
    PQconninfoFree(options);
}
END_TEST

// What other functions of ours are called with, under the settings that change what a statement means.
static const char *const meanings[] = {
    "plpgsql.extra_errors = 'all'",
    "standard_conforming_strings = off",
    "backslash_quote = off",
    "transform_null_equals = on",
    "array_nulls = off",
    "quote_all_identifiers = on",
    "search_path = evil, pg_catalog",
    "datestyle = 'German'",
    "default_transaction_isolation = 'serializable'",
    "jit_above_cost = 0",
    "check_function_bodies = off",
};

START_TEST(every_function_means_the_same) {
    fixture_database();
    PGconn *owner = fixture_connect();
    sql_run(owner, tables);
    char sql[200];
    snprintf(sql, sizeof sql, "set %s", meanings[_i]);
    sql_run(owner, sql);
    sql_run(owner, "set escape_string_warning = off");
    // A URL, a condition, names: what is right is taken, and what is wrong refused.
    static const char *const taken[] = {
        ("select rowbell.add_webhook('w', 'https://example.com/a?b=c', '{*}', all_scopes => true, options => "
         "'{\"condition\": \"$.plan == \\\"pro\\\" && $.n[*] > 1.5\", \"headers\": {\"X-A\": \"b\"}}')"),
        "select rowbell.declare_type('books.sold')",
        "select rowbell.publish('public.\"Select\"')",
        "select rowbell.publish('public.\"Select\"', name => 'selects', lastval => true)",
        "select rowbell.unpublish('public.\"Select\"')",
        "select * from rowbell.receipt_status((select rowbell.receipt()))",
        "select rowbell.add_index('x', '{p.*}', options => '{\"target\": \"postgres\"}', all_scopes => true)",
    };
    static const char *const refused[][2] = {
        {"select rowbell.add_webhook('v', 'https://user@example.com/', '{*}', all_scopes => true)", "22023"},
        {"select rowbell.add_webhook('v', 'https://127.1/', '{*}', all_scopes => true)", "22023"},
        {"select rowbell.add_webhook('v', 'https://0x7f000001/', '{*}', all_scopes => true)", "22023"},
        {"select rowbell.add_webhook('v', E'https://exa\\\\mple.com/', '{*}', all_scopes => true)", "22023"},
        {"select rowbell.add_webhook('v', 'https://example.com/', '{a b}', all_scopes => true)", "22023"},
        {"select rowbell.add_webhook('v', 'https://example.com/', '{*}', all_scopes => true, options => "
         "'{\"condition\": "
         "\"$.a like_regex \\\"^(a+)+$\\\"\"}')",
         "22023"},
        {"select rowbell.add_webhook('v', 'https://example.com/', '{*}', all_scopes => true, options => "
         "'{\"condition\": "
         "\"$.** == 1\"}')",
         "22023"},
        {"select rowbell.declare_type('a b')", "22023"},
        {"select rowbell.declare_type('a*')", "22023"},
        {"select rowbell.publish('public.p', name => 'a b')", "22023"},
    };
    bool strings = strstr(meanings[_i], "standard_conforming") != NULL;
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (!strings || strchr(taken[i], '\\') == NULL)
            sql_run(owner, taken[i]);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (!strings || strchr(refused[i][0], '\\') == NULL || strstr(refused[i][0], "E'"))
            ck_assert_msg(strcmp(sql_error(owner, refused[i][0]), refused[i][1]) == 0, "%s: %s: not %s", meanings[_i],
                          refused[i][0], refused[i][1]);
}
END_TEST

// A body in a string is read when it is first called, by the settings of that session.
START_TEST(no_body_depends_on_how_strings_are_read) {
    fixture_database();
    ck_assert_str_eq(
        sql_text(fixture_connect(),
                 "select string_agg(p.oid::regprocedure::text, ', ') from pg_proc p where p.pronamespace = "
                 "'rowbell'::regnamespace and p.prosqlbody is null and strpos(p.prosrc, chr(92)) > 0 and not "
                 "coalesce(p.proconfig, '{}') @> '{standard_conforming_strings=on}'"),
        "");
}
END_TEST

// Inside of the application's transaction, too.
START_TEST(nothing_of_ours_changes_a_setting) {
    static const char *const calls[] = {
        "insert into p values (1, 'a'), (2, 'b'); update p set n = 1; insert into i (n) values (1); update i set n = 2",
        "select rowbell.publish('\"Select\"')",
        "select rowbell.publish('\"Select\"', name => 'other')",
        "select rowbell.unpublish('\"Select\"')",
        "select rowbell.declare_type('it.ended'), rowbell.record('it.ended', 'x'), rowbell.receipt()",
        "select rowbell.add_webhook('w', 'https://example.com/', '{*}', all_scopes => true)",
        "select rowbell.add_index('x', '{p.*}', options => '{\"target\": \"postgres\"}', all_scopes => true)",
        "select count(*) from rowbell.doctor()",
    };
    static const char *const all = "select md5(string_agg(name || '=' || setting, ' ' order by name)) || ' ' || "
                                   "current_setting('lock_timeout') from pg_settings";
    fixture_database();
    PGconn *owner = fixture_connect();
    sql_run(owner, tables);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        sql_run(owner, "begin");
        const char *before = sql_text(owner, all);
        sql_run(owner, calls[i]);
        ck_assert_msg(strcmp(before, sql_text(owner, all)) == 0, "%s: %s", calls[i], sql_text(owner, all));
        sql_run(owner, "commit");
    }
}
END_TEST

// The one setting that loses events; its other values do not.
START_TEST(doctor_names_who_writes_without_triggers) {
    static const char *const found = "select coalesce(string_agg(subject || ': ' || remedy, '; '), 'none') from "
                                     "rowbell.doctor() where problem = 'role writes without triggers'";
    fixture_database();
    PGconn *admin = fixture_admin();
    const char *database = sql_text(admin, "select current_database()");
    PGconn *login = PQconnectdb(fixture_login("rowbell_record"));
    char sql[300], expected[400];
    snprintf(sql, sizeof sql, "alter role %s in database %s set session_replication_role = local", PQuser(login),
             database);
    sql_run(admin, sql);
    ck_assert_str_eq(sql_text(admin, found), "none");
    snprintf(sql, sizeof sql, "alter role %s in database %s set session_replication_role = replica", PQuser(login),
             database);
    sql_run(admin, sql);
    snprintf(sql, sizeof sql, "alter role %s in database %s reset session_replication_role", PQuser(login), database);
    snprintf(expected, sizeof expected, "%s: %s", PQuser(login), sql);
    ck_assert_str_eq(sql_text(admin, found), expected);
    sql_run(admin, sql);
    ck_assert_str_eq(sql_text(admin, found), "none");
    snprintf(sql, sizeof sql, "alter database %s set session_replication_role = replica", database);
    sql_run(admin, sql);
    snprintf(sql, sizeof sql, "alter database %s reset session_replication_role", database);
    snprintf(expected, sizeof expected, "(all): %s", sql);
    ck_assert_str_eq(sql_text(admin, found), expected);
    sql_run(admin, sql);
    ck_assert_str_eq(sql_text(admin, found), "none");
    PQfinish(login);
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "settings", 500);
    tcase_add_loop_test(suite_long_case(suite, "every", 500), every_setting_leaves_the_same_events, 0, PARTS);
    tcase_add_loop_test(tcase, every_function_means_the_same, 0, (int)(sizeof meanings / sizeof *meanings));
    tcase_add_test(tcase, no_body_depends_on_how_strings_are_read);
    tcase_add_test(tcase, nothing_of_ours_changes_a_setting);
    tcase_add_test(tcase, doctor_names_who_writes_without_triggers);
}

int main(void) {
    return suite_main("settings", add_tests);
}
