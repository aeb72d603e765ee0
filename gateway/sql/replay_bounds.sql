-- Not a statement: what replay.sql and replay_scoped.sql must know of the log. $1 stream, $2 the client's position, $3 the gateway's
-- head. Probes, since min, max and exists may be a walk over all of it: docs/decisions/0006.
  select coalesce((select position from rowbell.stream_log where stream_id = $1::int and position >= $2::bigint
                    order by position limit 1) = $2::bigint, false) as holds,
         (select position from rowbell.stream_log where stream_id = $1::int order by position limit 1) as oldest,
         (select position from rowbell.stream_log where stream_id = $1::int order by position desc limit 1) as newest,
         coalesce((select position from rowbell.stream_log where stream_id = $1::int and position >= $3::bigint
                    order by position limit 1) = $3::bigint, false) as holds_head
