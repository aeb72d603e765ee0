-- Moves jobs whose time has come from jobs_waiting to jobs; any dispatcher may. Those of a subscription that is not
-- active stay, for job_hold.
-- Parameters: $1 int the most to move (a parameter, since a statement without any is never planned anew).
-- Rows: 1: how many were looked at, int[] of the subscriptions that got some, notifications, milliseconds until the
-- next one is due (NULL: none waits). Locks: jobs_waiting rows, SKIP LOCKED. Index: jobs_waiting_due, TID scan.
with moved as (
  delete from rowbell.jobs_waiting w
   where w.ctid = any(array(
           select k.ctid
             from rowbell.jobs_waiting k
            where k.state = 'waiting'
              and k.run_at <= now()
              and exists (select from rowbell.subscriptions s where s.id = k.subscription_id and s.state = 'active')
            order by k.run_at
            limit $1::int
              for update of k skip locked))
  returning w.subscription_id, w.event_seq, w.attempts, w.uncounted
),
ready as (
  insert into rowbell.jobs (subscription_id, event_seq, attempts, uncounted)
  select m.subscription_id, m.event_seq, m.attempts, m.uncounted from moved m
  on conflict (subscription_id, event_seq) do nothing
)
select (select count(*) from moved),
       (select coalesce(array_agg(distinct m.subscription_id), '{}') from moved m)::text,
       -- Their owners may be others.
       (select count(rowbell.notify('rowbell_jobs', n.kind || ' ' || n.shard || ' ' || n.lowest))
          from (select s.kind, s.id % 64 as shard, min(m.event_seq) as lowest
                  from moved m join rowbell.subscriptions s on s.id = m.subscription_id group by 1, 2) n),
       (select ceil(extract(epoch from k.run_at - clock_timestamp()) * 1000)::bigint
          from rowbell.jobs_waiting k
         where k.state = 'waiting' and k.run_at > now()
         order by k.run_at
         limit 1);
