-- Counts a failure of one job's append; the fifth poisons the job and leaves a mark in the log, which resets every
-- subscriber of the stream (G5). Runs in the transaction that holds stream_lock.
-- Parameters: $1 int stream, $2 bigint seq. Rows: 1 when the job was there: attempts, whether it is poisoned now,
-- subscription. Locks: the jobs row. Index: jobs_pkey, stream_log_pkey.
with failed as materialized (
  select k.subscription_id, k.event_seq, k.attempts + 1 as attempts
    from rowbell.jobs k
   where k.subscription_id = (select t.subscription_id from rowbell.streams t where t.id = $1::int)
     and k.event_seq = $2::bigint
     for update
),
counted as (
  update rowbell.jobs j
     set attempts = f.attempts
    from failed f
   where j.subscription_id = f.subscription_id and j.event_seq = f.event_seq and f.attempts < 5
),
gone as (
  delete from rowbell.jobs j
   using failed f
   where j.subscription_id = f.subscription_id and j.event_seq = f.event_seq and f.attempts >= 5
  returning j.subscription_id, j.event_seq, f.attempts
),
poisoned as (
  insert into rowbell.jobs_waiting as w (subscription_id, event_seq, state, attempts, last_class)
  select g.subscription_id, g.event_seq, 'poisoned', g.attempts, 'rejected' from gone g
  on conflict (subscription_id, event_seq) do update set state = 'poisoned', run_at = null
),
-- Its position follows the rule of stream_append.sql. Scope * is everybody's. Gateways are woken whether or not there
-- is Redis, whose messages have no marks: to them it is a gap, and the log has it.
mark as (
  insert into rowbell.stream_log as l (stream_id, position, prev, event_seq, scope, name, key, op)
  select $1::int,
         greatest(n.position + 1, (extract(epoch from clock_timestamp()) * 1000000)::bigint)
           + case when (t.timeline, t.system_identifier)
                       is distinct from (substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), c.system_identifier)
                  then 60000000 else 0 end,
         n.position, g.event_seq, '*', '', null, 'damaged'
    from gone g
    join rowbell.streams t on t.id = $1::int
   cross join pg_control_system() c
   cross join lateral (
     select e.position from rowbell.stream_log e where e.stream_id = $1::int order by e.position desc limit 1) n
  returning l.position
)
select f.attempts, f.attempts >= 5, f.subscription_id,
       (select rowbell.notify('rowbell_stream', m.position::text)::text from mark m)
  from failed f;
