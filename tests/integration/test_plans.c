// The plans of our statements when the planner knows nothing: statistics that say a large table is empty. They are
// taken so while a queue happens to be empty, or while an import of millions is not committed yet
// (docs/decisions/0006).
#include "common/db_session.h"
#include "dispatcher/sql.h"
#include "gateway/sql.h"
#include "relay/sql.h"
#include "tests/support/fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What grows with the work. Of these no statement may read more than it wants.
static const char *const large[] = {"events", "jobs", "jobs_waiting", "attempts", "stream_log"};

static PGconn *tables_that_seem_empty(void) {
    fixture_database();
    PGconn *conn = fixture_connect();
    sql_run(conn,
            "create table posts (id int primary key, tenant text); select rowbell.publish('posts', scope => 'tenant');"
            "select rowbell.add_webhook('w' || i, 'https://w.example/', '{posts.*}') from generate_series(1, 20) i;"
            "insert into posts select i, i % 100 from generate_series(1, 60000) i;"
            "update rowbell.events set fanned_out_at = now(), fanout = '{2}' where seq % 2 = 0;"
            "insert into rowbell.jobs (subscription_id, event_seq) select 2 + seq % 20, seq from rowbell.events;"
            "insert into rowbell.jobs_waiting (subscription_id, event_seq, state, run_at) select 2 + seq % 20, seq, "
            "(array['waiting', 'held', 'poisoned'])[1 + seq % 3], now() from rowbell.events;"
            "insert into rowbell.attempts (subscription_id, event_seq, attempt, started_at, class) select 2, seq, 1, "
            "now(), 'delivered' from rowbell.events;"
            "insert into rowbell.events_set_aside select seq, subject, now() from rowbell.events;"
            "insert into rowbell.stream_log (stream_id, position, prev, event_seq, scope, name, key, op) select 1, "
            "2e15 + seq, 2e15 + seq - 1, seq, scope, 'posts', key, op from rowbell.events");
    sql_run(conn, "analyze");
    sql_run(conn, "update pg_class set reltuples = 0, relpages = pg_relation_size(oid) / 8192 where relnamespace = "
                  "'rowbell'::regnamespace and relkind in ('r', 'i') and pg_relation_size(oid) > 0");
    struct db_conn_options options = {.statement_timeout_ms = 60000};
    char *settings = db_session_settings_sql(&options, false);
    sql_run(conn, settings);
    free(settings);
    sql_run(conn, "set plan_cache_mode = force_generic_plan");
    return conn;
}

// Owned by the fixture.
static const char *plan_of(PGconn *conn, const struct db_statement *statement) {
    char sql[400], nulls[200] = "";
    char *prepare = NULL;
    ck_assert_int_gt(asprintf(&prepare, "prepare it as %s", statement->sql), 0);
    sql_run(conn, prepare);
    free(prepare);
    int64_t parameters =
        sql_int(conn, "select cardinality(parameter_types) from pg_prepared_statements where name = 'it'");
    for (int64_t i = 0; i < parameters; i++)
        strcat(nulls, i > 0 ? ", null" : "(null");
    snprintf(sql, sizeof(sql), "explain (format json) execute it%s%s", nulls, parameters > 0 ? ")" : "");
    const char *plan = sql_text(conn, sql);
    sql_run(conn, "deallocate it");
    return plan;
}

// A node of the plan of this kind on this table.
static bool plan_has(const char *plan, const char *kind, const char *table) {
    char node[80], relation[80];
    snprintf(node, sizeof(node), "\"Node Type\": \"%s\"", kind);
    snprintf(relation, sizeof(relation), "\"Relation Name\": \"%s\"", table);
    for (const char *at = plan; (at = strstr(at, node)) != NULL; at++) {
        const char *next = strstr(at + 1, "\"Node Type\""), *name = strstr(at, relation);
        if (name != NULL && (next == NULL || name < next))
            return true;
    }
    return false;
}

static void check_plans(const struct db_statement *const *statements) {
    static const char *const kinds[] = {"Seq Scan", "Bitmap Heap Scan"};
    PGconn *conn = tables_that_seem_empty();
    for (; *statements != NULL; statements++) {
        const char *plan = plan_of(conn, *statements);
        for (size_t i = 0; i < sizeof(large) / sizeof(*large); i++)
            for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++)
                ck_assert_msg(!plan_has(plan, kinds[k], large[i]), "%s: %s on %s\n%.3000s", (*statements)->name,
                              kinds[k], large[i], plan);
    }
}

START_TEST(test_relay_reads_by_index) {
    check_plans(relay_statements);
}
END_TEST

START_TEST(test_dispatcher_reads_by_index) {
    check_plans(dispatcher_statements);
}
END_TEST

START_TEST(test_gateway_reads_by_index) {
    check_plans(gateway_statements);
}
END_TEST

// By the index of what waits, not by the primary key, which has all history before it.
START_TEST(test_claims_pass_history_by) {
    static const struct db_statement *const claims[] = {&sql_pass, &sql_pass_plain, &sql_waiting, &sql_isolate,
                                                        &sql_job_claim_ordered};
    PGconn *conn = tables_that_seem_empty();
    for (size_t i = 0; i < sizeof(claims) / sizeof(*claims); i++) {
        const char *plan = plan_of(conn, claims[i]);
        ck_assert_msg(strstr(plan, "\"events_claim\"") != NULL, "%s: %.3000s", claims[i]->name, plan);
    }
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *plans = suite_case(suite, "plans", 120);
    tcase_add_test(plans, test_relay_reads_by_index);
    tcase_add_test(plans, test_dispatcher_reads_by_index);
    tcase_add_test(plans, test_gateway_reads_by_index);
    tcase_add_test(plans, test_claims_pass_history_by);
}

int main(void) {
    return suite_main("plans", add_tests);
}
