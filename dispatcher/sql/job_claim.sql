-- Claims ready jobs of subscriptions whose shards the session owns, under a lease.
-- Parameters, arrays of equal length: $1 int[] subscriptions, $2 int[] the most for each, $3 bigint[] the lease of each in
-- milliseconds, $4 bigint[] and $5 bigint[] the lowest and highest seq to take; $6 bigint token (odd: nothing else is in flight).
-- Rows: subscription_id, event_seq, attempts (this one counted), uncounted, lost, lost_alone, event id, type, occurred_at, subject,
-- data. A claim that finds an expired lease records the attempt that held it as lost.
-- Locks: jobs rows, SKIP LOCKED. Index: jobs_pkey, TID scan, events_pkey, event_types_pkey.
with wanted as materialized (
  select w.id, w.slots, w.lease_ms, w.lowest, w.highest
    from unnest($1::int[], $2::int[], $3::bigint[], $4::bigint[], $5::bigint[]) w(id, slots, lease_ms, lowest, highest)
   where exists (select from rowbell.subscriptions s where s.id = w.id and s.state = 'active')
),
found as materialized (
  select w.id as subscription_id, w.lease_ms, l.event_seq, l.at, l.lease_token, l.expired
    from wanted w
   cross join lateral (
     select j.ctid as at, j.event_seq, j.lease_token, j.lease_until is not null as expired
       from rowbell.jobs j
      where j.subscription_id = w.id
        and j.event_seq between w.lowest and w.highest
        and (j.lease_until is null or j.lease_until < now())
      order by j.event_seq
      limit w.slots
        for update skip locked) l
),
-- A row that changed between the snapshot and its lock is in found and not here: what follows reads this one only.
claimed as (
  update rowbell.jobs j
     set lease_until = now() + w.lease_ms * interval '1 millisecond',
         lease_token = $6::bigint,
         attempts = j.attempts + 1,
         uncounted = j.uncounted + (j.lease_until is not null)::int,
         lost = j.lost + (j.lease_until is not null)::int,
         lost_alone = j.lost_alone + (j.lease_until is not null and j.lease_token % 2 = 1)::int
    from wanted w
   where j.ctid = any(array(select f.at from found f))
     and w.id = j.subscription_id
     and (j.lease_until is null or j.lease_until < now())
  returning j.subscription_id, j.event_seq, j.attempts, j.uncounted, j.lost, j.lost_alone
),
noted as (
  insert into rowbell.attempts (subscription_id, event_seq, attempt, manual, started_at, class, alone)
  select c.subscription_id, c.event_seq, c.attempts - 1, c.uncounted >= c.attempts, now(), 'lost', f.lease_token % 2 = 1
    from found f
    join claimed c on c.subscription_id = f.subscription_id and c.event_seq = f.event_seq
   where f.expired
)
select c.subscription_id, c.event_seq, c.attempts, c.uncounted, c.lost, c.lost_alone,
       e.id, e.type, e.occurred_at, e.subject, e.data
  from claimed c
  left join lateral (
    select rowbell.event_id(v.occurred_at, v.seq)::text as id,
           t.type,
           to_char(v.occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as occurred_at,
           v.subject,
           case when v.op is null then coalesce(v.data::text, '{}')
                else '{"table":' || to_json(left(t.type, -length(v.op) - 1))::text
                     || ',"key":' || to_json(coalesce(v.key, ''))::text
                     || ',"op":"' || v.op || '"}' end as data
      from rowbell.events v
      join rowbell.event_types t on t.id = v.type_id
     where v.seq = c.event_seq
     limit 1) e on true;
