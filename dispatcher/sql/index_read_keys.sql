-- The present state of some rows of one table.
-- Parameters: $1 int subscription, $2 text name, $3 text[] keys. Rows: key, scope, document (NULL: gone), problem. Locks: none.
-- Index: the key of the table.
select r.key, r.scope, r.document, r.problem
  from rowbell.index_read_keys($1::int, $2::text, $3::text[]) r;
