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
  -- Whoever declares or publishes a type has each of them looked at.
  if cardinality(types) > 1000 then
    raise exception 'rowbell: a subscription has at most 1000 types, not %', cardinality(types) using errcode = 'program_limit_exceeded',
      hint = 'Patterns such as posts.* stand for many types.';
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

-- What a webhook's settings may be, url among them: refused here is what the dispatcher would refuse (dispatcher/
-- sink_webhook.h, common/webhook_header.c). NULL when good, else what is wrong.
create or replace function rowbell.webhook_settings_problem(settings jsonb) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  url text := settings ->> 'url';
  option text;
  header record;
begin
  select k into option from jsonb_object_keys(settings) as k
   where k <> all (array['url', 'allow_http', 'retry', 'deadline_ms', 'max_in_flight', 'rate', 'resume_rate', 'headers', 'signature',
                         'statuses', 'ca', 'client_certificate', 'client_key']) limit 1;
  if found then
    return format('there is no option %L: options are url, allow_http, retry, deadline_ms, max_in_flight, rate, headers, signature, '
                  'statuses, ca, client_certificate, client_key; ordered, condition, secret', option);
  end if;

  if jsonb_typeof(settings -> 'url') is distinct from 'string' or rowbell.url_problem(url) is not null then
    return format('%s is not a URL for a webhook: %s', coalesce(quote_literal(left(url, 200)), 'NULL'), rowbell.url_problem(url));
  end if;
  if jsonb_typeof(settings -> 'allow_http') <> 'boolean' then
    return 'allow_http must be true or false';
  end if;
  if url ~* '^http:' and not coalesce((settings ->> 'allow_http')::boolean, false) then
    return format('%L is not https: allow it for this endpoint with the option allow_http', left(url, 200));
  end if;

  if settings ? 'retry' and not (case
       when jsonb_typeof(settings -> 'retry') <> 'array' then false
       else jsonb_array_length(settings -> 'retry') <= 50
            and not exists (select from jsonb_array_elements(settings -> 'retry') as d
                             where case when jsonb_typeof(d) = 'number' then d::numeric not between 0 and 604800000 or d::numeric % 1 <> 0
                                        else true end) end) then
    return 'retry must be an array of at most 50 delays, 0 to 604800000 ms';
  end if;
  if settings ? 'deadline_ms' and not (case
       when jsonb_typeof(settings -> 'deadline_ms') <> 'number' then false
       else (settings ->> 'deadline_ms')::numeric between 100 and 20000 and (settings ->> 'deadline_ms')::numeric % 1 = 0 end) then
    return 'deadline_ms must be 100 to 20000';
  end if;
  if settings ? 'max_in_flight' and not (case
       when jsonb_typeof(settings -> 'max_in_flight') <> 'number' then false
       else (settings ->> 'max_in_flight')::numeric between 1 and 64 and (settings ->> 'max_in_flight')::numeric % 1 = 0 end) then
    return 'max_in_flight must be 1 to 64';
  end if;
  if exists (select from unnest(array['rate', 'resume_rate']) as k
              where settings ? k
                and not case when jsonb_typeof(settings -> k) <> 'number' then false
                             else (settings ->> k)::numeric between 0.0001 and 100000 end) then
    return 'rate must be 0.0001 to 100000 a second';
  end if;
  if settings ? 'signature' and (settings ->> 'signature' in ('standard', 'timestamp', 'body')) is not true then
    return 'signature must be standard, timestamp or body';
  end if;

  if settings ? 'headers' then
    if jsonb_typeof(settings -> 'headers') <> 'object' then
      return 'headers must be an object of texts';
    end if;
    if (select count(*) from jsonb_object_keys(settings -> 'headers')) > 32 then
      return 'headers: at most 32';
    end if;
    -- The rule of common/webhook_header.c. A value is never quoted: it may be a credential.
    for header in select h.key as name, h.value, h.value #>> '{}' as text from jsonb_each(settings -> 'headers') as h loop
      if header.name !~ '^[!#$%&''*+.^_`|~0-9A-Za-z-]+$' then
        return format('headers: %s is not a header name', quote_literal(left(header.name, 60)));
      end if;
      if lower(header.name) ~ '^(webhook-|proxy-)' or lower(header.name) = any (array[
           'accept-encoding', 'connection', 'content-encoding', 'content-length', 'content-type', 'expect', 'host', 'keep-alive', 'te',
           'trailer', 'transfer-encoding', 'upgrade', 'user-agent', 'x-hub-signature-256']) then
        return format('headers: %s is reserved', left(header.name, 60));
      end if;
      if jsonb_typeof(header.value) <> 'string' then
        return format('headers: the value of %s must be a text', left(header.name, 60));
      end if;
      if header.text ~ '[^\t -~]' then
        return format('headers: %s has a line break, control or non-ASCII character', left(header.name, 60));
      end if;
      if length(header.name) + length(header.text) > 2048 then
        return format('headers: %s is longer than 2048 bytes', left(header.name, 60));
      end if;
    end loop;
  end if;

  if settings ? 'statuses' then
    if jsonb_typeof(settings -> 'statuses') <> 'object' or (select count(*) from jsonb_object_keys(settings -> 'statuses')) > 50 then
      return 'statuses must be an object of at most 50, such as {"404": "retry", "4xx": "reject"}';
    end if;
    select s.key into option from jsonb_each_text(settings -> 'statuses') as s
     where s.key !~ '^[2-5](xx|[0-9][0-9])$' or (s.value in ('delivered', 'retry', 'reject', 'disable')) is not true limit 1;
    if found then
      return format('statuses: %L: a status (404) or a class of them (4xx) is delivered, retry, reject or disable', left(option, 60));
    end if;
  end if;

  if exists (select from unnest(array['ca', 'client_certificate']) as k
              where settings ? k
                and (jsonb_typeof(settings -> k) <> 'string' or length(settings ->> k) > 65536
                     or settings ->> k !~ '-----BEGIN CERTIFICATE-----')) then
    return 'ca and client_certificate must be certificates in PEM, at most 65536 bytes';
  end if;
  if (settings ? 'client_certificate') <> (settings ? 'client_key') then
    return 'client_certificate and client_key need each other';
  end if;
  if settings ? 'client_key' and (settings ->> 'client_key' ~ '^sealed:[12]:[0-9a-f]{16}:[A-Za-z0-9+/]+=*$') is not true then
    return 'client_key must be sealed: rowbell subscription set does it, with ROWBELL_SECRET_KEY set';
  end if;
  if url ~* '^http:' and (settings ? 'ca' or settings ? 'client_certificate') then
    return 'ca and client_certificate mean nothing without https';
  end if;
  return null;
end $$;

-- A secret as it is stored, for a style of signature. NULL when good, else what is wrong; the secret is never quoted.
create or replace function rowbell.secret_problem(secret text, signature text) returns text
language sql immutable set search_path = pg_catalog, pg_temp
return case
  when secret ~ '^sealed:[12]:[0-9a-f]{16}:[A-Za-z0-9+/]+=*$' and length(secret) <= 16384 then null
  when secret !~ '^plain:.' or length(secret) > 518 then
    'a secret is stored as plain:... (at most 512 characters) or sealed:2:...'
  when signature <> 'standard' then null
  when secret !~ '^plain:(whsec|whsk)_[A-Za-z0-9+/]+=*$' or length(secret) not between 38 and 101 then
    'a secret of the standard signature is whsec_ and the base64 of 24 to 64 bytes, or whsk_ and that of an Ed25519 key'
end;

create or replace function rowbell.new_secret() returns text
language sql volatile set search_path = pg_catalog, pg_temp
return 'whsec_' || encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())
                                 || uuid_send(gen_random_uuid())), 'base64');

-- Adds an endpoint, which belongs to the caller. The secret is shown once, here; NULL when the options brought it. scope: only events of
-- this scope; all_scopes: of every scope (rowbell.subscription_scope says who must give which). options: allow_http (boolean), retry
-- (array of ms), deadline_ms, max_in_flight, rate (a second), headers (object), signature (standard, timestamp, body), statuses (object:
-- status or 4xx to delivered, retry, reject or disable), ca (PEM), ordered (boolean), condition (jsonpath on the event's data), secret
-- (plain:...). What is sealed comes once the subscription is there to be sealed for: rotate_secret, and set_webhook (client_key).
drop function if exists rowbell.add_webhook(text, text, text[], text, jsonb);   -- had no all_scopes
create or replace function rowbell.add_webhook(name text, url text, types text[], scope text default null,
                                              options jsonb default '{}', all_scopes boolean default false)
returns table (subscription_id int, secret text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  answer jsonb;
begin
  insert into rowbell.calls (name, arguments)
    values ('add_webhook', jsonb_build_object('name', name, 'url', url, 'types', types, 'scope', scope, 'options', options,
                                              'all_scopes', all_scopes)) returning result into answer;
  subscription_id := answer ->> 'subscription_id';
  secret := answer ->> 'secret';
  return next;
end $$;

create or replace function rowbell.add_webhook_as(caller name, arguments jsonb) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  name     constant text := arguments ->> 'name';
  types    constant text[] := rowbell.call_texts(arguments, 'types');
  options  jsonb := coalesce(nullif(arguments -> 'options', 'null'), '{}');
  settings jsonb;
  problem  text;
  secret   text;
  added    int;
begin
  if jsonb_typeof(options) <> 'object' then
    raise exception 'rowbell.add_webhook: options must be a JSON object' using errcode = 'invalid_parameter_value';
  end if;
  options := jsonb_strip_nulls(options);
  settings := options - 'ordered' - 'condition' - 'secret' || jsonb_strip_nulls(jsonb_build_object('url', arguments -> 'url'));
  problem := case
    when options ? 'url' then 'there is no option ''url'': it is an argument'
    when jsonb_typeof(options -> 'ordered') <> 'boolean' then 'ordered must be true or false'
    when options ->> 'secret' like 'sealed:%' then 'a sealed secret is given to rotate_secret, sealed for the subscription (rowbell.seal_place)'
    when options ? 'client_key' then 'client_key is given to set_webhook, sealed for the subscription (rowbell.seal_place)'
    when options ? 'secret' then rowbell.secret_problem(options ->> 'secret', coalesce(options ->> 'signature', 'standard')) end;
  problem := coalesce(problem, rowbell.webhook_settings_problem(settings));
  if problem is not null then
    raise exception 'rowbell.add_webhook: %', problem using errcode = 'invalid_parameter_value';
  end if;
  perform rowbell.subscription_types_check(types, 'webhook');
  perform rowbell.owner_limit_check(caller);
  secret := case when not options ? 'secret' then rowbell.new_secret() end;
  insert into rowbell.subscriptions as s (name, kind, types, scope, condition, ordered, settings, secrets, owner)
    values (name, 'webhook', types, rowbell.subscription_scope(caller, arguments ->> 'scope', (arguments ->> 'all_scopes')::boolean),
            rowbell.condition_check(options ->> 'condition'), coalesce((options ->> 'ordered')::boolean, false), settings,
            array[coalesce(options ->> 'secret', 'plain:' || secret)], caller)
    returning s.id into added;
  insert into rowbell.subscription_state (subscription_id) values (added);
  return jsonb_build_object('subscription_id', added, 'secret', secret);
exception
  when unique_violation then
    raise exception 'rowbell.add_webhook: there is a subscription named % already', quote_literal(name)
      using errcode = 'duplicate_object';
  when check_violation then
    raise exception 'rowbell.add_webhook: % cannot be a name: letters, digits, . _ -, at most 100', coalesce(quote_literal(left(name, 200)), 'NULL')
      using errcode = 'invalid_parameter_value';
end $$;

-- Changes an endpoint of the caller's: the options of add_webhook but secret, and url, types (array), scope, all_scopes (true: of every
-- scope). NULL takes a setting back to what it is without it. Deliveries that begin after the commit follow it. False: the caller has
-- no webhook of this name.
create or replace function rowbell.set_webhook(name text, changes jsonb) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  answer jsonb;
begin
  insert into rowbell.calls (name, arguments)
    values ('set_webhook', jsonb_build_object('name', name, 'changes', changes)) returning result into answer;
  return answer::boolean;
end $$;

create or replace function rowbell.set_webhook_as(caller name, arguments jsonb) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  changes      constant jsonb := arguments -> 'changes';
  found_row    rowbell.subscriptions;
  new_types    text[];
  new_scope    text;
  new_settings jsonb;
  problem      text;
begin
  if jsonb_typeof(changes) is distinct from 'object' then
    raise exception 'rowbell.set_webhook: changes must be a JSON object' using errcode = 'invalid_parameter_value';
  end if;
  found_row := rowbell.subscription_find(caller, arguments ->> 'name', true);
  if found_row.kind is distinct from 'webhook' then
    return to_jsonb(false);
  end if;
  new_types := found_row.types;
  new_scope := found_row.scope;
  new_settings := jsonb_strip_nulls(found_row.settings || (changes - 'types' - 'scope' - 'all_scopes' - 'ordered' - 'condition'));
  problem := case
    when changes ? 'secret' then 'a secret is changed by rotate_secret'
    when changes ? 'types' and jsonb_typeof(changes -> 'types') <> 'array' then 'types must be an array of texts'
    when changes ? 'scope' and jsonb_typeof(changes -> 'scope') not in ('string', 'null') then 'scope must be a text'
    when changes ? 'all_scopes' and changes -> 'all_scopes' <> 'true' then 'all_scopes must be true: name the scope instead'
    when changes ? 'ordered' and jsonb_typeof(changes -> 'ordered') not in ('boolean', 'null') then 'ordered must be true or false' end;
  if problem is null and changes ? 'types' then
    new_types := rowbell.call_texts(changes, 'types');
    perform rowbell.subscription_types_check(new_types, 'webhook');
  end if;
  if problem is null and changes ?| '{scope,all_scopes}' then
    new_scope := rowbell.subscription_scope(caller, changes ->> 'scope', (changes ->> 'all_scopes')::boolean);
  end if;
  problem := coalesce(problem, rowbell.given_form_problem(changes ->> 'client_key'), rowbell.webhook_settings_problem(new_settings),
                      rowbell.redirect_problem(found_row.settings, new_settings, changes));
  -- The secrets were made for the style of before.
  if problem is null and coalesce(new_settings ->> 'signature', 'standard') = 'standard' then
    select rowbell.secret_problem(form, 'standard') into problem
      from unnest(found_row.secrets) as stored, regexp_replace(stored, '^until=[0-9]+;', '') as form
     where rowbell.secret_problem(form, 'standard') is not null limit 1;
  end if;
  if problem is not null then
    raise exception 'rowbell.set_webhook: %', problem using errcode = 'invalid_parameter_value';
  end if;
  update rowbell.subscriptions s
     set types = new_types, scope = new_scope,
         condition = case when changes ? 'condition' then rowbell.condition_check(changes ->> 'condition') else s.condition end,
         ordered = case when changes ? 'ordered' then coalesce((changes ->> 'ordered')::boolean, false) else s.ordered end,
         settings = new_settings
   where s.id = found_row.id;
  return to_jsonb(true);
end $$;

-- A new secret signs from now on, the old ones beside it until the grace ends (0 to 7 days), and then no more. Returns the new one,
-- which is shown once, here; NULL when the caller brought it (secret: plain:..., or sealed:2:... for this subscription). An index has one
-- authorization, which the caller brings; the old one is of no more use.
create or replace function rowbell.rotate_secret(name text, grace interval default '24 hours', secret text default null) returns text
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  answer jsonb;
begin
  insert into rowbell.calls (name, arguments)
    values ('rotate_secret', jsonb_build_object('name', name, 'grace_s', extract(epoch from grace), 'secret', secret)) returning result into answer;
  return answer #>> '{}';
end $$;

create or replace function rowbell.rotate_secret_as(caller name, arguments jsonb) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  name       constant text := arguments ->> 'name';
  grace_s    numeric := arguments ->> 'grace_s';
  secret     constant text := arguments ->> 'secret';
  found_row  rowbell.subscriptions;
  new_secret text;
  new_end_s  bigint;
  kept       text[];
  problem    text;
begin
  if grace_s is null or grace_s not between 0 and 604800 then
    raise exception 'rowbell.rotate_secret: the grace must be 0 to 7 days' using errcode = 'invalid_parameter_value';
  end if;
  new_end_s := ceil(extract(epoch from clock_timestamp()) + grace_s);
  found_row := rowbell.subscription_find(caller, name, true);
  if found_row.id is null or found_row.kind = 'sse' or found_row.settings ->> 'target' = 'postgres' then
    raise exception 'rowbell.rotate_secret: there is no webhook or index of a search engine named %', coalesce(quote_literal(name), 'NULL')
      using errcode = 'undefined_object';
  end if;
  if found_row.kind = 'index' then
    if secret is null then
      raise exception 'rowbell.rotate_secret: an index needs the authorization itself' using errcode = 'invalid_parameter_value';
    end if;
    grace_s := 0;
  end if;
  if secret is null then
    new_secret := rowbell.new_secret();
  else
    problem := coalesce(rowbell.given_form_problem(secret), rowbell.secret_problem(secret,
                 case found_row.kind when 'index' then 'authorization' else coalesce(found_row.settings ->> 'signature', 'standard') end));
    if problem is not null then
      raise exception 'rowbell.rotate_secret: %', problem using errcode = 'invalid_parameter_value';
    end if;
  end if;
  -- A second rotation never lengthens the life of a secret whose end is set.
  select array_agg(format('until=%s;%s', least(new_end_s, o.end_s), o.form) order by o.place) into kept
    from (select u.place, regexp_replace(u.stored, '^until=[0-9]+;', '') as form, (substring(u.stored from '^until=([0-9]+);'))::bigint as end_s
            from unnest(found_row.secrets) with ordinality as u (stored, place)) as o
   where grace_s > 0 and (o.end_s is null or o.end_s > extract(epoch from clock_timestamp()));
  if cardinality(kept) > 7 then
    raise exception 'rowbell.rotate_secret: % has 8 secrets that sign still', quote_literal(name)
      using errcode = 'object_not_in_prerequisite_state', hint = 'Wait for the end of their grace, or rotate with a grace of 0.';
  end if;
  update rowbell.subscriptions s set secrets = coalesce(secret, 'plain:' || new_secret) || coalesce(kept, '{}')
   where s.id = found_row.id;
  return to_jsonb(new_secret);
end $$;

-- One stored secret, taken apart.
create or replace function rowbell.secret_parts(stored text) returns table (ends_at timestamptz, key_id text, form text)
language sql immutable
begin atomic
  select to_timestamp((substring(stored from '^until=([0-9]+);'))::bigint), substring(o.form from '^sealed:[12]:([0-9a-f]{16}):'), o.form
    from regexp_replace(stored, '^until=[0-9]+;', '') as o (form);
end;

-- The secrets of a webhook, newest first, for who may not read the column: the sealed ones, which are of no use without
-- ROWBELL_SECRET_KEY. form NULL: not for you. It gives nobody more, so it asks nobody's name.
create or replace function rowbell.subscription_sealed_secrets(name text) returns table (ends_at timestamptz, key_id text, form text)
language sql stable security definer set search_path = pg_catalog, pg_temp
begin atomic
  select o.ends_at, o.key_id, case when o.form like 'sealed:%' then o.form end
    from rowbell.subscriptions s
   cross join unnest(s.secrets) with ordinality as u (stored, place)
   cross join rowbell.secret_parts(u.stored) as o
   where s.name = subscription_sealed_secrets.name
   order by u.place;
end;

-- The secrets of a webhook as they are stored, newest first: all for who may read the column, else as above. It runs with the rights of
-- who calls it, and the column is read with these rights: PostgreSQL decides, by current_user, which SET ROLE and the functions in
-- between do change. (session_user they do not: a superuser who runs somebody's definer function would lend it their eyes.)
create or replace function rowbell.subscription_secrets(name text) returns table (ends_at timestamptz, key_id text, form text)
language plpgsql stable security invoker set search_path = pg_catalog, pg_temp as $$
begin
  if has_column_privilege('rowbell.subscriptions', 'secrets', 'select') then
    return query select o.ends_at, o.key_id, o.form
                   from rowbell.subscriptions s
                  cross join unnest(s.secrets) with ordinality as u (stored, place)
                  cross join rowbell.secret_parts(u.stored) as o
                  where s.name = subscription_secrets.name
                  order by u.place;
  else
    return query select s.ends_at, s.key_id, s.form from rowbell.subscription_sealed_secrets(name) as s;
  end if;
end $$;

-- Removes a subscription of the caller's and its jobs. False: there is none of this name.
create or replace function rowbell.remove_subscription(name text) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  answer jsonb;
begin
  insert into rowbell.calls (name, arguments)
    values ('remove_subscription', jsonb_build_object('name', name)) returning result into answer;
  return answer::boolean;
end $$;

create or replace function rowbell.remove_subscription_as(caller name, arguments jsonb) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  found_row constant rowbell.subscriptions := rowbell.subscription_find(caller, arguments ->> 'name', true);
begin
  if found_row.id is null then
    return to_jsonb(false);
  end if;
  if exists (select from rowbell.streams st where st.subscription_id = found_row.id) then
    raise exception 'rowbell.remove_subscription: % feeds the stream', quote_literal(found_row.name)
      using errcode = 'object_in_use', hint = 'Pause it instead.';
  end if;
  -- A walk has its row before it writes a document, for which PostgreSQL locks the subscription; so this has it first, too.
  delete from rowbell.index_walks w where w.subscription_id = found_row.id;
  delete from rowbell.subscriptions s where s.id = found_row.id;
  -- What is being sent goes when its attempt ends, or with the orphans: the dispatcher, which ends it with jobs of others, would wait for
  -- this transaction.
  delete from rowbell.jobs j
   where j.ctid = any (array(select k.ctid from rowbell.jobs k
                              where k.subscription_id = found_row.id and (k.lease_until is null or k.lease_until < now()) for update skip locked));
  delete from rowbell.jobs_waiting j where j.subscription_id = found_row.id;
  return to_jsonb(true);
end $$;

-- active | paused, of a subscription of the caller's. A paused subscription's jobs are held, visible in jobs_waiting. When it is active
-- again the dispatcher that owns it lets them go, at settings.resume_rate a second if there is one; a stream has no owner, and its jobs
-- go at once. False: there is none of this name.
create or replace function rowbell.set_subscription_state(name text, state text) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  answer jsonb;
begin
  insert into rowbell.calls (name, arguments)
    values ('set_subscription_state', jsonb_build_object('name', name, 'state', state)) returning result into answer;
  return answer::boolean;
end $$;

create or replace function rowbell.set_subscription_state_as(caller name, arguments jsonb) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  new_state constant text := arguments ->> 'state';
  changed   rowbell.subscriptions;
begin
  if new_state is null or new_state not in ('active', 'paused') then
    raise exception 'rowbell.set_subscription_state: % is not active or paused', coalesce(quote_literal(new_state), 'NULL')
      using errcode = 'invalid_parameter_value';
  end if;
  changed := rowbell.subscription_find(caller, arguments ->> 'name', true);
  if changed.id is null then
    return to_jsonb(false);
  end if;
  update rowbell.subscriptions s set state = new_state where s.id = changed.id;
  if new_state = 'active' then
    -- The days without a success begin anew.
    update rowbell.subscription_state h set failing_since = null, not_before = null where h.subscription_id = changed.id;
    if changed.kind = 'sse' then
      with released as (
        delete from rowbell.jobs_waiting w where w.subscription_id = changed.id and w.state = 'held' returning w.*)
      insert into rowbell.jobs (subscription_id, event_seq, attempts)
        select r.subscription_id, r.event_seq, r.attempts from released r order by r.event_seq on conflict do nothing;
    end if;
    perform rowbell.notify('rowbell_jobs', changed.kind || ' ' || (changed.id % 64) || ' 0');
  else
    perform rowbell.hold_jobs(changed.id);
  end if;
  return to_jsonb(true);
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
    insert into rowbell.jobs_waiting (subscription_id, event_seq, state, attempts, uncounted, subject)
      select t.subscription_id, t.event_seq, 'held', t.attempts, t.uncounted,
             case when s.ordered then (select e.subject from rowbell.events e where e.seq = t.event_seq) end
        from taken t join rowbell.subscriptions s on s.id = t.subscription_id
      on conflict do nothing returning 1)
  select count(*) from held;
end;
