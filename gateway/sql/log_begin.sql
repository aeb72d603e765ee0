-- Where a gateway starts that wants the newest $2 entries in its ring: the position right before them.
-- Parameters: $1 stream, $2 entries. Rows: one (the log is never empty). Locks: none.
-- Index: stream_log_pkey, backwards, $2 + 1 entries, index only.
select coalesce(
  (select position from rowbell.stream_log where stream_id = $1::int order by position desc offset $2::bigint limit 1),
  (select position from rowbell.stream_log where stream_id = $1::int order by position limit 1));
