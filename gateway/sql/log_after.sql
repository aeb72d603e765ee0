-- The entries after a position that this gateway has, and whether the log still holds that position.
-- Parameters: $1 stream, $2 position, $3 most rows. Rows: at least one; without entries its columns are NULL. oldest
-- and newest are filled only when the position is not held. Locks: none. Index: stream_log_pkey, at most $3 + 1 rows.
with head as (
  select coalesce((select position from rowbell.stream_log where stream_id = $1::int and position >= $2::bigint
                    order by position limit 1) = $2::bigint, false) as holds
)
select head.holds,
       case when not head.holds then (select position from rowbell.stream_log where stream_id = $1::int order by position limit 1) end,
       case when not head.holds then (select position from rowbell.stream_log where stream_id = $1::int order by position desc limit 1) end,
       entry.position, entry.prev, entry.scope, entry.name, entry.key, entry.op
  from head
  left join lateral (
    select position, prev, scope, name, key, op
      from rowbell.stream_log
     where stream_id = $1::int and position > $2::bigint and head.holds
     order by position
     limit $3::int) entry on true
 order by entry.position;
