-- What a failed pass had claimed, more or less: the events to be tried one by one.
-- Parameters: $1 the mark of that pass. Rows: seq, fanout_attempts. Locks: none. Index: events_claim.
select e.seq, e.fanout_attempts
  from rowbell.events e
 where e.fanned_out_at is null and e.poisoned_at is null and e.retry_at is null and e.seq > $1::bigint
 order by e.seq
 limit 200
