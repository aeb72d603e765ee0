-- Events set aside after a failure whose time has come. Rows: seq, fanout_attempts. Locks: none. Index: events_set_aside.
select e.seq, e.fanout_attempts
  from rowbell.events e
 where e.fanned_out_at is null and e.poisoned_at is null and e.retry_at is not null and e.retry_at <= now()
 order by e.retry_at
 limit 200
