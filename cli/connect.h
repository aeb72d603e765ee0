// connect: the database of a command, by blocking libpq: one person waits for one answer.
#pragma once
#include "cli/command.h"
#include "common/db_conn.h"

enum connect_for {
    CONNECT_FOR_WORK,    // the schema must be there and usable by this program; statements end after 30 s
    CONNECT_FOR_PUBLISH, // the same, but an owner of a table need not be allowed to read our tables
    CONNECT_FOR_DOCTOR,  // the same, but the schema may be disturbed (common/schema_version.h)
    CONNECT_FOR_MIGRATE, // any schema or none, no statement limit, --direct-database-url wins
};

// Sets cli->conn. Errors: ERROR_USAGE (no URL, or a malformed one), ERROR_CONNECT or ERROR_AUTH, ERROR_SCHEMA. Texts
// carry the remedy and never the URL, which may hold a password.
bool cli_connect(struct cli *cli, enum connect_for purpose, struct error *ret_error);
void cli_disconnect(struct cli *cli);

// Nothing that these send outlives its transaction: the connection may be a transaction pooler's. Where no writes are
// taken, the error says why (ERROR_READ_ONLY).
//
// One statement with text parameters. *ret_result is owned by the caller, and set only on success.
bool cli_query(struct cli *cli, const struct db_statement *statement, int value_count, const char *const *values,
               PGresult **ret_result, struct error *ret_error);
// A script (several statements, no parameters), rows thrown away.
bool cli_script(struct cli *cli, const char *sql, struct error *ret_error);
// Fills an error from a failed result: its message and hint, with a remedy where there is a usual one.
void cli_error_from_result(const PGresult *result, struct error *ret_error);
