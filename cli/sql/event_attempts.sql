-- Every request that was made for an event. $1 seq. Rows: in the order of time. Locks: none. Index: attempts_event.
select coalesce(s.name, '#' || a.subscription_id) as subscription, a.attempt, a.manual, a.started_at, a.class, a.status,
       round(a.total_ms::numeric, 1) as total_ms, a.peer, a.response_head
  from rowbell.attempts a left join rowbell.subscriptions s on s.id = a.subscription_id
 where a.event_seq = $1::bigint
 order by a.started_at, a.subscription_id, a.attempt;
