// migrate: brings a database to this program's schema. The same statements are run here and printed by --print, so both
// give the same schema.
//
// Happy path, in one transaction: take the advisory lock, let verify.sql judge what is there, read rowbell.migrations,
// then run roles, bootstrap, the table migrations that are missing, and all functions with their grants. A failure
// leaves the database as it was. One that waited for a lock in vain is tried again. Before verify.sql has found
// nothing, no object of the schema is named in a statement: a view or a function of somebody else would run with the
// rights of whoever migrates.
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/migration_plan.h"
#include "cli/migrations.h"
#include "cli/output.h"
#include "cli/sql.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "common/memory.h"
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A file, and its row in rowbell.migrations. Names and digests come from this program's own files.
static void step_sql(const struct migration_step *step, struct buffer *sql) {
    buffer_append(sql, step->file->bytes, step->file->length);
    if (step->kind == MIGRATION_TABLES)
        buffer_format(sql,
                      "insert into rowbell.migrations (name, version, compatible_from, checksum)\n"
                      "  values ('%s', %d, %d, '%s');\n",
                      step->name, step->version, step->compatible_from, step->file->sha256);
    else if (step->kind == MIGRATION_FUNCTIONS || step->kind == MIGRATION_GRANTS)
        buffer_format(sql,
                      "insert into rowbell.migrations (name, checksum) values ('%s', '%s')\n"
                      "  on conflict (name) do update set checksum = excluded.checksum, applied_at = now();\n",
                      step->name, step->file->sha256);
}

// What a database or a role may have set otherwise, and our files depend on. Names are those of pg_catalog before any
// statement looks one up.
static const char settings[] = "set local search_path = pg_catalog, pg_temp;\n"
                               "set local timezone = 'UTC';\n"
                               "set local datestyle = 'ISO';\n"
                               "set local client_min_messages = warning;\n"
                               "set local statement_timeout = 0;\n"
                               "set local idle_in_transaction_session_timeout = 0;\n"
                               "do $$ begin\n" // it is of 17, and an error before
                               "  if current_setting('server_version_num')::int >= 170000 then\n"
                               "    perform set_config('transaction_timeout', '0', true);\n"
                               "  end if;\n"
                               "end $$;\n"
                               "set local standard_conforming_strings = on;\n"
                               "set local transform_null_equals = off;\n"
                               "set local quote_all_identifiers = off;\n"
                               "set local check_function_bodies = on;\n"
                               "set local default_table_access_method = heap;\n"
                               "set local row_security = on;\n"
                               "set local plpgsql.extra_errors = none;\n"
                               "set local plpgsql.extra_warnings = none;\n";

// Whoever comes to a table while a lock on it is waited for queues up behind it, writers of published tables too.
// Shorter than the usual deadlock_timeout, so that it is never the other one that PostgreSQL ends.
static const char lock_timeout[] = "set local lock_timeout = '800ms';\n";
enum { BUSY_MOST_MS = 60000, BUSY_PAUSE_MS = 1000 };

// What verify.sql asks. `trusted` is a list of roles or NULL.
static void append_mode(struct buffer *sql, bool roles, const char *trusted) {
    buffer_format(sql, "set local rowbell.no_roles = '%s';\nset local rowbell.trusted = '", roles ? "off" : "on");
    for (const char *c = trusted != NULL ? trusted : ""; *c != 0; c++) {
        if (*c == '\'')
            buffer_char(sql, '\'');
        buffer_char(sql, *c);
    }
    buffer_text(sql, "';\n");
}

static const char after_bootstrap[] = "lock table rowbell.migrations in share row exclusive mode;\n";

// Does the file of this step run, or is its record of functions that are gone deleted?
static bool step_runs(const struct migration_plan *plan, const struct migration_step *step, bool roles) {
    if (step->kind == MIGRATION_ROLES)
        return roles;
    return step->kind == MIGRATION_BOOTSTRAP || migration_plan_runs(plan, step, roles) ||
           // Rights that somebody took away come back, although the file is applied already.
           (step->kind == MIGRATION_GRANTS && roles) ||
           (step->state == MIGRATION_UNKNOWN && step->kind == MIGRATION_FUNCTIONS && plan->functions_pending);
}

static int line_at(const char *text, size_t offset) {
    int line = 1;
    for (size_t i = 0; i < offset && text[i] != 0; i++)
        line += text[i] == '\n';
    return line;
}

// Runs one step; an error names the file and the line that PostgreSQL's position points to.
static bool run_step(struct cli *cli, const struct migration_step *step, struct error *ret_error) {
    struct buffer sql = {0};
    if (step->file != NULL)
        step_sql(step, &sql);
    else
        buffer_format(&sql, "delete from rowbell.migrations where name = '%s'", step->name);
    PGresult *result = PQexec(cli->conn, buffer_cstr(&sql));
    bool ok = PQresultStatus(result) == PGRES_COMMAND_OK || PQresultStatus(result) == PGRES_TUPLES_OK;
    const char *position = PQresultErrorField(result, PG_DIAG_STATEMENT_POSITION);
    if (!ok && PQstatus(cli->conn) == CONNECTION_BAD) {
        error_set(ret_error, ERROR_CONNECT, "migrate: the connection was lost: run it again");
    } else if (!ok) {
        cli_error_from_result(result, ret_error);
        // Characters, counted from 1; our files are ASCII, so they are bytes.
        if (position != NULL && step->file != NULL)
            error_wrap(ret_error, "migrate: %s line %d", step->file->name,
                       line_at(step->file->bytes, strtoul(position, NULL, 10) - 1));
        else
            error_wrap(ret_error, "migrate: %s", step->name);
    }
    PQclear(result);
    buffer_free(&sql);
    return ok;
}

// What the database says of itself.
struct database {
    PGresult *records_result; // owned; NULL: never migrated
    struct migration_record *records;
    size_t record_count;
    bool exists, owned_by_role, recorded, has_tables;
    char *missing_grant; // owned; NULL: this login may become rowbell_owner
};

static void database_close(struct database *database) {
    PQclear(database->records_result);
    free(database->records);
    free(database->missing_grant);
    *database = (struct database){0};
}

static bool read_records(struct cli *cli, struct database *database, struct error *ret_error) {
    // A login may be allowed to become the owner, and have none of its rights before.
    bool become = database->owned_by_role && database->missing_grant == NULL;
    if ((become && !cli_script(cli, "set local role rowbell_owner", ret_error)) ||
        !cli_query(cli, &sql_migration_records, 0, NULL, &database->records_result, ret_error) ||
        (become && !cli_script(cli, "reset role", ret_error))) {
        bool denied = database->missing_grant != NULL && strcmp(ret_error->sqlstate, "42501") == 0;
        return denied &&
               error_set(ret_error, ERROR_SQL,
                         "migrate: this login may not read rowbell.migrations, and cannot become rowbell_owner: "
                         "as a role that may grant it: %s",
                         database->missing_grant);
    }
    const PGresult *rows = database->records_result;
    database->record_count = (size_t)PQntuples(rows);
    database->records = memory_alloc((database->record_count + 1) * sizeof(*database->records));
    if (database->record_count == 0 && database->has_tables)
        return error_set(ret_error, ERROR_SCHEMA,
                         "migrate: rowbell.migrations is empty, but other tables of its schema are there: the database "
                         "was made from a dump without data and without comments, or of a version before 15. Drop the "
                         "schema (drop schema rowbell cascade, which drops its triggers too), migrate, and publish the "
                         "tables again");
    for (int row = 0; row < PQntuples(rows); row++)
        database->records[row] = (struct migration_record){
            .name = PQgetvalue(rows, row, 0),
            .version = atoi(PQgetvalue(rows, row, 1)),
            .checksum = PQgetvalue(rows, row, 2),
            .applied_at = PQgetvalue(rows, row, 3),
        };
    return true;
}

// From the catalog alone: verify.sql comes next.
static bool read_schema(struct cli *cli, struct database *database, struct error *ret_error) {
    PGresult *schema;
    if (!cli_query(cli, &sql_migration_schema, 0, NULL, &schema, ret_error))
        return false;
    database->exists = PQgetvalue(schema, 0, 0)[0] == 't';
    database->owned_by_role = PQgetvalue(schema, 0, 1)[0] == 't';
    database->recorded = PQgetvalue(schema, 0, 2)[0] == 't';
    database->has_tables = PQgetvalue(schema, 0, 3)[0] == 't';
    if (!PQgetisnull(schema, 0, 6))
        database->missing_grant = memory_copy_text(PQgetvalue(schema, 0, 6));
    bool may_create = PQgetvalue(schema, 0, 5)[0] == 't';
    bool ok = database->exists || may_create ||
              error_set(ret_error, ERROR_SQL,
                        "migrate: %s may not create a schema in this database: connect as its owner or as a superuser",
                        PQgetvalue(schema, 0, 4));
    PQclear(schema);
    return ok;
}

static bool verify(struct cli *cli, bool roles, struct error *ret_error) {
    struct buffer sql = {0};
    append_mode(&sql, roles, option_value(cli, "trust"));
    PGresult *problems = NULL;
    bool ok =
        cli_script(cli, buffer_cstr(&sql), ret_error) && cli_query(cli, &sql_verify, 0, NULL, &problems, ret_error);
    buffer_free(&sql);
    int count = ok ? PQntuples(problems) : 0;
    for (int row = 0; row < count; row++)
        fprintf(stderr, "rowbell: migrate: %s: %s: %s\n", PQgetvalue(problems, row, 0), PQgetvalue(problems, row, 1),
                PQgetvalue(problems, row, 2));
    if (count > 0)
        ok = error_set(ret_error, ERROR_SCHEMA, "migrate: %s: nothing of the schema was read or changed",
                       count == 1 ? "there is a problem" : "there are problems");
    PQclear(problems);
    return ok;
}

// Any login can take the lock, so who has it is named.
static bool wait_for_lock(struct cli *cli, struct error *ret_error) {
    PGresult *holder;
    if (!cli_query(cli, &sql_migration_lock_holder, 0, NULL, &holder, ret_error))
        return false;
    bool known = PQntuples(holder) > 0;
    fprintf(stderr,
            "rowbell: another migration of this database is running: waiting for it (process %s of login %s has the "
            "lock)\n",
            known ? PQgetvalue(holder, 0, 0) : "?", known ? PQgetvalue(holder, 0, 1) : "?");
    PQclear(holder);
    return cli_query(cli, &sql_migration_lock, 0, NULL, NULL, ret_error);
}

static bool take_lock(struct cli *cli, struct error *ret_error) {
    PGresult *result;
    if (!cli_query(cli, &sql_migration_lock_try, 0, NULL, &result, ret_error))
        return false;
    bool taken = PQgetvalue(result, 0, 0)[0] == 't';
    PQclear(result);
    return (taken || wait_for_lock(cli, ret_error)) && cli_script(cli, lock_timeout, ret_error);
}

static bool begin(struct cli *cli, bool changes, struct error *ret_error) {
    // Each statement sees what was committed before it: the one that waited for the lock, what the other migration did.
    return cli_script(cli,
                      changes ? "begin isolation level read committed read write"
                              : "begin isolation level repeatable read read only",
                      ret_error) &&
           cli_script(cli, settings, ret_error) && (!changes || take_lock(cli, ret_error));
}

static void print_status(const struct migration_plan *plan, bool json) {
    json_object *list = json_object_new_array();
    if (!json)
        printf("%-32s  %-24s  %s\n", "name", "applied at", "state");
    for (size_t i = 0; i < plan->count; i++) {
        const struct migration_step *step = &plan->steps[i];
        if (step->kind == MIGRATION_ROLES || step->kind == MIGRATION_BOOTSTRAP)
            continue;
        char at[40] = "-";
        if (step->record != NULL)
            snprintf(at, sizeof(at), "%.10sT%.8sZ", step->record->applied_at, step->record->applied_at + 11);
        if (!json) {
            printf("%-32s  %-24s  %s\n", step->name, at, migration_state_name(step->state));
            continue;
        }
        json_object *row = json_object_new_object();
        json_object_object_add(row, "name", json_object_new_string(step->name));
        json_object_object_add(row, "version", step->version > 0 ? json_object_new_int(step->version) : NULL);
        json_object_object_add(row, "applied_at", step->record != NULL ? json_object_new_string(at) : NULL);
        json_object_object_add(row, "state", json_object_new_string(migration_state_name(step->state)));
        json_object_array_add(list, row);
    }
    if (json)
        output_json(list);
    else
        json_object_put(list);
}

// The names of what runs, to stdout; returns how many.
static int print_steps(const struct migration_plan *plan, bool roles, bool json, const char *verb) {
    json_object *names = json_object_new_array();
    int count = 0;
    for (size_t i = 0; i < plan->count; i++) {
        const struct migration_step *step = &plan->steps[i];
        if (!migration_plan_runs(plan, step, roles))
            continue;
        count++;
        if (json)
            json_object_array_add(names, json_object_new_string(step->name));
        else
            printf("%s %s\n", verb, step->name);
    }
    if (json) {
        json_object *document = json_object_new_object();
        json_object_object_add(document, "version", json_object_new_int(plan->version));
        json_object_object_add(document, verb, names);
        output_json(document);
    } else {
        json_object_put(names);
    }
    return count;
}

static bool apply(struct cli *cli, const struct migration_plan *plan, bool roles, struct error *ret_error) {
    for (size_t i = 0; i < plan->count; i++) {
        const struct migration_step *step = &plan->steps[i];
        if (step_runs(plan, step, roles) && !run_step(cli, step, ret_error))
            return false;
        if (step->kind == MIGRATION_BOOTSTRAP && !cli_script(cli, after_bootstrap, ret_error))
            return false;
    }
    return cli_script(cli, sql_migration_note.sql, ret_error) && cli_script(cli, "commit", ret_error);
}

// psql's if keeps what is applied already from running twice.
static void print_sql(const struct migration_plan *plan, bool roles, const char *trusted) {
    printf("-- The schema of Rowbell, version %d. Run it with psql:  psql -X -f FILE\n"
           "\\set ON_ERROR_STOP on\n"
           "begin isolation level read committed read write;\n"
           "%sselect pg_advisory_xact_lock(32210705887620204) as locked \\gset\n%s",
           plan->version, settings, lock_timeout);
    struct buffer sql = {0};
    append_mode(&sql, roles, trusted);
    buffer_format(
        &sql,
        "do $verify$\ndeclare\n  problems text;\nbegin\n"
        "  select string_agg(format('%%s: %%s: %%s', v.place, v.problem, v.remedy), e'\\n') into problems from (\n"
        "%s) as v;\n"
        "  if problems is not null then\n"
        "    raise exception e'rowbell: nothing of the schema was read or changed:\\n%%', problems;\n"
        "  end if;\nend $verify$;\n",
        sql_verify.sql);
    for (size_t i = 0; i < plan->count; i++) {
        const struct migration_step *step = &plan->steps[i];
        if (!step_runs(plan, step, roles))
            continue;
        if (step->kind == MIGRATION_TABLES)
            buffer_format(&sql,
                          "select not exists (select from rowbell.migrations where name = '%s') as pending \\gset\n"
                          "\\if :pending\n",
                          step->name);
        step_sql(step, &sql);
        if (step->kind == MIGRATION_TABLES)
            buffer_text(&sql, "\\endif\n");
        if (step->kind == MIGRATION_BOOTSTRAP)
            buffer_text(&sql, after_bootstrap);
    }
    buffer_format(&sql, "%s;\n", sql_migration_note.sql);
    fputs(buffer_cstr(&sql), stdout);
    puts("commit;");
    buffer_free(&sql);
}

static bool run_once(struct cli *cli, bool roles, struct error *ret_error) {
    bool status = option_given(cli, "status"), changes = !status && !option_given(cli, "dry-run");
    struct database database = {0};
    struct migration_plan plan = {0};
    bool ok = begin(cli, changes, ret_error) && read_schema(cli, &database, ret_error) &&
              verify(cli, status && database.exists ? database.owned_by_role : roles, ret_error) &&
              (!database.recorded || read_records(cli, &database, ret_error));
    if (!ok)
        goto done;
    migration_plan_init(&plan, migrations, migrations_count, database.records, database.record_count);
    if (status) {
        print_status(&plan, cli->json);
        goto done;
    }
    ok = migration_plan_check(&plan, ret_error);
    if (ok && changes)
        ok = apply(cli, &plan, roles, ret_error);
    if (ok) {
        int count = print_steps(&plan, roles, cli->json, changes ? "applied" : "pending");
        if (!cli->json && count == 0)
            printf("nothing to do: the schema is at version %d\n", plan.version);
        else if (!cli->json && changes)
            printf("the schema is at version %d\n", plan.version);
    }
done:
    migration_plan_close(&plan);
    database_close(&database);
    return ok;
}

static bool is_busy(const struct error *error) {
    return strcmp(error->sqlstate, "55P03") == 0 || strcmp(error->sqlstate, "40P01") == 0;
}

static bool with_database(struct cli *cli, bool roles, struct error *ret_error) {
    uint64_t give_up_ms = clock_ms() + BUSY_MOST_MS;
    bool ok = cli_connect(cli, CONNECT_FOR_MIGRATE, ret_error), told = false;
    while (ok && !(ok = run_once(cli, roles, ret_error)) && is_busy(ret_error) && clock_ms() < give_up_ms) {
        if (!told)
            fprintf(stderr, "rowbell: %s: nothing was changed: trying again for a minute\n", ret_error->text);
        told = true;
        poll(NULL, 0, BUSY_PAUSE_MS); // whoever queued up goes first
        ok = cli_script(cli, "rollback", ret_error);
    }
    return ok;
}

bool run_migrate(struct cli *cli, struct error *ret_error) {
    bool roles = !option_given(cli, "no-roles");
    if (option_given(cli, "print") + option_given(cli, "status") + option_given(cli, "dry-run") > 1)
        return error_set(ret_error, ERROR_USAGE, "--print, --status and --dry-run exclude each other: give one");
    if (!option_given(cli, "print"))
        return with_database(cli, roles, ret_error);
    struct migration_plan plan;
    migration_plan_init(&plan, migrations, migrations_count, NULL, 0);
    print_sql(&plan, roles, option_value(cli, "trust"));
    migration_plan_close(&plan);
    return true;
}
