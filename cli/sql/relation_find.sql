-- The table that a person means. $1 its name as psql would take it, $2 the search_path to look along.
-- One row: oid (NULL: there is none) and its full name. Locks: none.
with path as materialized (select set_config('search_path', $2, true))
select c.oid, quote_ident(n.nspname) || '.' || quote_ident(c.relname) as relation
  from path left join pg_class c on c.oid = to_regclass($1)::oid left join pg_namespace n on n.oid = c.relnamespace;
