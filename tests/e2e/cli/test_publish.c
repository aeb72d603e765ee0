// Tables that are published, and under which names.
#include "tests/e2e/cli/world.h"
#include <stdio.h>

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
    expect_json(
        "j = '{\"relation\": \"public.posts\", \"name\": \"posts\", \"key\": [\"id\"], \"scope\": null, "
        "\"soft_delete\": null, \"watch\": null, \"webhook\": false, \"capture\": \"rows\", \"lastval\": null}'");
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

static void give_posts_to(const char *url) {
    PGconn *login = PQconnectdb(url);
    char sql[200];
    snprintf(sql, sizeof sql, "alter table posts owner to %s", PQuser(login));
    PQfinish(login);
    sql_run(fixture_admin(), sql);
}

// A least-privileged owner of a table may publish it and sees no table of ours.
START_TEST(test_publish_by_the_tables_owner) {
    set_up();
    // Owning the table is not enough.
    const char *url = fixture_login("pg_signal_backend");
    give_posts_to(url);
    expect_status(RUN("publish", "posts", "--database-url", url), 1);
    expect_text(err, "a member of rowbell_publish");
    url = fixture_login("rowbell_publish");
    give_posts_to(url);
    expect_status(RUN("publish", "posts", "--database-url", url), 0);
    expect_text(out, "every change of public.posts is captured from now on\n");
    expect_status(RUN("publish", "posts", "--json", "--database-url", url), 0);
    expect_json("j ->> 'relation' = 'public.posts'");
    expect_status(RUN("status", "--database-url", url), 4);
    expect_text(err, "rowbell_operator");
    sql_run(conn, "create table others (id int primary key)");
    expect_status(RUN("publish", "others", "--database-url", url), 1);
    expect_text(err, "must be owner of table public.others");
}
END_TEST

// A transaction that has written holds it up; others write on meanwhile.
START_TEST(test_publish_waits_for_a_writer_and_stops_nobody) {
    set_up();
    PGconn *writer = fixture_connect(), *other = fixture_connect();
    static const char *const waits = "select count(*) from pg_locks where relation = 'posts'::regclass and not granted";
    sql_run(other, "set lock_timeout = '1s'; set statement_timeout = '1s'");
    static const char *const commands[] = {"publish", "unpublish"};
    for (int i = 0; i < 2; i++) {
        sql_run(writer, "begin");
        sql_run(writer, i == 0 ? "insert into posts values ('p1')" : "select count(*) from posts");
        struct daemon *command = daemon_start("rowbell", (const char *const[]){commands[i], "posts", NULL});
        for (int j = 0; j < 3; j++) {
            sql_wait(conn, 20000, waits);
            sql_run(other, "select count(*) from posts; update posts set body = 'x'");
        }
        sql_run(writer, "commit");
        ck_assert_int_eq(daemon_wait_exit(command, 20000), 0);
    }
}
END_TEST

void publish_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "publish", 60);
    tcase_add_test(tcase, test_publish);
    tcase_add_test(tcase, test_publish_names);
    tcase_add_test(tcase, test_publish_by_the_tables_owner);
    tcase_add_test(tcase, test_publish_waits_for_a_writer_and_stops_nobody);
}
