// Behind a transaction pooler the server's process that ran our statement is the application's a moment later. So every
// command and every process is run through a real one, with a single server connection for all, and then an application
// looks at that connection: nothing of ours may be left on it.
#include "cli/command.h"
#include "tests/e2e/cli/world.h"
#include "tests/support/gateway.h"
#include "tests/support/pgbouncer.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SOON_MS = HANG_MS };

static const char *pooled, *direct;
static PGconn *application;
static const char *before; // what the server connection was like when it was new

// Settings, and all else that lives as long as a session.
static const char *session_state(void) {
    sql_run(application, "do $$ begin end $$"); // loads plpgsql, whose settings are listed from then on
    return sql_text(
        application,
        "select (select string_agg(name || '=' || setting, e'\\n' order by name) from pg_settings) || e'\\n' "
        "|| (select count(*) from pg_prepared_statements) || ' prepared statements, '"
        "|| (select count(*) from pg_listening_channels()) || ' channels, '"
        "|| (select count(*) from pg_cursors where name <> '') || ' cursors, '"
        "|| (select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'advisory') "
        "|| ' advisory locks, '"
        "|| (select count(*) from pg_class where relnamespace = pg_my_temp_schema()) || ' temporary tables'");
}

// Line by line, since two whole lists cannot be read.
static void expect_nothing_left(const char *by) {
    const char *after = session_state(), *a = before, *b = after;
    for (;;) {
        size_t length = strcspn(a, "\n"), other = strcspn(b, "\n");
        ck_assert_msg(length == other && memcmp(a, b, length) == 0, "%s left '%.*s', which was '%.*s'", by, (int)other,
                      b, (int)length, a);
        if (a[length] == '\0')
            break;
        a += length + 1;
        b += other + 1;
    }
    // And as an application would find out.
    ck_assert_int_ge(sql_int(application, "select count(*) from posts"), 0);
}

// A database with events, an application behind a pooler with one server connection, and a table on its search_path.
static void pooled_world(void) {
    setenv("ROWBELL_SECRET_KEY", KEY_A, 1);
    make_events();
    direct = database_url;
    pooled = pgbouncer_start("transaction", 1);
    application = PQconnectdb(pooled);
    ck_assert_int_eq(PQstatus(application), CONNECTION_OK);
    before = session_state();
    ck_assert_ptr_nonnull(
        strstr(before, "0 prepared statements, 0 channels, 0 cursors, 0 advisory locks, 0 temporary"));
}

// ---- commands

// In this order. status -1: whatever it is, it has asked the database.
static const struct {
    const char *words[12];
    int status;
} lines[] = {
    {{"migrate"}, 0},
    {{"migrate", "--status"}, 0},
    {{"migrate", "--dry-run"}, 0},
    {{"publish", "posts", "--scope", "tenant"}, 0},
    {{"publish", "no_such_table"}, 1},
    {{"subscription", "add", "webhook", "w", "http://127.0.0.1:1/", "--type", "*", "--allow-http"}, 0},
    {{"subscription", "add", "webhook", "w", "http://127.0.0.1:1/", "--type", "*", "--allow-http"}, -1},
    {{"subscription", "add", "index", "i", "--target", "postgres", "--type", "posts.*"}, 0},
    {{"subscription", "add", "index", "i", "--target", "postgres", "--type", "posts.*"}, -1},
    {{"subscription", "list"}, 0},
    {{"subscription", "show", "w"}, 0},
    {{"subscription", "pause", "w"}, 0},
    {{"subscription", "set", "w", "--rate", "10"}, 0},
    {{"subscription", "set-owner", "w", "postgres"}, 0},
    {{"subscription", "rotate-secret", "w"}, 0},
    {{"subscription", "test", "w"}, 1},
    {{"subscription", "resume", "w"}, 0},
    {{"subscription", "enable", "w"}, 0},
    {{"index", "rebuild", "i", "--no-wait"}, 0},
    {{"index", "status", "i"}, 0},
    {{"event", "list"}, 0},
    {{"event", "show", "1"}, 0},
    {{"event", "cancel", "2"}, 0},
    {{"event", "cancel", "2"}, 1},
    {{"job", "list"}, 0},
    {{"job", "retry", "b", "1"}, 0},
    {{"job", "cancel", "b", "1"}, 0},
    {{"attempt", "list"}, 0},
    {{"requeue", "events", "--all"}, 0},
    {{"requeue", "jobs", "--all"}, 0},
    {{"replay", "w", "--since", "1h"}, 0},
    {{"secrets", "rekey"}, 0},
    {{"prune"}, 0},
    {{"status"}, 0},
    {{"doctor"}, 5},
    {{"generate", "client"}, 0},
    {{"unpublish", "posts"}, 0},
    {{"subscription", "remove", "w"}, 0},
};
// They run until they are ended: further down.
static const char *const lasting[] = {"tail", "console", "dev"};

static const char *line_text(const char *const *words) {
    static char text[300];
    text[0] = '\0';
    for (; *words; words++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", text[0] ? " " : "", *words);
    return text;
}

START_TEST(no_command_leaves_anything_on_a_pooled_connection) {
    pooled_world();
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const char *arguments[16];
        int count = 0;
        for (; lines[i].words[count]; count++)
            arguments[count] = lines[i].words[count];
        arguments[count++] = "--database-url";
        arguments[count++] = pooled;
        arguments[count] = NULL;
        int64_t process = sql_int(application, "select pg_backend_pid()");
        int status = run(arguments);
        ck_assert_msg(status == lines[i].status || (lines[i].status < 0 && status != 0), "%s: status %d\n%s%s",
                      line_text(lines[i].words), status, out, err);
        expect_nothing_left(line_text(lines[i].words));
        // It was told so by the same process, which was not given up because of us.
        ck_assert_int_eq(sql_int(application, "select pg_backend_pid()"), process);
    }
}
END_TEST

START_TEST(every_command_is_among_them) {
    for (const struct command *command = commands; command->path; command++) {
        size_t length = strlen(command->path);
        bool found = false;
        for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
            const char *text = line_text(lines[i].words);
            found = found || (strncmp(text, command->path, length) == 0 && (!text[length] || text[length] == ' '));
        }
        for (size_t i = 0; i < sizeof lasting / sizeof *lasting; i++)
            found = found || strcmp(command->path, lasting[i]) == 0;
        ck_assert_msg(found, "rowbell %s is not run through a pooler here", command->path);
    }
}
END_TEST

START_TEST(the_first_migration_goes_through_a_pooler_too) {
    fixture_empty_database();
    const char *url = pgbouncer_start("transaction", 1);
    expect_status(RUN("migrate", "--database-url", url), 0);
    expect_status(RUN("migrate", "--database-url", url), 0);
    expect_text(out, "nothing to do");
}
END_TEST

// ---- what runs on

static void console_answers(struct daemon *console) {
    const char *path = strchr(console->log + strlen("http://"), '/'), *token = strstr(console->log, "#token=");
    ck_assert_ptr_nonnull(token);
    const char *words[] = {"status", "doctor", "event list", "subscription list"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char line[600], answer[200];
        snprintf(line, sizeof line,
                 "curl -s --noproxy '*' -o /dev/null -w '%%{http_code}' -H 'Authorization: Bearer %.*s' -d "
                 "'{\"command\":\"%s\"}' '%.*s/run'",
                 (int)strcspn(token + 7, "\n"), token + 7, words[i], (int)(path - console->log), console->log);
        FILE *curl = popen(line, "r");
        ck_assert_ptr_nonnull(curl);
        ck_assert_ptr_nonnull(fgets(answer, sizeof answer, curl));
        pclose(curl);
        ck_assert_str_eq(answer, "200");
        expect_nothing_left("console");
    }
}

static void end(struct daemon *daemon) {
    daemon_signal(daemon, SIGTERM);
    daemon_wait_exit(daemon, SOON_MS);
}

START_TEST(the_console_leaves_nothing) {
    pooled_world();
    const char *arguments[] = {"console", "--listen", "127.0.0.1:0", "--database-url", pooled, NULL};
    struct daemon *console = daemon_start("rowbell", arguments);
    daemon_wait_log(console, "#token=", SOON_MS);
    daemon_wait_log(console, "\n", SOON_MS);
    console_answers(console);
    end(console);
    expect_nothing_left("console");
}
END_TEST

static void post(int i) {
    char sql[200];
    snprintf(sql, sizeof sql, "insert into posts values ('new-%d', 't1', 'x'); select count(*) from posts", i);
    sql_run(application, sql);
}

// The application writes and looks, while all that we have is at work beside it on the same server connection.
static void work(struct receiver *receiver, const struct gateway *gateway) {
    struct sse_client *client = sse_open(gateway->port, "/events", NULL);
    sse_wait(client, "id:", SOON_MS);
    int had = receiver_count(receiver);
    for (int i = 0; i < 20; i++) {
        post(i);
        expect_nothing_left("a process");
        receiver_wait(receiver, had + i + 1, SOON_MS);
        expect_nothing_left("a process");
    }
    sse_wait(client, "new-19", SOON_MS);
    sse_close(client);
    // What a client missed is read through the pooler.
    client = sse_open(gateway->port, "/events?last_event_id=1", NULL);
    sse_wait(client, "event: ", SOON_MS);
    sse_close(client);
    sql_wait(conn, SOON_MS, "select count(*) = 20 from rowbell.search d where key like 'new-%'");
    expect_nothing_left("a process");
}

START_TEST(no_process_leaves_anything_on_a_pooled_connection) {
    pooled_world();
    struct receiver *receiver = receiver_start();
    expect_status(RUN("subscription", "remove", "a"), 0);
    expect_status(RUN("subscription", "remove", "b"), 0);
    expect_status(RUN("requeue", "events", "--all"), 0);
    sql_run(conn, "delete from rowbell.events where fanned_out_at is null");
    add_endpoint("w", receiver_url(receiver));
    expect_status(RUN("subscription", "add", "index", "i", "--target", "postgres", "--type", "posts.*"), 0);
    struct daemon *relay =
        daemon_start("rowbell-relay", WITH("--database-url", pooled, "--direct-database-url", direct));
    struct daemon *dispatcher =
        daemon_start("rowbell-dispatcher",
                     WITH("--database-url", pooled, "--direct-database-url", direct, "--allow-egress", "127.0.0.0/8"));
    struct gateway gateway = gateway_start(WITH("--database-url", pooled, "--direct-database-url", direct));
    daemon_wait_log(relay, "listen_working", SOON_MS);
    daemon_wait_log(dispatcher, "dispatcher_started", SOON_MS);
    work(receiver, &gateway);
    end(relay);
    end(dispatcher);
    end(gateway.daemon);
    expect_nothing_left("the end of a process");
}
END_TEST

// `rowbell dev` and `rowbell tail` are told of the direct way by the environment.
START_TEST(dev_and_tail_leave_nothing) {
    pooled_world();
    setenv("DIRECT_DATABASE_URL", direct, 1);
    const char *arguments[] = {"dev", "--listen", "127.0.0.1:0", "--database-url", pooled, NULL};
    struct daemon *dev = daemon_start("rowbell", arguments);
    daemon_wait_log(dev, "event=dispatcher_started", SOON_MS);
    daemon_wait_log(dev, "event=gateway_started", SOON_MS);
    daemon_wait_log(dev, "event=listen_working", SOON_MS);
    char url[100];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/events", daemon_log_port(dev, "listen"));
    struct daemon *tail = daemon_start("rowbell", WITH("tail", "--url", url, "--count", "1", "--database-url", pooled));
    for (int i = 0; tail->exit_status < 0 && i < 100; i++) {
        post(i);
        expect_nothing_left("dev");
        char sql[100];
        snprintf(sql, sizeof sql, "select count(*) from rowbell.events where key = 'new-%d' and fanned_out_at < now()",
                 i);
        sql_wait(conn, SOON_MS, sql);
        if (i >= 3)
            break;
    }
    end(dev);
    expect_nothing_left("dev");
    unsetenv("DIRECT_DATABASE_URL");
}
END_TEST

// ---- what needs a session says so

static const char *const programs[][4] = {{"rowbell-relay"},
                                          {"rowbell-dispatcher"},
                                          {"rowbell-dispatcher", "--lanes", "sse"},
                                          {"rowbell-gateway", "--auth", "none"}};

static void expect_refusal(const char *direct_url, const char *says, size_t first) {
    for (size_t i = first; i < sizeof programs / sizeof *programs; i++) {
        const char *arguments[10];
        int count = 0;
        for (const char *const *word = programs[i] + 1; *word; word++)
            arguments[count++] = *word;
        arguments[count++] = "--database-url";
        arguments[count++] = pooled;
        if (direct_url) {
            arguments[count++] = "--direct-database-url";
            arguments[count++] = direct_url;
        }
        arguments[count] = NULL;
        int status = program_run(programs[i][0], arguments, &out, &err);
        ck_assert_msg(status == 2, "%s: status %d\n%s", programs[i][0], status, err);
        expect_text(err, says);
        expect_nothing_left(programs[i][0]);
    }
}

START_TEST(a_pooler_instead_of_a_session_is_named_and_nothing_is_left_on_it) {
    pooled_world();
    expect_refusal(NULL, "a connection pooler answers at --database-url", 1); // the relay polls: test_relay.c
    expect_refusal(pooled, "--direct-database-url leads to a transaction pooler", 0);
    struct daemon *relay = daemon_start("rowbell-relay", WITH("--database-url", pooled, "--poll-ms", "20ms"));
    daemon_wait_log(relay, "listen_not_working", SOON_MS);
    sql_wait(conn, SOON_MS,
             "select count(*) = 0 from rowbell.events where fanned_out_at is null and poisoned_at is null");
    expect_nothing_left("a relay that polls");
    end(relay);
    expect_nothing_left("a relay that polls");
}
END_TEST

START_TEST(a_pool_with_several_server_connections_is_found_out_too) {
    pooled_world();
    const char *larger = pgbouncer_start("transaction", 5);
    const char *arguments[] = {"--database-url", larger, "--direct-database-url", larger, NULL};
    ck_assert_int_eq(program_run("rowbell-dispatcher", arguments, &out, &err), 2);
    expect_text(err, "--direct-database-url leads to a transaction pooler");
    ck_assert_int_eq(sql_int(conn,
                             "select count(*) from pg_locks where locktype = 'advisory' and database = (select oid "
                             "from pg_database where datname = current_database())"),
                     0);
}
END_TEST

// Hosted databases often have no other address.
START_TEST(a_pooler_that_keeps_a_session_for_each_client_serves_as_the_direct_way) {
    pooled_world();
    const char *sessions = pgbouncer_start("session", 30);
    struct daemon *relay =
        daemon_start("rowbell-relay", WITH("--database-url", pooled, "--direct-database-url", sessions));
    daemon_wait_log(relay, "listen_working", SOON_MS);
    struct daemon *dispatcher =
        daemon_start("rowbell-dispatcher", WITH("--database-url", pooled, "--direct-database-url", sessions));
    daemon_wait_log(dispatcher, "lane=webhook owned=64", SOON_MS);
    expect_nothing_left("a process");
}
END_TEST

START_TEST(an_isolation_that_a_pooler_cannot_change_is_named) {
    pooled_world();
    char sql[200];
    PQfinish(application); // its server connection is as it was
    snprintf(sql, sizeof sql, "alter database %s set default_transaction_isolation = serializable", PQdb(conn));
    sql_run(conn, sql);
    const char *url = pgbouncer_start("transaction", 1);
    ck_assert_int_eq(program_run("rowbell-relay", WITH("--once", "--database-url", url), &out, &err), 2);
    expect_text(err, "begin as serializable, which behind a transaction pooler cannot be changed");
}
END_TEST

static void add_tests(Suite *suite) {
    const TTest *const tests[] = {
        no_command_leaves_anything_on_a_pooled_connection,
        every_command_is_among_them,
        the_first_migration_goes_through_a_pooler_too,
        the_console_leaves_nothing,
        no_process_leaves_anything_on_a_pooled_connection,
        dev_and_tail_leave_nothing,
        a_pooler_instead_of_a_session_is_named_and_nothing_is_left_on_it,
        a_pool_with_several_server_connections_is_found_out_too,
        a_pooler_that_keeps_a_session_for_each_client_serves_as_the_direct_way,
        an_isolation_that_a_pooler_cannot_change_is_named,
    };
    TCase *tcase = suite_case(suite, "pooler", 120);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_test(tcase, tests[i]);
}

int main(void) {
    return suite_main("pooler", add_tests);
}
