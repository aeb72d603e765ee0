#include "tests/e2e/delivery.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>

const char *const plain[] = {"--allow-egress", "127.0.0.1", NULL};
const char *const webhook_only[] = {"--allow-egress", "127.0.0.1", "--lanes", "webhook", NULL};
const char *const sse_only[] = {"--lanes", "sse", NULL};

void prepare(PGconn *conn) {
    sql_run(conn, "alter sequence rowbell.events_seq_seq restart 4294967296;"
                  "create table posts (id int primary key, title text); select rowbell.publish('posts');"
                  "select rowbell.declare_type('thing.happened', webhook => true)");
}

PGconn *fresh(void) {
    fixture_database();
    PGconn *conn = fixture_connect();
    prepare(conn);
    return conn;
}

int webhook(PGconn *conn, const char *name, struct receiver *receiver, const char *more_options) {
    char sql[500];
    snprintf(sql, sizeof sql,
             "select subscription_id from rowbell.add_webhook('%s', '%s/%s', '{*}', null, "
             "'{\"allow_http\": true%s}')",
             name, receiver_url(receiver), name, more_options);
    return (int)sql_int(conn, sql);
}

// One event for each of count new rows, and a job of each for the subscription, as a relay leaves them.
void queue(PGconn *conn, int subscription, int count) {
    char sql[600];
    snprintf(
        sql, sizeof sql,
        "begin; insert into posts select coalesce((select max(id) from posts), 0) + i from generate_series(1, %d) i;"
        "with e as (update rowbell.events set fanned_out_at = now(), fanout = '{%d}' where (op is not null or "
        "subject not like 'subscription/%%') and fanned_out_at is null returning seq) insert into rowbell.jobs "
        "(subscription_id, event_seq) select %d, seq from e; commit",
        count, subscription, subscription);
    sql_run(conn, sql);
}

void queue_matching(PGconn *conn, const char *names, int count) {
    char sql[800];
    snprintf(
        sql, sizeof sql,
        "begin; insert into posts select coalesce((select max(id) from posts), 0) + i from generate_series(1, %d) i;"
        "with e as (update rowbell.events set fanned_out_at = now(), fanout = array(select id from "
        "rowbell.subscriptions where name like '%s') where op is not null and fanned_out_at is null returning seq, "
        "fanout) insert into rowbell.jobs (subscription_id, event_seq) select f, seq from e, unnest(fanout) f; "
        "commit",
        count, names);
    sql_run(conn, sql);
}

struct daemon *start(const char *const *arguments) {
    struct daemon *daemon = daemon_start("rowbell-dispatcher", arguments);
    daemon_wait_log(daemon, "dispatcher_started", WAIT_MS);
    return daemon;
}

void stop(struct daemon *daemon) {
    daemon_signal(daemon, SIGTERM);
    ck_assert_int_eq(daemon_wait_exit(daemon, HANG_MS), 0);
}

int distinct_ids(struct receiver *receiver) {
    int count = receiver_count(receiver), distinct = 0;
    for (int i = 0; i < count; i++) {
        struct received one = receiver_get(receiver, i);
        bool seen = false;
        for (int k = 0; k < i && !seen; k++) {
            struct received other = receiver_get(receiver, k);
            seen = strcmp(received_header(&one, "webhook-id"), received_header(&other, "webhook-id")) == 0;
        }
        distinct += !seen;
    }
    return distinct;
}

#define SHARDS_BY_OWNER                                                                                                \
    "select coalesce(string_agg(n::text, ' ' order by n), '') from (select count(*) n from pg_locks where locktype = " \
    "'advisory' and classid = 1919907683 and objid < 64 and database = (select oid from pg_database where datname = "  \
    "current_database()) group by pid) s"

void wait_shards(PGconn *conn, const char *expected, unsigned deadline_ms) {
    char sql[600];
    snprintf(sql, sizeof sql, "select (" SHARDS_BY_OWNER ") = '%s'", expected);
    sql_wait(conn, deadline_ms, sql);
}
