-- One appender at a time, a statement of its own: the append's snapshot must be newer than the lock (DESIGN 6.1).
-- Plans are made each time, as in job_mode.sql.
-- Parameters: $1 int stream. Rows: 1. Locks: advisory (0x726f7764, stream), until the transaction ends. Index: none.
select set_config('plan_cache_mode', 'force_custom_plan', true), pg_advisory_xact_lock(1919907684, $1::int);
