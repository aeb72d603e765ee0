// An operator who may change subscriptions, and reads how their secrets are stored, tries to have one opened: as the
// secret of a subscription of its own, or by leading another one's requests to a host of its own.
#include "tests/support/fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RUN(...) program_run("rowbell", (const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL}, &out, &err)

static const char *out, *err;
static PGconn *admin, *operator;

static void set_up(void) {
    setenv("ROWBELL_SECRET_KEY", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", 1);
    fixture_database();
    admin = fixture_connect();
    operator= PQconnectdb(fixture_login("rowbell_operator"));
    ck_assert_msg(PQstatus(operator) == CONNECTION_OK, "%s", PQerrorMessage(operator));
    int status = RUN("subscription", "add", "webhook", "victim", "https://a.example/", "--type", "*", "--header",
                     "authorization: Bearer theirs");
    ck_assert_msg(status == 0, "%s", err);
}

static const char *formatted(const char *format, const char *a, const char *b) {
    static char sql[4000];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(sql, sizeof sql, format, a, b);
#pragma GCC diagnostic pop
    return sql;
}

// What the operator may see of the victim's secret.
static const char *stolen(void) {
    const char *form = sql_text(operator, "select form from rowbell.subscription_secrets('victim')");
    ck_assert_msg(strncmp(form, "sealed:", 7) == 0, "%s", form);
    return form;
}

START_TEST(a_sealed_secret_of_another_is_refused_or_does_not_open) {
    set_up();
    struct receiver *receiver = receiver_start();
    const char *form = stolen(), *url = receiver_url(receiver);
    ck_assert_str_eq(
        sql_error(operator, formatted("select rowbell.add_index('own', '{*}', null, '{\"target\": \"meilisearch\", "
                                      "\"url\": \"%s\", \"allow_http\": true, \"secret\": \"%s\"}')",
                                      url, form)),
        "22023");
    ck_assert_str_eq(sql_error(operator, formatted("select rowbell.add_webhook('own', 'https://b.example/', '{*}', "
                                                   "null, '{\"secret\": \"%s\"}')",
                                                   form, "")),
                     "22023");
    // Given once the index is there, it is taken, and opens for nobody.
    sql_run(operator, formatted("select rowbell.add_index('own', '{*}', null, '{\"target\": \"meilisearch\", \"url\": "
                                "\"%s\", \"allow_http\": true}')",
                                url, ""));
    sql_run(operator, formatted("select rowbell.rotate_secret('own', '0', '%s')", form, ""));
    struct daemon *dispatcher =
        daemon_start("rowbell-dispatcher", (const char *const[]){"--allow-egress", "127.0.0.0/8", NULL});
    daemon_wait_log(dispatcher, "sealed for another subscription or use", HANG_MS);
    ck_assert_int_eq(receiver_count(receiver), 0);
    // Nor as another webhook's secret, with which forged events could be signed.
    sql_run(operator, "select rowbell.add_webhook('mine', 'https://b.example/', '{*}')");
    sql_run(operator, formatted("select rowbell.rotate_secret('mine', '0', '%s')", form, ""));
    ck_assert_int_ne(RUN("subscription", "test", "mine"), 0);
    ck_assert_msg(strstr(out, "sealed for another subscription or use") != NULL, "%s", out);
}
END_TEST

// Forms of before they were sealed for a place open anywhere: they stay where they are.
START_TEST(a_secret_sealed_for_no_place_is_taken_from_nobody) {
    set_up();
    static const char old[] =
        "sealed:1:c152db843e8f30a9:AAECAwQFBgcICQoLMGqlfqa6j33GEK75ia4zNPKk00OaLg84AC6p1Ucgb4BNceKd/"
        "LbOhelsDWWCoNFD633pyXpy";
    sql_run(admin, formatted("update rowbell.subscriptions set secrets = '{%s}' where name = 'victim'", old, ""));
    ck_assert_str_eq(stolen(), old);
    sql_run(operator, "select rowbell.add_webhook('mine', 'https://b.example/', '{*}');"
                      "select rowbell.add_index('own', '{*}', null, '{\"target\": \"meilisearch\", \"url\": "
                      "\"https://b.example\"}')");
    ck_assert_str_eq(sql_error(operator, formatted("select rowbell.rotate_secret('mine', '0', '%s')", old, "")),
                     "22023");
    ck_assert_str_eq(sql_error(operator, formatted("select rowbell.rotate_secret('own', '0', '%s')", old, "")),
                     "22023");
    ck_assert_str_eq(sql_error(operator, formatted("select rowbell.set_webhook('mine', '{\"client_key\": \"%s\", "
                                                   "\"client_certificate\": \"-----BEGIN CERTIFICATE-----\"}')",
                                                   old, "")),
                     "22023");
    // Sealed again where it is, it opens there alone.
    setenv("ROWBELL_SECRET_KEY", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", 1);
    ck_assert_msg(RUN("secrets", "rekey") == 0, "%s", err);
    ck_assert_int_eq(strncmp(stolen(), "sealed:2:", 9), 0);
}
END_TEST

static const struct {
    const char *changes;
    const char *sqlstate; // NULL: good
} redirects[] = {
    {"{\"url\": \"https://evil.example/\"}", "22023"},
    {"{\"url\": \"http://a.example/\", \"allow_http\": true}", "22023"},
    {"{\"url\": \"https://a.example:444/\"}", "22023"},
    {"{\"url\": \"https://a.example.evil.example/\"}", "22023"},
    {"{\"url\": \"https://evil.example/\", \"rate\": 1}", "22023"},
    {"{\"url\": \"https://evil.example/\", \"headers\": null}", NULL},
    {"{\"url\": \"https://evil.example/\", \"headers\": {\"authorization\": \"Bearer mine\"}}", NULL},
    {"{\"url\": \"HTTPS://A.example:443/other?path\"}", NULL},
    {"{\"rate\": 1}", NULL},
};

START_TEST(a_url_that_leads_to_another_host_takes_no_credentials_along) {
    set_up();
    char sql[400];
    snprintf(sql, sizeof sql, "select rowbell.set_webhook('victim', '%s')", redirects[_i].changes);
    if (redirects[_i].sqlstate != NULL)
        ck_assert_str_eq(sql_error(operator, sql), redirects[_i].sqlstate);
    else
        sql_run(operator, sql);
    bool told = strstr(sql_text(admin, "select settings from rowbell.subscriptions where name = 'victim'"),
                       "Bearer theirs") != NULL &&
                strstr(sql_text(admin, "select settings from rowbell.subscriptions where name = 'victim'"), "evil");
    ck_assert(!told);
}
END_TEST

START_TEST(a_client_key_is_not_shown_to_another_host) {
    set_up();
    sql_run(admin, "update rowbell.subscriptions set settings = settings - 'headers' || '{\"client_certificate\": "
                   "\"-----BEGIN CERTIFICATE-----\", \"client_key\": "
                   "\"sealed:2:0123456789abcdef:AAAABBBBCCCCDDDDEEEEFFFFGGGGHHHHIIIIJJJJ\"}' where name = 'victim'");
    ck_assert_str_eq(
        sql_error(operator, "select rowbell.set_webhook('victim', '{\"url\": \"https://evil.example/\"}')"), "22023");
    sql_run(operator,
            "select rowbell.set_webhook('victim', '{\"url\": \"https://evil.example/\", \"client_key\": null, "
            "\"client_certificate\": null}')");
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "hostile_seal", 90);
    tcase_add_test(tcase, a_sealed_secret_of_another_is_refused_or_does_not_open);
    tcase_add_test(tcase, a_secret_sealed_for_no_place_is_taken_from_nobody);
    tcase_add_loop_test(tcase, a_url_that_leads_to_another_host_takes_no_credentials_along, 0,
                        (int)(sizeof redirects / sizeof *redirects));
    tcase_add_test(tcase, a_client_key_is_not_shown_to_another_host);
}

int main(void) {
    return suite_main("hostile_seal", add_tests);
}
