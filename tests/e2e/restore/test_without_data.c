// Dumps without data: structure.sql of web frameworks.
#include "tests/e2e/restore/world.h"
#include "tests/support/support.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// structure.sql of web frameworks, loaded by the owner of the database.
START_TEST(a_dump_without_data) {
    PGconn *source = furnished();
    const char *dump = dump_file();
    SHELL("pg_dump --schema-only --no-owner --no-privileges -f %s '%s'", dump, support_database_url());
    const char *rows = "select string_agg(concat_ws(' ', t.type, t.description, t.webhook), ', ' order by t.type) || "
                       "(select string_agg(concat_ws(' ', s.name, "
                       "s.kind, s.types), ', ') from rowbell.subscriptions s where s.kind = 'sse') || (select count(*) "
                       "from rowbell.streams t join "
                       "rowbell.stream_log l on l.stream_id = t.id and l.prev = 0) || (select count(*) from "
                       "rowbell.stream_keys) || (select count(*) from "
                       "rowbell.caller_key) from rowbell.event_types t where t.type like 'rowbell.%'";
    const char *original = sql_text(source, rows),
               *records = "select string_agg(concat_ws(' ', name, version, compatible_from, checksum), ', ' order by "
                          "version) from rowbell.migrations where version is not null";
    const char *recorded = sql_text(source, records);
    const char *url = fixture_empty_database();
    const char *owner = owner_url(url);
    SHELL("psql -X -q -v ON_ERROR_STOP=1 -f %s '%s'", dump, owner);
    PGconn *conn = connect_url(owner);
    // The application works at once; nothing is captured.
    sql_run(conn, "insert into app.posts values (1, 't1', null, 'one', 'x'); update app.posts set body = 'x'; delete "
                  "from app.posts; truncate app.posts");
    ck_assert_int_eq(
        program_run("rowbell-relay", (const char *const[]){"--once", "--database-url", owner, NULL}, &out, &err), 4);
    expect_text(err, "rowbell.migrations is empty, as after a dump without data was loaded: run `rowbell migrate`");
    expect_status(RUN("migrate", "--database-url", owner), 4);
    expect_text(err, "give --no-roles again");
    expect_status(RUN("migrate", "--no-roles", "--status", "--database-url", owner), 0);
    expect_status(RUN("migrate", "--no-roles", "--database-url", owner), 0);
    ck_assert_ptr_null(strstr(out, "0001_outbox"));
    ck_assert_str_eq(sql_text(conn, rows), original);
    ck_assert_str_eq(sql_text(conn, records), recorded);
    expect_status(RUN("migrate", "--no-roles", "--database-url", owner), 0);
    expect_text(out, "nothing to do");
    // What was published is in the dump, too; a table of that name or of another.
    char remedy[1000];
    snprintf(remedy, sizeof remedy, "%s; %s; %s; select rowbell.unpublish('app.parted_3')", publish_named,
             publish_parted, publish_posts);
    ck_assert_str_eq(remedies(conn, "not published"), remedy);
    sql_run(conn, remedy);
    ck_assert_str_eq(remedies(conn, "%publish%"), "none");
    expect_captured(conn);
    ck_assert_int_eq(
        program_run("rowbell-relay", (const char *const[]){"--once", "--database-url", owner, NULL}, &out, &err), 0);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs j join rowbell.subscriptions s on s.id = "
                                   "j.subscription_id where s.kind = 'sse'"),
                     6);
    expect_unpublished(conn);
    PQfinish(conn);
    owner_gone();
    unlink(dump);
}
END_TEST

// The script of --print does the same. Without comments nobody knows which version it was.
START_TEST(a_dump_without_data_by_print_and_without_comments) {
    furnished();
    const char *dump = dump_file();
    SHELL("pg_dump --schema-only -f %s '%s'", dump, support_database_url());
    const char *url = fixture_empty_database();
    SHELL("psql -X -q -v ON_ERROR_STOP=1 -f %s '%s'", dump, url);
    expect_status(RUN("migrate", "--print"), 0);
    FILE *script = fopen(dump, "w");
    ck_assert_ptr_nonnull(script);
    fputs(out, script);
    fclose(script);
    SHELL("psql -X -q -f %s '%s'", dump, url);
    expect_status(RUN("migrate"), 0);
    expect_text(out, "nothing to do");
    SHELL("pg_dump --schema-only --no-comments -f %s '%s'", dump, url);
    url = fixture_empty_database();
    SHELL("psql -X -q -v ON_ERROR_STOP=1 -f %s '%s'", dump, url);
    expect_status(RUN("migrate"), 4);
    expect_text(err, "drop schema rowbell cascade");
    PGconn *conn = fixture_connect();
    sql_run(conn, "drop schema rowbell cascade");
    expect_status(RUN("migrate"), 0);
    sql_run(conn, publish_posts);
    sql_run(conn, "insert into app.posts values (1, 't1')");
    ck_assert_str_eq(sql_text(conn, "select subject from rowbell.events"), "posts/1");
    unlink(dump);
}
END_TEST

void add_without_data(Suite *suite) {
    TCase *tcase = suite_case(suite, "without_data", 180);
    tcase_add_test(tcase, a_dump_without_data);
    tcase_add_test(tcase, a_dump_without_data_by_print_and_without_comments);
}
