-- Events set aside after a failure whose time has come. Rows: seq, fanout_attempts. Locks: none. Index: events_set_aside_due,
-- events_pkey.
select e.seq, e.fanout_attempts
  from rowbell.events_set_aside a
 cross join lateral (select v.seq, v.fanout_attempts from rowbell.events v
                      where v.seq = a.event_seq and v.fanned_out_at is null and v.poisoned_at is null limit 1) e
 where a.retry_at <= now()
 order by a.retry_at
 limit 200
