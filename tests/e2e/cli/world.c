#include "tests/e2e/cli/world.h"
#include <stdio.h>
#include <string.h>

const char *out, *err;
PGconn *conn;
const char *database_url;

int run(const char *const *arguments) {
    return program_run("rowbell", arguments, &out, &err);
}

void expect_status(int status, int expected) {
    ck_assert_msg(status == expected, "status %d instead of %d\n%.1000s%.1000s", status, expected, out, err);
}

void expect_text(const char *text, const char *part) {
    ck_assert_msg(strstr(text, part) != NULL, "no '%s' in:\n%.2000s", part, text);
}

void expect_json(const char *condition) {
    char sql[1000];
    snprintf(sql, sizeof(sql), "select (%s)::text from (select $1::jsonb as j) as output", condition);
    PGresult *result = PQexecParams(conn, sql, 1, NULL, &out, NULL, NULL, 0);
    ck_assert_msg(PQresultStatus(result) == PGRES_TUPLES_OK, "%s\n%s", PQerrorMessage(conn), out);
    ck_assert_msg(strcmp(PQgetvalue(result, 0, 0), "true") == 0, "not so: %s\n%s", condition, out);
    PQclear(result);
}

void set_up(void) {
    database_url = fixture_database();
    conn = fixture_connect();
    sql_run(conn, "create table posts (id text primary key, tenant text, body text, deleted_at timestamptz)");
}

void make_events(void) {
    set_up();
    expect_status(RUN("publish", "posts", "--scope", "tenant"), 0);
    expect_status(RUN("subscription", "add", "webhook", "a", "https://a.example/", "--type", "*"), 0);
    expect_status(RUN("subscription", "add", "webhook", "b", "https://b.example/", "--type", "*"), 0);
    sql_run(conn, "insert into posts values ('p1', 't1', 'x'), ('p2', 't1', 'x'), ('p3', 't1', 'x')");
    sql_run(
        conn,
        "update rowbell.events set fanned_out_at = now(), fanout = array(select id from rowbell.subscriptions where "
        "name in ('a', 'b') order by name) where seq = 1");
    sql_run(conn,
            "update rowbell.events set poisoned_at = now(), retry_at = now(), fanout_attempts = 5, last_error = "
            "e'bad \\x1b[31m row' where "
            "seq = 2; insert into rowbell.events_set_aside select seq, subject from rowbell.events where seq = 2");
    sql_run(conn,
            "insert into rowbell.jobs_waiting select id, 1, 'poisoned', null, 3, 'http_5xx' from rowbell.subscriptions "
            "where name = 'b'");
    sql_run(conn,
            "insert into rowbell.attempts (subscription_id, event_seq, attempt, started_at, total_ms, status, class, "
            "peer, response_head) select id, 1, 1, now(), 12.34, case name when 'a' then 204 else 503 end, case name "
            "when 'a' then 'delivered' else 'http_5xx' end, '192.0.2.1:443', 'no \"luck\"' from rowbell.subscriptions "
            "where name in ('a', 'b')");
}

void add_endpoint(const char *name, const char *url) {
    expect_status(RUN("subscription", "add", "webhook", name, url, "--type", "*", "--allow-http"), 0);
}
