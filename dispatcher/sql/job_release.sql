-- Held jobs of subscriptions that are active again become ready, lowest first.
-- Parameters: $1 int[] subscriptions, $2 int[] the most of each. Rows: subscription_id, how many were moved.
-- Locks: jobs_waiting rows, SKIP LOCKED. Index: jobs_waiting_held, TID scan.
with moved as (
  delete from rowbell.jobs_waiting w
   where w.ctid = any(array(
           select l.at
             from unnest($1::int[], $2::int[]) s(id, most)
            cross join lateral (
              select k.ctid as at
                from rowbell.jobs_waiting k
               where k.subscription_id = s.id and k.state = 'held' and not k.blocked
                 and exists (select from rowbell.subscriptions x where x.id = s.id and x.state = 'active')
               order by k.event_seq
               limit s.most
                 for update skip locked) l))
  returning w.subscription_id, w.event_seq, w.attempts, w.uncounted
),
ready as (
  insert into rowbell.jobs (subscription_id, event_seq, attempts, uncounted)
  select m.subscription_id, m.event_seq, m.attempts, m.uncounted from moved m
  on conflict (subscription_id, event_seq) do nothing
)
select m.subscription_id, count(*) from moved m group by m.subscription_id;
