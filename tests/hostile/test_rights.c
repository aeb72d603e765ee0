// What each group of roles may do, tried: a login of each takes every column, row, lock, sequence, function and call of
// the schema, and what it gets is what rights.txt says (which a test compares with the catalog). In what it can read is
// no secret that is not meant for it.
#include "tests/support/fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static PGconn *admin;

static char *read_rights(void) {
    FILE *file = fopen(SOURCE_ROOT "/tests/hostile/rights.txt", "r");
    ck_assert_ptr_nonnull(file);
    char *text = calloc(1, 1 << 20);
    ck_assert_uint_gt(fread(text, 1, (1 << 20) - 1, file), 1000);
    fclose(file);
    return text;
}

// expected (role, key): a column, a relation, a sequence, a function or a call, each by itself.
static void read_expected(void) {
    static const char sql[] =
        "create temp table expected as "
        "with line as (select split_part(l, ' ', 1) as role, substr(l, strpos(l, ' ') + 1) as rest "
        "  from unnest(string_to_array($1, e'\\n')) l where l <> ''), "
        "each as (select role, case when rest ~ '^[A-Z]+ [a-z_.]+: ' then split_part(rest, ': ', 1) || ': ' || c else "
        "  rest end as key from line cross join lateral unnest(case when rest ~ '^[A-Z]+ [a-z_.]+: ' then "
        "  string_to_array(split_part(rest, ': ', 2), ' ') else array[''] end) c), "
        // Who may delete may lock the table, who may update a column may lock rows; who may execute may call.
        "more as (select * from each "
        "  union select role, 'LOCK ' || substr(key, 8) from each where key like 'DELETE %' "
        "  union select role, 'LOCK ROWS ' || split_part(substr(key, 8), ':', 1) from each where key like 'UPDATE %: "
        "%' "
        "  union select role, 'CALL ' || split_part(substr(key, 9), '(', 1) from each where key like 'EXECUTE %'), "
        "groups as (select rolname::text as role from pg_roles where rolname ~ '^rowbell_' and rolname <> "
        "  'rowbell_owner') "
        "select g.role, m.key from groups g join more m on m.role in (g.role, 'public')";
    char *text = read_rights();
    PGresult *result = PQexecParams(admin, sql, 1, NULL, (const char *const[]){text}, NULL, NULL, 0);
    ck_assert_msg(PQresultStatus(result) == PGRES_COMMAND_OK, "%s", PQresultErrorMessage(result));
    PQclear(result);
    free(text);
}

// attempt (key, sql, refusal): the refusal is how PostgreSQL's message begins; other errors come after the right was
// there. Arguments are no constants, for which a strict function is not even looked at.
static const char attempts_sql[] =
    "create temp table attempt as "
    "with relation as (select c.oid, c.relkind, c.oid::regclass::text as name from pg_class c where c.relkind in "
    "  ('r', 'p', 'v', 'm') and (c.relnamespace = 'rowbell'::regnamespace or c.oid in ('public.posts'::regclass, "
    "  'pg_catalog.pg_authid'::regclass, 'pg_catalog.pg_statistic'::regclass))), "
    "part as (select r.*, a.attname, format('%s: %s', r.name, a.attname) as key from relation r join pg_attribute a "
    "  on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped), "
    "function as (select p.oid, p.proname, p.oid::regprocedure::text as name, (select string_agg(format('(select "
    "null::%s)', "
    "  case when t.typtype = 'p' then 'text' else t.oid::regtype::text end), ', ' order by u.i) from "
    "unnest(p.proargtypes::oid[]) "
    "  with ordinality u (type, i) join pg_type t on t.oid = u.type) as arguments from pg_proc p where p.pronamespace "
    "= "
    "  'rowbell'::regnamespace) "
    "select 'SELECT ' || key as key, format('select %I from %s limit 0', attname, name) as sql, 'permission denied' as "
    "refusal from part "
    "union all select 'INSERT ' || key, format('insert into %s (%I) overriding system value select null where false', "
    "  name, attname), 'permission denied' from part where relkind <> 'v' or name = 'rowbell.calls' "
    "union all select 'UPDATE ' || key, format('update %s set %I = default where false', name, attname), 'permission "
    "denied' "
    "from part where relkind <> 'v' "
    "union all select v.verb || ' ' || name, format(v.sql, name), 'permission denied' from relation cross join "
    "  (values ('DELETE', 'delete from %s where false'), ('TRUNCATE', 'truncate %s'), ('LOCK', 'lock table %s in "
    "access "
    "  exclusive mode'), ('LOCK ROWS', 'select from %s limit 0 for key share')) v (verb, sql) where relkind <> 'v' "
    "union all select v.verb || ' ' || c.oid::regclass, format(v.sql, c.oid::regclass), 'permission denied' from "
    "  pg_class c cross join (values ('SELECT', 'select last_value from %s'), ('USAGE', $$select nextval('%s')$$), "
    "  ('UPDATE', $$select setval('%s', 1)$$)) v (verb, sql) where c.relkind = 'S' and c.relnamespace = "
    "  'rowbell'::regnamespace "
    "union all select 'EXECUTE ' || name, format('select rowbell.%I(%s)', proname, arguments), 'permission denied for "
    "function "
    "' || proname from function "
    "union all select distinct 'CALL rowbell.' || f.proname, format('insert into rowbell.calls (name, arguments) "
    "values "
    "  (%L, %L)', f.proname, '{}'), 'permission denied for function rowbell.' || f.proname from function f where "
    "exists "
    "  (select from function w where w.proname = f.proname || '_as')";

static PGconn *login(const char *role) {
    PGconn *conn = PQconnectdb(fixture_login(role));
    ck_assert_msg(PQstatus(conn) == CONNECTION_OK, "%s", PQerrorMessage(conn));
    PQclear(PQexec(conn, "set client_min_messages = error; set statement_timeout = '20s'"));
    return conn;
}

// Tries everything as this role; what was not refused is noted in `got`.
static void try_everything(const char *role, const PGresult *attempts) {
    PGconn *conn = login(role);
    for (int row = 0; row < PQntuples(attempts); row++) {
        const char *key = PQgetvalue(attempts, row, 0), *refusal = PQgetvalue(attempts, row, 2);
        char sql[4000];
        ck_assert_int_lt(snprintf(sql, sizeof sql, "rollback; begin; %s", PQgetvalue(attempts, row, 1)), sizeof sql);
        PGresult *result = PQexec(conn, sql);
        const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
        const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
        ck_assert_msg(PQstatus(conn) == CONNECTION_OK, "%s ended the session of %s", key, role);
        // A mistake of this test's SQL is no right.
        ck_assert_msg(sqlstate == NULL || (strncmp(sqlstate, "42", 2) != 0 || strcmp(sqlstate, "42501") == 0 ||
                                           strncmp(key, "EXECUTE", 7) == 0 || strncmp(key, "CALL", 4) == 0),
                      "%s: %s", key, message);
        bool refused =
            message != NULL && strcmp(sqlstate, "42501") == 0 && strncmp(message, refusal, strlen(refusal)) == 0;
        PQclear(result);
        if (!refused)
            PQclear(PQexecParams(admin, "insert into got values ($1, $2)", 2, NULL, (const char *const[]){role, key},
                                 NULL, NULL, 0));
    }
    PQfinish(conn);
}

static void set_up(void) {
    fixture_database();
    admin = fixture_admin();
    sql_run(admin, "create table posts (id int primary key, tenant text, title text);"
                   "select rowbell.publish('posts', scope => 'tenant');"
                   "create temp table got (role text, key text)");
    read_expected();
    sql_run(admin, attempts_sql);
}

START_TEST(each_login_gets_what_is_listed_and_nothing_else) {
    set_up();
    PGresult *attempts = PQexec(admin, "select key, sql, refusal from attempt order by key");
    PGresult *roles = PQexec(admin, "select distinct role from expected");
    ck_assert_int_gt(PQntuples(attempts), 500);
    ck_assert_int_ge(PQntuples(roles), 10);
    for (int i = 0; i < PQntuples(roles); i++)
        try_everything(PQgetvalue(roles, i, 0), attempts);
    const char *more =
        sql_text(admin, "select string_agg(role || ' ' || key, e'\\n' order by role, key) from (table got "
                        "except table expected) x");
    ck_assert_msg(*more == '\0', "not refused:\n%.3000s", more);
    const char *less =
        sql_text(admin, "select string_agg(role || ' ' || key, e'\\n' order by role, key) from (select * from "
                        "expected e where key in (select key from attempt) except table got) x");
    ck_assert_msg(*less == '\0', "listed, and refused:\n%.3000s", less);
    PQclear(attempts);
    PQclear(roles);
}
END_TEST

// Secrets, and who may read each.
static const struct {
    const char *what, *sql, *readers;
} secrets[] = {
    {"the secret of a webhook", "select substr(secrets[1], 7) from rowbell.subscriptions where name = 'w'",
     "rowbell_dispatcher"},
    {"a credential for an endpoint", "select 'hush-credential'", "rowbell_dispatcher"},
    {"the key of receipts", "select receipt_key from rowbell.installation", ""},
    {"the key of tickets", "select key from rowbell.caller_key", ""},
    {"a key of messages on Redis", "select key from rowbell.stream_keys", "rowbell_dispatcher rowbell_gateway"},
    {"data of an event", "select 'hush-data'", "rowbell_dispatcher rowbell_operator rowbell_relay"},
    {"a row", "select 'hush-row'", ""},
};

START_TEST(no_login_reads_a_secret_that_is_not_meant_for_it) {
    set_up();
    sql_run(admin, "select rowbell.add_webhook('w', 'https://a.example/', '{posts.*}', all_scopes => true, options => "
                   "'{\"headers\": {\"Authorization\": \"hush-credential\"}}');"
                   "insert into posts values (1, 'acme', 'hush-row'); select rowbell.declare_type('thing.happened');"
                   "select rowbell.record('thing.happened', 'a/1', '{\"iban\": \"hush-data\"}', 'acme')");
    PGresult *columns = PQexec(
        admin, "select role, format('select array_to_string(array[%s], e''\\n'')', string_agg(format('(select "
               "string_agg(%I::text, e''\\n'') from %s)', split_part(key, ': ', 2), substr(split_part(key, ': ', "
               "1), 8)), ', ')) from expected where key like 'SELECT %: %' group by role");
    ck_assert_msg(PQntuples(columns) >= 10, "%s", PQresultErrorMessage(columns));
    for (int row = 0; row < PQntuples(columns); row++) {
        const char *role = PQgetvalue(columns, row, 0);
        PGconn *conn = login(role);
        PGresult *result = PQexec(conn, PQgetvalue(columns, row, 1));
        ck_assert_msg(PQntuples(result) == 1, "%s: %s", role, PQresultErrorMessage(result));
        for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++) {
            bool reads = strstr(PQgetvalue(result, 0, 0), sql_text(admin, secrets[i].sql)) != NULL;
            ck_assert_msg(reads == (strstr(secrets[i].readers, role) != NULL), "%s %s %s", role,
                          reads ? "reads" : "does not read", secrets[i].what);
        }
        PQclear(result);
        PQfinish(conn);
    }
    PQclear(columns);
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "hostile_rights", 300);
    tcase_add_test(tcase, each_login_gets_what_is_listed_and_nothing_else);
    tcase_add_test(tcase, no_login_reads_a_secret_that_is_not_meant_for_it);
}

int main(void) {
    return suite_main("hostile_rights", add_tests);
}
