-- Counts a failure of one event: set aside for 2 s, doubling, at most 1 min, +-20 %; the fifth poisons it.
-- Parameters: $1 seq, $2 the fanout_attempts that was seen (so that relays which failed in the same round count it
-- once), $3 the error. Rows: one if it was counted: poisoned, attempts. Locks: that event. Index: primary key.
-- A poisoned event leaves an alert, unless it is one.
with failed as (
update rowbell.events e
   set fanout_attempts = e.fanout_attempts + 1,
       last_error = left($3::text, 1000),
       retry_at = now() + least(60, 2 ^ (e.fanout_attempts + 1)) * (0.8 + 0.4 * random()) * interval '1 second',
       poisoned_at = case when e.fanout_attempts + 1 >= 5 then now() end
 where e.seq = $1::bigint and e.fanout_attempts = $2::smallint and e.fanned_out_at is null and e.poisoned_at is null
returning e.poisoned_at is not null as poisoned, e.fanout_attempts as attempts, e.seq, e.type_id, e.subject, e.last_error, e.retry_at
),
listed as (
  insert into rowbell.events_set_aside as a (event_seq, subject, retry_at)
  select f.seq, f.subject, case when not f.poisoned then f.retry_at end from failed f
  on conflict (event_seq) do update set retry_at = excluded.retry_at
)
select f.poisoned, f.attempts,
       case when f.poisoned and not starts_with(t.type, 'rowbell.') then
         rowbell.alert('rowbell.event.poisoned', t.type,
                       jsonb_build_object('seq', f.seq, 'type', t.type, 'subject', f.subject, 'error', f.last_error))::text end
  from failed f left join rowbell.event_types t on t.id = f.type_id
