-- One pass of the plain events: claims at most 200, marks those whose type and scope have no special subscription, and queues
-- a job for each (event, subscription) match. The others are left to pass.sql, in a transaction of its own. It has half of
-- pass.sql's plan nodes, which cost as much as five events.
-- Parameters: $1 the low-water mark (rows at or below it are left to a pass with mark 0; nothing else is decided by it).
-- Rows: one; see enqueue.sql. Locks: the claimed events, FOR UPDATE SKIP LOCKED. Index: events_claim.
with claimed as materialized (
\ir claim.sql
),
\ir match.sql
-- Mark first: see fan_out.sql.
marked as (
  update rowbell.events e
     set fanned_out_at = now(), fanout = m.plain
    from matched m
   where e.ctid = any (array(select c.row_id from claimed c))
     and m.type_id = e.type_id and m.scope = coalesce(e.scope, '') and m.all_plain
  returning e.seq, e.occurred_at, m.plain
),
queue as (select unnest(k.plain) as subscription_id, k.seq from marked k),
wanted as (select unnest(m.lanes) as lane from matched m where m.all_plain),
apart as (select 0 as jobs, 0 as poisoned, 0 as alerts, 0 as examined, 0 as put_aside),
\ir enqueue.sql
