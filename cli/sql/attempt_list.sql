-- The latest requests that were made. $1 limit, $2 class or NULL, $3 subscription or NULL. Rows: newest first. Locks: none. Index:
-- attempts_started.
select l.subscription, l.seq, l.attempt, l.manual, l.started_at, l.class, l.status, l.total_ms, l.peer
  from rowbell.attempt_log($3::text, $2::text, $1::int) l;
