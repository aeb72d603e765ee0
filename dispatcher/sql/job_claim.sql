-- Claims ready jobs of subscriptions whose shards the session owns, under a lease.
-- Parameters: $1 int[] subscriptions, $2 int[] the most for each, $3 bigint lease in milliseconds, $4 bigint token.
-- Rows: subscription_id, event_seq, attempts (this one counted), lost ones among them, event id, type, occurred_at, subject,
-- data. A claim that finds an expired lease records the attempt that held it as lost.
-- Locks: jobs rows, SKIP LOCKED. Index: jobs_pkey, TID scan, events_pkey, event_types_pkey.
with wanted as materialized (
  select w.id, w.slots
    from unnest($1::int[], $2::int[]) w(id, slots)
   where exists (select from rowbell.subscriptions s where s.id = w.id and s.state = 'active')
),
found as materialized (
  select w.id as subscription_id, l.event_seq, l.at, l.expired
    from wanted w
   cross join lateral (
     select j.ctid as at, j.event_seq, j.lease_until is not null as expired
       from rowbell.jobs j
      where j.subscription_id = w.id
        and (j.lease_until is null or j.lease_until < now())
      order by j.event_seq
      limit w.slots
        for update skip locked) l
),
-- A row that changed between the snapshot and its lock is in found and not here: what follows reads this one only.
claimed as (
  update rowbell.jobs j
     set lease_until = now() + $3::bigint * interval '1 millisecond',
         lease_token = $4::bigint,
         attempts = j.attempts + 1
   where j.ctid = any(array(select f.at from found f))
     and (j.lease_until is null or j.lease_until < now())
  returning j.subscription_id, j.event_seq, j.attempts
),
lost as (
  insert into rowbell.attempts (subscription_id, event_seq, attempt, started_at, class)
  select c.subscription_id, c.event_seq, c.attempts - 1, now(), 'lost'
    from claimed c
    join found f on f.subscription_id = c.subscription_id and f.event_seq = c.event_seq
   where f.expired
  returning subscription_id, event_seq
)
select c.subscription_id, c.event_seq, c.attempts,
       case when c.attempts > 1 then
         (select count(*) from rowbell.attempts a
           where a.event_seq = c.event_seq and a.subscription_id = c.subscription_id
             and a.class = 'lost' and a.attempt < c.attempts)
         + (select count(*) from lost l where l.subscription_id = c.subscription_id and l.event_seq = c.event_seq)
       else 0 end,
       e.id, e.type, e.occurred_at, e.subject, e.data
  from claimed c
  left join lateral (
    select rowbell.event_id(v.occurred_at, v.seq)::text as id,
           t.type,
           to_char(v.occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as occurred_at,
           v.subject,
           case when v.op is null then coalesce(v.data::text, '{}')
                else '{"table":' || to_json(left(t.type, -length(v.op) - 1))::text
                     || ',"key":' || coalesce(to_json(v.key)::text, 'null')
                     || ',"op":"' || v.op || '"}' end as data
      from rowbell.events v
      join rowbell.event_types t on t.id = v.type_id
     where v.seq = c.event_seq
     limit 1) e on true;
