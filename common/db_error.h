// db_error: what an SQLSTATE means for us (PostgreSQL docs, appendix A).
#pragma once
#include "common/error.h"
#include <libpq-fe.h>
#include <stdbool.h>

// Fills an ERROR_SQL (or AUTH for 28xxx and 3D000, CONNECT for 57P0x, 08xxx and whatever else ends the session) from a
// failed result; the text is the primary message only, since details may hold row values.
void db_error_from_result(const PGresult *result, struct error *ret_error);
void db_error_from_conn(const PGconn *conn, struct error *ret_error); // a failed connection; never shows the password
// A fault of the system, not of the row: classes 08 25 28 3D 40 42 53 55 57 58 XX, and every error without SQLSTATE.
// It never counts towards poison. (57014 counts for a row that ran alone: the caller's business.)
bool db_error_is_system(const struct error *error);
bool db_error_is_transient_conflict(const struct error *error); // 40001, 40P01: send the same again
// Time alone does not heal it: a right, a table or a column is missing, or no writes are taken. Meant for statements
// that name nothing but our own schema.
bool db_error_is_lasting(const struct error *error);
