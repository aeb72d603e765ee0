-- Goes first in every batch on the job tables; holds for the transaction.
-- synchronous_commit: what is written may be lost in a crash of the database; that costs a duplicate, never a loss.
-- plan_cache_mode: a generic plan that was made while jobs was empty reads the whole table when it is a million rows long
-- (80 ms a claim with 300,000); planning each time costs a tenth of the throughput.
-- Parameters: none. Rows: 1. Locks: none. Index: none.
select set_config('synchronous_commit', 'off', true), set_config('plan_cache_mode', 'force_custom_plan', true);
