// db_server: what is at the other end of a connection. One statement asks, before anything else is done there.
#pragma once
#include "common/error.h"
#include <libpq-fe.h>

// Makes the names of the statements that follow in the transaction those of pg_catalog, and bounds how long they take.
extern const char db_server_settings_sql[];
// One row, for the functions below.
extern const char db_server_sql[];

enum db_need { DB_READS, DB_LISTENS, DB_WRITES };

// The process that ran the statement. Behind a pooler that is not the one of PQbackendPID.
int db_server_pid(const PGresult *result);
// ERROR_READ_ONLY says why not, and what to do: a hot standby takes no LISTEN and no writes, a login whose transactions
// are read-only takes no writes.
bool db_server_gives(const PGresult *result, enum db_need need, struct error *ret_error);
// Behind a transaction pooler a transaction has to begin as we need it; ERROR_USAGE.
bool db_server_reads_committed(const PGresult *result, struct error *ret_error);
