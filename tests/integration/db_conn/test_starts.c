// A start that fails.
#include "common/clock.h"
#include "common/db_error.h"
#include "common/schema_version.h"
#include "tests/integration/db_conn/world.h"
#include <stdio.h>
#include <string.h>

static void assert_first_down(const char *url, enum error_code code, const char *text) {
    struct probe probe = {0};
    probe_start(&probe, url);
    ck_assert_int_eq(probe.downs, 0); // never from inside
    turn_until(&probe.downs, 1, HANG_MS, url);
    ck_assert(probe.first);
    ck_assert_msg(probe.down.code == code && strstr(probe.down.text, text), "%s: %s", error_code_name(probe.down.code),
                  probe.down.text);
    ck_assert_msg(!strstr(probe.down.text, "hunter2"), "%s", probe.down.text);
    ck_assert_int_eq(probe.ups, 0);
    probe_close(&probe);
}

START_TEST(start_tells_why_it_failed) {
    PGconn *pg = open_database();
    char url[300];
    snprintf(url, sizeof(url), "postgres://%s:hunter2@%s:%s/%s", PQuser(pg), PQhost(pg), PQport(pg), PQdb(pg));
    assert_first_down(url, ERROR_AUTH, "password authentication failed");
    snprintf(url, sizeof(url), "postgres://%s:%s@%s:%s/no_such_database", PQuser(pg), PQpass(pg), PQhost(pg),
             PQport(pg));
    assert_first_down(url, ERROR_AUTH, "\"no_such_database\" does not exist");
    snprintf(url, sizeof(url), "postgres://a:hunter2@%s:%s/x?sslmode=verify-full&sslrootcert=/no/such/file", PQhost(pg),
             PQport(pg));
    assert_first_down(url, ERROR_CONNECT, "failed: "); // the reason, not the advice on the lines after it
    assert_first_down("postgres://a:hunter2@127.0.0.1:1/x", ERROR_CONNECT, "Connection refused");
    assert_first_down("postgres://a:hunter2@localhost:1/x", ERROR_CONNECT, "Connection refused");
    assert_first_down("postgres://a:hunter2@no-such-host.invalid/x", ERROR_CONNECT, "no-such-host.invalid");
    assert_first_down("postgres://a:hunter2/x@127.0.0.1/x", ERROR_USAGE, "malformed");
    assert_first_down("postgres://a:hunter2%zz@127.0.0.1/x", ERROR_USAGE, "malformed");
    assert_first_down("a:hunter2@127.0.0.1/x", ERROR_USAGE, "malformed");
    assert_first_down(fixture_empty_database(), ERROR_SCHEMA, "rowbell migrate");
}
END_TEST

START_TEST(names_are_resolved) {
    PGconn *pg = open_database();
    char url[300];
    snprintf(url, sizeof(url), "postgres://%s:%s@localhost:%s/%s", PQuser(pg), PQpass(pg), PQport(pg), PQdb(pg));
    struct probe probe = {0};
    probe_up(&probe, url);
    probe_close(&probe);
}
END_TEST

START_TEST(schema_that_is_too_new_is_refused_until_it_fits) {
    PGconn *pg = open_database();
    sql_run(
        pg,
        "insert into rowbell.migrations (name, version, compatible_from, checksum) values ('9999', 9999, 9998, '')");
    struct probe probe = {0};
    probe_start(&probe, database_url);
    turn_until(&probe.downs, 1, HANG_MS, "on_down");
    ck_assert_int_eq(probe.down.code, ERROR_SCHEMA);
    ck_assert_ptr_nonnull(strstr(probe.down.text, "version 9999, which needs a program of version >= 9998"));
    sql_run(pg, "delete from rowbell.migrations where version = 9999");
    turn_until(&probe.ups, 1, HANG_MS, "on_up");
    sql_run(
        pg,
        "insert into rowbell.migrations (name, version, compatible_from, checksum) values ('9999', 9999, 9998, '')");
    db_conn_reset(probe.conn, "test");
    turn_until(&probe.downs, 3, HANG_MS, "on_down"); // the reset, then the reason why it does not come back
    ck_assert_int_eq(probe.down.code, ERROR_SCHEMA);
    probe_close(&probe);
}
END_TEST

START_TEST(login_without_permission_is_told_the_grant) {
    PGconn *pg = open_database();
    char url[300], sql[300], role[64];
    snprintf(role, sizeof(role), "nobody_%s", PQdb(pg));
    snprintf(sql, sizeof(sql), "create role %s login password 'x'", role);
    sql_run(pg, sql);
    snprintf(url, sizeof(url), "postgres://%s:x@%s:%s/%s", role, PQhost(pg), PQport(pg), PQdb(pg));
    assert_first_down(url, ERROR_SCHEMA, "grant");
    snprintf(sql, sizeof(sql), "drop role %s", role);
    sql_run(pg, sql);
}
END_TEST

START_TEST(silent_server_is_given_up) {
    char url[300];
    struct tcp_proxy *proxy = proxy_start(url, sizeof(url));
    tcp_proxy_silence(proxy);
    struct probe probe = {0};
    uint64_t start = clock_ms();
    probe_start(&probe, url);
    turn_until(&probe.downs, 1, HANG_MS, "on_down");
    ck_assert_uint_ge(clock_ms() - start, 9900);
    ck_assert_int_eq(probe.down.code, ERROR_TIMEOUT);
    probe_close(&probe);
    tcp_proxy_stop(proxy);
}
END_TEST

// An ErrorResponse as a server sends it instead of a greeting.
static size_t refusal_write(char *bytes, size_t size, const char *sqlstate, const char *text) {
    int length = snprintf(bytes, size, "E....SFATAL_VFATAL_C%s_M%s_Fx.c_L1_Rf_", sqlstate, text) + 1;
    for (int i = 5; i < length; i++)
        bytes[i] = bytes[i] == '_' ? '\0' : bytes[i];
    memcpy(bytes + 1, (char[]){0, 0, 0, (char)(length - 1)}, 4);
    return (size_t)length;
}

START_TEST(refusals_are_told_apart) {
    static const struct {
        enum error_code code;
        const char *sqlstate;
        const char *text;
    } cases[] = {
        {ERROR_CONNECT, "57P03", "the database system is starting up"},
        {ERROR_CONNECT, "53300", "sorry, too many clients already"},
        {ERROR_AUTH, "28000", "no pg-hba.conf entry"},
    };
    char url[300], bytes[200];
    struct tcp_proxy *proxy = proxy_start(url, sizeof(url));
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        tcp_proxy_answer(proxy, bytes, refusal_write(bytes, sizeof(bytes), cases[i].sqlstate, cases[i].text));
        struct probe probe = {0};
        probe_start(&probe, url);
        turn_until(&probe.downs, 1, HANG_MS, cases[i].text);
        ck_assert_msg(probe.down.code == cases[i].code, "%s", probe.down.text);
        ck_assert_str_eq(probe.down.sqlstate, cases[i].sqlstate);
        ck_assert_msg(strstr(probe.down.text, cases[i].text), "%s", probe.down.text);
        probe_close(&probe);
    }
    tcp_proxy_answer(proxy, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
    struct probe probe = {0};
    probe_start(&probe, url);
    turn_until(&probe.downs, 1, HANG_MS, "HTTP");
    ck_assert_int_eq(probe.down.code, ERROR_CONNECT);
    probe_close(&probe);
    tcp_proxy_stop(proxy);
}
END_TEST

START_TEST(errors_have_the_class_of_their_sqlstate) {
    static const struct {
        const char *sqlstate;
        enum error_code code;
        bool system;
    } cases[] = {
        {"23505", ERROR_SQL, false},    {"22P02", ERROR_SQL, false},    {"P0001", ERROR_SQL, false},
        {"40001", ERROR_SQL, true},     {"55P03", ERROR_SQL, true},     {"53100", ERROR_SQL, true},
        {"08006", ERROR_CONNECT, true}, {"57P01", ERROR_CONNECT, true}, {"28P01", ERROR_AUTH, true},
    };
    PGconn *pg = open_database();
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char sql[200];
        snprintf(sql, sizeof(sql),
                 "do $$ begin raise exception 'one%%two', e'\\n' using errcode = '%s', detail = 'secret'; end $$",
                 cases[i].sqlstate);
        PGresult *result = PQexec(pg, sql);
        struct error error;
        db_error_from_result(result, &error);
        PQclear(result);
        ck_assert_int_eq(error.code, cases[i].code);
        ck_assert_str_eq(error.sqlstate, cases[i].sqlstate);
        ck_assert_int_eq(db_error_is_system(&error), cases[i].system);
        ck_assert_str_eq(error.text, "one two");
    }
}
END_TEST

void starts_tests(Suite *suite) {
    TCase *starts = loop_case(suite, "starts", 40);
    tcase_add_test(starts, start_tells_why_it_failed);
    tcase_add_test(starts, names_are_resolved);
    tcase_add_test(starts, schema_that_is_too_new_is_refused_until_it_fits);
    tcase_add_test(starts, login_without_permission_is_told_the_grant);
    tcase_add_test(starts, silent_server_is_given_up);
    tcase_add_test(starts, refusals_are_told_apart);
    tcase_add_test(starts, errors_have_the_class_of_their_sqlstate);
}
