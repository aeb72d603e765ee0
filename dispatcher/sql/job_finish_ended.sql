-- Not a statement: how job_finish and job_finish_delivered go on, from `ended`: delivered jobs go, others move to jobs_waiting;
-- each leaves a row in attempts and the health of its subscription. A job whose lease token is no longer the caller's is left
-- alone (and is not among the rows). $1 to $3 are the arrays of the jobs' keys and tokens, as in `ended`.
gone as (
  delete from rowbell.jobs j
   where j.ctid = any(array(
           select l.at
             from unnest($1::int[], $2::bigint[], $3::bigint[]) e(subscription_id, event_seq, lease_token)
            cross join lateral (
              select k.ctid as at
                from rowbell.jobs k
               where k.subscription_id = e.subscription_id
                 and k.event_seq = e.event_seq
                 and k.lease_token = e.lease_token
               limit 1) l))
     and j.lease_token = any($3::bigint[])   -- looked at again when the row changed meanwhile
  returning j.subscription_id, j.event_seq, j.lease_token, j.uncounted
),
done as materialized (
  select e.*, g.uncounted
    from gone g
    join ended e on e.subscription_id = g.subscription_id and e.event_seq = g.event_seq
                and e.lease_token = g.lease_token
),
moved as (
  insert into rowbell.jobs_waiting as w (subscription_id, event_seq, state, run_at, attempts, uncounted, last_class, subject)
  select d.subscription_id, d.event_seq, d.fate,
         case when d.fate = 'waiting' then now() + d.delay_ms * interval '1 millisecond' end,
         d.attempt, d.uncounted + d.uncounts, d.class, d.subject
    from done d
   where d.fate <> 'delivered'
  on conflict (subscription_id, event_seq) do update
     set state = excluded.state, run_at = excluded.run_at, attempts = excluded.attempts,
         uncounted = excluded.uncounted, last_class = excluded.last_class, subject = excluded.subject, blocked = false
),
logged as (
  insert into rowbell.attempts (subscription_id, event_seq, attempt, manual, started_at, dns_ms, connect_ms, tls_ms,
                                first_byte_ms, total_ms, status, class, peer, response_head)
  select d.subscription_id, d.event_seq, d.attempt, d.uncounted >= d.attempt, clock_timestamp() - d.age_ms * interval '1 millisecond',
         d.dns_ms, d.connect_ms, d.tls_ms, d.first_byte_ms, d.total_ms, d.status, d.class, d.peer, d.response_head
    from done d
),
-- Success moves last_success_at once a second at the most: this row is hot, and ON CONFLICT would lock it. Failures with more
-- than the longest retry between them are not one outage. A row that a transaction of the subscription's owner holds is left as it is:
-- nobody's deliveries wait for it.
news as materialized (
  select d.subscription_id,
         case when max(d.pause_ms) > 0 then now() + max(d.pause_ms) * interval '1 millisecond' end as not_before,
         case when not bool_or(d.fate = 'delivered') then now() end as failing_since,
         case when bool_or(d.fate = 'delivered') then now() end as last_success_at,
         case when not bool_and(d.fate = 'delivered') then now() end as last_failure_at,
         max(d.error) as last_error
    from done d
   group by d.subscription_id
  having exists (select from rowbell.subscriptions s where s.id = d.subscription_id)
     and (not bool_and(d.fate = 'delivered')
          or not exists (select from rowbell.subscription_state k
                          where k.subscription_id = d.subscription_id and k.failing_since is null
                            and k.last_success_at >= now() - interval '1 second'))
),
first_news as (
  insert into rowbell.subscription_state (subscription_id, not_before, failing_since, last_success_at, last_failure_at, last_error)
  select n.subscription_id, n.not_before, n.failing_since, n.last_success_at, n.last_failure_at, n.last_error
    from news n
   where not exists (select from rowbell.subscription_state k where k.subscription_id = n.subscription_id)
  on conflict (subscription_id) do nothing
),
health as (
  update rowbell.subscription_state h
     set not_before = coalesce(n.not_before, h.not_before),
         failing_since = case when n.last_success_at is null then
           case when h.last_failure_at > now() - interval '30 hours' then coalesce(h.failing_since, now()) else now() end end,
         last_success_at = coalesce(n.last_success_at, h.last_success_at),
         last_failure_at = coalesce(n.last_failure_at, h.last_failure_at),
         last_error = coalesce(n.last_error, h.last_error)
    from news n
   where h.subscription_id = n.subscription_id
     and h.ctid = any(array(
           select l.at
             from news w
            cross join lateral (
              select k.ctid as at
                from rowbell.subscription_state k
               where k.subscription_id = w.subscription_id
               limit 1
                 for update skip locked) l))
)
select d.subscription_id, d.event_seq from done d;
