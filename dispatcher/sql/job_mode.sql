-- Goes first in every batch on the job tables; holds for the transaction.
-- synchronous_commit: what is written may be lost in a crash of the database; that costs a duplicate, never a loss.
-- The rest is about plans that are made once and stay right. Every way to a job is by jobs_pkey or by ctid. A plan that was made
-- while the table was empty, or by statistics of that time, may prefer to read it whole and sort (80 ms a claim with
-- 300,000 rows), and planning each time costs a tenth of the throughput: so plans are generic, and reading a whole table is
-- no choice where there is an index.
-- Parameters: none. Rows: 1; the last column is the database's time, in microseconds since 1970. Locks: none. Index: none.
select set_config('synchronous_commit', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       (extract(epoch from clock_timestamp()) * 1000000)::bigint;
