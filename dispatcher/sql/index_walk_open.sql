-- Begins a walk over a table, or finds where it stands.
-- Parameters: $1 int subscription, $2 bigint seq of the event, $3 text name. Rows: 1: phase, mark, after_key, refused, the first
-- of these.
-- Locks: the index_walks row. Index: index_walks_pkey.
select w.phase, w.mark, w.after_key, w.refused, w.refused_rows[1]
  from rowbell.index_walk_open($1::int, $2::bigint, $3::text) w;
