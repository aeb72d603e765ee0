-- The latest requests that were made. $1 limit, $2 class or NULL, $3 subscription or NULL. Rows: newest event first, among the
-- newest 100,000 attempts, so that a rare one costs no scan of all. Locks: none. Index: attempts_event, backward.
select coalesce(s.name, '#' || a.subscription_id) as subscription, a.event_seq as seq, a.attempt, a.manual, a.started_at, a.class,
       a.status, round(a.total_ms::numeric, 1) as total_ms, a.peer
  from (select * from rowbell.attempts order by event_seq desc, subscription_id desc limit 100000) a
  left join rowbell.subscriptions s on s.id = a.subscription_id
 where ($2::text is null or a.class = $2) and ($3::text is null or s.name = $3)
 order by a.event_seq desc, a.subscription_id desc, a.attempt desc limit $1::bigint;
