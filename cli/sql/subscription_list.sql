-- Every subscription with its open work. Rows: one each, by name; counts stop at 100,000; oldest_seconds: the age of the oldest
-- event that is ready or running. Locks: none.
select h.name, h.id, h.kind, h.state, h.types, h.scope, h.owner, h.settings ->> 'url' as url, h.jobs_open as open,
       (select round(extract(epoch from now() - o.occurred_at))::int
          from (select (select e.occurred_at from rowbell.events e where e.seq = j.event_seq limit 1) as occurred_at
                  from rowbell.jobs j where j.subscription_id = h.id order by j.event_seq limit 1) o) as oldest_seconds,
       h.jobs_waiting as waiting, h.jobs_held as held, h.jobs_poisoned as poisoned
  from rowbell.subscription_health h
 order by h.name;
