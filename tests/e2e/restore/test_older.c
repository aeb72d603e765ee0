// Older versions, whose publications are kept by numbers: restored elsewhere, and migrated in place.
#include "tests/e2e/restore/world.h"
#include "tests/support/support.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *file_of(const char *name) {
    char path[400];
    snprintf(path, sizeof path, "%s/migrations/%s", SOURCE_ROOT, name);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    char *text = NULL;
    size_t size = 0;
    ck_assert_int_gt(getdelim(&text, &size, 0, file), 0);
    fclose(file);
    return support_keep(text);
}

// Its tables, with what publish had left: rows, types, functions and triggers.
static void make_old(PGconn *conn, PGconn *current, int version) {
    sql_run(conn, "set rowbell.no_roles = 'on'; create schema app; create table app.posts (id int primary key, gap "
                  "int, tenant text); alter table app.posts "
                  "drop gap; create table app.dropped (id int primary key); create table app.treasure (id int primary "
                  "key, tenant text)");
    sql_run(conn, file_of("bootstrap.sql"));
    char sql[1500];
    snprintf(sql, sizeof sql,
             "select string_agg(name, ' ' order by version) from rowbell.migrations where version <= %d", version);
    char *names = strdup(sql_text(current, sql));
    for (char *rest = names, *name = strsep(&rest, " "); name; name = rest ? strsep(&rest, " ") : NULL) {
        char file[100];
        snprintf(file, sizeof file, "%s.sql", name);
        sql_run(conn, file_of(file));
    }
    free(names);
    snprintf(sql, sizeof sql,
             "select string_agg(format('insert into rowbell.migrations (name, version, compatible_from, checksum) "
             "values (%%L, %%s, %%s, %%L)', name, version, "
             "compatible_from, checksum), '; ') from rowbell.migrations where version <= %d",
             version);
    sql_run(conn, sql_text(current, sql));
    sql_run(conn, "insert into rowbell.published (relation, name, key, scope, attnums, webhook) select c.oid, "
                  "c.relname, '{id}', case c.relname when 'posts' then "
                  "'tenant' end, '{\"id\": 1, \"tenant\": 3}', true from pg_class c where c.relname in ('posts', "
                  "'dropped') order by c.relname desc;"
                  "insert into rowbell.event_types (type, relation, webhook) select p.name || '.' || op, p.relation, "
                  "true from rowbell.published p, "
                  "unnest(array['create', 'update', 'delete']) op");
    snprintf(
        sql, sizeof sql,
        "do $$ declare p record; op text; begin for p in select %s as id, o.* from rowbell.published o loop "
        "foreach op in array array['insert', 'update', 'delete', 'truncate'] loop "
        "execute format('create function rowbell.%%I() returns trigger language plpgsql as ''begin return null; "
        "end''', 'capture_' || p.id || '_' || op);"
        "execute format('revoke execute on function rowbell.%%I() from current_user', 'capture_' || p.id || '_' || op);"
        "execute format('grant execute on function rowbell.%%1$I() to current_user', 'capture_' || p.id || '_' || op);"
        "execute format('create trigger %%I after %%s on %%s %%s for each statement execute function rowbell.%%I()', "
        "'~rowbell_' || op, op, "
        "p.relation::oid::regclass, case op when 'insert' then 'referencing new table as \"rowbell$new\"' when "
        "'delete' then 'referencing old table as "
        "\"rowbell$old\"' when 'update' then 'referencing old table as \"rowbell$old\" new table as \"rowbell$new\"' "
        "end, 'capture_' || p.id || '_' || op);"
        "execute format('revoke execute on function rowbell.%%I() from current_user', 'capture_' || p.id || '_' || op);"
        "end loop; end loop; end $$; drop table app.dropped",
        version < 7 ? "o.relation" : "o.id");
    sql_run(conn, sql);
}

START_TEST(an_older_dump_restored_by_the_owner) {
    int version = _i == 0 ? 6 : 13;
    fixture_database();
    PGconn *current = fixture_connect();
    fixture_empty_database();
    PGconn *old = fixture_connect();
    make_old(old, current, version);
    const char *dump = dump_file();
    SHELL("pg_dump -Fc -f %s '%s'", dump, support_database_url());
    const char *url = fixture_empty_database();
    const char *owner = owner_url(url);
    SHELL("pg_restore -e --no-owner --no-privileges -d '%s' %s", owner, dump);
    PGconn *conn = connect_url(owner);
    // The number of the table that was dropped is another one's.
    sql_run(conn, "update rowbell.published set relation = 'app.treasure'::regclass where name = 'dropped'");
    expect_status(RUN("migrate", "--no-roles", "--database-url", owner), 0);
    ck_assert_str_eq(sql_text(conn, "select string_agg(concat_ws(' ', name, relation, attnums), ', ' order by name) "
                                    "from rowbell.published_tables()"),
                     "dropped {}, posts app.posts {\"id\": 1, \"tenant\": 2}");
    ck_assert_str_eq(sql_text(conn, "select string_agg(distinct concat_ws(' ', problem, subject), ', ') from "
                                    "rowbell.doctor() where problem not in ('no "
                                    "process', 'owner is gone')"),
                     "table is gone dropped");
    sql_run(conn, "insert into app.posts values (1, 'acme'); insert into app.treasure values (1, 'gold'); update "
                  "app.posts set tenant = 'b'");
    ck_assert_str_eq(sql_text(conn, "select string_agg(concat_ws(' ', op, scope, subject), ', ' order by seq) from "
                                    "rowbell.events where op is not null"),
                     "create acme posts/1, delete acme posts/1, create b posts/1");
    ck_assert_str_eq(sql_text(conn, "select rowbell.unpublish('app.posts')"), "t");
    ck_assert_int_eq(sql_int(conn, "select count(*) from pg_trigger where tgname like '~rowbell%'"), 0);
    PQfinish(conn);
    owner_gone();
    unlink(dump);
}
END_TEST

// In place, too.
START_TEST(an_older_version_migrated_in_place) {
    fixture_database();
    PGconn *current = fixture_connect();
    fixture_empty_database();
    PGconn *conn = fixture_connect();
    make_old(conn, current, _i == 0 ? 6 : 13);
    expect_status(RUN("migrate", "--no-roles"), 0);
    sql_run(conn, "insert into app.posts values (1, 'acme')");
    ck_assert_str_eq(sql_text(conn, "select scope || ' ' || subject from rowbell.events where op is not null"),
                     "acme posts/1");
    sql_run(conn, "alter table app.posts rename tenant to org");
    ck_assert_str_eq(remedies(conn, "column is gone"),
                     "select rowbell.publish('app.posts', scope => 'org', key => '{id}', name => 'posts')");
}
END_TEST

void add_older(Suite *suite) {
    TCase *tcase = suite_case(suite, "older", 180);
    tcase_add_loop_test(tcase, an_older_dump_restored_by_the_owner, 0, 2);
    tcase_add_loop_test(tcase, an_older_version_migrated_in_place, 0, 2);
}
