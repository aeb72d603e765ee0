#include "common/schema_version.h"
#include <stdlib.h>
#include <string.h>

const char schema_version_sql[] =
    "select max(version), (select compatible_from from rowbell.migrations where version is not null "
    "order by version desc limit 1) from rowbell.migrations where version is not null";

static const struct {
    const char *sqlstate;
    const char *text;
} unreadable[] = {
    {"3F000", "the schema rowbell is missing: run `rowbell migrate` first"},
    {"42P01", "the schema rowbell is missing: run `rowbell migrate` first"},
    {"42703", "the schema rowbell is not one that this program knows: run `rowbell migrate` first"},
    {"42501", "this login may not read the schema rowbell: run `rowbell migrate`, then grant the login the role of its "
              "program (rowbell_relay, rowbell_dispatcher, rowbell_gateway or rowbell_operator)"},
};

bool schema_version_check(const PGresult *result, const struct error *sql_error, struct error *ret_error) {
    if (!result) {
        for (size_t i = 0; i < sizeof(unreadable) / sizeof(*unreadable); i++) {
            if (strcmp(sql_error->sqlstate, unreadable[i].sqlstate) == 0)
                return error_set(ret_error, ERROR_SCHEMA, "%s", unreadable[i].text);
        }
        if (ret_error)
            *ret_error = *sql_error;
        return error_wrap(ret_error, "read the version of the schema");
    }
    if (PQntuples(result) != 1 || PQgetisnull(result, 0, 0))
        return error_set(ret_error, ERROR_SCHEMA, "%s", unreadable[0].text);
    int version = atoi(PQgetvalue(result, 0, 0));
    int compatible_from = atoi(PQgetvalue(result, 0, 1)); // "" (NULL) is 0: any program
    if (compatible_from > SCHEMA_VERSION)
        return error_set(ret_error, ERROR_SCHEMA,
                         "the schema is at version %d, which needs a program of version >= %d (this one knows %d): "
                         "upgrade rowbell",
                         version, compatible_from, SCHEMA_VERSION);
    return true;
}
