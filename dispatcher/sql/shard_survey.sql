-- Who is here and which shards are held, by the lock table alone: a session that is gone holds nothing.
-- Parameters: $1 int the lane's offset. Rows: 1: dispatchers present, bit mask of the 64 shards that somebody holds. Locks: none.
-- Index: none; pg_locks is memory.
select count(*) filter (where l.objid::int = $1::int + 64),
       coalesce(bit_or(1::bigint << (l.objid::int - $1::int)) filter (where l.objid::int - $1::int between 0 and 63), 0)
  from pg_locks l
 where l.locktype = 'advisory'
   and l.database = (select d.oid from pg_database d where d.datname = current_database())
   and l.classid = 1919907683
   and l.objsubid = 2
   and l.granted;
