-- Whether some rows of one table have a document.
-- Parameters: $1 int subscription, $2 text name, $3 text[] keys. Rows: key, boolean. Locks: none.
-- Index: the key of the table.
select r.key, r.is_there
  from rowbell.index_read_keys($1::int, $2::text, $3::text[]) r;
