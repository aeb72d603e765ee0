-- One subscription in full, but for its secrets, of which it says how they are stored, and the values of its headers, which may be
-- credentials. $1 name. One row or none. Locks: none. Index: subscriptions_name_key.
select h.name, h.id, h.kind, h.state, h.types, h.scope, s.ordered, s."coalesce",
       s.settings
         || case when s.settings ? 'headers' then jsonb_build_object('headers',
              (select jsonb_object_agg(k.name, '...') from jsonb_object_keys(s.settings -> 'headers') as k(name))) else '{}' end
         || case when s.settings ? 'client_key' then '{"client_key": "..."}'::jsonb else '{}' end as settings,
       s.created_at,
       (select string_agg(case when c.key_id is null then 'plain' else 'sealed under ' || c.key_id end
                          || coalesce(' until ' || to_char(c.ends_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), ''), ', ')
          from rowbell.subscription_secrets(s.name) as c) as signs_with,
       h.jobs_open as open, h.jobs_waiting as waiting, h.jobs_held as held, h.jobs_poisoned as poisoned,
       h.last_success_at, h.last_failure_at, h.failing_since, h.last_error
  from rowbell.subscription_health h join rowbell.subscriptions s on s.id = h.id
 where h.name = $1;
