-- Counts a failure of one job's append; the fifth poisons the job.
-- Parameters: $1 int stream, $2 bigint seq. Rows: 1 when the job was there: attempts, whether it is poisoned now,
-- subscription. Locks: the jobs row. Index: jobs_pkey.
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
)
select f.attempts, f.attempts >= 5, f.subscription_id from failed f;
