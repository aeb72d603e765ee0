-- The newest events. $1 limit, $2 state (pending, retrying, poisoned, cancelled, fanned-out) or NULL, $3 type or NULL.
-- Rows: newest first; of a type, cancelled or fanned-out ones: among the newest million. Locks: none. Indexes: events_claim for what is
-- pending, rowbell.events_set_aside for what failed, events_pkey backward for the rest.
with wanted as (select t.id from rowbell.event_types t where t.type = $3),
found as (
  (select v.seq from rowbell.events v
    where $2::text = 'pending' and v.fanned_out_at is null and v.poisoned_at is null and v.retry_at is null
      and ($3::text is null or v.type_id = (select w.id from wanted w))
    order by v.seq desc limit $1::bigint)
  union all
  (select a.event_seq from rowbell.events_set_aside a join rowbell.events v on v.seq = a.event_seq
    where $2 in ('poisoned', 'retrying') and (a.retry_at is null) = ($2 = 'poisoned') and v.fanned_out_at is null
      and ($3 is null or v.type_id = (select w.id from wanted w))
    order by a.event_seq desc limit $1)
  union all
  (select v.seq
     from (select e.seq, e.type_id, e.fanned_out_at, e.poisoned_at from rowbell.events e order by e.seq desc limit 1000000) v
    where ($2 is null or $2 in ('cancelled', 'fanned-out') and v.fanned_out_at is not null and (v.poisoned_at is not null) = ($2 = 'cancelled'))
      and ($3 is null or v.type_id = (select w.id from wanted w))
    order by v.seq desc limit $1))
select e.seq, rowbell.event_id(e.occurred_at, e.seq) as id, t.type, e.subject, e.scope, e.occurred_at,
       case when e.poisoned_at is not null and e.fanned_out_at is null then 'poisoned' when e.poisoned_at is not null then 'cancelled' when e.fanned_out_at is not null then 'fanned-out'
            when e.retry_at is not null then 'retrying' else 'pending' end as state,
       cardinality(e.fanout) as subscriptions
  from found f join rowbell.events e on e.seq = f.seq join rowbell.event_types t on t.id = e.type_id
 order by e.seq desc limit $1;
