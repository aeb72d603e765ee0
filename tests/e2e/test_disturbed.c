// What a host does to our schema, our login, our server or our URL must be said in so many words: not "nothing to do",
// not "run migrate", and not nothing for ever.
#include "tests/e2e/cli/world.h"
#include "tests/support/cluster.h"
#include "tests/support/gateway.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SOON_MS = HANG_MS };

#define ONCE(program, url, ...)                                                                                        \
    program_run(program, (const char *const[]){"--once", "--database-url", url, __VA_ARGS__ __VA_OPT__(, ) NULL},      \
                &out, &err)

static void expect_end(const char *program, const char *url, int status, const char *says) {
    int got =
        strcmp(program, "rowbell-gateway") == 0
            ? program_run(program, WITH("--auth", "none", "--listen", "127.0.0.1:0", "--database-url", url), &out, &err)
            : ONCE(program, url);
    ck_assert_msg(got == status, "%s: status %d instead of %d\n%s", program, got, status, err);
    expect_text(err, says);
}

static int64_t pending(void) {
    return sql_int(conn, "select count(*) from rowbell.events where fanned_out_at is null");
}

static void five_events(void) {
    set_up();
    sql_run(conn, "select rowbell.publish('posts'); insert into posts select i::text from generate_series(1, 5) i");
}

// Does what doctor says to do about this.
static void follow_doctor(const char *problem) {
    char sql[300];
    expect_status(RUN("doctor", "--json"), 5);
    snprintf(sql, sizeof sql,
             "select count(*), string_agg(d ->> 'remedy', ';') from jsonb_array_elements($1::jsonb) d where "
             "d ->> 'problem' = '%s'",
             problem);
    PGresult *result = PQexecParams(conn, sql, 1, NULL, &out, NULL, NULL, 0);
    ck_assert_msg(PQresultStatus(result) == PGRES_TUPLES_OK && atoi(PQgetvalue(result, 0, 0)) > 0,
                  "doctor has no '%s':\n%s", problem, out);
    sql_run(conn, PQgetvalue(result, 0, 1));
    PQclear(result);
    RUN("doctor");
    ck_assert_msg(!strstr(out, problem), "%s", out);
}

// ---- the schema

static const char *const groups[][2] = {{"rowbell-relay", "rowbell_relay"},
                                        {"rowbell-dispatcher", "rowbell_dispatcher"},
                                        {"rowbell-gateway", "rowbell_gateway"}};
enum { GROUPS = sizeof groups / sizeof *groups };

START_TEST(row_security_ends_each_program_and_doctor_names_each_table) {
    static const char *const tables[] = {"events", "migrations", "stream_log"};
    five_events();
    const char *urls[GROUPS], *operator_url = fixture_login("rowbell_operator");
    for (int g = 0; g < GROUPS; g++)
        urls[g] = fixture_login(groups[g][1]);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        char sql[200], says[100];
        snprintf(sql, sizeof sql, "alter table rowbell.%s enable row level security", tables[i]);
        sql_run(conn, sql);
        snprintf(says, sizeof says, "row security is on for rowbell.%s", tables[i]);
        for (int g = 0; g < GROUPS; g++)
            expect_end(groups[g][0], urls[g], 4, says);
        expect_status(RUN("status", "--database-url", operator_url), 4);
        expect_text(err, says);
        expect_status(RUN("migrate"), 4);
        expect_text(err, "row security is on for it");
        expect_status(RUN("doctor", "--database-url", operator_url), 5);
        snprintf(says, sizeof says, "row security: rowbell.%s", tables[i]);
        expect_text(out, says);
        follow_doctor("row security");
    }
    ck_assert_int_eq(pending(), 5);
    ck_assert_int_eq(ONCE("rowbell-relay", urls[0]), 0);
    ck_assert_int_eq(pending(), 0);
}
END_TEST

START_TEST(many_tables_and_the_owner_too) {
    five_events();
    sql_run(conn,
            "do $$ declare t regclass; begin for t in select oid from pg_class where relnamespace = "
            "'rowbell'::regnamespace and relkind = 'r' loop execute format('alter table %s enable row level security, "
            "force row level security', t); end loop; end $$");
    expect_end("rowbell-relay", database_url, 4, " more, so that"); // as superuser: our functions run as the owner
    expect_text(err, "alter table ... disable row level security");
    follow_doctor("row security");
    ck_assert_int_eq(ONCE("rowbell-relay", database_url), 0);
    ck_assert_int_eq(pending(), 0);
}
END_TEST

static const struct {
    const char *sql, *says, *problem;
    bool starts; // only doctor says it
} disturbances[] = {
    {"create rule silent as on insert to rowbell.jobs do instead nothing",
     "rules change what statements on rowbell.jobs do", "rule on a table of ours", false},
    {"alter table rowbell.events owner to pg_monitor",
     "of another role than the schema is rowbell.events: give it back", "belongs to another role", false},
    {"alter view rowbell.status owner to pg_monitor", "of another role than the schema is rowbell.status: give it back",
     "belongs to another role", false},
    {"alter table rowbell.subscriptions disable trigger all", NULL, "trigger is disabled", true},
    {"revoke insert on rowbell.events from rowbell_owner", NULL, "owner has lost rights", true},
};

START_TEST(other_disturbances_are_named_and_the_remedy_helps) {
    five_events();
    sql_run(conn, disturbances[_i].sql);
    if (!disturbances[_i].starts)
        expect_end("rowbell-relay", database_url, 4, disturbances[_i].says);
    follow_doctor(disturbances[_i].problem);
    ck_assert_int_eq(ONCE("rowbell-relay", database_url), 0);
    ck_assert_int_eq(pending(), 0);
}
END_TEST

// Some hosts have this.
START_TEST(an_event_trigger_that_secures_each_new_table_does_not_stop_us) {
    const char *url = fixture_empty_database();
    conn = fixture_connect();
    sql_run(
        conn,
        "create function secure() returns event_trigger language plpgsql as $$ declare d record; begin for d in select "
        "* "
        "from pg_event_trigger_ddl_commands() where object_type = 'table' loop execute format('alter table %s enable "
        "row level security', d.objid::regclass); end loop; end $$;"
        "create event trigger secure on ddl_command_end when tag in ('CREATE TABLE') execute function secure()");
    expect_status(RUN("migrate"), 0);
    ck_assert_int_eq(ONCE("rowbell-relay", url), 0);
    sql_run(conn, "create table posts (id int primary key); alter table posts disable row level security");
    expect_status(RUN("publish", "posts"), 0);
    sql_run(conn, "insert into posts values (1)");
    const char *relay = fixture_login("rowbell_relay");
    ck_assert_int_eq(ONCE("rowbell-relay", relay), 0);
    ck_assert_int_eq(pending(), 0);
}
END_TEST

static const struct {
    const char *sql;
    int group, status;
    const char *says;
} revocations[] = {
    {"revoke usage on schema rowbell from public", 0, 4, "permission denied for schema rowbell"},
    {"revoke select on rowbell.migrations from rowbell_gateway", 2, 4, "permission denied for table migrations"},
    {"revoke select on rowbell.events from rowbell_relay", 0, 1, "permission denied for table events"},
    {"revoke select (id) on rowbell.subscriptions from rowbell_relay", 0, 1,
     "permission denied for table subscriptions"},
    {"revoke select on rowbell.subscriptions from rowbell_dispatcher", 1, 1,
     "permission denied for table subscriptions"},
    {"revoke select on rowbell.jobs from rowbell_dispatcher", 1, 1, "permission denied for table jobs"},
    {"revoke insert on rowbell.stream_log from rowbell_dispatcher", 1, 1, "permission denied for table stream_log"},
};

START_TEST(revoked_rights_are_named_and_come_back_by_migrate) {
    five_events();
    expect_status(RUN("subscription", "add", "webhook", "w", "http://127.0.0.1:1/", "--type", "*", "--allow-http"), 0);
    ck_assert_int_eq(ONCE("rowbell-relay", database_url), 0);
    sql_run(conn, "insert into posts values ('6')");
    const char *program = groups[revocations[_i].group][0], *url = fixture_login(groups[revocations[_i].group][1]);
    sql_run(conn, revocations[_i].sql);
    expect_end(program, url, revocations[_i].status, revocations[_i].says);
    expect_status(RUN("migrate"), 0);
    expect_text(out, "nothing to do");
    if (revocations[_i].group == 0)
        ck_assert_int_eq(ONCE(program, url), 0);
    else if (revocations[_i].group == 2)
        gateway_start(WITH("--database-url", url));
    else
        ck_assert_int_eq(
            sql_int(conn, "select has_table_privilege('rowbell_dispatcher', 'rowbell.jobs', 'select')::int"), 1);
}
END_TEST

// One that runs on says it, once.
START_TEST(a_process_that_runs_says_what_it_may_not) {
    five_events();
    const char *url = fixture_login("rowbell_dispatcher");
    sql_run(conn, "revoke select on rowbell.subscriptions from rowbell_dispatcher");
    struct daemon *dispatcher = daemon_start("rowbell-dispatcher", WITH("--database-url", url));
    daemon_wait_log(dispatcher, "event=statement_refused", SOON_MS);
    daemon_wait_log(dispatcher, "permission denied for table subscriptions", SOON_MS);
    expect_status(RUN("migrate"), 0);
    daemon_wait_log(dispatcher, "lane=webhook owned=64", SOON_MS);
}
END_TEST

// ---- a login that may not write

static const struct {
    const char *sql, *says;
} read_only[] = {
    {"alter role %1$s set default_transaction_read_only = on", "alter role %1$s reset default_transaction_read_only"},
    {"alter database %2$s set default_transaction_read_only = on",
     "alter database %2$s reset default_transaction_read_only"},
    {"alter role %1$s in database %2$s set default_transaction_read_only = on",
     "alter role %1$s in database %2$s reset default_transaction_read_only"},
};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static const char *filled(char ret_text[300], const char *format, const char *login) {
    snprintf(ret_text, 300, format, login, PQdb(conn));
    return ret_text;
}
#pragma GCC diagnostic pop

START_TEST(a_login_that_is_read_only_is_told_where_that_was_set) {
    char sql[300], says[300];
    static const char *const writing[][6] = {
        {"unpublish", "posts"},
        {"prune"},
        {"subscription", "pause", "stream"},
        {"requeue", "events", "--all"},
        {"subscription", "add", "webhook", "w", "https://w.example/", "--type=*"},
    };
    five_events();
    sql_run(conn, "update rowbell.events set fanned_out_at = now() - interval '90 days'"); // for prune
    sql_run(conn, "insert into posts values ('6')");
    const char *url = fixture_login("rowbell_operator");
    PGconn *login = PQconnectdb(url);
    filled(
        sql,
        "grant rowbell_relay, rowbell_dispatcher, rowbell_gateway, rowbell_owner to %1$s; grant all on posts to %1$s;"
        "alter table posts owner to %1$s",
        PQuser(login));
    sql_run(conn, sql);
    sql_run(conn, filled(sql, read_only[_i].sql, PQuser(login)));
    filled(says, read_only[_i].says, PQuser(login));
    expect_end("rowbell-relay", url, 3, says);
    expect_end("rowbell-dispatcher", url, 3, says);
    for (size_t i = 0; i < sizeof writing / sizeof *writing; i++) {
        const char *arguments[10];
        int count = 0;
        for (; count < 6 && writing[i][count]; count++)
            arguments[count] = writing[i][count];
        arguments[count++] = "--database-url";
        arguments[count++] = url;
        arguments[count] = NULL;
        expect_status(run(arguments), 3);
        expect_text(err, says);
    }
    // What only reads does.
    expect_status(RUN("status", "--database-url", url), 0);
    expect_status(RUN("event", "list", "--database-url", url), 0);
    gateway_start(WITH("--database-url", url));
    PQfinish(login);
}
END_TEST

// ---- servers that take no writes

static struct cluster *primary, *standby;

static const char *url_of(struct cluster *const *clusters, int count) {
    return clusters_url(clusters, count, "any");
}

static void two_servers(void) {
    primary = cluster_new();
    standby = cluster_new();
    cluster_start_primary(primary);
    database_url = url_of(&primary, 1);
    expect_status(RUN("migrate", "--database-url", database_url), 0);
    conn = cluster_connect(primary);
    sql_run(conn, "create table posts (id text primary key); select rowbell.publish('posts');"
                  "insert into posts select i::text from generate_series(1, 5) i");
    cluster_start_standby(standby, primary);
    cluster_wait_caught_up(standby, primary);
}

START_TEST(a_standby_is_called_one) {
    static const char says[] = "the server is a hot standby (it is in recovery) and takes no ";
    two_servers();
    const char *url = url_of(&standby, 1);
    expect_end("rowbell-relay", url, 3, says);
    expect_end("rowbell-dispatcher", url, 3, says);
    expect_end("rowbell-gateway", url, 3, says);
    expect_status(RUN("prune", "--database-url", url), 3);
    expect_text(err, says);
    expect_status(RUN("publish", "posts", "--database-url", url), 3);
    expect_text(err, says);
    expect_status(RUN("migrate", "--database-url", url), 3);
    expect_text(err, says);
    expect_status(RUN("migrate", "--status", "--database-url", url), 0);
    expect_status(RUN("status", "--database-url", url), 0);
    expect_status(RUN("event", "list", "--database-url", url), 0);
    // Reads of the gateway may go there.
    gateway_start(WITH("--database-url", url, "--direct-database-url", database_url));
}
END_TEST

START_TEST(a_failover_is_waited_for_and_said) {
    two_servers();
    struct cluster *both[] = {primary, standby};
    const char *url = url_of(both, 2);
    struct daemon *relay = daemon_start("rowbell-relay", WITH("--database-url", url));
    struct daemon *dispatcher = daemon_start("rowbell-dispatcher", WITH("--database-url", url));
    struct gateway gateway = gateway_start(WITH("--database-url", url));
    struct daemon *processes[] = {relay, dispatcher, gateway.daemon};
    daemon_wait_log(relay, "relay_started", SOON_MS);
    daemon_wait_log(dispatcher, "dispatcher_started", SOON_MS); // all of its sessions were there
    cluster_wait_caught_up(standby, primary);
    cluster_kill(primary);
    for (int i = 0; i < 3; i++)
        daemon_wait_log(processes[i], "the server is a hot standby", SOON_MS);
    cluster_promote(standby);
    conn = cluster_connect(standby);
    sql_run(conn, "insert into posts values ('after')");
    sql_wait(conn, SOON_MS, "select count(*) = 0 from rowbell.events where fanned_out_at is null");
    sql_wait(conn, SOON_MS, "select count(*) > 0 from rowbell.stream_log where key = 'after'");
    for (int i = 0; i < 3; i++) {
        daemon_signal(processes[i], SIGTERM);
        ck_assert_int_eq(daemon_wait_exit(processes[i], SOON_MS), 0);
    }
}
END_TEST

// As a provider does whose disk is full: sessions that are there already are read-only from now on.
START_TEST(a_server_that_becomes_read_only_is_waited_for_and_said) {
    two_servers();
    struct daemon *relay = daemon_start("rowbell-relay", WITH("--database-url", database_url));
    sql_wait(conn, SOON_MS, "select count(*) = 0 from rowbell.events where fanned_out_at is null");
    sql_run(conn, "alter system set default_transaction_read_only = on");
    sql_run(conn, "select pg_reload_conf()");
    sql_wait(conn, SOON_MS, "select current_setting('default_transaction_read_only') = 'on'");
    sql_run(conn, "begin read write; insert into posts values ('6'); commit");
    daemon_wait_log(relay, "look at default_transaction_read_only in the server's configuration", SOON_MS);
    expect_end("rowbell-relay", database_url, 3, "look at default_transaction_read_only in the server's configuration");
    sql_run(conn, "alter system reset default_transaction_read_only");
    sql_run(conn, "select pg_reload_conf()");
    sql_wait(conn, SOON_MS, "select count(*) = 0 from rowbell.events where fanned_out_at is null");
}
END_TEST

// ---- a URL for another tool

static const struct {
    const char *query, *says;
} queries[] = {
    {"schema=public", "a parameter that PostgreSQL's client library does not know: schema."},
    {"pgbouncer=true&connection_limit=5&sslmode=disable", "client library does not know: pgbouncer, connection_limit."},
    {"pgbouncer", "client library does not know: pgbouncer."},
    {"sslmode=no-verify", "sslmode=no-verify, which PostgreSQL's client library does not know"},
    {"ssl=false", "client library does not know: ssl."},
    {"target_session_attrs=writable", "invalid target_session_attrs value: \"writable\""},
};

START_TEST(a_parameter_of_another_tool_is_named) {
    set_up();
    char url[300];
    snprintf(url, sizeof url, "postgres://%s:hunter2@%s:%s/%s?%s", PQuser(conn), PQhost(conn), PQport(conn), PQdb(conn),
             queries[_i].query);
    for (int g = 0; g < GROUPS; g++)
        expect_end(groups[g][0], url, 2, queries[_i].says);
    expect_status(RUN("status", "--database-url", url), 2);
    expect_text(err, queries[_i].says);
    ck_assert_ptr_null(strstr(err, "hunter2"));
    expect_status(RUN("migrate", "--database-url", url), 2);
    setenv("DIRECT_DATABASE_URL", url, 1);
    ck_assert_int_eq(ONCE("rowbell-dispatcher", database_url), 2);
    unsetenv("DIRECT_DATABASE_URL");
    expect_text(err, queries[_i].says);
    ck_assert_ptr_null(strstr(err, "hunter2"));
}
END_TEST

START_TEST(a_parameter_of_a_redis_url_is_named) {
    set_up();
    static const char url[] = "redis://:hunter2@127.0.0.1:6379/0?family=0&ssl_cert_reqs=none";
    static const char says[] = "the Redis URL has parameters, and Rowbell takes none: remove family, ssl_cert_reqs";
    ck_assert_int_eq(ONCE("rowbell-dispatcher", database_url, "--redis-url", url), 2);
    expect_text(err, says);
    ck_assert_int_eq(program_run("rowbell-gateway", WITH("--auth", "none", "--redis-url", url), &out, &err), 2);
    expect_text(err, says);
    ck_assert_ptr_null(strstr(err, "hunter2"));
}
END_TEST

#define EACH(tcase, test, table) tcase_add_loop_test(tcase, test, 0, (int)(sizeof(table) / sizeof *(table)))

static void add_tests(Suite *suite) {
    TCase *schema = suite_case(suite, "schema", 120);
    tcase_add_test(schema, row_security_ends_each_program_and_doctor_names_each_table);
    tcase_add_test(schema, many_tables_and_the_owner_too);
    EACH(schema, other_disturbances_are_named_and_the_remedy_helps, disturbances);
    tcase_add_test(schema, an_event_trigger_that_secures_each_new_table_does_not_stop_us);
    EACH(schema, revoked_rights_are_named_and_come_back_by_migrate, revocations);
    tcase_add_test(schema, a_process_that_runs_says_what_it_may_not);
    TCase *writes = suite_case(suite, "writes", 120);
    EACH(writes, a_login_that_is_read_only_is_told_where_that_was_set, read_only);
    tcase_add_test(writes, a_standby_is_called_one);
    tcase_add_test(writes, a_failover_is_waited_for_and_said);
    tcase_add_test(writes, a_server_that_becomes_read_only_is_waited_for_and_said);
    TCase *urls = suite_case(suite, "urls", 60);
    EACH(urls, a_parameter_of_another_tool_is_named, queries);
    tcase_add_test(urls, a_parameter_of_a_redis_url_is_named);
}

int main(void) {
    return suite_main("disturbed", add_tests);
}
