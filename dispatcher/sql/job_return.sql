-- Gives claims back that were never sent, as if they had not been made: the attempt is not counted.
-- Parameters: $1 int[] subscription, $2 bigint[] seq, $3 bigint[] token. Rows: none. Locks: jobs rows.
-- Index: jobs_pkey, TID scan.
update rowbell.jobs j
   set lease_until = null, lease_token = null, attempts = j.attempts - 1
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
               for update) l));
