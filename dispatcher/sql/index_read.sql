-- The present state of the rows that some events name, as an index subscription wants them.
-- Parameters: $1 int subscription, $2 bigint[] seqs. Rows: seq, name, key, scope, document (NULL: gone), SQLSTATE and
-- problem (when it could not be read; `later`: when it was postponed). Locks: none. Index: events_pkey, and the key of each table.
select r.seq, r.name, r.key, r.scope, r.document, r.state, r.problem
  from rowbell.index_read($1::int, $2::bigint[]) r;
