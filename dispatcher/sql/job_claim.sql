-- Claims ready jobs of subscriptions whose shards the session owns, under a lease.
-- Parameters, arrays of equal length: $1 int[] subscriptions, $2 int[] the most for each, $3 bigint[] the lease of each in
-- milliseconds, $4 bigint[] and $5 bigint[] the lowest and highest seq to take; $6 bigint token (odd: nothing else is in flight);
-- $7 bigint the most bytes of events, as stored, $8 bigint milliseconds for which 429 with Retry-After uses no retry.
-- Rows: subscription_id, event_seq, attempts (this one counted), uncounted, lost, lost_alone, and of the event
-- microseconds since 1970, type, subject, op, key, data (all NULL: there is no such event), the bytes of data that is too large to be
-- delivered (NULL: it is not, and data is there), whether the first 429 is further back than $8. Where attempts is 0: jobs of this
-- subscription were left for their bytes, from event_seq on. A claim that finds an expired lease records the attempt that held it as lost.
-- Only the owner of the shard claims, so rows are not locked before they are updated: a lock of its own costs as much as the
-- update. Locks: the rows it claims. Index: jobs_pkey, TID scan, events_pkey, event_types_pkey.
with wanted as materialized (
  select w.id, w.slots, w.lowest, w.highest, w.place
    from unnest($1::int[], $2::int[], $4::bigint[], $5::bigint[]) with ordinality w(id, slots, lowest, highest, place)
   where exists (select from rowbell.subscriptions s where s.id = w.id and s.state = 'active')
),
found as materialized (
  select w.id as subscription_id, w.place, l.event_seq, l.at, l.lease_token, l.expired
    from wanted w
   cross join lateral (
     select j.ctid as at, j.event_seq, j.lease_token, j.lease_until is not null as expired
       from rowbell.jobs j
      where j.subscription_id = w.id
        and j.event_seq between w.lowest and w.highest
        and (j.lease_until is null or j.lease_until < now())
      order by j.event_seq
      limit w.slots) l
),
\ir job_claim_found.sql
