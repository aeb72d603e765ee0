// migration_plan: which of the compiled-in migrations a database still needs. Pure: the files and the rows of
// rowbell.migrations in, steps or an error out.
#pragma once
#include "common/embedded_file.h"
#include "common/error.h"
#include <stdbool.h>
#include <stddef.h>

// By file name: roles.sql, bootstrap.sql, NNNN_*.sql, grants.sql, and everything else is a function file.
enum migration_kind { MIGRATION_ROLES, MIGRATION_BOOTSTRAP, MIGRATION_TABLES, MIGRATION_FUNCTIONS, MIGRATION_GRANTS };

// UNKNOWN: recorded in the database, not in this program.
enum migration_state { MIGRATION_PENDING, MIGRATION_APPLIED, MIGRATION_CHANGED, MIGRATION_UNKNOWN };

// A row of rowbell.migrations; views.
struct migration_record {
    const char *name;
    int version; // 0: NULL
    const char *checksum;
    const char *applied_at;
};

struct migration_step {
    enum migration_kind kind;
    enum migration_state state;
    const struct embedded_file *file;      // NULL when UNKNOWN
    char name[100];                        // as in rowbell.migrations: 0001_outbox, functions/publish, grants
    int version;                           // table migrations, else 0
    int compatible_from;                   // table migrations, from `-- compatible_from: N`
    const struct migration_record *record; // NULL when it was never applied
};

struct migration_plan {
    struct migration_step *steps; // owned; in the order of the files, unknown ones last
    size_t count;
    int version;          // this program's
    int database_version; // 0: none
    // Functions are replaced all together, and grants whenever they were: a new function starts open to everyone.
    bool functions_pending;
    bool grants_pending;
};

const char *migration_state_name(enum migration_state state); // static
// Never fails: --status shows also what migration_plan_check refuses. `records` must outlive the plan.
void migration_plan_init(struct migration_plan *plan, const struct embedded_file *files, size_t file_count,
                         const struct migration_record *records, size_t record_count);
void migration_plan_close(struct migration_plan *plan);
// ERROR_SCHEMA: the database is newer than this program, or an applied table migration is not what it was.
bool migration_plan_check(const struct migration_plan *plan, struct error *ret_error);
// Does this step run, given roles or not?
bool migration_plan_runs(const struct migration_plan *plan, const struct migration_step *step, bool roles);
