-- The pass of a single event, after its batch failed or when its retry is due.
-- Parameters: $1 its seq, $2 true, $3, $4 as in fan_out.sql. Rows: one; see enqueue.sql (0 events: another relay has it, or did it).
-- Locks: that event. Index: primary key.
with claimed as materialized (
  select e.ctid as row_id, e.seq, e.type_id, e.scope
    from rowbell.events e
   where e.seq = $1::bigint and e.fanned_out_at is null and e.poisoned_at is null
     for update skip locked
),
\ir fan_out.sql
