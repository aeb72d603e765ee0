-- Puts the ready jobs of subscriptions that are not active out of the way, visibly: state held.
-- Parameters: $1 int[] subscriptions. Rows: 1: how many were moved. Locks: jobs rows, SKIP LOCKED.
-- Index: jobs_pkey, TID scan.
with moved as (
  delete from rowbell.jobs j
   where j.ctid = any(array(
           select l.at
             from unnest($1::int[]) s(id)
            cross join lateral (
              select k.ctid as at
                from rowbell.jobs k
               where k.subscription_id = s.id
                 and (k.lease_until is null or k.lease_until < now())
                 and exists (select from rowbell.subscriptions x where x.id = s.id and x.state <> 'active')
               order by k.event_seq
               limit 500
                 for update of k skip locked) l))
  returning j.subscription_id, j.event_seq, j.attempts, j.uncounted
),
held as (
  insert into rowbell.jobs_waiting as w (subscription_id, event_seq, state, attempts, uncounted, subject)
  select m.subscription_id, m.event_seq, 'held', m.attempts, m.uncounted,
         case when s.ordered then (select e.subject from rowbell.events e where e.seq = m.event_seq) end
    from moved m
    join rowbell.subscriptions s on s.id = m.subscription_id
  on conflict (subscription_id, event_seq) do update set state = 'held', run_at = null
)
select count(*) from moved;
