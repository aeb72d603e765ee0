-- One pass: claims at most 200 events, marks them, and queues a job for each (event, subscription) match.
-- Parameters: $1 the low-water mark, as in pass_plain.sql; $2 false; $3, $4 as in fan_out.sql. Rows: one; see enqueue.sql.
-- Locks: the claimed events, FOR UPDATE SKIP LOCKED. Index: events_claim.
with claimed as materialized (
\ir claim.sql
),
\ir fan_out.sql
