-- Who has the lock of migration_lock_try.sql: any login can take it. Rows: one or none: pid, login ("" for those that may not be
-- seen). Locks: none.
select l.pid, coalesce(a.usename, '')
  from pg_locks l left join pg_stat_activity a on a.pid = l.pid
 where l.locktype = 'advisory' and l.granted and l.objsubid = 1 and l.database = (select d.oid from pg_database d where d.datname = current_database())
   and (l.classid::bigint << 32 | l.objid::bigint) = 32210705887620204
 limit 1;
