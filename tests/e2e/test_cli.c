// The commands of rowbell against a real database; tail against a server of bytes.
#include "tests/support/fixture.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RUN(...) run((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static const char *out, *err;
static PGconn *conn;
static const char *database_url;

static int run(const char *const *arguments) {
    return program_run("rowbell", arguments, &out, &err);
}

static void expect_status(int status, int expected) {
    ck_assert_msg(status == expected, "status %d instead of %d\n%.1000s%.1000s", status, expected, out, err);
}

static void expect_text(const char *text, const char *part) {
    ck_assert_msg(strstr(text, part) != NULL, "no '%s' in:\n%.2000s", part, text);
}

// stdout is one JSON document, of which the SQL condition holds; PostgreSQL is an independent reader.
static void expect_json(const char *condition) {
    char sql[1000];
    snprintf(sql, sizeof(sql), "select (%s)::text from (select $1::jsonb as j) as output", condition);
    PGresult *result = PQexecParams(conn, sql, 1, NULL, &out, NULL, NULL, 0);
    ck_assert_msg(PQresultStatus(result) == PGRES_TUPLES_OK, "%s\n%s", PQerrorMessage(conn), out);
    ck_assert_msg(strcmp(PQgetvalue(result, 0, 0), "true") == 0, "not so: %s\n%s", condition, out);
    PQclear(result);
}

static void set_up(void) {
    database_url = fixture_database();
    conn = fixture_connect();
    sql_run(conn, "create table posts (id text primary key, tenant text, body text, deleted_at timestamptz)");
}

START_TEST(test_publish) {
    set_up();
    expect_status(RUN("publish", "posts", "--scope", "tenant", "--soft-delete", "deleted_at", "--watch",
                      "body,deleted_at", "--name", "articles"),
                  0);
    expect_text(out, "every change of public.posts is captured from now on\n");
    expect_text(out, "scope        tenant\n");
    sql_run(conn, "insert into posts values ('p1', 't1', 'hello')");
    sql_run(conn, "update posts set tenant = 't1'");
    ck_assert_str_eq(sql_text(conn, "select string_agg(subject || ' ' || scope, ',') from rowbell.events"),
                     "articles/p1 t1");
    expect_status(RUN("publish", "public.posts", "--key", "id", "--no-webhook", "--json"), 0);
    expect_json("j = '{\"relation\": \"public.posts\", \"name\": \"posts\", \"key\": [\"id\"], \"scope\": null, "
                "\"soft_delete\": null, \"watch\": null, \"webhook\": false}'");
    expect_status(RUN("unpublish", "posts"), 0);
    expect_text(out, "public.posts is not captured any more\n");
    sql_run(conn, "insert into posts values ('p2', 't1', 'hello')");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events"), 1);
    expect_status(RUN("unpublish", "posts", "--json"), 0);
    expect_json("j = '{\"unpublished\": false}'");
}
END_TEST

START_TEST(test_publish_names) {
    set_up();
    sql_run(conn, "create schema \"Odd Place\"; create table \"Odd Place\".\"A b\" (id int primary key)");
    expect_status(RUN("publish", "\"Odd Place\".\"A b\"", "--name", "odd"), 0);
    expect_text(out, "every change of \"Odd Place\".\"A b\" is captured");
    static const char *const missing[] = {
        "nope", "app.nope", "a..b", "", "Posts; drop table posts", "pg_catalog.pg_class.x", NULL};
    for (int i = 0; missing[i] != NULL; i++) {
        expect_status(RUN("publish", missing[i]), 1);
        expect_text(err, "rowbell: there is no table ");
    }
    expect_status(RUN("publish", "posts", "--scope", "nope"), 1);
    expect_text(err, "column nope of table public.posts does not exist");
    ck_assert_int_eq(sql_int(conn, "select count(*) from posts"), 0);
}
END_TEST

START_TEST(test_subscription_life) {
    set_up();
    expect_status(RUN("publish", "posts"), 0);
    expect_status(RUN("subscription", "add", "webhook", "orders", "https://example.com/hook", "--type", "posts.*",
                      "--type", "other.update", "--scope", "t1", "--retry", "1s,5s", "--deadline", "2s",
                      "--max-in-flight", "3", "--header", "x-key: a \"b\"", "--ordered"),
                  0);
    expect_text(out, "subscription orders was added\nsecret  whsec_");
    ck_assert_str_eq(
        sql_text(conn, "select concat_ws(' ', types, scope, ordered, settings ->> 'retry', settings ->> "
                       "'deadline_ms', settings ->> 'max_in_flight', settings ->> 'headers', settings ->> "
                       "'url') from rowbell.subscriptions where name = 'orders'"),
        "{posts.*,other.update} t1 t [1000, 5000] 2000 3 {\"x-key\": \"a \\\"b\\\"\"} https://example.com/hook");

    expect_status(
        RUN("subscription", "add", "webhook", "plain", "http://127.0.0.1:9/", "--type", "*", "--allow-http", "--json"),
        0);
    expect_json("j ->> 'name' = 'plain' and j ->> 'secret' like 'whsec\\_%' and jsonb_typeof(j -> 'id') = 'number'");

    expect_status(RUN("subscription", "list"), 0);
    expect_text(out, "name    id  kind     state   types");
    expect_text(out, "https://example.com/hook");
    expect_status(RUN("subscription", "list", "--json"), 0);
    expect_json("jsonb_array_length(j) = 3 and j -> 0 ->> 'name' = 'orders' and j -> 0 -> 'types' ? 'posts.*' and "
                "j -> 0 -> 'open' = '0'");

    expect_status(RUN("subscription", "show", "orders"), 0);
    expect_text(out, "ordered          yes\n");
    ck_assert_ptr_null(strstr(out, "whsec_"));
    expect_status(RUN("subscription", "show", "orders", "--json"), 0);
    expect_json("j ->> 'scope' = 't1' and j -> 'settings' -> 'retry' = '[1000, 5000]' and not j ? 'secrets'");
    ck_assert_ptr_null(strstr(out, "whsec_"));

    sql_run(
        conn,
        "insert into rowbell.jobs (subscription_id, event_seq) select id, 1 from rowbell.subscriptions where name = "
        "'orders'");
    expect_status(RUN("subscription", "pause", "orders"), 0);
    expect_text(out, "subscription orders is paused");
    ck_assert_str_eq(sql_text(conn, "select state from rowbell.jobs_waiting"), "held");
    expect_status(RUN("subscription", "resume", "orders", "--json"), 0);
    expect_json("j = '{\"name\": \"orders\", \"state\": \"active\"}'");
    // A dispatcher lets go of what was held, at this rate.
    expect_status(RUN("subscription", "resume", "orders", "--rate", "30/m"), 0);
    ck_assert_str_eq(
        sql_text(conn, "select state || (settings ->> 'resume_rate') from rowbell.subscriptions where name = 'orders'"),
        "active0.5");
    expect_status(RUN("subscription", "resume", "orders", "--rate", "0"), 2);
    expect_text(err, "--rate 0: expected how many a second");

    expect_status(RUN("subscription", "remove", "orders"), 0);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs"), 0);
    static const char *const actions[] = {"remove", "show", "pause", "resume", NULL};
    for (int i = 0; actions[i] != NULL; i++) {
        expect_status(RUN("subscription", actions[i], "orders"), 1);
        expect_text(err, "rowbell: there is no subscription orders: see rowbell subscription list\n");
    }
    expect_status(RUN("subscription", "remove", "stream"), 1);
    expect_text(err, "Pause it instead");
}
END_TEST

START_TEST(test_subscription_refusals) {
    set_up();
    static const struct {
        const char *const arguments[8];
        int status;
        const char *text;
    } cases[] = {
        {{"a", "not a url", "--type", "*"}, 2, "expected https://host/path"},
        {{"a", "ftp://example.com/", "--type", "*"}, 2, "expected https://host/path"},
        {{"a", "http://example.com/", "--type", "*"}, 2, "--allow-http"},
        {{"a", "https://user:secret@example.com/", "--type", "*"}, 2, "expected https://host/path"},
        {{"a", "https://example.com/"}, 2, "--type is missing"},
        {{"a", "https://example.com/", "--type", "a b"}, 2, "'a b' is not a type pattern"},
        {{"a b", "https://example.com/", "--type", "*"}, 2, "'a b' cannot be a name"},
        {{"stream", "https://example.com/", "--type", "*"}, 1, "there is a subscription named 'stream' already"},
        {{"a", "https://example.com/", "--type", "*", "--retry", "5"}, 2, "--retry 5: expected delays"},
        {{"a", "https://example.com/", "--type", "*", "--deadline", "21s"}, 2, "--deadline 21s: expected a duration"},
        {{"a", "https://example.com/", "--type", "*", "--max-in-flight", "65"}, 2, "from 1 to 64"},
        {{"a", "https://example.com/", "--type", "*", "--header", "nonsense"}, 2, "expected 'name: value'"},
        {{"a", "https://example.com/", "--type", "*", "--header", "a: b\r\nc: d"}, 2, "a has a line break"},
        {{"a", "https://example.com/", "--type", "*", "--header", "Webhook-Id: x"},
         2,
         "--header: Webhook-Id is reserved"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const char *arguments[12] = {"subscription", "add", "webhook"};
        for (size_t j = 0; j < 8 && cases[i].arguments[j] != NULL; j++)
            arguments[3 + j] = cases[i].arguments[j];
        expect_status(run(arguments), cases[i].status);
        expect_text(err, cases[i].text);
        ck_assert_msg(strchr(err, '\n') == err + strlen(err) - 1, "more than a line: %s", err);
        ck_assert_str_eq(out, "");
        ck_assert_ptr_null(strstr(err, "secret@"));
    }
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.subscriptions"), 1);
}
END_TEST

#define KEY_A "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
#define KEY_B "//////////////////////////////////////////8="

static const char *stored_secrets(const char *name) {
    char sql[200];
    snprintf(sql, sizeof(sql), "select array_to_string(secrets, ' ') from rowbell.subscriptions where name = '%s'",
             name);
    return sql_text(conn, sql);
}

static const char *write_file(const char *name, const char *text) {
    static char path[100];
    snprintf(path, sizeof(path), "/tmp/rowbell-test-%d-%s", (int)getpid(), name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
    return path;
}

static void add_endpoint(const char *name, const char *url) {
    expect_status(RUN("subscription", "add", "webhook", name, url, "--type", "*", "--allow-http"), 0);
}

START_TEST(test_subscription_test) {
    set_up();
    struct receiver *receiver = receiver_start();
    setenv("ROWBELL_SECRET_KEY", KEY_A, 1);
    add_endpoint("w", receiver_url(receiver));
    expect_status(RUN("subscription", "test", "w", "--allow-egress", "127.0.0.1"), 0);
    expect_text(out, "settings  ok      http://127.0.0.1:");
    expect_text(out, "dns       ok      127.0.0.1 is 127.0.0.1");
    expect_text(out, "egress    ok      127.0.0.1 allowed");
    expect_text(out, "connect   ok      127.0.0.1:");
    expect_text(out, "http      ok      200 after ");
    ck_assert_ptr_null(strstr(out, "tls "));
    struct received received = receiver_get(receiver, 0);
    ck_assert_ptr_nonnull(strstr(received.body, "\"type\":\"rowbell.test\""));
    ck_assert_ptr_nonnull(strstr(received.body, "\"data\":{\"test\":true,\"subscription\":\"w\"}"));
    ck_assert_int_eq(strncmp(received_header(&received, "webhook-signature"), "v1,", 3), 0);
    ck_assert_uint_eq(strlen(received_header(&received, "webhook-id")), 36);

    expect_status(RUN("subscription", "test", "w"), 1); // nothing is sent
    expect_text(out, "egress    FAILED  127.0.0.1 denied: loopback; if it is yours and meant, give --allow-egress");
    expect_text(err, "w did not take the test event");
    setenv("ROWBELL_ALLOW_EGRESS", "10.0.0.0/8,127.0.0.0/8", 1);
    receiver_answer(receiver, 401, NULL, 0);
    expect_status(RUN("subscription", "test", "w", "--json"), 1);
    expect_json(
        "j ->> 'passed' = 'false' and j -> 'steps' -> 4 ->> 'step' = 'http' and j -> 'steps' -> 4 ->> 'text' like "
        "'401 after % ms; does it verify with this secret%'");
    receiver_answer(receiver, 307, "Location: http://169.254.169.254/\r\n", 0);
    expect_status(RUN("subscription", "test", "w"), 1);
    expect_text(out, "redirects are never followed");
    ck_assert_int_eq(receiver_count(receiver), 3);

    // What the dispatchers could not do either.
    setenv("ROWBELL_SECRET_KEY", KEY_B, 1);
    expect_status(RUN("subscription", "test", "w"), 1);
    expect_text(out, "settings  FAILED  secret: it is sealed under key ");
    unsetenv("ROWBELL_SECRET_KEY");
    add_endpoint("nowhere", "http://no-such-host.invalid/");
    expect_status(RUN("subscription", "test", "nowhere"), 1);
    expect_text(out, "dns       FAILED  resolve no-such-host.invalid: ");
    add_endpoint("closed", "http://127.0.0.1:1/");
    expect_status(RUN("subscription", "test", "closed"), 1);
    expect_text(out, "connect   FAILED  ");
    char https[64];
    snprintf(https, sizeof(https), "https%s", receiver_url(receiver) + strlen("http"));
    add_endpoint("no-tls", https);
    expect_status(RUN("subscription", "test", "no-tls"), 1);
    expect_text(out, "connect   ok ");
    expect_text(out, "tls       FAILED  ");
    expect_status(RUN("subscription", "test", "stream"), 1);
    expect_status(RUN("subscription", "test", "none"), 1);
    expect_text(err, "there is no subscription none");
    expect_status(RUN("subscription", "test", "w", "--allow-egress", "everything"), 2);
    const char *operator= fixture_login("rowbell_operator");
    expect_status(RUN("subscription", "test", "closed", "--database-url", operator), 1);
    expect_text(out, "settings  FAILED  secret: it is stored unsealed, and this login may not read it");
}
END_TEST

static pid_t child_of(const struct daemon *daemon, const char *name) {
    char pattern[64];
    snprintf(pattern, sizeof(pattern), "rowbell-%s runs as process ", name);
    const char *found = strstr(daemon->log, pattern);
    ck_assert_ptr_nonnull(found);
    return atoi(found + strlen(pattern));
}

static struct daemon *start_dev(void) {
    static const char *const arguments[] = {"dev", "--listen", "127.0.0.1:0", NULL};
    struct daemon *daemon = daemon_start("rowbell", arguments);
    daemon_wait_log(daemon, "event=relay_started", 10000);
    daemon_wait_log(daemon, "event=dispatcher_started", 10000);
    daemon_wait_log(daemon, "event=gateway_started", 10000);
    return daemon;
}

// Ended; whoever inherited it may not have taken leave of it.
static bool is_gone(pid_t pid) {
    char path[64], stat[200] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return true;
    bool read = fgets(stat, sizeof(stat), file) != NULL;
    fclose(file);
    const char *state = strrchr(stat, ')');
    return !read || state == NULL || state[2] == 'Z';
}

static bool are_gone(void *arg) {
    const pid_t *children = arg;
    return is_gone(children[0]) && is_gone(children[1]) && is_gone(children[2]);
}

START_TEST(test_dev_runs_all_and_stops_all) {
    set_up();
    expect_status(RUN("publish", "posts"), 0);
    struct receiver *receiver = receiver_start();
    add_endpoint("w", receiver_url(receiver));
    struct daemon *daemon = start_dev();
    sql_run(conn, "insert into posts values ('p1', 't1', 'x')");
    receiver_wait(receiver, 1, 10000); // through relay and dispatcher, to this machine
    sql_wait(conn, 10000, "select count(*) > 1 from rowbell.stream_log");
    pid_t children[] = {child_of(daemon, "relay"), child_of(daemon, "dispatcher"), child_of(daemon, "gateway")};
    daemon_signal(daemon, SIGINT);
    ck_assert_int_eq(daemon_wait_exit(daemon, 20000), 0);
    ck_assert(are_gone(children));
}
END_TEST

START_TEST(test_dev_ends_with_any_of_its_children) {
    set_up();
    struct daemon *daemon = start_dev();
    pid_t children[] = {child_of(daemon, "relay"), child_of(daemon, "dispatcher"), child_of(daemon, "gateway")};
    kill(children[1], SIGKILL);
    ck_assert_int_eq(daemon_wait_exit(daemon, 20000), 1);
    expect_text(daemon->log, "rowbell-dispatcher ended with signal 9, so the others were stopped");
    ck_assert(are_gone(children));

    daemon = start_dev(); // killed itself, it takes them along
    pid_t others[] = {child_of(daemon, "relay"), child_of(daemon, "dispatcher"), child_of(daemon, "gateway")};
    daemon_signal(daemon, SIGKILL);
    daemon_wait_exit(daemon, 5000);
    wait_for(are_gone, others, 20000, "the children to end");
    expect_status(RUN("dev", "--database-url", "postgres://nobody@127.0.0.1:1/x"), 3);
}
END_TEST

START_TEST(test_subscription_set) {
    set_up();
    expect_status(RUN("subscription", "add", "webhook", "w", "https://a.example/", "--type", "*", "--deadline", "2s",
                      "--ordered", "--condition", "$.a == 1", "--rate", "100/h", "--status", "404=retry,4xx=reject"),
                  0);
    ck_assert_str_eq(sql_text(conn,
                              "select concat_ws(' ', settings -> 'rate', settings -> 'statuses', condition, ordered) "
                              "from rowbell.subscriptions where name = 'w'"),
                     "0.0277777778 {\"404\": \"retry\", \"4xx\": \"reject\"} ($.\"a\" == 1) t");
    expect_status(RUN("subscription", "set", "w", "--url", "https://b.example/", "--type", "posts.*", "--scope", "t1",
                      "--rate", "5", "--header", "x-key: 1", "--signature", "timestamp", "--unset",
                      "deadline,ordered,condition,status"),
                  0);
    expect_text(out, "subscription w was changed\n");
    ck_assert_str_eq(sql_text(conn, "select concat_ws(' ', settings, types, scope, ordered, condition is null) from "
                                    "rowbell.subscriptions where name = 'w'"),
                     "{\"url\": \"https://b.example/\", \"rate\": 5, \"headers\": {\"x-key\": \"1\"}, \"signature\": "
                     "\"timestamp\"} {posts.*} t1 f t");
    static const struct {
        const char *const arguments[4];
        int status;
        const char *text;
    } cases[] = {
        {{"w"}, 2, "nothing to set"},
        {{"w", "--unset", "url"}, 2, "--unset url: give the name of a flag that can be left out"},
        {{"w", "--unset", "rate,rate"}, 2, "set by the same command"},
        {{"w", "--url", "http://b.example/"}, 2, "not https"},
        {{"w", "--status", "404=maybe"}, 2, "--status 404=maybe: expected"},
        {{"w", "--status", "x"}, 2, "--status x: expected"},
        {{"w", "--rate", "fast"}, 2, "--rate fast: expected"},
        {{"w", "--signature", "md5"}, 2, "--signature"},
        {{"w", "--client-key", "/nowhere"}, 2, "need each other"},
        {{"none", "--rate", "5"}, 1, "there is no webhook none"},
        {{"stream", "--rate", "5"}, 1, "there is no webhook stream"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const char *arguments[8] = {"subscription", "set"};
        for (size_t j = 0; j < 4 && cases[i].arguments[j] != NULL; j++)
            arguments[2 + j] = cases[i].arguments[j];
        expect_status(run(arguments), cases[i].status);
        expect_text(err, cases[i].text);
    }
}
END_TEST

START_TEST(test_secrets_are_sealed_at_once_where_the_key_is) {
    set_up();
    setenv("ROWBELL_SECRET_KEY", KEY_A, 1);
    expect_status(RUN("subscription", "add", "webhook", "w", "https://a.example/", "--type", "*"), 0);
    expect_text(out, "secret  whsec_");
    char secret[100];
    ck_assert_int_eq(sscanf(strstr(out, "whsec_"), "%99s", secret), 1);
    ck_assert_int_eq(strncmp(stored_secrets("w"), "sealed:1:", 9), 0);
    ck_assert_ptr_null(strstr(stored_secrets("w"), secret));

    expect_status(RUN("subscription", "rotate-secret", "w", "--grace", "1h"), 0);
    expect_text(out, "the old one signs beside it until ");
    expect_text(out, "secret  whsec_");
    ck_assert_str_eq(sql_text(conn, "select secrets[1] like 'sealed:1:%' and secrets[2] like 'until=%;sealed:1:%' from "
                                    "rowbell.subscriptions where name = 'w'"),
                     "t");
    expect_status(RUN("subscription", "show", "w", "--json"), 0);
    expect_json("j ->> 'signs_with' ~ '^sealed under [0-9a-f]{16}, sealed under [0-9a-f]{16} until 2[0-9T:-]+Z$'");
    expect_status(RUN("subscription", "rotate-secret", "w", "--grace", "0s", "--json"), 0);
    expect_json(
        "j ->> 'secret' like 'whsec\\_%' and j ->> 'name' = 'w' and j ? 'old_until' and j ->> 'public_key' is null");
    ck_assert_int_eq(sql_int(conn, "select cardinality(secrets) from rowbell.subscriptions where name = 'w'"), 1);
    expect_status(RUN("subscription", "rotate-secret", "w", "--grace", "8d"), 2);
    expect_status(RUN("subscription", "rotate-secret", "none"), 1);

    setenv("ROWBELL_SECRET_KEY", "not a key", 1);
    expect_status(RUN("subscription", "rotate-secret", "w"), 2);
    expect_text(err, "ROWBELL_SECRET_KEY: key 1 is not");
    ck_assert_ptr_null(strstr(err, "not a key"));
}
END_TEST

START_TEST(test_other_kinds_of_secrets) {
    set_up();
    expect_status(
        RUN("subscription", "add", "webhook", "ed", "https://a.example/", "--type", "*", "--ed25519", "--json"), 0);
    expect_json("j ->> 'secret' is null and j ->> 'public_key' ~ '^whpk_[A-Za-z0-9+/]{43}=$'");
    ck_assert_str_eq(sql_text(conn, "select secrets[1] ~ '^plain:whsk_[A-Za-z0-9+/]{43}=$' from rowbell.subscriptions "
                                    "where name = 'ed'"),
                     "t");
    const char *path = write_file("secret", "It's a Secret to Everybody\nnot this\n");
    expect_status(RUN("subscription", "add", "webhook", "own", "https://a.example/", "--type", "*", "--signature",
                      "body", "--secret-file", path),
                  0);
    ck_assert_ptr_null(strstr(out, "Everybody"));
    ck_assert_str_eq(stored_secrets("own"), "plain:It's a Secret to Everybody");
    expect_status(RUN("subscription", "rotate-secret", "ed", "--secret-file", path), 2); // not for the standard style
    ck_assert_ptr_null(strstr(err, "Everybody"));
    expect_status(RUN("subscription", "rotate-secret", "own", "--secret-file", "/nowhere"), 1);
    expect_status(RUN("subscription", "rotate-secret", "own", "--secret-file", path, "--ed25519"), 2);
    unlink(path);
}
END_TEST

START_TEST(test_secrets_rekey) {
    set_up();
    expect_status(RUN("secrets", "rekey"), 2);
    expect_text(err, "ROWBELL_SECRET_KEY is not set");
    sql_run(conn, "select rowbell.add_webhook(n, 'https://a.example/', '{*}') from unnest('{a,b}'::text[]) as n; "
                  "select rowbell.rotate_secret('b')");
    char before[400];
    snprintf(before, sizeof(before), "%s", stored_secrets("a") + strlen("plain:"));
    setenv("ROWBELL_SECRET_KEY", KEY_A, 1);
    expect_status(RUN("secrets", "rekey", "--dry-run", "--json"), 0);
    expect_json("j -> 'sealed' = '2' and j -> 'unchanged' = '0' and j -> 'dry_run' = 'true'");
    ck_assert_int_eq(strncmp(stored_secrets("a"), "plain:", 6), 0);
    expect_status(RUN("secrets", "rekey"), 0);
    expect_text(out, "secrets of 2 subscriptions sealed under key ");
    ck_assert_int_eq(
        sql_int(conn, "select count(*) from rowbell.subscriptions, unnest(secrets) s where s like '%plain:%'"), 0);
    ck_assert_str_eq(
        sql_text(conn, "select secrets[2] ~ '^until=[0-9]+;sealed:1:' from rowbell.subscriptions where name = 'b'"),
        "t");
    expect_status(RUN("secrets", "rekey"), 0); // run again it finds nothing to do
    expect_text(out, "secrets of 0 subscriptions sealed under key ");

    // Another key: without the old one nothing opens, and nothing is lost.
    const char *sealed = stored_secrets("a");
    setenv("ROWBELL_SECRET_KEY", KEY_B, 1);
    expect_status(RUN("secrets", "rekey"), 1);
    expect_text(err, "subscription a: secret: it is sealed under key ");
    ck_assert_str_eq(stored_secrets("a"), sealed);
    setenv("ROWBELL_SECRET_KEY", KEY_B "," KEY_A, 1);
    expect_status(RUN("secrets", "rekey"), 0);
    expect_text(out, "secrets of 2 subscriptions sealed");
    ck_assert_str_ne(stored_secrets("a"), sealed);
    ck_assert_ptr_null(strstr(stored_secrets("a"), before));
    ck_assert_int_eq(sql_int(conn, "select count(distinct key_id) from rowbell.subscription_secrets('b')"), 1);
    // An operator may not read them.
    unsetenv("ROWBELL_DATABASE_URL");
    expect_status(RUN("secrets", "rekey", "--database-url", fixture_login("rowbell_operator")), 1);
    expect_text(err, "permission denied");
}
END_TEST

// Three events: one delivered and failing elsewhere, one poisoned in fan-out, one waiting for the relay.
static void make_events(void) {
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

START_TEST(test_event_list_and_show) {
    make_events();
    expect_status(RUN("event", "list"), 0);
    expect_text(out, "posts.create  posts/p3  t1");
    expect_status(RUN("event", "list", "--json"), 0);
    expect_json("jsonb_array_length(j) = 3 and j -> 0 ->> 'state' = 'pending' and j -> 1 ->> 'state' = 'poisoned' and "
                "j -> 2 ->> 'state' = 'fanned-out' and j -> 2 -> 'subscriptions' = '2'");
    expect_status(RUN("event", "list", "--state", "poisoned", "--type", "posts.create", "--limit", "1", "--json"), 0);
    expect_json("jsonb_array_length(j) = 1 and j -> 0 -> 'seq' = '2'");
    expect_status(RUN("event", "list", "--type", "posts.delete", "--json"), 0);
    expect_json("j = '[]'");

    expect_status(RUN("event", "show", "1"), 0);
    expect_text(out, "state            fanned-out\n");
    expect_text(out, "fanned out to\nsubscription  kind     state      attempts");
    expect_text(out, "a             webhook  delivered");
    expect_text(out, "b             webhook  poisoned          3");
    expect_text(out, "192.0.2.1:443");
    const char *id = sql_text(conn, "select rowbell.event_id(occurred_at, seq) from rowbell.events where seq = 1");
    expect_status(RUN("event", "show", id, "--json"), 0);
    expect_json(
        "j -> 'seq' = '1' and j ->> 'subject' = 'posts/p1' and jsonb_array_length(j -> 'fanout') = 2 and "
        "j -> 'fanout' -> 1 ->> 'state' = 'poisoned' and j -> 'attempts' -> 1 -> 'status' = '503' and "
        "j -> 'attempts' -> 0 -> 'total_ms' = '12.3' and j -> 'attempts' -> 0 ->> 'response_head' = 'no \"luck\"' and "
        "j ->> 'occurred_at' like '20__-__-__T%Z'");

    // Nothing stored can drive the terminal.
    expect_status(RUN("event", "show", "2"), 0);
    expect_text(out, "bad \\x1b[31m row");

    expect_status(RUN("event", "show", "99"), 1);
    expect_text(err, "there is no event 99");
    expect_status(RUN("event", "show", "01a2291f-a973-730a-8000-000000000001"), 1); // its seq, another time
    expect_status(RUN("event", "show", "nonsense"), 2);
    expect_text(err, "give its number or UUID");
    expect_status(RUN("event", "list", "--state", "bad"), 2);
    expect_text(err, "expected one of pending, retrying, poisoned, cancelled, fanned-out");
}
END_TEST

START_TEST(test_domain_event_keeps_its_data) {
    set_up();
    sql_run(conn, "select rowbell.declare_type('supplier.connected', 'x', true)");
    sql_run(
        conn,
        "select rowbell.record('supplier.connected', 's/1', '{\"n\": 123456789012345678901234567890, \"a\": 1.10}')");
    expect_status(RUN("event", "show", "1", "--json"), 0);
    expect_text(out, "\"data\":{\"a\": 1.10, \"n\": 123456789012345678901234567890}");
    expect_json("j ->> 'type' = 'supplier.connected' and j -> 'key' = 'null'");
}
END_TEST

START_TEST(test_job_list) {
    make_events();
    sql_run(conn,
            "insert into rowbell.jobs select id, 3, now() + interval '1 minute', 7, 1 from rowbell.subscriptions where "
            "name = 'a'");
    expect_status(RUN("job", "list"), 0);
    expect_text(out, "subscription  seq  state     type          subject");
    expect_text(out, "a               3  running   posts.create  posts/p3");
    expect_status(RUN("job", "list", "--state", "poisoned", "--json"), 0);
    expect_json(
        "jsonb_array_length(j) = 1 and j -> 0 ->> 'subscription' = 'b' and j -> 0 ->> 'last_class' = 'http_5xx'");
    expect_status(RUN("job", "list", "--subscription", "a", "--json"), 0);
    expect_json("jsonb_array_length(j) = 1 and j -> 0 ->> 'state' = 'running'");
    expect_status(RUN("job", "list", "--limit", "1", "--json"), 0);
    expect_json("jsonb_array_length(j) = 1");
    expect_status(RUN("job", "list", "--limit", "0"), 2);
}
END_TEST

START_TEST(test_requeue_events) {
    make_events();
    expect_status(RUN("requeue", "events"), 2);
    expect_text(err, "say which: --id, --since, --until, or --all");
    expect_status(RUN("requeue", "events", "--all", "--dry-run"), 0);
    ck_assert_str_eq(out, "1 events would be requeued\n");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events where poisoned_at is not null"), 1);
    expect_status(RUN("requeue", "events", "--id", "1,3", "--json"), 0);
    expect_json("j = '{\"requeued\": 0, \"dry_run\": false}'");
    expect_status(RUN("requeue", "events", "--until", "1h", "--json"), 0);
    expect_json("j -> 'requeued' = '0'");
    expect_status(RUN("requeue", "events", "--since", "2001-01-01T00:00Z", "--until", "2101-01-01", "--dry-run"), 0);
    ck_assert_str_eq(out, "1 events would be requeued\n");
    const char *id = sql_text(conn, "select rowbell.event_id(occurred_at, seq) from rowbell.events where seq = 2");
    expect_status(RUN("requeue", "events", "--since", "1h", "--id", id), 0);
    ck_assert_str_eq(out, "1 events requeued\n");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events where seq = 2 and poisoned_at is null and "
                                   "fanout_attempts = 0 and retry_at is not null"),
                     1);
    expect_status(RUN("requeue", "events", "--since", "the day before"), 2);
    expect_text(err, "--since the day before: expected a time");
    expect_status(RUN("requeue", "events", "--id", "1,x"), 2);
    expect_text(err, "--id x: expected an event's number or UUID");
    static const char *const one_event[][5] = {
        {"event", "show", "x"}, {"event", "cancel", "x"}, {"job", "retry", "a", "x"}, {"job", "cancel", "a", "x"}};
    for (size_t i = 0; i < sizeof(one_event) / sizeof(*one_event); i++) {
        expect_status(run(one_event[i]), 2);
        expect_text(err, "x is not an event: give its number or UUID");
    }
}
END_TEST

START_TEST(test_event_cancel) {
    make_events();
    expect_status(RUN("event", "cancel", "3"), 1);
    expect_text(err, "event 3 is not poisoned");
    expect_status(RUN("event", "cancel", "x"), 2);
    const char *id = sql_text(conn, "select rowbell.event_id(occurred_at, seq) from rowbell.events where seq = 2");
    expect_status(RUN("event", "cancel", id), 0);
    expect_text(out, " is cancelled\n");
    expect_status(RUN("event", "cancel", "2", "--json"), 1);
    // Of its three subscriptions only the stream gets it.
    ck_assert_str_eq(sql_text(conn, "select s.kind from rowbell.jobs j join rowbell.subscriptions s on s.id = "
                                    "j.subscription_id where j.event_seq = 2"),
                     "sse");
    expect_status(RUN("event", "list", "--state", "cancelled", "--json"), 0);
    expect_json("jsonb_array_length(j) = 1 and j -> 0 -> 'seq' = '2' and j -> 0 ->> 'state' = 'cancelled'");
    expect_status(RUN("event", "list", "--state", "fanned-out", "--json"), 0);
    expect_json("jsonb_array_length(j) = 1");
    expect_status(RUN("event", "show", "2"), 0);
    expect_text(out, "state            cancelled\n");
    expect_text(out, "bad "); // why it was poisoned
    expect_status(RUN("status", "--json"), 0);
    expect_json("j -> 'events_poisoned' = '0'");
    expect_status(RUN("requeue", "events", "--all"), 0);
    ck_assert_str_eq(out, "0 events requeued\n");
    // After all: one subscription at a time.
    expect_status(RUN("replay", "b", "--since", "1h"), 0);
    ck_assert_str_eq(sql_text(conn, "select string_agg(s.name, ' ' order by s.name) from rowbell.jobs j join "
                                    "rowbell.subscriptions s on s.id = j.subscription_id where j.event_seq = 2"),
                     "b stream");
    // It is pruned like any other.
    sql_run(conn,
            "delete from rowbell.jobs; update rowbell.events set fanned_out_at = now() - interval '8 d' where seq = 2");
    ck_assert_int_eq(sql_int(conn, "select pruned from rowbell.prune_events(7 * 86400000)"), 1);
}
END_TEST

START_TEST(test_requeue_jobs) {
    make_events();
    expect_status(RUN("requeue", "jobs"), 2);
    expect_text(err, "--subscription");
    expect_status(RUN("requeue", "jobs", "--subscription", "a"), 0);
    ck_assert_str_eq(out, "0 jobs requeued\n");
    expect_status(RUN("requeue", "jobs", "--subscription", "b", "--id", "1", "--dry-run"), 0);
    ck_assert_str_eq(out, "1 jobs would be requeued\n");
    ck_assert_str_eq(sql_text(conn, "select state from rowbell.jobs_waiting"), "poisoned");
    expect_status(RUN("requeue", "jobs", "--all", "--json"), 0);
    expect_json("j = '{\"requeued\": 1, \"dry_run\": false}'");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs_waiting where state = 'poisoned'"), 0);
    expect_status(RUN("requeue", "jobs", "--subscription", "nope"), 1);
    expect_text(err, "there is no subscription named 'nope'");
}
END_TEST

START_TEST(test_job_retry_and_cancel) {
    make_events();
    sql_run(conn, "insert into rowbell.jobs select id, 3 from rowbell.subscriptions where name = 'a'");
    expect_status(RUN("job", "retry", "b", "1"), 0);
    expect_text(out, "event 1 to b is sent now\n");
    // The next number is a manual one, and uses up nothing.
    ck_assert_str_eq(sql_text(conn, "select concat_ws(' ', state, attempts, uncounted) from rowbell.jobs_waiting"),
                     "waiting 3 4");
    const char *id = sql_text(conn, "select rowbell.event_id(occurred_at, seq) from rowbell.events where seq = 1");
    expect_status(RUN("job", "retry", "a", id, "--json"), 0); // it was delivered
    expect_json("j ->> 'was' = 'delivered'");
    ck_assert_str_eq(sql_text(conn,
                              "select concat_ws(' ', w.state, attempts, uncounted) from rowbell.jobs_waiting w join "
                              "rowbell.subscriptions s on s.id = w.subscription_id where s.name = 'a'"),
                     "waiting 1 2");
    expect_status(RUN("job", "retry", "a", "3"), 0);
    expect_text(out, "is in line already");
    expect_status(RUN("job", "retry", "b", "3"), 1);
    expect_text(err, "event 3 never went to b");
    expect_status(RUN("job", "retry", "nope", "3"), 1);
    expect_status(RUN("job", "retry", "a", "x"), 2);

    expect_status(RUN("job", "cancel", "a", "3"), 0);
    expect_text(out, "event 3 to a is cancelled\n");
    expect_status(RUN("job", "cancel", "b", "1", "--json"), 0);
    expect_json("j ->> 'state' = 'cancelled'");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs_waiting where state = 'cancelled'"), 2);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs"), 0);
    expect_status(RUN("job", "cancel", "b", "1"), 1);
    expect_text(err, "there is no job of event 1 to b");
    sql_run(conn,
            "insert into rowbell.jobs select id, 1, now() + interval '1 minute', 7, 1 from rowbell.subscriptions where "
            "name = 'b'; delete from rowbell.jobs_waiting");
    expect_status(RUN("job", "cancel", "b", "1"), 1);
    expect_text(err, "it is being sent at this moment");
}
END_TEST

// Steps of 1,000: the last one is not whole, and none is missed or taken twice.
START_TEST(test_requeue_goes_in_steps) {
    make_events();
    sql_run(
        conn,
        "insert into rowbell.jobs_waiting (subscription_id, event_seq, state, attempts) select s.id, 1000 + i, "
        "'poisoned', 2 from rowbell.subscriptions s, generate_series(1, 2500) i where s.name = 'a'; insert into "
        "rowbell.jobs_waiting (subscription_id, event_seq, state, run_at) select s.id, 9000 + i, 'waiting', now() + "
        "interval '1 hour' from rowbell.subscriptions s, generate_series(1, 3) i where s.name = 'a'");
    expect_status(RUN("requeue", "jobs", "--subscription", "a", "--dry-run", "--json"), 0);
    expect_json("j = '{\"requeued\": 2500, \"dry_run\": true}'");
    // Somebody holds one of them: it is left, and the rest goes on.
    PGconn *other = fixture_connect();
    sql_run(other, "begin; select from rowbell.jobs_waiting where event_seq = 2000 for update");
    expect_status(RUN("requeue", "jobs", "--subscription", "a", "--json"), 0);
    expect_json("j -> 'requeued' = '2499'");
    sql_run(other, "rollback");
    ck_assert_int_eq(sql_int(conn,
                             "select count(distinct xmin::text) from rowbell.jobs_waiting where state = 'waiting' and "
                             "event_seq between 1001 and 3500"),
                     3);
    expect_status(RUN("requeue", "jobs", "--subscription", "a", "--json"), 0);
    expect_json("j -> 'requeued' = '1'");
    expect_status(RUN("requeue", "jobs", "--subscription", "a", "--state", "waiting", "--json"), 0);
    expect_json("j -> 'requeued' = '3'"); // those whose time had not come
    expect_status(RUN("requeue", "jobs", "--all", "--state", "running"), 2);
    expect_text(err, "--state running: expected poisoned");
}
END_TEST

START_TEST(test_replay) {
    set_up();
    expect_status(RUN("publish", "posts", "--scope", "tenant"), 0);
    sql_run(
        conn,
        "select rowbell.declare_type('plan.chosen', webhook => true); select rowbell.declare_type('secret.thing'); "
        "insert into posts select 'p' || i, case when i % 2 = 0 then 't1' else 't2' end from generate_series(1, 2400) "
        "i; "
        "select rowbell.record('secret.thing', 's'); select rowbell.record('plan.chosen', 's', '{\"plan\": \"pro\"}'); "
        "select rowbell.record('plan.chosen', 's', '{\"plan\": \"free\"}'); "
        "update rowbell.events set fanned_out_at = now(), fanout = '{1}'; "
        "insert into posts values ('last', 't1')"); // not fanned out: the relay's
    expect_status(
        RUN("subscription", "add", "webhook", "w", "https://a.example/", "--type", "posts.*", "--scope", "t1"), 0);
    expect_status(RUN("replay", "w"), 2);
    expect_status(RUN("replay", "w", "--since", "1h", "--dry-run"), 0);
    ck_assert_str_eq(out, "1200 events would be queued\n");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs"), 0);
    expect_status(RUN("replay", "w", "--since", "1h", "--until", "30m", "--json"), 0);
    expect_json("j -> 'queued' = '0'");
    expect_status(RUN("replay", "w", "--since", "1h", "--json"), 0);
    expect_json("j = '{\"queued\": 1200, \"dry_run\": false}'");
    ck_assert_int_eq(sql_int(conn,
                             "select count(*) from rowbell.jobs j join rowbell.events e on e.seq = j.event_seq where "
                             "e.scope = 't1' and e.fanout[2] = j.subscription_id and e.fanned_out_at is not null"),
                     1200);
    expect_status(RUN("replay", "w", "--since", "1h", "--json"), 0); // again: it got them
    expect_json("j -> 'queued' = '0'");
    // A condition, and a subscription that is paused.
    expect_status(RUN("subscription", "add", "webhook", "pro", "https://a.example/", "--type", "*", "--condition",
                      "$.plan == \"pro\""),
                  0);
    expect_status(RUN("subscription", "pause", "pro"), 0);
    expect_status(RUN("replay", "pro", "--since", "2020-01-01", "--json"), 0);
    expect_json("j -> 'queued' = '1'");
    ck_assert_str_eq(sql_text(conn, "select state from rowbell.jobs_waiting"), "held");
    expect_status(RUN("replay", "nope", "--since", "1h"), 1);
    expect_text(err, "there is no subscription named 'nope'");
    expect_status(RUN("replay", "stream", "--since", "1h"), 1);
}
END_TEST

START_TEST(test_prune) {
    make_events();
    sql_run(conn, "insert into rowbell.events (type_id, subject, occurred_at, fanned_out_at, fanout) select min(id), "
                  "'old', now() - "
                  "interval '8 d', now() - interval '8 d', '{}' from rowbell.event_types;"
                  "insert into rowbell.attempts (subscription_id, event_seq, attempt, started_at, class) values (1, 1, "
                  "1, now() - "
                  "interval '2 d', 'delivered'), (1, 1, 2, now(), 'delivered')");
    expect_status(RUN("prune"), 0);
    expect_text(out, "1 events pruned\n");
    expect_text(out, "0 attempts pruned\n");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events where subject = 'old'"), 0);
    expect_status(RUN("prune", "--attempts", "1d", "--json"), 0);
    expect_json("j -> 'attempts' = '1' and j -> 'events' = '0'");
    expect_status(RUN("prune", "--events", "soon"), 2);
    expect_text(err, "--events");
}
END_TEST

START_TEST(test_status) {
    make_events();
    expect_status(RUN("status"), 0);
    expect_text(out, "events pending             1\n");
    expect_text(out, "events poisoned            1\n");
    expect_text(out, "jobs poisoned              1\n");
    expect_text(out, "stream  ");
    expect_status(RUN("status", "--json"), 0);
    expect_json(
        "j -> 'events_pending' = '1' and j -> 'jobs_poisoned' = '1' and jsonb_array_length(j -> 'subscriptions') = 3 "
        "and jsonb_typeof(j -> 'stream_position') = 'number'");
}
END_TEST

START_TEST(test_status_watch) {
    set_up();
    struct daemon *status = daemon_start("rowbell", (const char *const[]){"status", "--watch", "--json", NULL});
    daemon_wait_log(status, "\"events_pending\":0", 10000);
    sql_run(conn, "select rowbell.declare_type('a.b'); select rowbell.record('a.b', 's')");
    daemon_wait_log(status, "\"events_pending\":1", 10000);
    daemon_signal(status, SIGINT);
    ck_assert_int_eq(daemon_wait_exit(status, 10000), 128 + SIGINT);
}
END_TEST

// What every command answers when the database is the problem.
START_TEST(test_database_problems) {
    const char *empty = fixture_empty_database();
    static const char *const commands[][5] = {
        {"status"}, {"publish", "posts"}, {"event", "list"}, {"subscription", "list"}, {"requeue", "jobs", "--all"},
    };
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
        expect_status(run(commands[i]), 4);
        expect_text(err, "run `rowbell migrate` first");
    }
    struct {
        const char *url;
        int status;
        const char *text;
    } urls[] = {
        {"postgres://127.0.0.1:1/a", 3, "is PostgreSQL running, and is --database-url or DATABASE_URL right?"},
        {"postgres://u:s3cret%zz@h/a", 2, "the database URL is malformed"},
        {"postgres://u:s3cret@h:99999/a", 2, "the database URL is malformed"},
        {"nonsense", 2, "the database URL is malformed"},
        {"http://u:s3cret@h/a", 2, "the database URL is malformed"},
    };
    for (size_t i = 0; i < sizeof(urls) / sizeof(*urls); i++) {
        expect_status(RUN("status", "--database-url", urls[i].url), urls[i].status);
        expect_text(err, urls[i].text);
        ck_assert_ptr_null(strstr(err, "s3cret"));
        ck_assert_msg(strchr(err, '\n') == err + strlen(err) - 1, "more than a line: %s", err);
    }
    char url[1000];
    snprintf(url, sizeof(url), "%s%cdbname=no_such_database", empty, strchr(empty, '?') != NULL ? '&' : '?');
    expect_status(RUN("migrate", "--database-url", url), 3);
    expect_text(err, "check user, password and database name");
    snprintf(url, sizeof(url), "%s%cuser=no_such_user&password=s3cret", empty, strchr(empty, '?') != NULL ? '&' : '?');
    expect_status(RUN("migrate", "--database-url", url), 3);
    expect_text(err, "check user, password and database name");
    ck_assert_ptr_null(strstr(err, "s3cret"));
}
END_TEST

START_TEST(test_no_database_given) {
    expect_status(RUN("status"), 2);
    expect_text(err, "no database given: set DATABASE_URL or give --database-url");
}
END_TEST

START_TEST(test_help_and_version) {
    expect_status(RUN("--help"), 0);
    expect_text(out, "\n  subscription\n    add webhook NAME URL");
    expect_status(RUN("requeue", "jobs", "--help"), 0);
    expect_text(out, "Usage: rowbell requeue jobs [FLAGS]\n");
    expect_text(out, "--subscription NAME");
    expect_status(RUN("requeue", "--help"), 0);
    ck_assert_ptr_null(strstr(out, "publish"));
    expect_status(RUN("--version"), 0);
    expect_text(out, "rowbell 0.");
    expect_status(RUN("nonsense"), 2);
    ck_assert_str_eq(out, "");
    expect_status(RUN("status", "--nonsense"), 2);
    ck_assert_str_eq(err, "rowbell: unknown flag --nonsense: see rowbell status --help\n");
}
END_TEST

// A least-privileged owner of a table may publish it and sees no table of ours.
START_TEST(test_publish_by_the_tables_owner) {
    set_up();
    const char *base = sql_text(conn, "select current_database()");
    char sql[300], url[1000];
    snprintf(sql, sizeof(sql), "create role writer_%s login password 'plain'; alter table posts owner to writer_%s",
             base, base);
    sql_run(conn, sql);
    snprintf(url, sizeof(url), "%s%cuser=writer_%s&password=plain", database_url,
             strchr(database_url, '?') != NULL ? '&' : '?', base);
    expect_status(RUN("publish", "posts", "--database-url", url), 0);
    expect_text(out, "every change of public.posts is captured from now on\n");
    expect_status(RUN("publish", "posts", "--json", "--database-url", url), 0);
    expect_json("j ->> 'relation' = 'public.posts'");
    expect_status(RUN("status", "--database-url", url), 4);
    expect_text(err, "rowbell_operator");
    sql_run(conn, "create table others (id int primary key)");
    expect_status(RUN("publish", "others", "--database-url", url), 1);
    expect_text(err, "must be owner of table public.others");
    snprintf(sql, sizeof(sql),
             "reassign owned by writer_%s to current_user; drop owned by writer_%s; drop role writer_%s", base, base,
             base);
    sql_run(conn, sql);
}
END_TEST

// A server that answers each connection with the next script and closes it; what clients sent is kept.
struct script_server {
    int fd;
    int port;
    const char *const *answers; // ends with NULL; the last one is repeated
    char requests[8][2048];
    int count;
    pthread_t thread;
};

static void *serve(void *arg) {
    struct script_server *server = arg;
    const char *const *answer = server->answers;
    int client;
    while ((client = accept(server->fd, NULL, NULL)) >= 0) {
        char *request = server->requests[server->count];
        size_t length = 0;
        ssize_t got = 0;
        while (length < 2047 && strstr(request, "\r\n\r\n") == NULL &&
               (got = recv(client, request + length, 2047 - length, 0)) > 0)
            length += (size_t)got;
        server->count += server->count < 7;
        send(client, *answer, strlen(*answer), MSG_NOSIGNAL);
        answer += answer[1] != NULL;
        shutdown(client, SHUT_RDWR);
        close(client);
    }
    return NULL;
}

static const char *server_start(struct script_server *server, const char *const *answers, char *url, size_t size) {
    *server = (struct script_server){.answers = answers};
    server->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    ck_assert_int_eq(bind(server->fd, (struct sockaddr *)&address, length), 0);
    ck_assert_int_eq(listen(server->fd, 10), 0);
    ck_assert_int_eq(getsockname(server->fd, (struct sockaddr *)&address, &length), 0);
    server->port = ntohs(address.sin_port);
    ck_assert_int_eq(pthread_create(&server->thread, NULL, serve, server), 0);
    snprintf(url, size, "http://127.0.0.1:%d/events", server->port);
    return url;
}

static void server_stop(struct script_server *server) {
    shutdown(server->fd, SHUT_RDWR);
    pthread_join(server->thread, NULL);
    close(server->fd);
}

#define STREAM "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nConnection: close\r\n\r\n"

START_TEST(test_tail_reconnects_with_the_last_id) {
    static const char *const answers[] = {
        STREAM "retry: 500\n\nid: 10\n\nevent: change\nid: 11\ndata: "
               "{\"table\":\"posts\",\"key\":\"p1\",\"op\":\"update\"}\n\n"
               "event: change\nid: 12\ndata: {\"tab",
        "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        STREAM "event: change\nid: 12\ndata: {\"table\":\"posts\",\"key\":null,\"op\":\"delete\"}\n\n"
               "event: reset\nid: 13\ndata: {\"reason\":\"history_expired\"}\n\nevent: change\nid: 14\ndata: {}\n\n",
        NULL};
    struct script_server server;
    char url[100];
    server_start(&server, answers, url, sizeof(url));
    expect_status(RUN("tail", "--url", url, "--count", "3", "--table", "a&b", "--table", "posts", "--header", "X-A: b"),
                  0);
    ck_assert_str_eq(out, "11  change  update posts p1\n12  change  delete posts (all)\n13  reset   history_expired\n");
    expect_text(err, "rowbell: the stream ended");
    server_stop(&server);
    ck_assert_int_eq(server.count, 3);
    expect_text(server.requests[0], "GET /events?table=a%26b&table=posts HTTP/1.1\r\n");
    expect_text(server.requests[0], "Accept: text/event-stream\r\n");
    expect_text(server.requests[0], "X-A: b\r\n");
    ck_assert_ptr_null(strstr(server.requests[0], "Last-Event-ID"));
    expect_text(server.requests[1], "Last-Event-ID: 11\r\n");
    expect_text(server.requests[2], "Last-Event-ID: 11\r\n");
}
END_TEST

START_TEST(test_tail_json) {
    set_up();
    static const char *const answers[] = {
        STREAM "event: change\nid: 11\ndata: {\"table\":\"posts\",\"key\":\"p1\",\"op\":\"update\"}\n\n", NULL};
    struct script_server server;
    char url[100];
    server_start(&server, answers, url, sizeof(url));
    expect_status(RUN("tail", "--url", url, "--count", "1", "--last-event-id", "7", "--json"), 0);
    expect_json(
        "j = '{\"event\": \"change\", \"id\": \"11\", \"data\": {\"table\": \"posts\", \"key\": \"p1\", \"op\": "
        "\"update\"}}'");
    server_stop(&server);
    expect_text(server.requests[0], "Last-Event-ID: 7\r\n");
}
END_TEST

START_TEST(test_tail_refusals) {
    static const struct {
        const char *answers[2];
        int status;
        const char *text;
    } cases[] = {
        {{"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n"}, 1, "answered 401: give credentials with --header"},
        {{"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot here\n"}, 1, "no event stream (not here)"},
        {{"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi"},
         1,
         "is it a gateway's /events?"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct script_server server;
        char url[100];
        server_start(&server, cases[i].answers, url, sizeof(url));
        expect_status(RUN("tail", "--url", url), cases[i].status);
        expect_text(err, cases[i].text);
        server_stop(&server);
    }
    expect_status(RUN("tail", "--url", "http://127.0.0.1:1/events"), 3);
    expect_text(err, "is rowbell-gateway running, and is --url right?");
    expect_status(RUN("tail", "--url", "nonsense"), 2);
    expect_text(err, "expected http://host:8080/events");
    expect_status(RUN("tail", "--count", "none"), 2);
}
END_TEST

START_TEST(test_doctor) {
    set_up();
    static const struct {
        const char *sql;
        const char *says;
    } problems[] = {
        {"select 1", "no process: rowbell-relay"},
        {"select rowbell.publish('posts', scope => 'tenant'); alter table posts rename tenant to org",
         "column is gone: public.posts (tenant)\n    select rowbell.publish('public.posts', ...)"},
        {"select rowbell.publish('posts'); alter table posts disable trigger \"~rowbell_update\"",
         "not captured: public.posts"},
        {"alter table posts enable trigger \"~rowbell_update\"; create table q (id int primary key) partition by range "
         "(id);"
         "select rowbell.publish('q'); create table q1 partition of q default",
         "not captured: public.q1 (written directly, its changes are missed)"},
        {"select rowbell.publish('q'); create table k (id int not null unique); select rowbell.publish('k', key => "
         "'{id}');"
         "alter table k drop constraint k_id_key",
         "key is not unique: public.k (id)"},
        {"drop table k", "table is gone: k"},
        {"update rowbell.events set poisoned_at = now(), retry_at = now(); insert into posts values ('p'); "
         "update rowbell.events set poisoned_at = now(), retry_at = now();"
         "insert into rowbell.events_set_aside select max(seq) from rowbell.events",
         "poisoned: events (1)"},
        {"select rowbell.set_wake('notify')", "prepared transactions may fail"},
    };
    for (size_t i = 0; i < sizeof(problems) / sizeof(*problems); i++) {
        sql_run(conn, problems[i].sql);
        expect_status(RUN("doctor"), 5);
        expect_text(out, problems[i].says);
        expect_status(RUN("doctor", "--json"), 5);
        expect_json("jsonb_array_length(j) > 0 and j->0 ? 'remedy'");
    }
    // What it says to do helps.
    sql_run(
        conn,
        "delete from rowbell.published where name = 'k'; select rowbell.set_wake('poll'); delete from rowbell.events; "
        "delete from rowbell.events_set_aside");
    daemon_wait_log(daemon_start("rowbell-relay", (const char *const[]){NULL}), "relay_started", 10000);
    daemon_wait_log(daemon_start("rowbell-dispatcher", (const char *const[]){NULL}), "dispatcher_started", 10000);
    expect_status(RUN("doctor"), 0);
    ck_assert_str_eq(out, "nothing is wrong\n");
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *database = suite_case(suite, "database", 60);
    tcase_add_test(database, test_publish);
    tcase_add_test(database, test_publish_names);
    tcase_add_test(database, test_publish_by_the_tables_owner);
    tcase_add_test(database, test_subscription_life);
    tcase_add_test(database, test_subscription_refusals);
    tcase_add_test(database, test_event_list_and_show);
    tcase_add_test(database, test_domain_event_keeps_its_data);
    tcase_add_test(database, test_job_list);
    tcase_add_test(database, test_requeue_events);
    tcase_add_test(database, test_event_cancel);
    tcase_add_test(database, test_requeue_jobs);
    tcase_add_test(database, test_job_retry_and_cancel);
    tcase_add_test(database, test_requeue_goes_in_steps);
    tcase_add_test(database, test_replay);
    tcase_add_test(database, test_subscription_set);
    tcase_add_test(database, test_subscription_test);
    tcase_add_test(database, test_dev_runs_all_and_stops_all);
    tcase_add_test(database, test_dev_ends_with_any_of_its_children);
    tcase_add_test(database, test_secrets_are_sealed_at_once_where_the_key_is);
    tcase_add_test(database, test_other_kinds_of_secrets);
    tcase_add_test(database, test_secrets_rekey);
    tcase_add_test(database, test_prune);
    tcase_add_test(database, test_status);
    tcase_add_test(database, test_doctor);
    tcase_add_test(database, test_status_watch);
    TCase *usage = suite_case(suite, "usage", 60);
    tcase_add_test(usage, test_database_problems);
    tcase_add_test(usage, test_no_database_given);
    tcase_add_test(usage, test_help_and_version);
    TCase *tail = suite_case(suite, "tail", 60);
    tcase_add_test(tail, test_tail_reconnects_with_the_last_id);
    tcase_add_test(tail, test_tail_json);
    tcase_add_test(tail, test_tail_refusals);
}

int main(void) {
    return suite_main("cli", add_tests);
}
