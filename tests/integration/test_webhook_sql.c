// Webhooks as applications and the CLI manage them: the SQL functions.
#include "tests/support/fixture.h"
#include "tests/support/urls.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEALED "sealed:2:0123456789abcdef:AAAABBBBCCCCDDDDEEEEFFFFGGGGHHHHIIIIJJJJ"
static PGconn *conn;

static void set_up(void) {
    fixture_database();
    conn = fixture_connect();
}

static void add(const char *name, const char *options) {
    char sql[800];
    snprintf(sql, sizeof sql, "select rowbell.add_webhook('%s', 'https://example.com/', '{*}', null, '%s')", name,
             options);
    sql_run(conn, sql);
}

static const char *secrets_of(const char *name) {
    char sql[200];
    snprintf(sql, sizeof sql, "select secrets from rowbell.subscriptions where name = '%s'", name);
    return sql_text(conn, sql);
}

static const struct {
    const char *options;
    const char *says; // NULL: good
} options[] = {
    {"{}", NULL},
    {"{\"retry\": [0, 604800000], \"deadline_ms\": 100, \"max_in_flight\": 64, \"rate\": 0.02, \"ordered\": true}",
     NULL},
    {"{\"headers\": {\"X-Key\": \"a\\tb ~\", \"authorization\": \"\"}, \"signature\": \"body\"}", NULL},
    {"{\"statuses\": {\"404\": \"retry\", \"4xx\": \"reject\", \"200\": \"delivered\", \"410\": \"disable\"}}", NULL},
    {"{\"ca\": \"-----BEGIN CERTIFICATE-----\"}", NULL},
    {"{\"deadline_ms\": null}", NULL},
    {"{\"secret\": \"plain:whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"}", NULL},
    {"{\"secret\": \"plain:my own\", \"signature\": \"body\"}", NULL},
    {"[]", "must be a JSON object"},
    {"{\"nope\": 1}", "there is no option 'nope'"},
    {"{\"url\": \"https://example.com/\"}", "there is no option 'url'"},
    {"{\"allow_http\": 1}", "allow_http must be"},
    {"{\"ordered\": \"yes\"}", "ordered must be"},
    {"{\"retry\": 5}", "retry must be"},
    {"{\"retry\": [-1]}", "retry must be"},
    {"{\"retry\": [\"1\"]}", "retry must be"},
    {"{\"retry\": [1.5]}", "retry must be"},
    {"{\"deadline_ms\": 20001}", "deadline_ms must be"},
    {"{\"deadline_ms\": \"5\"}", "deadline_ms must be"},
    {"{\"max_in_flight\": 65}", "max_in_flight must be"},
    {"{\"rate\": 0}", "rate must be"},
    {"{\"headers\": []}", "headers must be an object"},
    {"{\"headers\": {\"Host\": \"x\"}}", "headers: Host is reserved"},
    {"{\"headers\": {\"WebHook-Id\": \"x\"}}", "headers: WebHook-Id is reserved"},
    {"{\"headers\": {\"proxy-authorization\": \"x\"}}", "reserved"},
    {"{\"headers\": {\"Content-Length\": \"x\"}}", "reserved"},
    {"{\"headers\": {\"x-hub-signature-256\": \"x\"}}", "reserved"},
    {"{\"headers\": {\"X\": \"a\\r\\nEvil: 1\"}}", "line break"},
    {"{\"headers\": {\"X\": \"\\u00e4\"}}", "non-ASCII"},
    {"{\"headers\": {\"X: y\": \"a\"}}", "not a header name"},
    {"{\"headers\": {\"\": \"a\"}}", "not a header name"},
    {"{\"headers\": {\"X\": 1}}", "must be a text"},
    {"{\"signature\": \"md5\"}", "signature must be"},
    {"{\"statuses\": {\"604\": \"retry\"}}", "statuses: '604'"},
    {"{\"statuses\": {\"404\": \"maybe\"}}", "statuses: '404'"},
    {"{\"statuses\": [404]}", "statuses must be"},
    {"{\"ca\": \"no\"}", "must be certificates"},
    {"{\"client_certificate\": \"-----BEGIN CERTIFICATE-----\"}", "need each other"},
    {"{\"client_certificate\": \"-----BEGIN CERTIFICATE-----\", \"client_key\": \"plain:x\"}",
     "client_key is given to set_webhook"},
    {"{\"client_certificate\": \"-----BEGIN CERTIFICATE-----\", \"client_key\": \"" SEALED "\"}",
     "client_key is given to set_webhook"},
    {"{\"secret\": \"" SEALED "\"}", "a sealed secret is given to rotate_secret"},
    {"{\"secret\": \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"}", "stored as plain:"},
    {"{\"secret\": \"plain:my own\"}", "standard signature"},
    {"{\"secret\": \"until=1;plain:whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"}", "stored as plain:"},
};

START_TEST(options_are_checked_when_they_are_stored) {
    set_up();
    char sql[1000];
    snprintf(sql, sizeof sql, "select rowbell.add_webhook('w', 'https://example.com/', '{*}', null, $x$%s$x$)",
             options[_i].options);
    PGresult *result = PQexec(conn, sql);
    if (!options[_i].says) {
        ck_assert_msg(PQresultStatus(result) == PGRES_TUPLES_OK, "%s", PQerrorMessage(conn));
    } else {
        ck_assert_msg(PQresultStatus(result) == PGRES_FATAL_ERROR, "accepted: %s", options[_i].options);
        ck_assert_str_eq(PQresultErrorField(result, PG_DIAG_SQLSTATE), "22023");
        const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
        ck_assert_msg(strstr(message, options[_i].says) != NULL, "'%s' lacks '%s'", message, options[_i].says);
        ck_assert_ptr_null(strstr(message, "MfKQ9r8G")); // never a secret
        ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.subscriptions where name = 'w'"), 0);
    }
    PQclear(result);
}
END_TEST

START_TEST(settings_change_and_go_back) {
    set_up();
    add("w", "{\"deadline_ms\": 500, \"ordered\": true, \"condition\": \"$.a == 1\"}");
    sql_run(conn, "select rowbell.declare_type('thing.happened', webhook => true)");
    ck_assert_str_eq(
        sql_text(conn, "select rowbell.set_webhook('w', '{\"deadline_ms\": null, \"url\": \"https://b.example/\", "
                       "\"types\": [\"thing.*\"], \"scope\": \"t1\", \"ordered\": false, \"condition\": null, "
                       "\"headers\": {\"X-A\": \"1\"}}')"),
        "t");
    ck_assert_str_eq(sql_text(conn, "select concat_ws(' ', settings, types, scope, ordered, condition is null) from "
                                    "rowbell.subscriptions where name = 'w'"),
                     "{\"url\": \"https://b.example/\", \"headers\": {\"X-A\": \"1\"}} {thing.*} t1 f t");
    ck_assert_int_eq(
        sql_int(conn, "select count(*) from rowbell.routes r join rowbell.subscriptions s on s.id = r.subscription_id "
                      "where s.name = 'w' and r.scope = 't1'"),
        1);
    ck_assert_str_eq(sql_text(conn, "select rowbell.set_webhook('w', '{\"scope\": null}')"), "t");
    ck_assert_str_eq(sql_text(conn, "select scope is null from rowbell.subscriptions where name = 'w'"), "t");
    ck_assert_str_eq(sql_text(conn, "select rowbell.set_webhook('none', '{}')"), "f");
    ck_assert_str_eq(sql_text(conn, "select rowbell.set_webhook('stream', '{}')"), "f");
    static const char *const refused[] = {"{\"url\": null}",
                                          "{\"url\": \"http://b.example/\"}",
                                          "{\"types\": []}",
                                          "{\"types\": \"*\"}",
                                          "{\"scope\": 1}",
                                          "{\"secret\": \"plain:x\"}",
                                          "{\"headers\": {\"te\": \"x\"}}",
                                          "{\"condition\": \"$x\"}",
                                          "[]"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char sql[200];
        snprintf(sql, sizeof sql, "select rowbell.set_webhook('w', '%s')", refused[i]);
        ck_assert_str_eq(sql_error(conn, sql), "22023");
    }
    ck_assert_str_eq(sql_text(conn, "select settings ->> 'url' from rowbell.subscriptions where name = 'w'"),
                     "https://b.example/");
    // Secrets of one's own words verify nothing in the standard style.
    add("own", "{\"secret\": \"plain:my own\", \"signature\": \"body\"}");
    ck_assert_str_eq(sql_error(conn, "select rowbell.set_webhook('own', '{\"signature\": null}')"), "22023");
}
END_TEST

START_TEST(rotation_keeps_the_old_secret_until_the_grace_ends) {
    set_up();
    add("w", "{}");
    const char *first = secrets_of("w");
    const char *second = sql_text(conn, "select rowbell.rotate_secret('w')");
    ck_assert_int_eq(strncmp(second, "whsec_", 6), 0);
    char expected[400];
    snprintf(expected, sizeof expected,
             "select secrets[1] = 'plain:%s' and secrets[2] ~ '^until=[0-9]{10};' and '{' || substr(secrets[2], 18) "
             "|| '}' = '%s' from rowbell.subscriptions where name = 'w'",
             second, first);
    ck_assert_str_eq(sql_text(conn, expected), "t");
    ck_assert_str_eq(sql_text(conn,
                              "select ends_at between now() + interval '86300 s' and now() + interval '86401 s' from "
                              "rowbell.subscription_secrets('w') where ends_at is not null"),
                     "t");
    // A later rotation with a longer grace does not lengthen the first one's life; a shorter one ends both.
    sql_run(conn, "select rowbell.rotate_secret('w', interval '7 days')");
    ck_assert_str_eq(
        sql_text(conn, "select string_agg((ends_at < now() + interval '25 hours')::text, ' ' order by ends_at) from "
                       "rowbell.subscription_secrets('w') where ends_at is not null"),
        "true false");
    sql_run(conn, "select rowbell.rotate_secret('w', interval '1 minute')");
    ck_assert_str_eq(sql_text(conn, "select bool_and(ends_at < now() + interval '62 s') and count(*) = 3 from "
                                    "rowbell.subscription_secrets('w') where ends_at is not null"),
                     "t");
    // What ended is not carried along.
    sql_run(conn, "update rowbell.subscriptions set secrets[2] = 'until=1;plain:x' where name = 'w'");
    sql_run(conn, "select rowbell.rotate_secret('w', interval '1 minute')");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.subscription_secrets('w')"), 4);
    sql_run(conn, "select rowbell.rotate_secret('w', interval '0')");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.subscription_secrets('w')"), 1);
    // A sealed one that the caller brought is stored as it is, and not returned.
    ck_assert_str_eq(sql_text(conn, "select rowbell.rotate_secret('w', '1 hour', '" SEALED "') is null"), "t");
    ck_assert_str_eq(sql_text(conn, "select key_id from rowbell.subscription_secrets('w') limit 1"),
                     "0123456789abcdef");
}
END_TEST

START_TEST(rotations_have_limits) {
    set_up();
    add("w", "{}");
    ck_assert_str_eq(sql_error(conn, "select rowbell.rotate_secret('w', interval '7 days 1 second')"), "22023");
    ck_assert_str_eq(sql_error(conn, "select rowbell.rotate_secret('w', interval '-1 second')"), "22023");
    ck_assert_str_eq(sql_error(conn, "select rowbell.rotate_secret('w', null)"), "22023");
    ck_assert_str_eq(sql_error(conn, "select rowbell.rotate_secret('w', '1 hour', 'plain:x')"), "22023");
    ck_assert_str_eq(sql_error(conn, "select rowbell.rotate_secret('none')"), "42704");
    ck_assert_str_eq(sql_error(conn, "select rowbell.rotate_secret('stream')"), "42704");
    for (int i = 0; i < 7; i++)
        sql_run(conn, "select rowbell.rotate_secret('w')");
    ck_assert_str_eq(sql_error(conn, "select rowbell.rotate_secret('w')"), "55000");
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.subscription_secrets('w')"), 8);
}
END_TEST

START_TEST(an_operator_sees_sealed_secrets_only) {
    set_up();
    add("open", "{}");
    add("sealed", "{}");
    sql_run(conn, "select rowbell.rotate_secret('sealed', '0', '" SEALED "')");
    PGconn *operator= PQconnectdb(fixture_login("rowbell_operator"));
    ck_assert_str_eq(sql_text(operator, "select form is null from rowbell.subscription_secrets('open')"), "t");
    ck_assert_str_eq(sql_text(operator, "select form from rowbell.subscription_secrets('sealed')"), SEALED);
    ck_assert_str_eq(sql_error(operator, "select secrets from rowbell.subscriptions"), "42501");
    ck_assert_int_eq(strncmp(sql_text(operator, "select rowbell.rotate_secret('open')"), "whsec_", 6), 0);
    PQfinish(operator);
    PGconn *application = PQconnectdb(fixture_login("rowbell_app"));
    ck_assert_str_eq(sql_error(application, "select * from rowbell.subscription_secrets('sealed')"), "42501");
    sql_run(application,
            "begin; select rowbell.add_webhook('mine', 'https://c.example/', '{*}', 't1'); "
            "select rowbell.set_webhook('mine', '{\"rate\": 5}'); select rowbell.rotate_secret('mine'); commit");
    PQfinish(application);
    ck_assert_str_eq(sql_text(conn, "select form ~ '^plain:whsec_' from rowbell.subscription_secrets('open') limit 1"),
                     "t");
}
END_TEST

static const char *url_problem(const char *url) {
    PGresult *result = PQexecParams(conn, "select rowbell.url_problem($1)", 1, NULL, &url, NULL, NULL, 0);
    ck_assert_msg(PQresultStatus(result) == PGRES_TUPLES_OK, "%s: %s", url, PQerrorMessage(conn));
    const char *text = PQgetisnull(result, 0, 0) ? NULL : "refused";
    PQclear(result);
    return text;
}

// The same table as in C (tests/unit/common/test_http_target.c).
START_TEST(a_url_that_is_read_in_two_ways_is_refused) {
    set_up();
    for (size_t i = 0; i < sizeof good_urls / sizeof *good_urls; i++)
        ck_assert_msg(!url_problem(good_urls[i]), "refused: %s", good_urls[i]);
    for (size_t i = 0; i < sizeof bad_urls / sizeof *bad_urls; i++)
        ck_assert_msg(url_problem(bad_urls[i]), "accepted: %s", bad_urls[i]);
    ck_assert_str_eq(sql_error(conn, "select rowbell.add_webhook('w', 'https://080/', '{*}')"), "22023");
    add("w", "{}");
    ck_assert_str_eq(sql_error(conn, "select rowbell.set_webhook('w', '{\"url\": \"https://127.1/\"}')"), "22023");
    ck_assert_str_eq(sql_error(conn, "select rowbell.add_index('i', '{posts}', null, '{\"target\": \"opensearch\", "
                                     "\"url\": \"https://0x7f.1/\"}')"),
                     "22023");
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *sql = suite_case(suite, "sql", 30);
    tcase_add_loop_test(sql, options_are_checked_when_they_are_stored, 0, (int)(sizeof options / sizeof *options));
    tcase_add_test(sql, a_url_that_is_read_in_two_ways_is_refused);
    tcase_add_test(sql, settings_change_and_go_back);
    tcase_add_test(sql, rotation_keeps_the_old_secret_until_the_grace_ends);
    tcase_add_test(sql, rotations_have_limits);
    tcase_add_test(sql, an_operator_sees_sealed_secrets_only);
}

int main(void) {
    return suite_main("webhook", add_tests);
}
