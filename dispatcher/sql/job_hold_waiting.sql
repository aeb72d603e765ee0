-- The same for jobs that wait for a retry of a subscription that is not active.
-- Parameters: $1 int[] subscriptions. Rows: none. Locks: jobs_waiting rows, SKIP LOCKED. Index: jobs_waiting_pkey, TID scan.
update rowbell.jobs_waiting w
   set state = 'held', run_at = null
 where w.ctid = any(array(
         select k.ctid from rowbell.jobs_waiting k
          where k.subscription_id = any($1::int[]) and k.state = 'waiting' for update skip locked))
   and w.state = 'waiting'
   and exists (select from rowbell.subscriptions x where x.id = w.subscription_id and x.state <> 'active');
