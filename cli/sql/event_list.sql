-- The newest events. $1 limit, $2 state (pending, retrying, poisoned, cancelled, fanned-out) or NULL, $3 type or NULL.
-- Rows: newest first. Locks: none. Index: events_pkey, backward; for what was set aside, rowbell.events_set_aside.
select e.seq, rowbell.event_id(e.occurred_at, e.seq) as id, t.type, e.subject, e.scope, e.occurred_at,
       case when e.poisoned_at is not null and e.fanned_out_at is null then 'poisoned' when e.poisoned_at is not null then 'cancelled' when e.fanned_out_at is not null then 'fanned-out'
            when e.retry_at is not null then 'retrying' else 'pending' end as state,
       cardinality(e.fanout) as subscriptions
  from rowbell.events e join rowbell.event_types t on t.id = e.type_id
 where ($3::text is null or t.type = $3)
   and ($2::text is null or $2 not in ('poisoned', 'retrying') or e.seq in (
          select a.event_seq from rowbell.events_set_aside a where (a.retry_at is null) = ($2 = 'poisoned')))
   and case $2::text when 'poisoned' then e.poisoned_at is not null and e.retry_at is not null and e.fanned_out_at is null
                     when 'fanned-out' then e.fanned_out_at is not null and e.poisoned_at is null
                     when 'cancelled' then e.fanned_out_at is not null and e.poisoned_at is not null
                     when 'retrying' then e.fanned_out_at is null and e.poisoned_at is null and e.retry_at is not null
                     when 'pending' then e.fanned_out_at is null and e.poisoned_at is null and e.retry_at is null
                     else true end
 order by e.seq desc limit $1::bigint;
