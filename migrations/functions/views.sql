-- What people and metrics look at. Counts stop at 100,000, so that looking never costs more than that.

create or replace view rowbell.job_states as
  select j.subscription_id, j.event_seq, case when j.lease_until > now() then 'running' else 'ready' end as state,
         null::timestamptz as run_at, j.lease_until, j.attempts, null::text as last_class
    from rowbell.jobs j
  union all
  select w.subscription_id, w.event_seq, w.state, w.run_at, null, w.attempts, w.last_class from rowbell.jobs_waiting w;

create or replace view rowbell.status as
  select (select count(*) from (select from rowbell.events e where e.fanned_out_at is null and e.poisoned_at is null
                                   and e.retry_at is null limit 100000) as few) as events_pending,
         (select extract(epoch from now() - e.occurred_at)::float8 from rowbell.events e where e.fanned_out_at is null
             and e.poisoned_at is null and e.retry_at is null order by e.seq limit 1) as events_oldest_age_seconds,
         (select count(*) from (select from rowbell.events_set_aside a where a.retry_at is not null limit 100000) as few)
           as events_retrying,
         (select count(*) from (select from rowbell.events_set_aside a where a.retry_at is null limit 100000) as few)
           as events_poisoned,
         (select count(*) from (select from rowbell.jobs limit 100000) as few) as jobs_open,
         (select count(*) from (select from rowbell.jobs_waiting w where w.state = 'waiting' limit 100000) as few) as jobs_waiting,
         (select count(*) from (select from rowbell.jobs_waiting w where w.state = 'held' limit 100000) as few) as jobs_held,
         (select count(*) from (select from rowbell.jobs_waiting w where w.state = 'poisoned' limit 100000) as few) as jobs_poisoned,
         (select max(l.position) from rowbell.stream_log l where l.stream_id = 1) as stream_position;

create or replace view rowbell.subscription_health as
  select s.id, s.name, s.kind, s.state, s.types, s.scope, st.failing_since, st.last_success_at, st.last_failure_at, st.last_error,
         (select count(*) from (select from rowbell.jobs j where j.subscription_id = s.id limit 100000) as few) as jobs_open,
         (select count(*) from (select from rowbell.jobs_waiting w where w.subscription_id = s.id and w.state = 'waiting'
                                 limit 100000) as few) as jobs_waiting,
         (select count(*) from (select from rowbell.jobs_waiting w where w.subscription_id = s.id and w.state = 'held'
                                 limit 100000) as few) as jobs_held,
         (select count(*) from (select from rowbell.jobs_waiting w where w.subscription_id = s.id and w.state = 'poisoned'
                                 limit 100000) as few) as jobs_poisoned,
         s.owner, s.condition, s.ordered, s."coalesce", s.created_at,
         -- The values of headers may be credentials.
         s.settings
           || case when s.settings ? 'headers' then jsonb_build_object('headers',
                (select jsonb_object_agg(k.name, '...') from jsonb_object_keys(s.settings -> 'headers') as k(name))) else '{}' end
           || case when s.settings ? 'client_key' then '{"client_key": "..."}'::jsonb else '{}' end as settings
    from rowbell.subscriptions s left join rowbell.subscription_state st on st.subscription_id = s.id;

-- The settings of a subscription: all for who may read the column, else as the view shows them. It runs with the rights of who calls it,
-- as rowbell.subscription_secrets does.
create or replace function rowbell.subscription_settings(name text) returns jsonb
language plpgsql stable security invoker set search_path = pg_catalog, pg_temp as $$
begin
  if has_column_privilege('rowbell.subscriptions', 'settings', 'select') then
    return (select s.settings from rowbell.subscriptions s where s.name = subscription_settings.name);
  end if;
  return (select h.settings from rowbell.subscription_health h where h.name = subscription_settings.name);
end $$;
