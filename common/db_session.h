// db_session: what every session of ours relies on, whatever the server, the database or the role says.
#pragma once
#include "common/db_conn.h"

// One SELECT that makes the settings: for the session, or pooled: for the transaction. Returns owned.
char *db_session_settings_sql(const struct db_conn_options *options, bool pooled);
