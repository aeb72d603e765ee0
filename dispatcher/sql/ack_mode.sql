-- What a round writes may be lost in a crash of the database: that costs a duplicate, never a loss (the job is there).
-- Parameters: none. Rows: 1. Locks: none. Index: none. Holds for the transaction.
select set_config('synchronous_commit', 'off', true);
