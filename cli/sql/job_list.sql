-- Jobs that are not delivered yet. $1 limit, $2 state or NULL, $3 subscription or NULL. Rows: by subscription and seq.
-- Locks: none. Indexes: jobs_pkey and jobs_waiting_pkey, merged in their order.
select s.name as subscription, j.event_seq as seq, j.state, t.type, e.subject, j.attempts, j.run_at, j.lease_until,
       j.last_class
  from rowbell.job_states j
  left join rowbell.subscriptions s on s.id = j.subscription_id
  left join rowbell.events e on e.seq = j.event_seq
  left join rowbell.event_types t on t.id = e.type_id
 where ($2::text is null or j.state = $2) and ($3::text is null or s.name = $3)
 order by j.subscription_id, j.event_seq limit $1::bigint;
