#include "common/schema_version.h"
#include <stdlib.h>
#include <string.h>

// What hangs on the schema is found by pg_depend, which has an index for that; there may be many other tables.
//
// A view instead of the table would run its owner's code while the next statement is planned, so this reads the catalog
// and raises. The owner may change whatever the schema holds, so it has to be rowbell_owner, or a role that may do
// already what this login may do; the owner of the database is trusted by all but superusers.
const char schema_owner_sql[] =
    "do $$ declare found text; state text; "
    "begin "
    "perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true); "
    "select p.text, p.state into found, state from ("
    "select case when n.oid is null or c.oid is null then 'the schema rowbell is missing' "
    "when c.relkind <> 'r' or c.relowner <> n.nspowner "
    "then format('rowbell.migrations is not the table of the owner of schema rowbell, %I, but belongs to %I', "
    "pg_get_userbyid(n.nspowner), pg_get_userbyid(c.relowner)) "
    "when not (case when o.rolname = 'rowbell_owner' then not o.rolcanlogin "
    "else o.oid = me.oid or o.rolsuper or pg_has_role(o.oid, me.oid, 'member') "
    "or (not me.rolsuper and o.oid = d.datdba) end) "
    "then format('the schema rowbell belongs to %I, who could run code with the rights of %I', o.rolname, me.rolname) "
    "end as text, "
    "case when n.oid is null or c.oid is null then '3F000' else '42P15' end as state "
    "from pg_database d "
    "join pg_roles me on me.rolname = current_user "
    "left join pg_namespace n on n.nspname = 'rowbell' "
    "left join pg_roles o on o.oid = n.nspowner "
    "left join pg_class c on c.relnamespace = n.oid and c.relname = 'migrations' "
    "where d.datname = current_database()) p; "
    "if found is null then "
    "select format(case f.what when 'secured' then 'row security is on for %s, so that %2$I cannot see what is there: "
    "as "
    "the owner, alter table ... disable row level security' "
    "when 'ruled' then 'rules change what statements on %s do: drop them' "
    "else 'of another role than the schema is %s: give it back, by alter table ... owner to %3$I' end, "
    "array_to_string((array_agg(f.name order by f.name))[1:4], ', ') || "
    "case when count(*) > 4 then format(' and %s more', count(*) - 4) else '' end, current_user, min(f.owner)), "
    "'55000' "
    "into found, state from (select format('rowbell.%I', c.relname) as name, pg_get_userbyid(n.nspowner) as owner, "
    "case when c.relrowsecurity and (c.relforcerowsecurity or row_security_active(c.oid)) then 'secured' "
    "when c.relkind in ('r', 'p') and exists (select from pg_rewrite w where w.ev_class = c.oid) then 'ruled' "
    "when c.relowner <> n.nspowner then 'taken' end as what from pg_namespace n "
    "join pg_depend d on d.refclassid = 'pg_namespace'::regclass and d.refobjid = n.oid "
    "and d.classid = 'pg_class'::regclass join pg_class c on c.oid = d.objid "
    "where n.nspname = 'rowbell' and c.relkind in ('r', 'p', 'v')) f "
    "where f.what is not null group by f.what order by f.what <> 'secured' limit 1; "
    "end if; "
    "if found is not null then raise exception using message = found, errcode = state; end if; "
    "end $$";

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
};

static const char no_right[] =
    "this login may not read the schema rowbell (%s): grant it the role of its program (rowbell_relay, "
    "rowbell_dispatcher, rowbell_gateway or rowbell_operator); rights that the roles have lost come back by `rowbell "
    "migrate`";

bool schema_version_check(const PGresult *result, const struct error *sql_error, struct error *ret_error) {
    if (!result) {
        if (strcmp(sql_error->sqlstate, "42P15") == 0)
            return error_set(ret_error, ERROR_SCHEMA,
                             "%s: if it was not made by `rowbell migrate`, drop it; else connect as a login of its own",
                             sql_error->text);
        if (strcmp(sql_error->sqlstate, SCHEMA_IS_DISTURBED) == 0)
            return error_set(ret_error, ERROR_SCHEMA,
                             "the schema rowbell was changed by somebody: %s (`rowbell doctor`)", sql_error->text);
        if (strcmp(sql_error->sqlstate, "42501") == 0)
            return error_set(ret_error, ERROR_SCHEMA, no_right, sql_error->text);
        for (size_t i = 0; i < sizeof(unreadable) / sizeof(*unreadable); i++) {
            if (strcmp(sql_error->sqlstate, unreadable[i].sqlstate) == 0)
                return error_set(ret_error, ERROR_SCHEMA, "%s", unreadable[i].text);
        }
        if (ret_error)
            *ret_error = *sql_error;
        return error_wrap(ret_error, "read the version of the schema");
    }
    if (PQntuples(result) != 1 || PQgetisnull(result, 0, 0))
        return error_set(ret_error, ERROR_SCHEMA,
                         "rowbell.migrations is empty, as after a dump without data was loaded: run `rowbell migrate`");
    int version = atoi(PQgetvalue(result, 0, 0));
    int compatible_from = atoi(PQgetvalue(result, 0, 1)); // "" (NULL) is 0: any program
    if (compatible_from > SCHEMA_VERSION)
        return error_set(ret_error, ERROR_SCHEMA,
                         "the schema is at version %d, which needs a program of version >= %d (this one knows %d): "
                         "upgrade rowbell",
                         version, compatible_from, SCHEMA_VERSION);
    return true;
}
