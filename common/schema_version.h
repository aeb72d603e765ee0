// schema_version: may this program work on this schema? A process refuses only a schema whose compatible_from is above
// its own version, so that rolling deploys work (migrations expand first and contract one release later).
#pragma once
#include "common/error.h"
#include <libpq-fe.h>
#include <stdbool.h>

// The newest table migration that this build knows: the number of migrations/NNNN_*.sql compiled in.
#define SCHEMA_VERSION 15

// Runs before any statement that names an object of the schema, in the same batch or script: it fails where the schema
// is missing, or belongs to somebody whose code must not run with the rights of this login; and, with
// SCHEMA_IS_DISTURBED, where it was changed so that this login would be told less than there is, or the wrong thing: by
// row security, rules, or another owner of a table. `rowbell doctor` (migrations/functions/doctor.sql) has each of
// these with its remedy.
#define SCHEMA_IS_DISTURBED "55000"
extern const char schema_owner_sql[];
extern const char schema_version_sql[]; // one row: version int, compatible_from int; fails when there is no schema
// From the answer (or the error, result NULL) of the two. ERROR_SCHEMA names `rowbell migrate` as the
// remedy.
bool schema_version_check(const PGresult *result, const struct error *sql_error, struct error *ret_error);
