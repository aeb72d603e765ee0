// docs/security-functions.md lists every function that runs with our rights, who may call it, and what of the caller's
// reaches it. This fails for a function that is not on the list, and for one that is not made as the list says.
#include "tests/support/fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static PGconn *conn;

// The rows of the table: | `name` or `pattern*` | roles, with commas | reason |
static void read_list(void) {
    FILE *file = fopen(SOURCE_ROOT "/docs/security-functions.md", "r");
    ck_assert_ptr_nonnull(file);
    char line[2000];
    int rows = 0;
    sql_run(conn, "create temp table listed (name text primary key, callers text, reason text)");
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "| `", 3) != 0)
            continue;
        PGresult *result = PQexecParams(conn,
                                        "insert into listed select btrim(p[2], ' `'), btrim(p[3]), btrim(p[4]) "
                                        "from string_to_array($1, '|') p where cardinality(p) = 5",
                                        1, NULL, (const char *const[]){line}, NULL, NULL, 0);
        ck_assert_msg(PQresultStatus(result) == PGRES_COMMAND_OK && strcmp(PQcmdTuples(result), "1") == 0,
                      "not a row of three columns, or a second one: %s\n%s", line, PQresultErrorMessage(result));
        PQclear(result);
        rows++;
    }
    fclose(file);
    ck_assert_int_gt(rows, 10);
}

static void set_up(void) {
    fixture_database();
    conn = fixture_connect();
    // Something published, so that there are generated functions too.
    sql_run(conn,
            "create table posts (id int primary key, tenant text); select rowbell.publish('posts', scope => "
            "'tenant');"
            "create temp view definers as select p.oid, p.proname as name, p.oid::regprocedure::text as signature, "
            "p.proconfig, p.proowner, coalesce((select string_agg(case a.grantee when 0 then 'public' else "
            "a.grantee::regrole::text end, ', ' order by a.grantee::regrole::text) from aclexplode(coalesce("
            "p.proacl, acldefault('f', p.proowner))) a where a.privilege_type = 'EXECUTE' and a.grantee <> "
            "p.proowner), 'nobody') as callers "
            "from pg_proc p where p.pronamespace = 'rowbell'::regnamespace and p.prosecdef");
    read_list();
}

static void expect_none(const char *sql, const char *what) {
    const char *found = sql_text(conn, sql);
    ck_assert_msg(*found == '\0', "%s:\n%s", what, found);
}

START_TEST(every_function_with_our_rights_is_on_the_list) {
    set_up();
    ck_assert_int_gt(sql_int(conn, "select count(*) from definers"), 30);
    expect_none("select string_agg(format('| `%s` | %s |', d.name, d.callers), e'\\n' order by d.name) from definers d "
                "where not exists (select from listed l where d.name like replace(replace(l.name, '_', '\\_'), '*', "
                "'%'))",
                "add them to docs/security-functions.md, with what of the caller's reaches them");
    expect_none("select string_agg(l.name, ', ') from listed l where not exists (select from definers d where d.name "
                "like replace(replace(l.name, '_', '\\_'), '*', '%'))",
                "on the list, and not there any more");
    expect_none("select string_agg(l.name, ', ') from listed l where l.reason = ''",
                "say what of the caller's reaches it");
}
END_TEST

START_TEST(every_function_with_our_rights_is_made_as_the_list_says) {
    set_up();
    expect_none("select string_agg(d.signature, ', ') from definers d where not coalesce(d.proconfig, '{}') && "
                "array['search_path=pg_catalog, pg_temp', 'search_path=pg_temp']",
                "no pinned search_path");
    expect_none("select string_agg(d.signature, ', ') from definers d where d.proowner <> 'rowbell_owner'::regrole",
                "not of rowbell_owner");
    expect_none("select string_agg(format('%s: %s, listed: %s', d.signature, d.callers, l.callers), e'\\n') "
                "from definers d join listed l on d.name like replace(replace(l.name, '_', '\\_'), '*', '%') "
                "where d.callers <> l.callers and not exists (select from listed m where m.name = d.name and m.name <> "
                "l.name and m.callers = d.callers)",
                "EXECUTE is granted to others than those on the list");
    expect_none("select string_agg(p.oid::regprocedure::text, ', ') from pg_proc p where p.pronamespace = "
                "'rowbell'::regnamespace and p.proowner <> 'rowbell_owner'::regrole",
                "not of rowbell_owner");
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "hostile_functions", 60);
    tcase_add_test(tcase, every_function_with_our_rights_is_on_the_list);
    tcase_add_test(tcase, every_function_with_our_rights_is_made_as_the_list_says);
}

int main(void) {
    return suite_main("hostile_functions", add_tests);
}
