-- Who is here and which shards are held, by the lock table alone: a session that is gone holds nothing. Any login may take
-- any advisory lock: who may not do a dispatcher's work is not counted as one, or shards would be left for it. A shard that
-- such a login holds is held; rowbell doctor names it.
-- Parameters: $1 int the lane's offset. Rows: 1: dispatchers present, bit mask of the 64 shards that somebody holds. Locks: none.
-- Index: none; pg_locks is memory.
select count(*) filter (where l.objid::int = $1::int + 64 and exists (
         select from pg_stat_activity a where a.pid = l.pid and has_table_privilege(a.usesysid, 'rowbell.jobs', 'delete'))),
       coalesce(bit_or(1::bigint << (l.objid::int - $1::int)) filter (where l.objid::int - $1::int between 0 and 63), 0)
  from pg_locks l
 where l.locktype = 'advisory'
   and l.database = (select d.oid from pg_database d where d.datname = current_database())
   and l.classid = 1919907683
   and l.objsubid = 2
   and l.granted;
