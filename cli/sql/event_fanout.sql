-- Where an event went. $1 seq. Rows: one for each subscription that got a job, with the job's state now (a job that is
-- gone was delivered). Locks: none. Indexes: events_pkey, jobs_pkey, jobs_waiting_pkey.
select coalesce(s.name, '#' || f.id) as subscription, s.kind,
       case when j.state is not null then j.state when s.id is null then 'removed' else 'delivered' end as state,
       j.attempts, j.run_at, j.lease_until, j.last_class
  from rowbell.events e cross join unnest(e.fanout) as f (id)
  left join rowbell.subscriptions s on s.id = f.id
  left join rowbell.job_states j on j.subscription_id = f.id and j.event_seq = e.seq
 where e.seq = $1::bigint
 order by f.id;
