-- After the log lost entries that this gateway has: the newest of its positions that the log still holds.
-- Parameters: $1 stream, $2 positions (bigint[], at most the ring's size). Rows: one, NULL if it holds none.
-- Locks: none. Index: stream_log_pkey, one probe a position, index only.
select max(position) from rowbell.stream_log where stream_id = $1::int and position = any ($2::bigint[]);
