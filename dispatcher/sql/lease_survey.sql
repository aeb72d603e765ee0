-- Leases of other processes that still run: a new owner of a shard counts them as in flight (max_in_flight holds for
-- the fleet). Only the lowest 200 jobs of a subscription are looked at: leases are given from the low end, and
-- a backlog of a million must not be read.
-- Parameters: $1 int[] subscriptions, $2 bigint the process part of our own tokens (token >> 24).
-- Rows: one for each subscription and process that has such leases: subscription, number, process part of the tokens, whether that
-- process has a session here. Locks: none. Index: jobs_pkey.
select s.id, l.leases, l.owner,
       exists (select from pg_locks k
                where k.locktype = 'advisory' and k.classid = 1919907687 and k.objid = (l.owner & 2147483647)::oid and k.objsubid = 2
                  and k.database = (select d.oid from pg_database d where d.datname = current_database()))
  from unnest($1::int[]) s(id)
 cross join lateral (
   select j.lease_token >> 24 as owner, count(*) as leases
     from (select k.lease_until, k.lease_token
             from rowbell.jobs k
            where k.subscription_id = s.id
            order by k.event_seq
            limit 200) j
    where j.lease_until > now() and (j.lease_token >> 24) <> $2::bigint
    group by 1) l;
