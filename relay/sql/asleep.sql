-- Gives the lock of awake.sql back, however often it was taken. Rows: one for each.
select pg_advisory_unlock_shared(x'726f7766'::int, 0)
  from pg_locks l
 where l.pid = pg_backend_pid() and l.locktype = 'advisory' and l.classid = x'726f7766'::int and l.objid = 0
