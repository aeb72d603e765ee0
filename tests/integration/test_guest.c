// Rowbell is a guest in somebody else's database: what the host does there must not break it, nor it the host.
#include "tests/support/fixture.h"

START_TEST(a_publication_of_all_tables_stops_no_deletion) {
    fixture_database();
    PGconn *conn = fixture_connect();
    sql_run(fixture_admin(), "create publication everything for all tables");
    sql_run(conn, "insert into rowbell.attempts (subscription_id, event_seq, attempt, started_at, class)"
                  " values (1, 1, 1, now() - interval '90 days', 'delivered')");
    ck_assert_int_eq(sql_int(conn, "select rowbell.prune_attempts(0, 10)"), 1);
    ck_assert_str_eq(sql_text(conn, "select string_agg(c.relname, ' ') from pg_class c where c.relkind = 'r' and "
                                    "c.relnamespace = 'rowbell'::regnamespace and c.relreplident <> 'f' and not exists "
                                    "(select from pg_index i where i.indrelid = c.oid and i.indisprimary)"),
                     "");
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "guest", 60);
    tcase_add_test(tcase, a_publication_of_all_tables_stops_no_deletion);
}

int main(void) {
    return suite_main("guest", add_tests);
}
