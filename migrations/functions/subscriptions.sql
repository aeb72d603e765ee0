-- Subscriptions, for the CLI, the console and applications alike.

create or replace function rowbell.subscription_types_check(types text[], kind text) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  refused text;
begin
  if cardinality(types) is null or cardinality(types) = 0 then
    raise exception 'rowbell: a subscription needs at least one type' using errcode = 'invalid_parameter_value',
      hint = 'Types are patterns such as posts.update, posts.*, *.delete or *.';
  end if;
  select p into refused from unnest(types) as p
   where p is null or p !~ '^(\*|\*\.[^\s*]+|[^\s*]+\.\*|[^\s*]+)$' or length(p) > 200 limit 1;
  if found then
    raise exception 'rowbell: % is not a type pattern', coalesce(quote_literal(refused), 'NULL')
      using errcode = 'invalid_parameter_value', hint = 'Patterns are posts.update, posts.*, *.delete or *.';
  end if;
  if kind = 'webhook' then
    select t.type into refused from rowbell.event_types t where t.type = any (types) and not t.webhook limit 1;
    if found then
      raise exception 'rowbell: events of type % may not leave by webhook', quote_literal(refused)
        using errcode = 'insufficient_privilege',
              hint = format('Allow it: rowbell.publish(..., webhook => true) or select rowbell.declare_type(%L, webhook => true).', refused);
    end if;
  end if;
end $$;

-- A condition as a subscription may have it: jsonpath that gives true, false or null for every event.
create or replace function rowbell.condition_check(condition text) returns jsonpath
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  path jsonpath;
begin
  begin
    path := condition::jsonpath;
  exception when others then
    raise exception 'rowbell: the condition is not a jsonpath: %', sqlerrm using errcode = 'invalid_parameter_value',
      hint = 'For example: $.plan == "pro"';
  end;
  -- Without its string literals, a $ before a quote can only be a variable.
  if regexp_replace(path::text, '([^$]|^)"(\\.|[^"\\])*"', '\1', 'g') ~ '\$"' then
    raise exception 'rowbell: the condition uses a $variable; there are none' using errcode = 'invalid_parameter_value',
      hint = 'Only $ (the event''s data) can be used.';
  end if;
  return path;
end $$;

-- One condition on one event, with nothing else in danger: for events that are fanned out alone after their batch failed.
-- NULL: it failed for the data. A fault of the system goes through. 'held': a fault that looks like the system's but is the
-- condition's (an unknown object, an unsupported feature): nobody's poison, so the job is held.
create or replace function rowbell.condition_alone(data jsonb, condition jsonpath) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  return jsonb_path_query_first_tz(data, condition, '{}', true);
exception
  when feature_not_supported or syntax_error_or_access_rule_violation then
    return '"held"';
  when data_exception or integrity_constraint_violation or raise_exception or cardinality_violation then
    return null;
end $$;

-- Adds an endpoint. The secret is shown once, here. options: allow_http (boolean), retry (array of ms), deadline_ms,
-- max_in_flight, headers (object), ordered (boolean), condition (jsonpath on the event's data).
create or replace function rowbell.add_webhook(name text, url text, types text[], scope text default null,
                                              options jsonb default '{}')
returns table (subscription_id int, secret text)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  option text;
  new_secret text := 'whsec_' || encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())
                                              || uuid_send(gen_random_uuid())), 'base64');
begin
  options := coalesce(options, '{}');
  if jsonb_typeof(options) <> 'object' then
    raise exception 'rowbell.add_webhook: options must be a JSON object' using errcode = 'invalid_parameter_value';
  end if;
  for option in select jsonb_object_keys(options) loop
    if option <> all (array['allow_http', 'retry', 'deadline_ms', 'max_in_flight', 'headers', 'ordered', 'condition']) then
      raise exception 'rowbell.add_webhook: there is no option %', quote_literal(option)
        using errcode = 'invalid_parameter_value',
              hint = 'Options are allow_http, retry, deadline_ms, max_in_flight, headers, ordered, condition.';
    end if;
  end loop;
  if not (case
       when options -> 'retry' is null then true
       when jsonb_typeof(options -> 'retry') <> 'array' then false
       else jsonb_array_length(options -> 'retry') <= 50
            and not exists (select from jsonb_array_elements(options -> 'retry') as d
                             where case when jsonb_typeof(d) = 'number' then d::numeric not between 0 and 604800000 else true end)
     end) then
    raise exception 'rowbell.add_webhook: retry must be an array of at most 50 delays, 0 to 604800000 ms'
      using errcode = 'invalid_parameter_value';
  end if;
  if not coalesce(jsonb_typeof(options -> 'deadline_ms') = 'number' and (options ->> 'deadline_ms')::numeric between 100 and 20000, options -> 'deadline_ms' is null) then
    raise exception 'rowbell.add_webhook: deadline_ms must be 100 to 20000' using errcode = 'invalid_parameter_value';
  end if;
  if not coalesce(jsonb_typeof(options -> 'max_in_flight') = 'number' and (options ->> 'max_in_flight')::numeric between 1 and 64, options -> 'max_in_flight' is null) then
    raise exception 'rowbell.add_webhook: max_in_flight must be 1 to 64' using errcode = 'invalid_parameter_value';
  end if;
  if coalesce(length(url), 0) > 2048 or url is null or url !~* '^https?://[^/?#@\s\\]+([/?][^#\s]*)?$' then
    raise exception 'rowbell.add_webhook: % is not a URL for a webhook', coalesce(quote_literal(left(url, 200)), 'NULL')
      using errcode = 'invalid_parameter_value',
            hint = 'Give https://host/path: no user name, no fragment, no white space, at most 2048 characters.';
  end if;
  if url ~* '^http:' and not coalesce((options ->> 'allow_http')::boolean, false) then
    raise exception 'rowbell.add_webhook: % is not https', quote_literal(left(url, 200))
      using errcode = 'invalid_parameter_value', hint = 'Allow it for this endpoint: options {"allow_http": true}.';
  end if;
  perform rowbell.subscription_types_check(types, 'webhook');
  insert into rowbell.subscriptions as s (name, kind, types, scope, condition, ordered, settings, secrets)
    values (name, 'webhook', types, rowbell.scope_of(scope), rowbell.condition_check(options ->> 'condition'),
            coalesce((options ->> 'ordered')::boolean, false), options - 'ordered' - 'condition' || jsonb_build_object('url', url), array['plain:' || new_secret])
    returning s.id into subscription_id;
  insert into rowbell.subscription_state (subscription_id) values (subscription_id);
  secret := new_secret;
  return next;
exception
  when unique_violation then
    raise exception 'rowbell.add_webhook: there is a subscription named % already', quote_literal(name)
      using errcode = 'duplicate_object';
  when check_violation then
    raise exception 'rowbell.add_webhook: % cannot be a name: letters, digits, . _ -, at most 100', coalesce(quote_literal(left(name, 200)), 'NULL')
      using errcode = 'invalid_parameter_value';
end $$;

-- Removes a subscription and its jobs. False: there is none of this name.
create or replace function rowbell.remove_subscription(name text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  removed int;
begin
  if exists (select from rowbell.streams st join rowbell.subscriptions s on s.id = st.subscription_id
              where s.name = remove_subscription.name) then
    raise exception 'rowbell.remove_subscription: % feeds the stream', quote_literal(name)
      using errcode = 'object_in_use', hint = 'Pause it instead.';
  end if;
  delete from rowbell.subscriptions s where s.name = remove_subscription.name returning s.id into removed;
  if removed is null then
    return false;
  end if;
  delete from rowbell.jobs j where j.subscription_id = removed;
  delete from rowbell.jobs_waiting j where j.subscription_id = removed;
  return true;
end $$;

-- active | paused. A paused subscription's jobs are held, visible in jobs_waiting, and come back when it is active again.
create or replace function rowbell.set_subscription_state(name text, state text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  changed int;
begin
  if state is null or state not in ('active', 'paused') then
    raise exception 'rowbell.set_subscription_state: % is not active or paused', coalesce(quote_literal(state), 'NULL')
      using errcode = 'invalid_parameter_value';
  end if;
  update rowbell.subscriptions s set state = set_subscription_state.state
   where s.name = set_subscription_state.name returning s.id into changed;
  if changed is null then
    return false;
  end if;
  if state = 'active' then
    with released as (
      delete from rowbell.jobs_waiting w where w.subscription_id = changed and w.state = 'held' returning w.*)
    insert into rowbell.jobs (subscription_id, event_seq, attempts)
      select r.subscription_id, r.event_seq, r.attempts from released r order by r.event_seq on conflict do nothing;
    perform pg_notify('rowbell_jobs', s.kind || ' ' || (s.id % 64) || ' 0') from rowbell.subscriptions s where s.id = changed;
  else
    perform rowbell.hold_jobs(changed);
  end if;
  return true;
end $$;

-- Moves the jobs that nobody runs now out of the way of claims.
create or replace function rowbell.hold_jobs(subscription int) returns bigint
language sql security definer set search_path = pg_catalog, pg_temp
begin atomic
  with taken as (
    delete from rowbell.jobs j using (
        select k.subscription_id, k.event_seq from rowbell.jobs k
         where k.subscription_id = subscription and (k.lease_until is null or k.lease_until < now())
         order by k.event_seq for update skip locked) as idle
     where j.subscription_id = idle.subscription_id and j.event_seq = idle.event_seq
       and (j.lease_until is null or j.lease_until < now())
    returning j.*),
  held as (
    insert into rowbell.jobs_waiting (subscription_id, event_seq, state, attempts)
      select t.subscription_id, t.event_seq, 'held', t.attempts from taken t on conflict do nothing returning 1)
  select count(*) from held;
end;

-- Puts poisoned events back in line: by seq, or by the time of their poisoning. Returns how many (dry_run: would be).
create or replace function rowbell.requeue_events(ids bigint[] default null, since timestamptz default null,
                                                 until timestamptz default null, dry_run boolean default false)
returns bigint language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  found_count bigint;
begin
  if dry_run then
    select count(*) into found_count from rowbell.events e
     where e.poisoned_at is not null and (ids is null or e.seq = any (ids))
       and (since is null or e.poisoned_at >= since) and (until is null or e.poisoned_at < until);
  else
    update rowbell.events e set poisoned_at = null, fanout_attempts = 0, retry_at = now()
     where e.poisoned_at is not null and (ids is null or e.seq = any (ids))
       and (since is null or e.poisoned_at >= since) and (until is null or e.poisoned_at < until);
    get diagnostics found_count = row_count;
  end if;
  return found_count;
end $$;

-- Puts poisoned and cancelled jobs back in line: by subscription, by the seq of their event, by the event's time.
create or replace function rowbell.requeue_jobs(subscription text default null, ids bigint[] default null,
                                               since timestamptz default null, until timestamptz default null,
                                               dry_run boolean default false)
returns bigint language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  found_count bigint;
begin
  if subscription is not null and not exists (select from rowbell.subscriptions s where s.name = subscription) then
    raise exception 'rowbell.requeue_jobs: there is no subscription named %', quote_literal(subscription)
      using errcode = 'undefined_object';
  end if;
  if dry_run then
    select count(*) into found_count
      from rowbell.jobs_waiting w join rowbell.subscriptions s on s.id = w.subscription_id
      join rowbell.events e on e.seq = w.event_seq
     where w.state in ('poisoned', 'cancelled') and (subscription is null or s.name = subscription)
       and (ids is null or w.event_seq = any (ids))
       and (since is null or e.occurred_at >= since) and (until is null or e.occurred_at < until);
    return found_count;
  end if;
  with chosen as materialized (
    select w.subscription_id, w.event_seq
      from rowbell.jobs_waiting w join rowbell.subscriptions s on s.id = w.subscription_id
      join rowbell.events e on e.seq = w.event_seq
     where w.state in ('poisoned', 'cancelled') and (subscription is null or s.name = subscription)
       and (ids is null or w.event_seq = any (ids))
       and (since is null or e.occurred_at >= since) and (until is null or e.occurred_at < until)
     order by w.subscription_id, w.event_seq for update of w skip locked),
  requeued as (
    update rowbell.jobs_waiting w set state = 'waiting', run_at = now(), attempts = 0
      from chosen c where w.subscription_id = c.subscription_id and w.event_seq = c.event_seq
       and w.state in ('poisoned', 'cancelled')
    returning 1)
  select count(*) into found_count from requeued;
  if found_count > 0 then
    perform pg_notify('rowbell_jobs', 'requeue');
  end if;
  return found_count;
end $$;
