// Secrets, rotation, statuses and requeues with the real programs; field failures by their number.
#include "tests/e2e/delivery.h"
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KEY_A "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
#define KEY_B "//////////////////////////////////////////8="
#define RUN(...) run((const char *const[]){__VA_ARGS__, NULL})

static const char *out, *err;

static void run(const char *const *arguments) {
    int status = program_run("rowbell", arguments, &out, &err);
    ck_assert_msg(status == 0, "status %d\n%s%s", status, out, err);
}

// The secret that a command printed.
static void printed_secret(char ret_secret[100]) {
    const char *at = strstr(out, "whsec_");
    ck_assert_ptr_nonnull(at);
    ck_assert_int_eq(sscanf(at, "%99s", ret_secret), 1);
}

// As a receiver verifies: does one of the signatures come from this secret?
static bool verifies(const struct received *received, const char *secret) {
    char content[4096], wanted[64] = "v1,";
    unsigned char key[64], digest[32];
    int key_length = EVP_DecodeBlock(key, (const unsigned char *)secret + 6, (int)strlen(secret) - 6);
    ck_assert_int_gt(key_length, 0);
    key_length -= (secret[strlen(secret) - 1] == '=') + (secret[strlen(secret) - 2] == '=');
    int length = snprintf(content, sizeof content, "%s.%s.%s", received_header(received, "webhook-id"),
                          received_header(received, "webhook-timestamp"), received->body);
    HMAC(EVP_sha256(), key, key_length, (unsigned char *)content, (size_t)length, digest, NULL);
    EVP_EncodeBlock((unsigned char *)wanted + 3, digest, sizeof digest);
    return strstr(received_header(received, "webhook-signature"), wanted) != NULL;
}

static int signatures(const struct received *received) {
    int count = 1;
    for (const char *at = received_header(received, "webhook-signature"); (at = strchr(at, ' ')) != NULL; at++)
        count++;
    return count;
}

static int add(PGconn *conn, struct receiver *receiver, char ret_secret[100]) {
    RUN("subscription", "add", "webhook", "w", receiver_url(receiver), "--type", "*", "--allow-http", "--retry",
        "1s,1s,1s,1s,1s");
    printed_secret(ret_secret);
    return (int)sql_int(conn, "select id from rowbell.subscriptions where name = 'w'");
}

START_TEST(sealed_secrets_sign_and_are_in_no_log) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    char secret[100];
    setenv("ROWBELL_SECRET_KEY", KEY_A, 1);
    queue(conn, add(conn, receiver, secret), 3);
    static const char *const loud[] = {"--allow-egress", "127.0.0.1", "--lanes", "webhook",
                                       "--log-level",    "debug",     NULL};
    struct daemon *daemon = start(loud);
    receiver_wait(receiver, 3, WAIT_MS);
    for (int i = 0; i < 3; i++) {
        struct received received = receiver_get(receiver, i);
        ck_assert(verifies(&received, secret));
    }
    sql_wait(conn, WAIT_MS, NO_JOBS);
    stop(daemon);
    ck_assert_ptr_null(strstr(daemon->log, secret + 6));
    ck_assert_ptr_null(strstr(daemon->log, KEY_A));
    ck_assert_int_eq(
        sql_int(conn, "select count(*) from rowbell.subscriptions where array_to_string(secrets, ' ') like '%plain%'"),
        0);
}
END_TEST

START_TEST(without_its_key_nothing_is_sent_and_nothing_lost) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    char secret[100];
    setenv("ROWBELL_SECRET_KEY", KEY_A, 1);
    queue(conn, add(conn, receiver, secret), 2);
    setenv("ROWBELL_SECRET_KEY", KEY_B, 1);
    struct daemon *daemon = start(webhook_only);
    daemon_wait_log(daemon, "subscription_unusable", WAIT_MS);
    sql_wait(conn, WAIT_MS,
             "select count(*) = 2 from rowbell.jobs_waiting where state = 'waiting' and last_class = 'rejected'");
    ck_assert_ptr_nonnull(
        strstr(sql_text(conn, "select last_error from rowbell.subscription_state where last_error is not null"),
               "which ROWBELL_SECRET_KEY lacks"));
    stop(daemon);
    ck_assert_int_eq(receiver_count(receiver), 0);
    setenv("ROWBELL_SECRET_KEY", KEY_B "," KEY_A, 1);
    start(webhook_only);
    receiver_wait(receiver, 2, WAIT_MS);
    struct received received = receiver_get(receiver, 0);
    ck_assert(verifies(&received, secret));
}
END_TEST

// The dispatcher runs through all of it.
START_TEST(a_rotation_misses_no_delivery) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    char old[100], new[100];
    int subscription = add(conn, receiver, old);
    start(webhook_only);
    queue(conn, subscription, 1);
    receiver_wait(receiver, 1, WAIT_MS);
    struct received received = receiver_get(receiver, 0);
    ck_assert(verifies(&received, old) && signatures(&received) == 1);

    // An attempt that fails under the old secret, so that the same event is signed again after the rotation.
    receiver_answer(receiver, 500, NULL, 0);
    queue(conn, subscription, 1);
    receiver_wait(receiver, 2, WAIT_MS);
    RUN("subscription", "rotate-secret", "w", "--grace", "3s");
    long long end = sql_int(
        conn, "select extract(epoch from ends_at)::bigint from rowbell.subscription_secrets('w') where ends_at is "
              "not null");
    printed_secret(new);
    receiver_answer(receiver, 200, NULL, 0);
    sql_wait(conn, WAIT_MS, "select count(*) = 2 from rowbell.attempts where class = 'delivered'");
    struct received failed = receiver_get(receiver, 1), again = receiver_get(receiver, receiver_count(receiver) - 1);
    ck_assert_str_eq(received_header(&again, "webhook-id"), received_header(&failed, "webhook-id"));
    ck_assert_str_ne(received_header(&again, "webhook-signature"), received_header(&failed, "webhook-signature"));
    ck_assert(!verifies(&failed, new));

    // Through the end of the grace, a delivery every few milliseconds.
    int before = receiver_count(receiver);
    while (time(NULL) <= end) {
        int count = receiver_count(receiver);
        queue(conn, subscription, 1);
        receiver_wait(receiver, count + 1, WAIT_MS);
    }
    int both = 0, new_alone = 0;
    for (int i = before; i < receiver_count(receiver); i++) {
        received = receiver_get(receiver, i);
        bool in_grace = atoll(received_header(&received, "webhook-timestamp")) < end;
        ck_assert(verifies(&received, new));
        ck_assert_msg(verifies(&received, old) == in_grace, "at %s, the end is %lld",
                      received_header(&received, "webhook-timestamp"), end);
        ck_assert_int_eq(signatures(&received), in_grace ? 2 : 1);
        both += in_grace;
        new_alone += !in_grace;
    }
    ck_assert_int_gt(new_alone, 0);
    ck_assert_int_gt(both + (int)verifies(&again, old), 0);
}
END_TEST

START_TEST(a_change_of_settings_is_followed_while_it_runs) {
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    char secret[100];
    int subscription = add(conn, receiver, secret);
    start(webhook_only);
    queue(conn, subscription, 1);
    receiver_wait(receiver, 1, WAIT_MS);
    RUN("subscription", "set", "w", "--signature", "body", "--header", "x-tenant: 7", "--status", "404=delivered");
    receiver_answer(receiver, 404, NULL, 0);
    struct received received;
    do { // a dispatcher looks every second
        int count = receiver_count(receiver);
        queue(conn, subscription, 1);
        receiver_wait(receiver, count + 1, WAIT_MS);
        received = receiver_get(receiver, count);
    } while (!received_header(&received, "x-tenant"));
    ck_assert_str_eq(received_header(&received, "x-tenant"), "7");
    ck_assert_int_eq(strncmp(received_header(&received, "x-hub-signature-256"), "sha256=", 7), 0);
    sql_wait(conn, WAIT_MS, NO_JOBS);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.attempts where status = 404 and class = 'delivered'"),
                     1);
}
END_TEST

// Customers' answers are not the operator's faults: told apart in the state, the attempts, the metrics and the lists.
START_TEST(field_11_customers_errors_are_told_apart) {
    PGconn *conn = fresh();
    struct receiver *customer = receiver_start(), *ours = receiver_start();
    receiver_answer(customer, 422, NULL, 0);
    receiver_answer(ours, 500, NULL, 0);
    queue(conn, webhook(conn, "customer", customer, ", \"retry\": []"), 2);
    queue(conn, webhook(conn, "ours", ours, ", \"retry\": []"), 1);
    queue(conn,
          (int)sql_int(conn,
                       "select subscription_id from rowbell.add_webhook('nobody', 'https://10.0.0.1/', '{*}', null, "
                       "'{\"retry\": []}')"),
          1);
    struct daemon *daemon = start(webhook_only);
    sql_wait(conn, WAIT_MS, "select count(*) = 4 from rowbell.jobs_waiting where state = 'poisoned'");
    ck_assert_str_eq(sql_text(conn, "select string_agg(last_class, ' ' order by last_class) from rowbell.jobs_waiting"),
                     "egress_denied http_4xx http_4xx http_5xx");
    char url[64];
    const char *metrics;
    snprintf(url, sizeof url, "http://127.0.0.1:%d/metrics", daemon_log_port(daemon, "admin"));
    ck_assert_int_eq(http_get(url, &metrics), 200);
    ck_assert_ptr_nonnull(strstr(metrics, "rowbell_attempts_total{lane=\"webhook\",class=\"http_4xx\"} 2\n"));
    ck_assert_ptr_nonnull(strstr(metrics, "rowbell_attempts_total{lane=\"webhook\",class=\"http_5xx\"} 1\n"));
    ck_assert_ptr_nonnull(strstr(metrics, "rowbell_attempts_total{lane=\"webhook\",class=\"egress_denied\"} 1\n"));
    // What wakes the operator can leave the customers' out.
    ck_assert_ptr_nonnull(strstr(metrics, "rowbell_jobs_poisoned_total{lane=\"webhook\",class=\"http_4xx\"} 2\n"));
    ck_assert_ptr_nonnull(strstr(metrics, "rowbell_jobs_poisoned_total{lane=\"webhook\",class=\"http_5xx\"} 1\n"));
    program_run("rowbell", (const char *const[]){"doctor", NULL}, &out, &err);
    ck_assert_ptr_nonnull(strstr(out, "poisoned: jobs of customer (2: http_4xx 2)"));
    ck_assert_ptr_nonnull(strstr(out, "poisoned: jobs of ours (1: http_5xx 1)"));
    RUN("job", "list", "--state", "poisoned", "--subscription", "customer");
    ck_assert_ptr_nonnull(strstr(out, "http_4xx"));
    ck_assert_ptr_null(strstr(out, "http_5xx"));
}
END_TEST

// A requeue by time is interrupted again and again; in the end each job of that time was requeued once, however many,
// held ones too, and it had said how many that would be.
START_TEST(field_10_a_requeue_by_time_survives_its_own_death_and_misses_none) {
    PGconn *conn = fresh();
    sql_run(
        conn,
        "select rowbell.add_webhook('w', 'https://10.0.0.1/', '{*}'); with e as (insert into rowbell.events (type_id, "
        "subject, occurred_at, fanned_out_at, fanout) select (select id from rowbell.event_types where type = "
        "'thing.happened'), 's', case when i > 40000 then now() - interval '3 h' else now() end, now(), array(select "
        "id "
        "from rowbell.subscriptions where name = 'w') from generate_series(1, 40100) i returning seq, fanout, "
        "occurred_at) insert into rowbell.jobs_waiting (subscription_id, event_seq, state, attempts) select "
        "fanout[1], seq, case when seq % 4 = 0 then 'held' else 'poisoned' end, 3 from e");
    RUN("requeue", "jobs", "--since", "1h", "--state", "poisoned,held", "--dry-run");
    ck_assert_str_eq(out, "40000 jobs would be requeued\n");
    static const char *const arguments[] = {"requeue", "jobs", "--since", "1h", "--state", "poisoned,held", NULL};
    int64_t left = 40100;
    for (int round = 0; round < 5 && left > 100; round++) {
        struct daemon *command = daemon_start("rowbell", arguments);
        char changed[200];
        snprintf(changed, sizeof changed, "select count(*) < %lld from rowbell.jobs_waiting where state <> 'waiting'",
                 (long long)left);
        sql_wait(conn, WAIT_MS, changed);
        kill(command->pid, SIGKILL);
        daemon_wait_exit(command, WAIT_MS);
        left = sql_int(conn, "select count(*) from rowbell.jobs_waiting where state <> 'waiting'");
    }
    program_run("rowbell", arguments, &out, &err);
    ck_assert_int_eq(
        sql_int(conn,
                "select count(*) from rowbell.jobs_waiting where state = 'waiting' and attempts = 3 and uncounted = 4 "
                "and run_at <= now()"),
        40000);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs_waiting where state <> 'waiting'"), 100);
}
END_TEST

// ---- docs/webhooks.md: what receivers are told to do, done

// The first block of this language.
static const char *snippet(const char *language) {
    static char page[65536];
    FILE *file = fopen(SOURCE_ROOT "/docs/webhooks.md", "r");
    ck_assert_ptr_nonnull(file);
    page[fread(page, 1, sizeof page - 1, file)] = '\0';
    fclose(file);
    char opening[32];
    snprintf(opening, sizeof opening, "```%s\n", language);
    char *begin = strstr(page, opening);
    ck_assert_ptr_nonnull(begin);
    begin += strlen(opening);
    if (strcmp(language, "sh") == 0) { // an example of commands comes before
        begin = strstr(begin, "# verify SECRET");
        ck_assert_ptr_nonnull(begin);
    }
    char *end = strstr(begin, "```");
    ck_assert_ptr_nonnull(end);
    *end = '\0';
    return begin;
}

static void write_text(const char *path, const char *text, const char *more) {
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fprintf(file, "%s%s", text, more);
    ck_assert_int_eq(fclose(file), 0);
}

static const struct {
    const char *language, *file, *command, *harness;
} receivers[] = {
    {"js", "verify.mjs", "node verify.mjs",
     "import { readFileSync } from 'node:fs'\n"
     "const [secret, id, timestamp, signature] = readFileSync('headers', 'utf8').split('\\n')\n"
     "const headers = { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': signature }\n"
     "process.exit(verify(secret, headers, readFileSync('body')) ? 0 : 1)\n"},
    {"python", "verify.py", "python3 verify.py",
     "import sys\n"
     "secret, event_id, timestamp, signature = open('headers').read().split('\\n')[:4]\n"
     "headers = {'webhook-id': event_id, 'webhook-timestamp': timestamp, 'webhook-signature': signature}\n"
     "sys.exit(0 if verify(secret, headers, open('body', 'rb').read()) else 1)\n"},
    {"sh", "verify.sh", "sh verify.sh",
     "{ read -r secret; read -r id; read -r timestamp; read -r signature; } <headers\n"
     "case \" $signature \" in *\" $(verify \"$secret\" \"$id\" \"$timestamp\" body) \"*) exit 0 ;; esac\nexit 1\n"},
};

START_TEST(receivers_verify_as_the_page_says) {
    char directory[] = "/tmp/rowbell-test-docs-XXXXXX", old[100], new[100], headers[1000], command[200];
    if (_i == 0 && system("command -v node >/dev/null") != 0)
        return; // dev/test does not ask for node unless a browser is wanted
    PGconn *conn = fresh();
    struct receiver *receiver = receiver_start();
    int subscription = add(conn, receiver, old);
    RUN("subscription", "rotate-secret", "w");
    printed_secret(new);
    queue(conn, subscription, 1);
    start(webhook_only);
    receiver_wait(receiver, 1, WAIT_MS);
    struct received received = receiver_get(receiver, 0);
    ck_assert_int_eq(signatures(&received), 2);

    ck_assert_ptr_nonnull(mkdtemp(directory));
    ck_assert_int_eq(chdir(directory), 0);
    write_text(receivers[_i].file, snippet(receivers[_i].language), receivers[_i].harness);
    const struct {
        const char *secret, *body, *more;
        int status;
    } cases[] = {
        {old, received.body, "", 0},
        {new, received.body, "", 0},
        {new, received.body, " ", 1}, // one byte more
        {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", received.body, "", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(headers, sizeof headers, "%s\n%s\n%s\n%s\n", cases[i].secret, received_header(&received, "webhook-id"),
                 received_header(&received, "webhook-timestamp"), received_header(&received, "webhook-signature"));
        write_text("headers", headers, "");
        write_text("body", cases[i].body, cases[i].more);
        ck_assert_msg((system(receivers[_i].command) != 0) == cases[i].status, "%s, case %zu", receivers[_i].language,
                      i);
    }
    snprintf(command, sizeof command, "rm -rf %s", directory);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *secrets = suite_case(suite, "secrets", 60);
    tcase_add_test(secrets, sealed_secrets_sign_and_are_in_no_log);
    tcase_add_test(secrets, without_its_key_nothing_is_sent_and_nothing_lost);
    tcase_add_test(secrets, a_rotation_misses_no_delivery);
    TCase *settings = suite_case(suite, "settings", 60);
    tcase_add_test(settings, a_change_of_settings_is_followed_while_it_runs);
    TCase *page = suite_case(suite, "page", 60);
    tcase_add_loop_test(page, receivers_verify_as_the_page_says, 0, (int)(sizeof receivers / sizeof *receivers));
    TCase *field = suite_case(suite, "field", 60);
    tcase_add_test(field, field_11_customers_errors_are_told_apart);
    tcase_add_test(field, field_10_a_requeue_by_time_survives_its_own_death_and_misses_none);
}

int main(void) {
    return suite_main("webhook", add_tests);
}
