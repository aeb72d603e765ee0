#include "common/db_server.h"
#include <stdlib.h>
#include <string.h>

const char db_server_settings_sql[] =
    "select pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true), "
    "pg_catalog.set_config('statement_timeout', '10s', true), pg_catalog.set_config('lock_timeout', '10s', true)";

enum { PID, IN_RECOVERY, READ_ONLY, REMEDY, ISOLATION };

// What a setting that is on for a reason needs is a person: so it is said where it was set.
const char db_server_sql[] =
    "select pg_backend_pid(), pg_is_in_recovery(), current_setting('transaction_read_only') = 'on', "
    "case when current_setting('transaction_read_only') = 'on' then (select case s.source "
    "when 'user' then format('alter role %I reset default_transaction_read_only', session_user) "
    "when 'database' then format('alter database %I reset default_transaction_read_only', current_database()) "
    "when 'database user' then format('alter role %I in database %I reset default_transaction_read_only', "
    "session_user, current_database()) "
    "when 'global' then 'alter role all reset default_transaction_read_only' "
    "when 'client' then 'look at PGOPTIONS, and at options in the database URL' "
    "else 'look at default_transaction_read_only in the server''s configuration' end "
    "from pg_settings s where s.name = 'default_transaction_read_only') end, "
    "current_setting('transaction_isolation')";

int db_server_pid(const PGresult *result) {
    return atoi(PQgetvalue(result, 0, PID));
}

bool db_server_gives(const PGresult *result, enum db_need need, struct error *ret_error) {
    if (need != DB_READS && PQgetvalue(result, 0, IN_RECOVERY)[0] == 't')
        return error_set(ret_error, ERROR_READ_ONLY,
                         "the server is a hot standby (it is in recovery) and takes no %s: give the address of the "
                         "primary, or of all servers with target_session_attrs=read-write",
                         need == DB_WRITES ? "writes" : "LISTEN");
    if (need == DB_WRITES && PQgetvalue(result, 0, READ_ONLY)[0] == 't')
        return error_set(ret_error, ERROR_READ_ONLY,
                         "transactions of this login are read-only (default_transaction_read_only is on), and Rowbell "
                         "has to write: %s",
                         PQgetvalue(result, 0, REMEDY));
    return true;
}

bool db_server_reads_committed(const PGresult *result, struct error *ret_error) {
    const char *isolation = PQgetvalue(result, 0, ISOLATION);
    return strcmp(isolation, "read committed") == 0 ||
           error_set(ret_error, ERROR_USAGE,
                     "transactions of this login begin as %s, which behind a transaction pooler cannot be changed: "
                     "alter role ... set default_transaction_isolation = 'read committed'",
                     isolation);
}
