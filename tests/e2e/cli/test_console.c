// The console: commands run for a page over HTTP. What the page makes of them is in tests/browser/console.test.mjs.
#include "tests/e2e/cli/world.h"
#include <arpa/inet.h>
#include <curl/curl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct daemon *console;
static char address[64]; // "http://127.0.0.1:PORT"
static char bearer[600]; // "Authorization: Bearer ..."
static char answer[262144], answer_head[4096];

#define CONSOLE(...) start((const char *const[]){"console", "--listen", "127.0.0.1:0", __VA_ARGS__ __VA_OPT__(, ) NULL})

static void start(const char *const *arguments) {
    console = daemon_start("rowbell", arguments);
    daemon_wait_log(console, "\n", HANG_MS);
    const char *path = strchr(console->log + strlen("http://"), '/'), *token = strstr(console->log, "#token=");
    ck_assert_ptr_nonnull(path);
    snprintf(address, sizeof(address), "%.*s", (int)(path - console->log), console->log);
    if (token != NULL)
        snprintf(bearer, sizeof(bearer), "Authorization: Bearer %.*s", (int)strcspn(token + 7, "\n"), token + 7);
}

static size_t keep(const char *bytes, char *into, size_t most, size_t length) {
    size_t there = strlen(into);
    ck_assert_uint_lt(there + length, most);
    memcpy(into + there, bytes, length);
    into[there + length] = 0;
    return length;
}
static size_t on_body(char *bytes, size_t size, size_t count, void *arg) {
    return keep(bytes, answer, sizeof(answer), size * count);
}
static size_t on_head(char *bytes, size_t size, size_t count, void *arg) {
    return keep(bytes, answer_head, sizeof(answer_head), size * count);
}

// body NULL: GET. Returns the status; `answer` has the body.
static long request(const char *path, const char *authorization, const char *body) {
    char url[128];
    long status = 0;
    snprintf(url, sizeof(url), "%s%s", address, path);
    answer[0] = answer_head[0] = 0;
    CURL *curl = curl_easy_init();
    struct curl_slist *headers = authorization != NULL ? curl_slist_append(NULL, authorization) : NULL;
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_head);
    if (body != NULL)
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    CURLcode code = curl_easy_perform(curl);
    ck_assert_msg(code == CURLE_OK, "%s: %s", url, curl_easy_strerror(code));
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    return status;
}

static void expect_run(const char *body, long status) {
    long got = request("/run", bearer, body);
    ck_assert_msg(got == status, "%ld instead of %ld for %s: %s", got, status, body, answer);
    out = answer;
}

START_TEST(test_console_runs_commands) {
    make_events();
    CONSOLE();
    expect_run("{\"command\":\"event list\",\"options\":{\"state\":\"poisoned\",\"limit\":\"5\"}}", 200);
    expect_json("j -> 'exit' = '0' and j -> 'error' = 'null' and j -> 'output' -> 0 -> 'seq' = '2' and "
                "j ->> 'command' = 'rowbell event list --state=poisoned --limit=5'");
    expect_run("{\"command\":\"event show\",\"arguments\":[\"1\"]}", 200);
    expect_json("j -> 'output' ->> 'state' = 'fanned-out' and jsonb_array_length(j -> 'output' -> 'attempts') = 2");
    expect_run("{\"command\":\"status\"}", 200);
    expect_json(
        "j -> 'output' -> 'events_poisoned' = '1' and jsonb_array_length(j -> 'output' -> 'subscriptions') = 3 and "
        "j -> 'output' -> 'tables' -> 0 -> 'bytes' > '8000'");
    expect_run("{\"command\":\"attempt list\",\"options\":{\"subscription\":\"b\"}}", 200);
    expect_json("jsonb_array_length(j -> 'output') = 1 and j -> 'output' -> 0 ->> 'class' = 'http_5xx'");

    // A command that finds problems, and one that fails.
    expect_run("{\"command\":\"doctor\"}", 200);
    expect_json("j -> 'exit' = '5' and jsonb_array_length(j -> 'output') > 0 and j ->> 'error' like '%problem%'");
    expect_run("{\"command\":\"event show\",\"arguments\":[\"99\"]}", 200);
    expect_json("j -> 'exit' = '1' and j -> 'output' = 'null' and j ->> 'error' like '%there is no event 99%'");

    expect_run("{\"command\":\"requeue events\",\"options\":{\"id\":[\"2\",\"3\"],\"dry-run\":true}}", 200);
    expect_json(
        "j -> 'output' -> 'requeued' = '1' and j ->> 'command' = 'rowbell requeue events --id=2 --id=3 --dry-run'");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events where poisoned_at is not null"), 1);
    expect_run("{\"command\":\"requeue events\",\"options\":{\"id\":\"2\"}}", 200);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events where poisoned_at is not null"), 0);
    daemon_signal(console, SIGTERM);
    ck_assert_int_eq(daemon_wait_exit(console, HANG_MS), 0);
}
END_TEST

START_TEST(test_console_words_are_never_flags) {
    make_events();
    CONSOLE();
    expect_run("{\"command\":\"event show\",\"arguments\":[\"--help\"]}", 200);
    expect_json("j -> 'exit' = '2' and j -> 'output' = 'null'");
    expect_run("{\"command\":\"subscription show\",\"arguments\":[\"--database-url=postgres://elsewhere.example/x\"]}",
               200);
    expect_json("j -> 'exit' = '1' and j ->> 'error' like '%there is no subscription --database-url%'");
    expect_run("{\"command\":\"subscription show\",\"arguments\":[\"a'; rm -rf / $(id)\"]}", 200);
    expect_json("j ->> 'command' = 'rowbell subscription show ''a''\\''''; rm -rf / $(id)'''");
    expect_run("{\"command\":\"job list\",\"options\":{\"subscription\":\"--json\"}}", 200);
    expect_json("j -> 'exit' = '0' and j -> 'output' = '[]'");
}
END_TEST

START_TEST(test_console_refuses) {
    static const struct {
        const char *body;
        long status;
    } bad[] = {
        {"", 400},
        {"{\"command\":\"status\"", 400},
        {"[]", 404},
        {"{}", 404},
        {"{\"command\":[\"status\"]}", 404},
        {"{\"command\":\"migrate\"}", 404},
        {"{\"command\":\"status --watch\"}", 404},
        {"{\"command\":\"secrets rekey\"}", 404},
        {"{\"command\":\"subscription rotate-secret\",\"arguments\":[\"a\"]}", 404},
        {"{\"command\":\"subscription remove\",\"arguments\":[\"a\"]}", 404},
        {"{\"command\":\"console\"}", 404},
        {"{\"command\":\"status\",\"options\":{\"watch\":true}}", 400},
        {"{\"command\":\"status\",\"options\":{\"database-url\":\"postgres://elsewhere.example/x\"}}", 400},
        {"{\"command\":\"status\",\"options\":[]}", 400},
        {"{\"command\":\"event list\",\"options\":{\"limit\":5}}", 400},
        {"{\"command\":\"event list\",\"options\":{\"type\":true},\"arguments\":[\"--help\"]}", 400},
        {"{\"command\":\"event list\",\"options\":{\"type\":[true]},\"arguments\":[\"--help\"]}", 400},
        {"{\"command\":\"event list\",\"options\":{\"type=\":\"x\"}}", 400},
        {"{\"command\":\"requeue jobs\",\"options\":{\"all\":\"x\"}}", 400},
        {"{\"command\":\"event list\",\"options\":{\"limit\":[\"5\",false]}}", 400},
        {"{\"command\":\"event list\",\"options\":{\"\":\"5\"}}", 400},
        {"{\"command\":\"event list\",\"options\":{\"type state\":\"5\"}}", 400},
        {"{\"command\":\"subscription test\",\"arguments\":[\"a\"],\"options\":{\"ca-file\":\"/etc/passwd\"}}", 400},
        {"{\"command\":\"event show\",\"arguments\":\"1\"}", 400},
        {"{\"command\":\"event show\",\"arguments\":[1]}", 400},
    };
    make_events();
    CONSOLE();
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        expect_run(bad[i].body, bad[i].status);
    char many[2000] = "{\"command\":\"event show\",\"arguments\":[\"1\"";
    for (int i = 0; i < 100; i++)
        strcat(many, ",\"1\"");
    strcat(many, "]}");
    expect_run(many, 400);
    ck_assert_int_eq(request("/run", bearer, NULL), 405);
    ck_assert_int_eq(request("/", bearer, "{}"), 405);
    ck_assert_int_eq(request("/../etc/passwd", bearer, NULL), 404);
    expect_run("{\"command\":\"status\"}", 200); // it goes on
}
END_TEST

// The page is anybody's; what it shows is for those who have the token.
START_TEST(test_console_asks_for_its_token) {
    static const char *const wrong[] = {NULL, "Authorization: Bearer", "Authorization: Bearer x",
                                        "Authorization: Basic eDp5"};
    make_events();
    CONSOLE();
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        ck_assert_int_eq(request("/run", wrong[i], "{\"command\":\"status\"}"), 401);
    bearer[strlen(bearer) - 1] ^= 1;
    ck_assert_int_eq(request("/run", bearer, "{\"command\":\"status\"}"), 401);
    ck_assert_int_eq(request("/", NULL, NULL), 200);
    expect_text(answer, "<title>Rowbell console</title>");
    expect_text(answer_head, "Content-Security-Policy: default-src 'none'; script-src 'self';");
    ck_assert_int_eq(request("/console.js", NULL, NULL), 200);
    ck_assert_int_eq(request("/console.css", NULL, NULL), 200);
    ck_assert_ptr_null(strstr(console->log, "postgres://"));
}
END_TEST

static const char *token_file(const char *text) {
    static char path[64];
    strcpy(path, "/tmp/rowbell-token-XXXXXX");
    int file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    ck_assert_int_eq(write(file, text, strlen(text)), (ssize_t)strlen(text));
    close(file);
    return path;
}

START_TEST(test_console_token_file) {
    make_events();
    const char *path = token_file("a token of mine\n");
    expect_status(RUN("console", "--token-file", path), 2);
    expect_text(err, "its first line must be 16 to 512 printable characters");
    unlink(path);
    expect_status(RUN("console", "--token-file", path), 1);
    expect_text(err, "No such file");
    path = token_file("correct-horse-battery\nsecond line\n");
    CONSOLE("--token-file", path);
    unlink(path);
    ck_assert_ptr_null(strstr(console->log, "token"));
    strcpy(bearer, "Authorization: Bearer correct-horse-battery");
    expect_run("{\"command\":\"status\"}", 200);
}
END_TEST

START_TEST(test_console_read_only) {
    make_events();
    CONSOLE("--read-only");
    expect_run("{\"command\":\"job cancel\",\"arguments\":[\"b\",\"1\"]}", 403);
    expect_run("{\"command\":\"requeue events\",\"options\":{\"all\":true}}", 403);
    expect_run("{\"command\":\"requeue events\",\"options\":{\"all\":true,\"dry-run\":\"true\"}}", 403);
    // --dry-run must not become the subscription's name.
    expect_run("{\"command\":\"requeue jobs\",\"options\":{\"all\":true,\"subscription\":true,\"dry-run\":true}}", 400);
    expect_run("{\"command\":\"requeue events\",\"options\":{\"all\":true,\"dry-run\":true}}", 200);
    expect_json("j -> 'output' -> 'requeued' = '1'");
    expect_run("{\"command\":\"job list\"}", 200);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.events where poisoned_at is not null"), 1);
    ck_assert_str_eq(sql_text(conn, "select string_agg(state, ' ') from rowbell.jobs_waiting"), "poisoned");
}
END_TEST

START_TEST(test_console_starts_with_an_error) {
    set_up();
    expect_status(RUN("console", "--listen", "nonsense"), 2);
    expect_text(err, "nonsense");
    expect_status(RUN("console", "--database-url", "postgres://127.0.0.1:1/x"), 3);
    CONSOLE();
    expect_status(RUN("console", "--listen", address + strlen("http://")), 1);
    expect_text(err, "address already in use");
}
END_TEST

// A request on a socket of its own whose answer is read later.
static int send_request(const char *body) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1))};
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    int handle = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(handle, (struct sockaddr *)&to, sizeof(to)), 0);
    char text[2000];
    int length = snprintf(text, sizeof(text),
                          "POST /run HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\nContent-Length: %zu\r\n\r\n%s",
                          bearer, strlen(body), body);
    ck_assert_int_eq(write(handle, text, (size_t)length), length);
    return handle;
}

static void read_answer(int handle) {
    size_t length = 0;
    ssize_t got;
    while ((got = read(handle, answer + length, sizeof(answer) - 1 - length)) > 0)
        length += (size_t)got;
    answer[length] = 0;
    close(handle);
}

#define WAITING "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"

// Those who look, however slow, leave room for those who act.
START_TEST(test_console_bounds_what_runs) {
    int handles[8];
    make_events();
    CONSOLE();
    PGconn *other = fixture_connect();
    sql_run(other, "begin; lock table rowbell.events in access exclusive mode");
    for (size_t i = 0; i < 6; i++)
        handles[i] = send_request("{\"command\":\"event list\"}");
    sql_wait(conn, HANG_MS, "select (" WAITING ") = 6");
    expect_run("{\"command\":\"doctor\"}", 503);
    expect_json("j ->> 'error' like 'too many commands are running%'");
    for (size_t i = 6; i < 8; i++)
        handles[i] = send_request("{\"command\":\"requeue events\",\"options\":{\"all\":true}}");
    sql_wait(conn, HANG_MS, "select (" WAITING ") = 8");
    expect_run("{\"command\":\"subscription pause\",\"arguments\":[\"a\"]}", 503);
    sql_run(other, "rollback");
    for (size_t i = 0; i < 8; i++) {
        read_answer(handles[i]);
        expect_text(answer, "HTTP/1.1 200 OK");
        expect_text(answer, "\"exit\":0");
    }
    expect_run("{\"command\":\"event list\"}", 200);
}
END_TEST

START_TEST(test_console_ends_with_what_runs) {
    make_events();
    CONSOLE();
    PGconn *other = fixture_connect();
    sql_run(other, "begin; lock table rowbell.events in access exclusive mode");
    int handle = send_request("{\"command\":\"event list\"}");
    sql_wait(conn, HANG_MS, WAITING);
    daemon_signal(console, SIGINT);
    read_answer(handle);
    expect_text(answer, "HTTP/1.1 503 ");
    expect_text(answer, "the console ends");
    ck_assert_int_eq(daemon_wait_exit(console, HANG_MS), 0);
    sql_run(other, "rollback");
}
END_TEST

void console_tests(Suite *suite) {
    TCase *tests = suite_case(suite, "console", 120);
    tcase_add_test(tests, test_console_runs_commands);
    tcase_add_test(tests, test_console_words_are_never_flags);
    tcase_add_test(tests, test_console_refuses);
    tcase_add_test(tests, test_console_asks_for_its_token);
    tcase_add_test(tests, test_console_token_file);
    tcase_add_test(tests, test_console_read_only);
    tcase_add_test(tests, test_console_starts_with_an_error);
    tcase_add_test(tests, test_console_bounds_what_runs);
    tcase_add_test(tests, test_console_ends_with_what_runs);
}
