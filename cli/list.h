// list: commands that print the rows of one statement.
#pragma once
#include "cli/command.h"
#include "common/db_conn.h"

// Connects for work, asks, and prints the rows in the form that was asked for.
bool list_rows(struct cli *cli, const struct db_statement *statement, int value_count, const char *const *values,
               struct error *ret_error);
// The same, of a statement whose parameters are --limit (50), a flag with choices (which end with NULL) and another
// flag. ERROR_USAGE where one of them cannot be.
bool list_some(struct cli *cli, const struct db_statement *statement, const char *choice_flag,
               const char *const *choices, const char *other_flag, struct error *ret_error);
