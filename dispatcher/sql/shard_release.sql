-- Gives shards back.
-- Parameters: $1 int[] shards that this session holds, $2 int the lane's offset. Rows: one for each: shard, whether it was held.
-- Locks: advisory (0x726f7763, offset + shard), released. Index: none.
select s.shard, pg_advisory_unlock(1919907683, $2::int + s.shard)
  from unnest($1::int[]) s(shard);
