-- The process of these leases is gone: what it had in flight may be claimed again, and is then recorded as lost.
-- Parameters: $1 int[] subscriptions, $2 bigint[] process parts of tokens. Rows: none. Locks: jobs rows, SKIP LOCKED.
-- Index: jobs_pkey, TID scan.
update rowbell.jobs j
   set lease_until = now() - interval '1 millisecond'
 where j.ctid = any(array(
         select l.at
           from unnest($1::int[], $2::bigint[]) o(subscription_id, owner)
          cross join lateral (
            select k.at
              from (select c.ctid as at, c.lease_until, c.lease_token
                      from rowbell.jobs c
                     where c.subscription_id = o.subscription_id
                     order by c.event_seq
                     limit 200
                       for update skip locked) k
             where k.lease_until > now() and k.lease_token >> 24 = o.owner) l));
