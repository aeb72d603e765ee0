-- One appender at a time, a statement of its own: the append's snapshot must be newer than the lock (DESIGN 6.1).
-- Parameters: $1 int stream. Rows: 1. Locks: advisory (0x726f7764, stream), until the transaction ends. Index: none.
select pg_advisory_xact_lock(1919907684, $1::int);
