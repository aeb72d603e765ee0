-- After ends of jobs of ordered subscriptions: the next blocked job of each subject becomes ready, if nothing earlier of the subject
-- is open. Runs after job_finish in the same transaction.
-- Parameters: $1 int[] subscription, $2 text[] subject. Rows: none. Locks: jobs_waiting rows. Index: jobs_waiting_subject, TID scan.
with next as (
  delete from rowbell.jobs_waiting w
   where w.ctid = any(array(
           select h.at
             from (select distinct u.subscription_id, u.subject
                     from unnest($1::int[], $2::text[]) u(subscription_id, subject)) e
            cross join lateral (
              select k.ctid as at, k.blocked
                from rowbell.jobs_waiting k
               where k.subscription_id = e.subscription_id and k.subject = e.subject and k.state <> 'cancelled'
               order by k.event_seq
               limit 1
                 for update) h
            where h.blocked))
  returning w.subscription_id, w.event_seq, w.attempts, w.uncounted
)
insert into rowbell.jobs (subscription_id, event_seq, attempts, uncounted)
select n.subscription_id, n.event_seq, n.attempts, n.uncounted from next n
on conflict (subscription_id, event_seq) do nothing;
