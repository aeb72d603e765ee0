-- What a failed pass had claimed, more or less: the events to be tried one by one.
-- Rows: seq, fanout_attempts. Locks: none. Index: events_claim.
select e.seq, e.fanout_attempts
  from rowbell.events e
 where e.fanned_out_at is null and e.poisoned_at is null and e.retry_at is null
 order by e.seq
 limit 200
