-- Capture: writes the trigger function of one published table. The function is static SQL over the transition tables,
-- one INSERT ... SELECT a statement whatever its row count, and runs as the schema's owner, so that writers need no rights.

-- How a column is rendered, given a reference to it. Some types need neither escaping nor a length check.
create or replace function rowbell.capture_plain_type(type oid) returns boolean
language sql immutable strict
return type in ('int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'uuid'::regtype, 'oid'::regtype, 'bool'::regtype);

-- A column as text. A type's owner may have made a cast of it to text, a function that would run with our rights: types that are
-- not PostgreSQL's own are rendered by their output function, which only a superuser can make.
create or replace function rowbell.capture_text_sql(type oid, reference text) returns text
language sql stable
begin atomic
  with recursive base as (
    select t.oid, t.typbasetype, t.typnamespace from pg_type t where t.oid = type
    union all select t.oid, t.typbasetype, t.typnamespace from base b join pg_type t on t.oid = b.typbasetype)
  select format(case when b.typnamespace = 'pg_catalog'::regnamespace then '%s::text' else 'pg_catalog.format(''%%s'', %s)' end, reference)
    from base b where b.typbasetype = 0;
end;

create or replace function rowbell.capture_key_sql(relation oid, key name[], alias text) returns text
language sql stable
return (select string_agg(case when rowbell.capture_plain_type(a.atttypid) then format('%s.%I::text', alias, a.attname)
                               else format('rowbell.percent_encode(%s)',
                                           rowbell.capture_text_sql(a.atttypid, format('%s.%I', alias, a.attname))) end,
                          ' || ''/'' || ' order by k.i)
          from unnest(key) with ordinality as k(attname, i)
          join pg_attribute a on a.attrelid = relation and a.attname = k.attname and not a.attisdropped);

-- True when every relay sleeps (or none runs), so that this writer should wake one. Relays hold this lock shared while they
-- are awake; it is tried and given back at once, since a lock kept to the end of a long transaction would silence others.
create or replace function rowbell.relays_sleep() returns boolean
language sql volatile
return pg_try_advisory_lock(x'726f7766'::int, 0) and pg_advisory_unlock(x'726f7766'::int, 0);

-- Not where the notification queue, which all of the cluster shares, is half full: relays look by themselves, too.
create or replace function rowbell.wake_relay() returns void
language sql volatile
begin atomic
  select pg_notify('rowbell_events', '') where pg_notification_queue_usage() < 0.5;
end;

-- notify: a writer wakes a sleeping relay, and pays nothing while one is awake. poll: relays look every --poll-ms; for
-- databases with two-phase commit.
create or replace function rowbell.set_wake(mode text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if mode is null or mode not in ('notify', 'poll') then
    raise exception 'rowbell.set_wake: % is not notify or poll', coalesce(quote_literal(mode), 'NULL')
      using errcode = 'invalid_parameter_value';
  end if;
  update rowbell.installation set wake = mode;
  perform rowbell.capture_create(p) from rowbell.published p where exists (select from pg_class c where c.oid = p.relation);
end $$;

-- The body of the capture function.
create or replace function rowbell.capture_body(p rowbell.published) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  keyed    constant boolean := cardinality(p.key) > 0;
  -- The alias is what PostgreSQL's error names when a captured column is gone, so it says what to do.
  row_ref  constant text := '"rowbell.publish must be called again: row"';
  key_sql  constant text := coalesce(rowbell.capture_key_sql(p.relation, p.key, row_ref) || ' collate "C"', 'null::text');
  long_key constant boolean := keyed and exists (
    select from unnest(p.key) as k(attname) join pg_attribute a on a.attrelid = p.relation and a.attname = k.attname
     where not rowbell.capture_plain_type(a.atttypid));
  scope_sql text := 'null::text';
  gone_sql  text := 'false';
  image_sql text;
  old_side  text;   -- a transition table, rendered: key, scope, gone, image
  new_side  text;
  emit      text;   -- what ends every statement: rows of changes(op, scope, key) become events
  create_id int; update_id int; delete_id int;
begin
  select min(t.id) filter (where t.type = p.name || '.create'), min(t.id) filter (where t.type = p.name || '.update'),
         min(t.id) filter (where t.type = p.name || '.delete')
    into strict create_id, update_id, delete_id
    from rowbell.event_types t where t.relation = p.relation;
  if p.scope is not null then
    scope_sql := format(case when rowbell.capture_plain_type(a.atttypid) then '%s' else 'rowbell.scope_of(%s)' end,
                        rowbell.capture_text_sql(a.atttypid, format('%s.%I', row_ref, p.scope)))
      from pg_attribute a where a.attrelid = p.relation and a.attname = p.scope and not a.attisdropped;
  end if;
  if p.soft_delete is not null then
    gone_sql := format('%s.%I is not null', row_ref, p.soft_delete);
  end if;
  if p.watch is null then
    image_sql := row_ref;
  else
    -- The key and the scope are always watched: their change is a change of address.
    image_sql := format('row(%s)', (select string_agg(format('%s.%I', row_ref, w), ', ') from unnest(p.watch) as w));
  end if;
  old_side := format('select %s as key, %s as scope, %s as gone, %s as image from "rowbell$old" as %s',
                     key_sql, scope_sql, gone_sql, image_sql, row_ref);
  new_side := format('select %s as key, %s as scope, %s as gone, %s as image from "rowbell$new" as %s',
                     key_sql, scope_sql, gone_sql, image_sql, row_ref);
  emit := format($sql$
    insert into rowbell.events (type_id, scope, key, op, subject)
    select case c.op when 'create' then %s when 'update' then %s else %s end, c.scope, c.key, c.op, %L || '/' || c.key
      from changes c where %s$sql$,
    create_id, update_id, delete_id, p.name,
    case when not long_key then 'true' else format($sql$octet_length(c.key) <= 1024
    union all
    select distinct case c.op when 'create' then %s when 'update' then %s else %s end, c.scope, null, c.op, %L
      from changes c where octet_length(c.key) > 1024$sql$, create_id, update_id, delete_id, p.name) end);

  return format($body$
begin
  if tg_op = 'INSERT' and %1$s then
    with sides as (%6$s), changes as %8$s (select 'create' as op, s.scope, s.key from sides s where not s.gone)%9$s;
  elsif tg_op = 'DELETE' and %1$s then
    with sides as (%10$s), changes as %8$s (select 'delete' as op, s.scope, s.key from sides s where not s.gone)%9$s;
  elsif tg_op = 'UPDATE' and %1$s then
    -- Paired on the rendered key. A row that is there before and not after (its key changed, it moved to another scope, it
    -- was soft-deleted) is a delete; one that is there after and not before is a create.
    with o as (%10$s), n as (%6$s),
    changes as %8$s (
      select v.op, v.scope, v.key
        from o full join n on o.key = n.key
       cross join lateral (select o.key is not null and not o.gone as before, n.key is not null and not n.gone as after,
                                  o.scope is not distinct from n.scope as stayed) as is_
       cross join lateral (values
         ('delete', o.scope, o.key, is_.before and not (is_.after and is_.stayed)),
         ('create', n.scope, n.key, is_.after and not (is_.before and is_.stayed)),
         ('update', n.scope, n.key, is_.before and is_.after and is_.stayed and o.image *<> n.image)
       ) as v(op, scope, key, happened)
       where v.happened)%9$s;
  elsif tg_op = 'INSERT' then
    with sides as (%6$s)
    insert into rowbell.events (type_id, scope, key, op, subject)
    select distinct %7$s, s.scope, null, 'create', %5$L from sides s where not s.gone;
  elsif tg_op = 'DELETE' then
    with sides as (%10$s)
    insert into rowbell.events (type_id, scope, key, op, subject)
    select distinct %3$s, s.scope, null, 'delete', %5$L from sides s where not s.gone;
  elsif tg_op = 'UPDATE' then
    -- Without a key, old and new rows are paired by their order. A wrong pair can only add an event: if every pair is
    -- equal, the table is as it was.
    with o as (select s.*, row_number() over () as i from (%10$s) s), n as (select s.*, row_number() over () as i from (%6$s) s)
    insert into rowbell.events (type_id, scope, key, op, subject)
    select distinct %11$s, v.scope, null, 'update', %5$L
      from o full join n on o.i = n.i cross join lateral (values (o.scope), (n.scope)) as v(scope)
     where o.image *<> n.image or o.image is null or n.image is null or o.scope is distinct from n.scope
        or o.gone is distinct from n.gone;
  elsif not rowbell.truncate_is_covered(tg_relid, tg_when, %2$L) then
    insert into rowbell.events (type_id, scope, key, op, subject) values (%3$s, %4$L, null, 'delete', %5$L);
  else
    return null;
  end if;
%12$s  return null;
end $body$,
    case when keyed then 'current_setting(''rowbell.capture'', true) is distinct from ''collection''' else 'false' end, -- 1: one event a row
    p.relation::text,                                             -- 2
    delete_id,                                                    -- 3
    case when p.scope is not null then '*' end,                   -- 4
    p.name,                                                       -- 5
    new_side,                                                     -- 6
    create_id,                                                    -- 7
    case when long_key then 'materialized' else '' end,           -- 8
    emit,                                                         -- 9
    old_side,                                                     -- 10
    update_id,                                                    -- 11
    case when (select i.wake from rowbell.installation i) = 'notify' then -- 12
      $wake$  if found and rowbell.relays_sleep() then
    perform rowbell.wake_relay();
  end if;
$wake$ else '' end);
end $$;

-- A TRUNCATE of a table with partitions or children fires the trigger of each of them, the root's first. The BEFORE
-- trigger counts those that will follow, and their AFTER triggers count down: one event for the whole statement.
create or replace function rowbell.truncate_is_covered(relation oid, trigger_when text, published text) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  setting constant text := 'rowbell.truncating_' || published;
  left_to_skip int := coalesce(nullif(current_setting(setting, true), ''), '0')::int;
begin
  if trigger_when = 'BEFORE' then
    if left_to_skip = 0 then
      with recursive below as (
        select i.inhrelid from pg_inherits i where i.inhparent = relation
        union select i.inhrelid from pg_inherits i join below b on i.inhparent = b.inhrelid)
      select count(*) into left_to_skip from below b
        join pg_trigger g on g.tgrelid = b.inhrelid and g.tgname = '~rowbell_truncate' and g.tgenabled in ('O', 'A');
      perform set_config(setting, left_to_skip::text, true);
    end if;
    return true;
  end if;
  if left_to_skip = 0 or not exists (select from pg_inherits i where i.inhrelid = relation) then
    return false;
  end if;
  perform set_config(setting, (left_to_skip - 1)::text, true);
  return true;
end $$;

-- Creates or replaces the capture function of a published table. Settings that change how a value is rendered are pinned
-- where the key or the scope has a type that they change.
create or replace function rowbell.capture_create(p rowbell.published) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  pinned text := '';
begin
  if exists (select from pg_attribute a
              where a.attrelid = p.relation and (a.attname = any (p.key) or a.attname = p.scope)
                and not rowbell.capture_plain_type(a.atttypid)
                and a.atttypid not in ('text'::regtype, 'varchar'::regtype, 'bpchar'::regtype, 'numeric'::regtype)) then
    pinned := $set$ set datestyle = 'ISO, YMD' set timezone = 'UTC' set intervalstyle = 'iso_8601'
      set bytea_output = 'hex' set extra_float_digits = 1$set$;
  end if;
  execute format('create or replace function rowbell.%I() returns trigger language plpgsql security definer '
                 'set search_path = pg_catalog, pg_temp%s as %L',
                 'capture_' || p.relation, pinned, rowbell.capture_body(p));
  execute format('revoke all on function rowbell.%I() from public', 'capture_' || p.relation);
end $$;
