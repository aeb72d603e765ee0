-- One appender at a time, a statement of its own: the append's snapshot must be newer than the lock.
-- The append's plan is made once and stays right, as in job_mode.sql; to plan it each time took twice as long as to run it.
-- Parameters: $1 int stream. Rows: 1. Locks: advisory (0x726f7764, stream), until the transaction ends. Index: none.
select set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true), pg_advisory_xact_lock(1919907684, $1::int);
