-- Brings rowbell.search in line with the rows that some events name.
-- Parameters: $1 int subscription, $2 bigint[] seqs. Rows: one for each event that could not be: seq, SQLSTATE, problem.
-- Locks: advisory, one for each (table, key), until the end. Index: events_pkey, the key of each table, search_pkey.
select w.seq, w.state, w.problem
  from rowbell.index_write($1::int, $2::bigint[]) w;
