-- Every subscription with its open work. Rows: one each, by name; counts stop at 100,000. Locks: none.
select h.name, h.id, h.kind, h.state, h.types, h.scope, s.settings ->> 'url' as url, h.jobs_open as open,
       h.jobs_waiting as waiting, h.jobs_held as held, h.jobs_poisoned as poisoned
  from rowbell.subscription_health h join rowbell.subscriptions s on s.id = h.id
 order by h.name;
