-- One subscription in full, without its secrets. $1 name. One row or none. Locks: none. Index: subscriptions_name_key.
select h.name, h.id, h.kind, h.state, h.types, h.scope, s.ordered, s."coalesce", s.settings, s.created_at,
       h.jobs_open as open, h.jobs_waiting as waiting, h.jobs_held as held, h.jobs_poisoned as poisoned,
       h.last_success_at, h.last_failure_at, h.failing_since, h.last_error
  from rowbell.subscription_health h join rowbell.subscriptions s on s.id = h.id
 where h.name = $1;
