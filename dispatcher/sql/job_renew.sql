-- Extends the leases of jobs that are still in flight.
-- Parameters: $1 int[] subscription, $2 bigint[] seq, $3 bigint[] token, $4 bigint lease in milliseconds.
-- Rows: subscription_id, event_seq, lease_token of each that is still the caller's. Locks: jobs rows.
-- Index: jobs_pkey, TID scan.
update rowbell.jobs j
   set lease_until = now() + $4::bigint * interval '1 millisecond'
 where j.ctid = any(array(
         select l.at
           from unnest($1::int[], $2::bigint[], $3::bigint[]) e(subscription_id, event_seq, lease_token)
          cross join lateral (
            select k.ctid as at
              from rowbell.jobs k
             where k.subscription_id = e.subscription_id
               and k.event_seq = e.event_seq
               and k.lease_token = e.lease_token
             limit 1
               for update) l))
returning j.subscription_id, j.event_seq, j.lease_token;
