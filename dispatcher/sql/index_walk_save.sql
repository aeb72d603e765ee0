-- Notes how far a walk came.
-- Parameters: $1 int subscription, $2 text name, $3 bigint its mark, $4 text phase, $5 text last key, $6 bigint rows done,
-- $7 text[] rows of this step that are in no document. Rows: 1. Locks: the index_walks row. Index: index_walks_pkey.
select w.phase
  from rowbell.index_walk_save($1::int, $2::text, $3::bigint, $4::text, $5::text, $6::bigint, $7::text[]) w;
