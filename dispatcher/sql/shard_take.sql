-- Tries to become the owner of shards.
-- Parameters: $1 int[] shards that this session does not hold (session locks count: taken twice is released twice),
-- $2 int the lane's offset.
-- Rows: one for each: shard, whether it is ours now. Locks: advisory (0x726f7763, offset + shard), session. Index: none.
select s.shard, pg_try_advisory_lock(1919907683, $2::int + s.shard)
  from unnest($1::int[]) s(shard);
