-- One step of a walk in rowbell.search.
-- Parameters: $1 int subscription, $2 bigint seq of the event, $3 text name, $4 int how many rows. Rows: 1, as of index_walk_open.sql.
-- Locks: the index_walks row; advisory, one for each (table, key). Index: index_walks_pkey, the key of the table.
select w.phase, w.mark, w.after_key, w.refused, w.refused_rows[1]
  from rowbell.index_walk_step($1::int, $2::bigint, $3::text, $4::int) w;
