-- One event. $1 its seq or its UUID, as text. One row or none. Locks: none. Index: events_pkey.
with wanted as materialized (
  select case when $1 ~ '^[0-9]+$' then $1::bigint else rowbell.event_seq($1::uuid) end as seq)
select e.seq, rowbell.event_id(e.occurred_at, e.seq) as id, t.type, e.subject, e.scope, e.key, e.op, e.data,
       e.occurred_at,
       case when e.poisoned_at is not null and e.fanned_out_at is null then 'poisoned' when e.poisoned_at is not null then 'cancelled' when e.fanned_out_at is not null then 'fanned-out'
            when e.retry_at is not null then 'retrying' else 'pending' end as state,
       e.fanned_out_at, e.fanout_attempts, e.retry_at, e.poisoned_at, e.last_error
  from wanted w join rowbell.events e on e.seq = w.seq join rowbell.event_types t on t.id = e.type_id
 where $1 ~ '^[0-9]+$' or rowbell.event_id(e.occurred_at, e.seq)::text = lower($1);
