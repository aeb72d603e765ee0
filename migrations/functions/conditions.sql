-- Conditions: the jsonpath of a subscription that must be true for an event's data. The relay evaluates them for everybody, so one
-- of them must not take long, whatever the data is.
--
-- A condition is of a subset of jsonpath whose cost is linear in the data: each step of a path goes from a value to values inside of it,
-- and comes to none of them twice. So each path reads the data at most once for each of its steps. jsonpath can do otherwise in these
-- ways, all refused: `.**` (a value and what is inside of it), `[0,0]` (a value twice), `[$.i]`, `$` inside of a filter (everything again
-- for each item), a comparison of two paths (each item with each), like_regex.

-- NULL: the condition is in the subset; else what is wrong with it, and where.
--
-- It reads the canonical text, which PostgreSQL prints and the condition is made again from, so that what is read is what is evaluated.
-- Each token becomes one letter, then the letters are reduced by the grammar until one is left. What is not recognised is refused.
create or replace function rowbell.condition_problem(condition jsonpath) returns text
language plpgsql immutable strict set search_path = pg_catalog, pg_temp set standard_conforming_strings = on as $$
declare
  path_text constant text := condition::text;
  most_characters constant int := 1000;
  most_paths constant int := 16;
  is_strict constant boolean := starts_with(path_text, 'strict ');
  rest text := case when is_strict then substr(path_text, 8) else path_text end;
  token text;
  letter text;
  letters text := '';   -- what was read
  opened text := '';    -- the brackets that are open: ( or ? for that of a filter
  before text;
  paths int := 0;
  root text;
  done text;
begin
  if length(path_text) > most_characters then
    return format('it is longer than %s characters, as PostgreSQL writes it', most_characters);
  end if;
  if path_text::jsonpath::text <> path_text then
    return 'PostgreSQL reads what it writes of it in another way';
  end if;

  while rest <> '' loop
    select t.letter, substring(rest from t.pattern) into letter, token
      from (values (1, 'm', '^\."(?:[^"\\]|\\.)*"'),          -- ."name"
                   (2, 'm', '^\[(?:[0-9]+|last|\*)\]'),       -- [0] [last] [*]
                   (3, 'm', '^\.\*(?!\*)'),                   -- .*
                   (4, 't', '^\.(?:type|size)\(\)'),
                   (5, 's', '^"(?:[^"\\]|\\.)*"'),
                   (6, 'n', '^(?:-?[0-9]+(?:\.[0-9]+)?|true\M|false\M|null\M)'),
                   (7, '=', '^ (?:==|!=|<=|>=|<|>) '),
                   (8, '^', '^ starts with (?=")'),
                   (9, '&', '^ (?:&&|\|\|) '),
                   (10, 'u', '^ is unknown'),
                   (11, '!', '^!(?!=)'),
                   (12, 'e(', '^exists \('),
                   (13, '?(', '^\?\('),
                   (14, '(', '^\('),
                   (15, ')', '^\)'),
                   (16, '$', '^\$(?!")'),
                   (17, '@', '^@')) as t (place, letter, pattern)
     where rest ~ t.pattern order by t.place limit 1;
    if not found then
      return format('at %s: %s', left(ltrim(rest), 30), case
        when rest ~ '^\.\*\*' then '** looks at everything inside of a value, at every depth'
        when rest ~ '^ like_regex' then 'a regular expression may take any time'
        when rest ~ '^ [-+*/%] |^-' then 'there is no arithmetic'
        when rest ~ '^\$"' then 'there are no variables'
        when rest ~ '^\[' then 'an index is one number, last or *'
        when rest ~ '^\.' then 'the only methods are size() and type()'
        else 'this is not allowed' end);
    end if;
    if letter = '$' and strpos(opened, '?') > 0 then
      return format('at %s: $ inside of a filter looks at everything again, for each item; use @', left(rest, 30));
    elsif letter = '?(' and strpos(opened, '?') > 0 then
      return format('at %s: a filter inside of a filter', left(rest, 30));
    end if;
    paths := paths + case when letter in ('$', '@') then 1 else 0 end;
    opened := case when right(letter, 1) = '(' then opened || left(letter, 1)
                   when letter = ')' then left(opened, -1) else opened end;
    -- [*] and .* are told from a step that gives one value, for comparisons of two paths.
    letters := letters || case when letter = 'm' and token in ('[*]', '.*') then 'w' else letter end;
    rest := substr(rest, length(token) + 1);
  end loop;
  if paths > most_paths then
    return format('it has %s paths, more than %s', paths, most_paths);
  end if;

  -- First with @ inside of filters, which become f, then with $.
  foreach root in array array['@', '\$'] loop
    done := case root when '@' then 'F' else 'B' end;
    letters := regexp_replace(letters, 'e\(' || root || '[mwf]*\)', done, 'g');
    letters := regexp_replace(letters, root || '[mwf]*\^s', done, 'g');
    letters := regexp_replace(letters, root || '[mwf]*t?=[sn]|[sn]=' || root || '[mwf]*t?(?![mwft])', done, 'g');
    -- In strict mode an array is not taken apart, so that each side is one value.
    if is_strict then
      letters := regexp_replace(letters, root || 'm*t?=' || root || 'm*t?(?![mwft])', done, 'g');
    end if;
    loop
      before := letters;
      letters := regexp_replace(letters, '\?\(F\)', 'f', 'g');
      letters := regexp_replace(letters, '(^|[^?e])\(' || done || '\)', '\1' || done, 'g');
      letters := regexp_replace(letters, '!' || done || '|' || done || 'u|' || done || '&' || done, done, 'g');
      exit when letters = before;
    end loop;
  end loop;
  return case
    when letters = 'B' or letters ~ '^\$[mwf]*$' then null
    when letters ~ '[$@][mwft]*=[$@]' then
      'it compares two paths, each item of one with each of the other: compare with a value, or write strict and leave out * and filters'
    when letters ~ '[sn]=[sn]' then 'it compares two values, neither of which is of the event'
    else 'it is not made of comparisons, exists and starts with' end;
end $$;

-- A condition as a subscription may have it, from what a person wrote.
create or replace function rowbell.condition_check(condition text) returns jsonpath
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  most_characters constant int := 1000;
  path jsonpath;
  problem text;
begin
  if length(condition) > most_characters then   -- before it is parsed
    raise exception 'rowbell: the condition has % characters, more than %', length(condition), most_characters
      using errcode = 'invalid_parameter_value';
  end if;
  begin
    path := condition::jsonpath;
  exception when others then
    raise exception 'rowbell: the condition is not a jsonpath: %', sqlerrm using errcode = 'invalid_parameter_value',
      hint = 'For example: $.plan == "pro"';
  end;
  problem := rowbell.condition_problem(path);
  if problem is not null then
    raise exception 'rowbell: the condition cannot be used: %', problem using errcode = 'invalid_parameter_value', hint =
      'Allowed: paths such as $.a.b, $.list[*], $.list[0]; == != < <= > >= with a text, number, true, false or null; starts with; '
      'exists($.list[*] ? (@.a == 1)); size(), type(); && || ! and brackets; is unknown.';
  end if;
  return path::text::jsonpath;   -- what was read
end $$;

-- Whoever writes the table, no other condition is stored or comes back into use.
create or replace function rowbell.condition_of_subscription() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if tg_op = 'INSERT' or new.condition::text is distinct from old.condition::text or (new.condition_aside and new.state = 'active') then
    if new.condition is not null then
      perform rowbell.condition_check(new.condition::text);
    end if;
    new.condition_aside := false;
  end if;
  return new;
end $$;
create or replace trigger condition_of_subscription before insert or update of condition, state on rowbell.subscriptions
  for each row execute function rowbell.condition_of_subscription();

-- What a condition sees of an event.
create or replace function rowbell.condition_data(e rowbell.events) returns jsonb
language sql immutable set search_path = pg_catalog, pg_temp
return coalesce(e.data, jsonb_build_object('table', case when e.key is null then e.subject else left(e.subject, -1 - length(e.key)) end,
                                           'key', coalesce(e.key, ''), 'op', e.op));

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

-- A condition of a subscription: a changed one is another.
create or replace function rowbell.condition_key(subscription int, condition jsonpath) returns text
language sql immutable set search_path = pg_catalog, pg_temp
return subscription || ':' || hashtext(condition::text);

-- Tries the conditions that one event meets, of the subscriptions after an id, in their order. Stops at the first that is slow: that
-- takes longer than 100 ms, or is being evaluated when the statement's time is over. Returns that subscription and the key of its
-- condition; slow false: the statement's time is over, but not for this one: begin with it the next time. No row: none was slow.
-- Keys of known: are left out. It is for one who has set statement_timeout.
create or replace function rowbell.condition_examine(event_seq bigint, after_id int, known text[])
returns table (subscription int, condition_key text, slow boolean)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  event_data jsonb;
  one record;
  tried int := 0;
  began timestamptz;
begin
  for one in
    select s.id, s.condition, rowbell.condition_key(s.id, s.condition) as key, e as event
      from rowbell.events e
      join rowbell.routes r on r.type_id = e.type_id and (r.scope is null or r.scope = coalesce(e.scope, '') or e.scope = '*')
      join rowbell.subscriptions s on s.id = r.subscription_id
     where e.seq = condition_examine.event_seq and e.fanned_out_at is null and s.id > after_id
       and s.condition is not null and not s.condition_aside
     order by s.id
  loop
    continue when one.key = any (known);
    -- Read from the disk before the clock starts.
    event_data := coalesce(event_data, jsonb_build_array(rowbell.condition_data(one.event)) -> 0);
    subscription := one.id;
    condition_key := one.key;
    began := clock_timestamp();
    begin
      perform rowbell.condition_alone(event_data, one.condition);
      slow := clock_timestamp() - began > interval '100 ms';
    exception when query_canceled then
      slow := clock_timestamp() - began > interval '100 ms';
      -- Cancelled at once, with all the time for itself: not for this.
      if not slow and tried = 0 then
        raise;
      end if;
      return next;
      return;
    end;
    if slow then
      return next;
      return;
    end if;
    tried := tried + 1;
  end loop;
end $$;

-- Puts a condition aside that a relay found slow, and disables its subscription, with an alert; it is not evaluated any more, and the
-- jobs of events that come now wait for a person. False: somebody holds its row, for whom no relay waits: try again. True as well when
-- it is aside already, or there is no such condition any more.
create or replace function rowbell.condition_put_aside(key text) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  slow rowbell.subscriptions;
begin
  if not exists (select from rowbell.subscriptions s
                  where s.id = split_part(key, ':', 1)::int and not s.condition_aside and rowbell.condition_key(s.id, s.condition) = key) then
    return true;
  end if;
  select s.* into slow from rowbell.subscriptions s
   where s.id = split_part(key, ':', 1)::int and not s.condition_aside and rowbell.condition_key(s.id, s.condition) = key
     for update skip locked;
  if not found then
    return false;
  end if;
  update rowbell.subscriptions s set state = 'disabled', condition_aside = true where s.id = slow.id;
  perform rowbell.alert('rowbell.subscription.disabled', 'subscription/' || slow.name,
                        jsonb_build_object('subscription', slow.name, 'reason', 'its condition is too slow', 'condition', slow.condition::text));
  return true;
end $$;

-- What was stored before there was a subset, or when it was larger: put aside, never evaluated (a comparison of two paths runs for
-- minutes and cannot be cancelled).
do $$
declare
  outside rowbell.subscriptions;
begin
  for outside in
    update rowbell.subscriptions s set state = 'disabled', condition_aside = true
     where s.condition is not null and not s.condition_aside and rowbell.condition_problem(s.condition) is not null
    returning s.*
  loop
    insert into rowbell.events (type_id, subject, data)
      select t.id, 'subscription/' || outside.name,
             jsonb_build_object('subscription', outside.name, 'reason', 'its condition cannot be used: '
                                || rowbell.condition_problem(outside.condition), 'condition', outside.condition::text)
        from rowbell.event_types t where t.type = 'rowbell.subscription.disabled';
  end loop;
end $$;
