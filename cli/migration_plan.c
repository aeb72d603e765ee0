#include "cli/migration_plan.h"
#include "common/memory.h"
#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const state_names[] = {
    [MIGRATION_PENDING] = "pending",
    [MIGRATION_APPLIED] = "applied",
    [MIGRATION_CHANGED] = "changed",
    [MIGRATION_UNKNOWN] = "unknown to this program",
};

const char *migration_state_name(enum migration_state state) {
    return state_names[state];
}

static bool is_numbered(const char *name) {
    for (int i = 0; i < 4; i++)
        if (!isdigit((unsigned char)name[i]))
            return false;
    return name[4] == '_';
}

static enum migration_kind kind_of(const char *name) {
    if (strcmp(name, "roles.sql") == 0)
        return MIGRATION_ROLES;
    if (strcmp(name, "bootstrap.sql") == 0)
        return MIGRATION_BOOTSTRAP;
    if (strcmp(name, "grants.sql") == 0)
        return MIGRATION_GRANTS;
    return is_numbered(name) ? MIGRATION_TABLES : MIGRATION_FUNCTIONS;
}

static int compatible_from(const struct embedded_file *file) {
    static const char header[] = "-- compatible_from: ";
    const char *line = strstr(file->bytes, header);
    assert(line != NULL && "every table migration says which programs may still run on it");
    int version = atoi(line + strlen(header));
    assert(version > 0);
    return version;
}

static const struct migration_record *find_record(const struct migration_record *records, size_t count,
                                                  const char *name) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(records[i].name, name) == 0)
            return &records[i];
    return NULL;
}

static struct migration_step step_of(const struct embedded_file *file, const struct migration_record *records,
                                     size_t record_count) {
    struct migration_step step = {.kind = kind_of(file->name), .file = file};
    snprintf(step.name, sizeof(step.name), "%s%.*s", step.kind == MIGRATION_FUNCTIONS ? "functions/" : "",
             (int)strcspn(file->name, "."), file->name);
    if (step.kind == MIGRATION_TABLES) {
        step.version = atoi(file->name);
        step.compatible_from = compatible_from(file);
    }
    step.record = find_record(records, record_count, step.name);
    if (step.record != NULL)
        step.state = strcmp(step.record->checksum, file->sha256) == 0 ? MIGRATION_APPLIED : MIGRATION_CHANGED;
    return step;
}

static bool is_recorded(const struct migration_step *step) {
    return step->kind != MIGRATION_ROLES && step->kind != MIGRATION_BOOTSTRAP;
}

void migration_plan_init(struct migration_plan *plan, const struct embedded_file *files, size_t file_count,
                         const struct migration_record *records, size_t record_count) {
    *plan = (struct migration_plan){0};
    plan->steps = memory_alloc((file_count + record_count) * sizeof(*plan->steps));
    for (size_t i = 0; i < file_count; i++) {
        struct migration_step step = step_of(&files[i], records, record_count);
        if (step.version > plan->version)
            plan->version = step.version;
        plan->functions_pending |= step.kind == MIGRATION_FUNCTIONS && step.state != MIGRATION_APPLIED;
        plan->grants_pending |= step.kind == MIGRATION_GRANTS && step.state != MIGRATION_APPLIED;
        plan->steps[plan->count++] = step;
    }
    size_t known = plan->count;
    for (size_t i = 0; i < record_count; i++) {
        if (records[i].version > plan->database_version)
            plan->database_version = records[i].version;
        bool found = false;
        for (size_t j = 0; j < known; j++)
            found |= plan->steps[j].record == &records[i];
        if (found)
            continue;
        struct migration_step *step = &plan->steps[plan->count++];
        *step = (struct migration_step){.kind = records[i].version > 0 ? MIGRATION_TABLES : MIGRATION_FUNCTIONS,
                                        .state = MIGRATION_UNKNOWN,
                                        .version = records[i].version,
                                        .record = &records[i]};
        snprintf(step->name, sizeof(step->name), "%s", records[i].name);
    }
}

void migration_plan_close(struct migration_plan *plan) {
    free(plan->steps);
    plan->steps = NULL;
}

bool migration_plan_check(const struct migration_plan *plan, struct error *ret_error) {
    if (plan->database_version > plan->version)
        return error_set(ret_error, ERROR_SCHEMA,
                         "the database is at schema version %d and this program knows up to %d: use a newer rowbell",
                         plan->database_version, plan->version);
    for (size_t i = 0; i < plan->count; i++) {
        const struct migration_step *step = &plan->steps[i];
        if (step->kind == MIGRATION_TABLES && step->state == MIGRATION_CHANGED)
            return error_set(ret_error, ERROR_SCHEMA,
                             "%s was changed after it was applied to this database: use the rowbell that it came from, "
                             "and put the change into a new migration",
                             step->file->name);
    }
    return true;
}

bool migration_plan_runs(const struct migration_plan *plan, const struct migration_step *step, bool roles) {
    if (step->state == MIGRATION_UNKNOWN || !is_recorded(step))
        return false;
    if (step->kind == MIGRATION_FUNCTIONS)
        return plan->functions_pending;
    if (step->kind == MIGRATION_GRANTS)
        return roles && (plan->functions_pending || plan->grants_pending || plan->database_version < plan->version);
    return step->state == MIGRATION_PENDING;
}
