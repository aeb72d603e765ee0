-- How long each statement that follows in this transaction may take.
-- Parameters: $1 ms. Rows: one. Locks: none.
select set_config('statement_timeout', $1::text, true)
