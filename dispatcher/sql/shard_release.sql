-- Gives shards back.
-- Parameters: $1 int[] shards that this session holds. Rows: one for each: shard, whether it was held.
-- Locks: advisory (0x726f7763, shard), released. Index: none.
select s.shard, pg_advisory_unlock(1919907683, s.shard)
  from unnest($1::int[]) s(shard);
