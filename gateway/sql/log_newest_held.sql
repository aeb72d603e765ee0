-- After the log lost entries that this gateway has: the newest of its positions that the log still holds.
-- Parameters: $1 stream, $2 positions (bigint[], at most the ring's size). Rows: one, NULL if it holds none.
-- Locks: none. Index: stream_log_pkey, one probe a position, index only.
select max(p.position)
  from unnest($2::bigint[]) as p (position)
 where (select l.position from rowbell.stream_log l where l.stream_id = $1::int and l.position >= p.position
         order by l.position limit 1) = p.position;
