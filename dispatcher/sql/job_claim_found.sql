-- Not a statement: how job_claim and job_claim_ordered go on, from `found` (subscription_id, event_seq, at, lease_token, expired:
-- somebody's lease ran out): the rows are claimed, lost attempts are noted, and events are read.
-- A row that changed between the snapshot and its lock is in found and not here: what follows reads this one only.
claimed as (
  update rowbell.jobs j
     set lease_until = now() + ($3::bigint[])[array_position($1::int[], j.subscription_id)] * interval '1 millisecond',
         lease_token = $6::bigint,
         attempts = j.attempts + 1,
         uncounted = j.uncounted + (j.lease_until is not null)::int,
         lost = j.lost + (j.lease_until is not null)::int,
         lost_alone = j.lost_alone + (j.lease_until is not null and j.lease_token % 2 = 1)::int
   where j.ctid = any(array(select f.at from found f))
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
       e.occurred_us, (select t.type from rowbell.event_types t where t.id = e.type_id) as type, e.subject, e.op, e.key, e.data
  from claimed c
  left join lateral (
    select (date_part('epoch', v.occurred_at) * 1000000)::bigint as occurred_us, v.type_id, v.subject, v.op, v.key, v.data
      from rowbell.events v
     where v.seq = c.event_seq
     limit 1) e on true;
