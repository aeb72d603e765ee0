-- Not a statement: how job_claim and job_claim_ordered go on, from `found` (subscription_id, place of the subscription in the arrays,
-- event_seq, at, lease_token, expired: somebody's lease ran out): the rows that fit are claimed, lost attempts are noted, and events
-- are read.
-- Rows fit as far as the sum of their events' bytes goes: the first job of each subscription before any second one, in the arrays'
-- order. The first of all fits whatever its size, so that each can go when it is its turn; any other one that alone is over the sum
-- stands in nobody's way. Bytes are those stored (nothing is read for them); the longest text of them is some 100 times as long.
-- Each event is read once; large data is a pointer here, and read for jobs that fit only.
sized as materialized (
  select f.*, row_number() over (partition by f.subscription_id order by f.event_seq) as nth, e.*
    from found f
    left join lateral (
      select coalesce(pg_column_size(v.data), 0) + coalesce(pg_column_size(v.subject), 0) + coalesce(pg_column_size(v.key), 0) as bytes,
             (date_part('epoch', v.occurred_at) * 1000000)::bigint as occurred_us, v.type_id, v.subject, v.op, v.key, v.data
        from rowbell.events v where v.seq = f.event_seq limit 1) e on true
),
placed as (
  select s.*, row_number() over (order by s.nth, s.place) as turn from sized s
),
judged_bytes as materialized (
  select p.*, p.turn = 1 or p.bytes is null or (p.bytes <= $7::bigint and
         sum(p.bytes) filter (where p.turn = 1 or p.bytes <= $7::bigint) over (order by p.turn) <= $7::bigint) as fits
    from placed p
),
fitting as materialized (
  select b.* from judged_bytes b where b.fits
),
-- A row that changed between the snapshot and its lock is in found and not here: what follows reads this one only.
claimed as (
  update rowbell.jobs j
     set lease_until = now() + ($3::bigint[])[array_position($1::int[], j.subscription_id)] * interval '1 millisecond',
         lease_token = $6::bigint,
         attempts = j.attempts + 1,
         uncounted = j.uncounted + (j.lease_until is not null)::int,
         lost = j.lost + (j.lease_until is not null)::int,
         lost_alone = j.lost_alone + (j.lease_until is not null and j.lease_token % 2 = 1)::int
   where j.ctid = any(array(select f.at from fitting f))
     and (j.lease_until is null or j.lease_until < now())
  returning j.subscription_id, j.event_seq, j.attempts, j.uncounted, j.lost, j.lost_alone
),
noted as (
  insert into rowbell.attempts (subscription_id, event_seq, attempt, manual, started_at, class, alone)
  select c.subscription_id, c.event_seq, c.attempts - 1, c.uncounted >= c.attempts, now(), 'lost', f.lease_token % 2 = 1
    from fitting f
    join claimed c on c.subscription_id = f.subscription_id and c.event_seq = f.event_seq
   where f.expired
)
select c.subscription_id, c.event_seq, c.attempts, c.uncounted, c.lost, c.lost_alone,
       f.occurred_us, (select t.type from rowbell.event_types t where t.id = f.type_id) as type, f.subject, f.op, f.key,
       case when octet_length(d.text) <= 33554432 then d.text end as data,
       case when d.stored > 33554432 then d.stored when octet_length(d.text) > 33554432 then octet_length(d.text) end as too_large,
       c.attempts > 1 and exists (
         select from rowbell.attempts a
          where a.event_seq = c.event_seq and a.subscription_id = c.subscription_id
            and a.status = 429 and a.started_at < now() - $8::bigint * interval '1 millisecond') as throttled_long
  from claimed c
  join fitting f on f.subscription_id = c.subscription_id and f.event_seq = c.event_seq
 cross join lateral (
    select pg_column_size(f.data) as stored, case when pg_column_size(f.data) <= 33554432 then f.data::text end as text offset 0) d
union all
select b.subscription_id, min(b.event_seq), 0::smallint, 0::smallint, 0::smallint, 0::smallint, null, null, null, null, null, null, null, false
  from judged_bytes b
 where not b.fits
 group by b.subscription_id;
