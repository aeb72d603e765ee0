-- One subscription in full, but for its secrets, of which it says how they are stored, and the values of its headers, which may be
-- credentials. $1 name. One row or none. Locks: none. Index: subscriptions_name_key.
select h.name, h.id, h.kind, h.state, h.types, h.scope, h.owner, h.ordered, h."coalesce", h.settings, h.created_at,
       (select string_agg(case when c.key_id is null then 'plain' else 'sealed under ' || c.key_id end
                          || coalesce(' until ' || to_char(c.ends_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), ''), ', ')
          from rowbell.subscription_secrets(h.name) as c) as signs_with,
       h.jobs_open as open, h.jobs_waiting as waiting, h.jobs_held as held, h.jobs_poisoned as poisoned,
       h.last_success_at, h.last_failure_at, h.failing_since, h.last_error
  from rowbell.subscription_health h
 where h.name = $1;
