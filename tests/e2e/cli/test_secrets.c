// Secrets, sealed and as they were given.
#include "tests/e2e/cli/world.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

START_TEST(test_secrets_are_sealed_at_once_where_the_key_is) {
    set_up();
    setenv("ROWBELL_SECRET_KEY", KEY_A, 1);
    expect_status(RUN("subscription", "add", "webhook", "w", "https://a.example/", "--type", "*"), 0);
    expect_text(out, "secret  whsec_");
    char secret[100];
    ck_assert_int_eq(sscanf(strstr(out, "whsec_"), "%99s", secret), 1);
    ck_assert_int_eq(strncmp(stored_secrets("w"), "sealed:2:", 9), 0);
    ck_assert_ptr_null(strstr(stored_secrets("w"), secret));

    expect_status(RUN("subscription", "rotate-secret", "w", "--grace", "1h"), 0);
    expect_text(out, "the old one signs beside it until ");
    expect_text(out, "secret  whsec_");
    ck_assert_str_eq(sql_text(conn, "select secrets[1] like 'sealed:2:%' and secrets[2] like 'until=%;sealed:2:%' from "
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
        sql_text(conn, "select secrets[2] ~ '^until=[0-9]+;sealed:2:' from rowbell.subscriptions where name = 'b'"),
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

void secrets_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "secrets", 60);
    tcase_add_test(tcase, test_secrets_are_sealed_at_once_where_the_key_is);
    tcase_add_test(tcase, test_other_kinds_of_secrets);
    tcase_add_test(tcase, test_secrets_rekey);
}
