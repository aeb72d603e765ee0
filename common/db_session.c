#include "common/db_session.h"
#include "common/buffer.h"
#include <string.h>

// The isolation's name differs where it has to be set inside the transaction: there it must be what the pooler's
// sessions have by default already (the set-up looks), else PostgreSQL refuses (a query has been made), which is better
// than a wrong isolation. default_transaction_read_only is left alone: administrators and providers set it on purpose.
static const struct {
    const char *name;
    const char *pooled_name; // NULL: has no meaning inside a transaction
    const char *value;       // NULL: from the options; a value that the options do not have is left as it is
} settings[] = {
    {"default_transaction_isolation", "transaction_isolation", "read committed"},
    {"synchronous_commit", "synchronous_commit", "on"},
    {"statement_timeout", "statement_timeout", NULL},
    {"lock_timeout", "lock_timeout", "10s"},
    {"idle_in_transaction_session_timeout", "idle_in_transaction_session_timeout", "5s"},
    {"idle_session_timeout", NULL, NULL},
    {"jit", "jit", "off"},
    // Our statements read few rows of large tables, in the order of an index, whatever the statistics say: see
    // docs/decisions/0006.
    {"enable_bitmapscan", "enable_bitmapscan", "off"},
    {"enable_seqscan", "enable_seqscan", "off"},
    {"plan_cache_mode", "plan_cache_mode", "auto"},
    {"search_path", "search_path", "pg_catalog, pg_temp"},
    {"TimeZone", "TimeZone", "UTC"},
    {"DateStyle", "DateStyle", "ISO"},
    {"client_min_messages", "client_min_messages", "warning"},
    {"standard_conforming_strings", "standard_conforming_strings", "on"},
    {"bytea_output", "bytea_output", "hex"},
    {"application_name", "application_name", NULL},
};

// False: the options have none.
static bool append_value(struct buffer *sql, const struct db_conn_options *options, const char *name) {
    if (strcmp(name, "application_name") != 0)
        buffer_format(sql, "%u",
                      strcmp(name, "statement_timeout") == 0 ? options->statement_timeout_ms
                                                             : options->idle_session_timeout_ms);
    else if (options->application_name)
        buffer_text(sql, options->application_name); // one of ours: nothing to quote
    return strcmp(name, "application_name") != 0 || options->application_name;
}

char *db_session_settings_sql(const struct db_conn_options *options, bool pooled) {
    struct buffer sql = {0}, value = {0};
    for (size_t i = 0; i < sizeof(settings) / sizeof(*settings); i++) {
        const char *name = pooled ? settings[i].pooled_name : settings[i].name;
        buffer_clear(&value);
        if (!name || (!settings[i].value && !append_value(&value, options, name)))
            continue;
        buffer_format(&sql, "%s pg_catalog.set_config('%s', '%s', %s)", sql.length ? "," : "select", name,
                      settings[i].value ? settings[i].value : buffer_cstr(&value), pooled ? "true" : "false");
    }
    buffer_free(&value);
    // Of 17, and an error before. Each of our transactions is bounded by the timeouts above.
    buffer_format(
        &sql,
        ", case when pg_catalog.current_setting('server_version_num')::int OPERATOR(pg_catalog.>=) 170000 then "
        "pg_catalog.set_config('transaction_timeout', '0', %s) end",
        pooled ? "true" : "false");
    return sql.bytes;
}
