// migrate: brings a database to this program's schema. The same transactions are run here and printed by --print, so
// both give the same schema.
//
// Happy path: take the advisory lock, read rowbell.migrations, then one transaction for roles and bootstrap, one for
// each table migration, and one for all functions with their grants, each with its rows in rowbell.migrations. A
// failure rolls its own transaction back; what came before stays, and the next run goes on from there.
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/migration_plan.h"
#include "cli/migrations.h"
#include "cli/output.h"
#include "cli/sql.h"
#include "common/buffer.h"
#include "common/memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A script, and where in it each file begins, so that an error can name file and line.
struct script {
    struct buffer sql;
    struct {
        const struct migration_step *step;
        size_t start;
    } parts[100];
    size_t part_count;
};

static void script_step(struct script *script, const struct migration_step *step) {
    if (script->part_count < sizeof(script->parts) / sizeof(*script->parts)) {
        script->parts[script->part_count].step = step;
        script->parts[script->part_count++].start = script->sql.length;
    }
    buffer_append(&script->sql, step->file->bytes, step->file->length);
}

static void script_record(struct script *script, const struct migration_step *step) {
    // Names and digests come from this program's own files.
    if (step->kind == MIGRATION_TABLES)
        buffer_format(&script->sql,
                      "insert into rowbell.migrations (name, version, compatible_from, checksum)\n"
                      "  values ('%s', %d, %d, '%s');\n",
                      step->name, step->version, step->compatible_from, step->file->sha256);
    else
        buffer_format(&script->sql,
                      "insert into rowbell.migrations (name, checksum) values ('%s', '%s')\n"
                      "  on conflict (name) do update set checksum = excluded.checksum, applied_at = now();\n",
                      step->name, step->file->sha256);
}

static void script_begin(struct script *script, bool roles) {
    buffer_text(&script->sql, "begin;\n");
    buffer_text(&script->sql, roles ? "set local role rowbell_owner;\n" : "set local rowbell.no_roles = 'on';\n");
}

static const struct migration_step *find_kind(const struct migration_plan *plan, enum migration_kind kind) {
    for (size_t i = 0; i < plan->count; i++)
        if (plan->steps[i].kind == kind && plan->steps[i].file != NULL)
            return &plan->steps[i];
    return NULL;
}

static void script_bootstrap(struct script *script, const struct migration_plan *plan, bool roles) {
    buffer_text(&script->sql, "begin;\n");
    if (roles)
        script_step(script, find_kind(plan, MIGRATION_ROLES));
    else
        buffer_text(&script->sql, "set local rowbell.no_roles = 'on';\n");
    script_step(script, find_kind(plan, MIGRATION_BOOTSTRAP));
    buffer_text(&script->sql, "commit;\n");
}

static void script_tables(struct script *script, const struct migration_step *step, bool roles) {
    script_begin(script, roles);
    script_step(script, step);
    script_record(script, step);
    buffer_text(&script->sql, "commit;\n");
}

static void script_functions(struct script *script, const struct migration_plan *plan, bool roles) {
    script_begin(script, roles);
    for (size_t i = 0; i < plan->count; i++) {
        const struct migration_step *step = &plan->steps[i];
        if (step->kind != MIGRATION_FUNCTIONS && step->kind != MIGRATION_GRANTS)
            continue;
        if (step->state == MIGRATION_UNKNOWN)
            buffer_format(&script->sql, "delete from rowbell.migrations where name = '%s';\n", step->name);
        else if (migration_plan_runs(plan, step, roles)) {
            script_step(script, step);
            script_record(script, step);
        }
    }
    buffer_text(&script->sql, "commit;\n");
}

static bool any_functions(const struct migration_plan *plan, bool roles) {
    for (size_t i = 0; i < plan->count; i++)
        if ((plan->steps[i].kind == MIGRATION_FUNCTIONS || plan->steps[i].kind == MIGRATION_GRANTS) &&
            migration_plan_runs(plan, &plan->steps[i], roles))
            return true;
    return false;
}

static int line_at(const char *text, size_t offset) {
    int line = 1;
    for (size_t i = 0; i < offset && text[i] != 0; i++)
        line += text[i] == '\n';
    return line;
}

// Wraps the error with the file and line that PostgreSQL's position points to.
static void locate(const struct script *script, const PGresult *result, struct error *error) {
    const char *position = PQresultErrorField(result, PG_DIAG_STATEMENT_POSITION);
    // Characters, counted from 1; our files are ASCII, so they are bytes.
    size_t offset = position != NULL ? strtoul(position, NULL, 10) - 1 : 0;
    for (size_t i = script->part_count; position != NULL && i > 0; i--) {
        if (script->parts[i - 1].start > offset)
            continue;
        const struct migration_step *step = script->parts[i - 1].step;
        error_wrap(error, "migrate: %s line %d", step->file->name,
                   line_at(step->file->bytes, offset - script->parts[i - 1].start));
        return;
    }
    error_wrap(error, "migrate: %s", script->part_count > 0 ? script->parts[script->part_count - 1].step->name : "?");
}

static bool run_script(struct cli *cli, const struct script *script, struct error *ret_error) {
    PGresult *result = PQexec(cli->conn, buffer_cstr(&script->sql));
    bool ok = PQresultStatus(result) == PGRES_COMMAND_OK || PQresultStatus(result) == PGRES_TUPLES_OK;
    if (!ok) {
        if (PQstatus(cli->conn) == CONNECTION_BAD)
            error_set(ret_error, ERROR_CONNECT, "migrate: the connection was lost: run it again");
        else {
            cli_error_from_result(result, ret_error);
            locate(script, result, ret_error);
        }
    }
    PQclear(result);
    if (!ok)
        PQclear(PQexec(cli->conn, "rollback"));
    return ok;
}

static void script_free(struct script *script) {
    buffer_free(&script->sql);
    script->part_count = 0;
}

// What the database says of itself.
struct database {
    PGresult *records_result; // owned; NULL: never migrated
    struct migration_record *records;
    size_t record_count;
    bool exists, owned_by_role, recorded;
};

static void database_close(struct database *database) {
    PQclear(database->records_result);
    free(database->records);
    *database = (struct database){0};
}

static bool read_records(struct cli *cli, struct database *database, struct error *ret_error) {
    if (!cli_query(cli, &sql_migration_records, 0, NULL, &database->records_result, ret_error))
        return false;
    const PGresult *rows = database->records_result;
    database->record_count = (size_t)PQntuples(rows);
    database->records = memory_alloc((database->record_count + 1) * sizeof(*database->records));
    for (int row = 0; row < PQntuples(rows); row++)
        database->records[row] = (struct migration_record){
            .name = PQgetvalue(rows, row, 0),
            .version = atoi(PQgetvalue(rows, row, 1)),
            .checksum = PQgetvalue(rows, row, 2),
            .applied_at = PQgetvalue(rows, row, 3),
        };
    return true;
}

static bool read_database(struct cli *cli, struct database *database, struct error *ret_error) {
    PGresult *schema;
    if (!cli_query(cli, &sql_migration_schema, 0, NULL, &schema, ret_error))
        return false;
    database->exists = PQgetvalue(schema, 0, 0)[0] == 't';
    database->owned_by_role = PQgetvalue(schema, 0, 1)[0] == 't';
    database->recorded = PQgetvalue(schema, 0, 2)[0] == 't';
    bool may_create = PQgetvalue(schema, 0, 4)[0] == 't';
    bool ok = database->exists || may_create ||
              error_set(ret_error, ERROR_SQL,
                        "migrate: %s may not create a schema in this database: connect as its owner or as a superuser",
                        PQgetvalue(schema, 0, 3));
    PQclear(schema);
    return ok && (!database->recorded || read_records(cli, database, ret_error));
}

// An installation stays what it was made as: otherwise half of it would belong to somebody else.
static bool check_roles(const struct database *database, bool roles, struct error *ret_error) {
    if (!database->exists || database->owned_by_role == roles)
        return true;
    if (roles)
        return error_set(ret_error, ERROR_SCHEMA,
                         "migrate: the schema does not belong to rowbell_owner: it was made with --no-roles, so give "
                         "--no-roles again");
    return error_set(ret_error, ERROR_SCHEMA,
                     "migrate: the schema belongs to rowbell_owner: it was made with roles, so leave --no-roles out");
}

static bool take_lock(struct cli *cli, struct error *ret_error) {
    PGresult *result;
    if (!cli_query(cli, &sql_migration_lock_try, 0, NULL, &result, ret_error))
        return false;
    bool taken = PQgetvalue(result, 0, 0)[0] == 't';
    PQclear(result);
    if (!taken) {
        fputs("rowbell: another migration of this database is running: waiting for it\n", stderr);
        if (!cli_query(cli, &sql_migration_lock, 0, NULL, NULL, ret_error))
            return false;
    }
    // A table lock that an application holds must not queue everybody else behind the migration.
    return cli_script(cli, "set lock_timeout = '30s'", ret_error);
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
    struct script script = {0};
    script_bootstrap(&script, plan, roles);
    bool ok = run_script(cli, &script, ret_error);
    for (size_t i = 0; ok && i < plan->count; i++) {
        const struct migration_step *step = &plan->steps[i];
        if (step->kind != MIGRATION_TABLES || !migration_plan_runs(plan, step, roles))
            continue;
        script_free(&script);
        script_tables(&script, step, roles);
        ok = run_script(cli, &script, ret_error);
    }
    if (ok && any_functions(plan, roles)) {
        script_free(&script);
        script_functions(&script, plan, roles);
        ok = run_script(cli, &script, ret_error);
    }
    script_free(&script);
    return ok;
}

// psql's \if keeps what is applied already from running twice.
static void print_sql(const struct migration_plan *plan, bool roles) {
    printf("-- The schema of Rowbell, version %d. Run it with psql:  psql -X -f FILE\n", plan->version);
    puts("\\set ON_ERROR_STOP on\n"
         "set search_path = pg_catalog, pg_temp;\n"
         "set client_min_messages = warning;\n"
         "select pg_advisory_lock(32210705887620204) as locked \\gset");
    struct script script = {0};
    script_bootstrap(&script, plan, roles);
    fputs(buffer_cstr(&script.sql), stdout);
    for (size_t i = 0; i < plan->count; i++) {
        const struct migration_step *step = &plan->steps[i];
        if (step->kind != MIGRATION_TABLES)
            continue;
        script_free(&script);
        script_tables(&script, step, roles);
        printf("select not exists (select from rowbell.migrations where name = '%s') as pending \\gset\n\\if :pending\n"
               "%s\\endif\n",
               step->name, buffer_cstr(&script.sql));
    }
    script_free(&script);
    script_functions(&script, plan, roles);
    fputs(buffer_cstr(&script.sql), stdout);
    puts("select pg_advisory_unlock(32210705887620204) as unlocked \\gset");
    script_free(&script);
}

static bool with_database(struct cli *cli, bool roles, struct error *ret_error) {
    bool changes = !option_given(cli, "status") && !option_given(cli, "dry-run");
    struct database database = {0};
    struct migration_plan plan = {0};
    bool ok = cli_connect(cli, CONNECT_FOR_MIGRATE, ret_error) && (!changes || take_lock(cli, ret_error)) &&
              read_database(cli, &database, ret_error);
    if (!ok)
        goto done;
    migration_plan_init(&plan, migrations, migrations_count, database.records, database.record_count);
    if (option_given(cli, "status")) {
        print_status(&plan, cli->json);
        goto done;
    }
    ok = migration_plan_check(&plan, ret_error) && check_roles(&database, roles, ret_error);
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

bool run_migrate(struct cli *cli, struct error *ret_error) {
    bool roles = !option_given(cli, "no-roles");
    if (option_given(cli, "print") + option_given(cli, "status") + option_given(cli, "dry-run") > 1)
        return error_set(ret_error, ERROR_USAGE, "--print, --status and --dry-run exclude each other: give one");
    if (!option_given(cli, "print"))
        return with_database(cli, roles, ret_error);
    struct migration_plan plan;
    migration_plan_init(&plan, migrations, migrations_count, NULL, 0);
    print_sql(&plan, roles);
    migration_plan_close(&plan);
    return true;
}
