-- One pass: claims at most 200 events, marks them, and queues a job for each (event, subscription) match.
-- Parameters: $1 the low-water mark (rows at or below it are left to a pass with mark 0; nothing else is decided by it),
-- $2 false. Rows: one; see fan_out.sql. Locks: the claimed events, FOR UPDATE SKIP LOCKED. Index: events_claim.
with claimed as materialized (
  select e.ctid as row_id, e.seq, e.type_id, e.scope
    from rowbell.events e
   where e.fanned_out_at is null and e.poisoned_at is null and e.retry_at is null and e.seq > $1::bigint
   order by e.seq
   limit 200
     for update skip locked
),
\ir fan_out.sql
