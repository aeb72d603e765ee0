-- rowbell.publish and rowbell.unpublish. They run as their caller, who owns the table and so may lock it and make its triggers; what
-- needs the schema's owner are calls (functions/calls.sql), whose workers are the *_as functions. A worker believes nothing that
-- it is told: it looks at the catalog, and what it makes is safe whatever becomes of the table later.

-- Every table whose statements must be captured: the published one, its partitions and its children.
create or replace function rowbell.publish_relations(root oid) returns setof oid
language sql stable
begin atomic
  with recursive tree as (
    select root as relation
    union select i.inhrelid from pg_inherits i join tree t on i.inhparent = t.relation where not i.inhdetachpending)
  select t.relation from tree t join pg_class c on c.oid = t.relation where c.relkind in ('r', 'p') and c.relpersistence <> 't';
end;

-- The triggers that capture a table, on itself, its partitions and its children, and which of them are there as they should be. PostgreSQL
-- stores every changed row as soon as a trigger names a transition table, and fails where one is in a foreign table. So of a table that is
-- captured as a collection, or has a foreign one below, only that there was a statement is captured, and the function for TRUNCATE
-- tells of the whole collection.
create or replace function rowbell.publish_triggers(published_id int, root oid, capture text, lastval boolean)
returns table (target regclass, name name, is_there boolean, ddl text)
language sql stable set search_path = pg_catalog, pg_temp
begin atomic
  with recursive over_foreign as (
    select i.inhparent as oid from pg_inherits i join pg_class c on c.oid = i.inhrelid where c.relkind = 'f'
    union select i.inhparent from over_foreign o join pg_inherits i on i.inhrelid = o.oid),
  targets as (
    select r as oid, exists (select from pg_inherits i where i.inhparent = r) as has_children, capture = 'collection' or r in (select o.oid from over_foreign o) as blind
      from rowbell.publish_relations(root) as r)
  select t.oid::regclass, w.name,
         exists (select from pg_trigger g
                  where g.tgrelid = t.oid and g.tgname = w.name and g.tgenabled in ('O', 'A')
                    and g.tgfoid = to_regprocedure(format('rowbell.%I()', w.function)) and g.tgtype = w.type
                    and (g.tgoldtable is not null) = w.has_old and (g.tgnewtable is not null) = w.has_new),
         format('create or replace trigger %I %s on %s %s for each statement execute function rowbell.%I()',
                w.name, w.event, t.oid::regclass,
                nullif(concat(case when w.has_old or w.has_new then 'referencing' end, case when w.has_old then ' old table as "rowbell$old"' end,
                              case when w.has_new then ' new table as "rowbell$new"' end), ''), w.function)
    from targets t
   -- The names sort last, since an AFTER trigger of the application may change the row again. Nothing fires between ~rowbell and the next
   -- one, which puts back the lastval() that it keeps. The numbers are pg_trigger's.
    join lateral (
          select v.name::name, v.event, format('capture_%s_%s', published_id, case when t.blind and v.op <> 'lastval' then 'truncate' else v.op end) as function,
                 v.type, v.has_old and not t.blind as has_old, v.has_new and not t.blind as has_new, v.only_parents
            from (values ('~rowbell', 'after insert or update or delete or truncate', 'lastval', 60, false, false, false),
                         ('~rowbell_insert', 'after insert', 'insert', 4, false, true, false),
                         ('~rowbell_delete', 'after delete', 'delete', 8, true, false, false),
                         ('~rowbell_update', 'after update', 'update', 16, true, true, false),
                         ('~rowbell_truncate', 'after truncate', 'truncate', 32, false, false, false),
                         ('~rowbell_truncate_tree', 'before truncate', 'truncate', 34, false, false, true))
              as v(name, event, op, type, has_old, has_new, only_parents)
           where v.op <> 'lastval' or rowbell.keeps_lastval(root, lastval)) w on t.has_children or not w.only_parents;
end;

-- Whether a role owns a table, is a member of its owner, or is a superuser. A snapshot may be older than a change of the owner; the
-- second look is not, and only an owner, and who has it from one, has this option.
create or replace function rowbell.owns(caller name, relation oid) returns boolean
language sql stable set search_path = pg_catalog, pg_temp
begin atomic
  select coalesce((select pg_has_role(caller, c.relowner, 'usage') and has_table_privilege(caller, c.oid, 'trigger with grant option')
                     from pg_class c where c.oid = relation), false);
end;

-- Whether the capture functions are those that would be made now: a renamed column, another type, another mode are seen here.
create or replace function rowbell.capture_is_current(p rowbell.published) returns boolean
language sql stable set search_path = pg_catalog, pg_temp
begin atomic
  select bool_and(f.prosrc is not null)
    from unnest(rowbell.capture_kinds()) as op
    left join pg_proc f on f.oid = to_regprocedure(format('rowbell.%I()', 'capture_' || (p).id || '_' || op))
                       and f.prosrc = rowbell.capture_body(p, op);
end;

-- Locks these tables, all or none, and the right to change what is published. Whoever comes to a table while a lock is waited for queues
-- up behind it, so it is waited for in short turns with pauses between them, in which everybody else goes on: up to 0.8 s where
-- writers would wait, 0.1 s where readers would. All of it takes at most lock_timeout, or 10 s where that is not set; then 55P03.
create or replace function rowbell.lock_gently(relations oid[], mode text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  most    constant double precision := case mode when 'access exclusive' then 0.1 else 0.8 end;
  theirs  constant text := current_setting('lock_timeout');
  give_up constant timestamptz :=
    clock_timestamp() + (select coalesce(nullif(s.setting::int, 0), 10000) from pg_settings s where s.name = 'lock_timeout') * interval '1 ms';
  turn     double precision := 0.1;
  turn_end timestamptz;
  relation oid;
begin
  loop
    turn_end := least(clock_timestamp() + turn * interval '1 s', give_up);
    begin
      foreach relation in array relations loop
        perform set_config('lock_timeout', greatest(1, 1000 * extract(epoch from turn_end - clock_timestamp()))::int::text, true);
        execute format('lock table only %s in %s mode', relation::regclass, mode);
      end loop;
      if not pg_try_advisory_xact_lock(x'726f7765'::int, 0) then
        raise exception 'rowbell: another transaction changes what is published, or adds subscriptions' using errcode = 'lock_not_available';
      end if;
      perform set_config('lock_timeout', theirs, true);
      return;
    exception when lock_not_available or deadlock_detected then   -- two that have written, and both publish
      if clock_timestamp() >= give_up then
        raise exception 'rowbell: other transactions were in the way for too long: %', sqlerrm using errcode = 'lock_not_available';
      end if;
    end;
    perform pg_sleep(turn);
    turn := least(2 * turn, most);
  end loop;
end $$;

-- Creating a trigger needs EXECUTE on its function; firing it does not. So the caller has it while publish makes the triggers.
-- The owner of the functions always has it.
create or replace function rowbell.publish_lend(caller name, published_id int, lend boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if not pg_has_role(caller, current_user, 'usage')
     and exists (select from rowbell.published p cross join rowbell.published_candidates(p) c
                  where p.id = published_id and rowbell.owns(caller, c.relation)) then
    execute format(case when lend then 'grant execute on function %s to %I' else 'revoke execute on function %s from %I' end,
                   rowbell.capture_functions(published_id), caller);
  end if;
end $$;

-- publish, as far as it needs the schema's owner, in steps (arguments.step). look: may the caller publish the table with these options,
-- and is anything to be done? make: do it. Both return {id, changed}: changed says whether functions or options are, or would
-- be, other ones. lend, return: see above.
create or replace function rowbell.publish_as(caller name, arguments jsonb) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp set standard_conforming_strings = on as $$
declare
  class       pg_class;
  was         rowbell.published;
  p           rowbell.published;
  column_name name;
  taken       regclass;
begin
  if arguments ->> 'step' in ('lend', 'return') then
    perform rowbell.publish_lend(caller, (arguments ->> 'id')::int, arguments ->> 'step' = 'lend');
    return null;
  end if;
  select c.* into class from pg_class c where c.oid = (arguments ->> 'relation')::oid;
  p.relation := class.oid;
  p.scope := arguments ->> 'scope';
  p.soft_delete := arguments ->> 'soft_delete';
  p.webhook := coalesce((arguments ->> 'webhook')::boolean, true);
  p.name := coalesce(arguments ->> 'name', class.relname);
  p.capture := coalesce(arguments ->> 'capture', 'rows');
  p.lastval := arguments ->> 'lastval';
  if jsonb_typeof(arguments -> 'watch') = 'array' then
    p.watch := array(select c from jsonb_array_elements_text(arguments -> 'watch') as c);
  end if;
  if jsonb_typeof(arguments -> 'key') = 'array' then
    p.key := array(select c from jsonb_array_elements_text(arguments -> 'key') as c);
  end if;
  if class.oid is null or not rowbell.owns(caller, class.oid) then
    raise exception 'rowbell.publish: must be owner of table %', coalesce(class.oid::regclass::text, arguments ->> 'relation')
      using errcode = 'insufficient_privilege';
  end if;
  if class.relkind not in ('r', 'p') then
    raise exception 'rowbell.publish: % is not a table', p.relation
      using errcode = 'wrong_object_type', hint = 'Publish the tables that it is made of.';
  end if;
  if class.relpersistence = 't' or class.relnamespace in ('pg_catalog'::regnamespace, 'rowbell'::regnamespace, 'information_schema'::regnamespace) then
    raise exception 'rowbell.publish: % is a temporary or a system table', p.relation using errcode = 'wrong_object_type';
  end if;
  if class.relispartition then
    raise exception 'rowbell.publish: % is a partition', p.relation
      using errcode = 'wrong_object_type', hint = 'Publish the partitioned table: its partitions are covered.';
  end if;
  if p.name = '' or p.name ~ '[\s*]' or octet_length(p.name) > 190 or p.name = 'rowbell' or starts_with(p.name, 'rowbell.') then
    raise exception 'rowbell.publish: % cannot be a name: 1 to 190 bytes, no white space, no *, not rowbell', quote_literal(p.name)
      using errcode = 'invalid_parameter_value', hint = 'Pass name => ''...''.';
  end if;
  if p.capture not in ('rows', 'collection') then
    raise exception 'rowbell.publish: capture is rows or collection, not %', quote_literal(p.capture) using errcode = 'invalid_parameter_value';
  end if;
  if p.key is null then
    select coalesce(array_agg(a.attname order by k.i), '{}') into p.key
      from pg_index i cross join unnest(i.indkey::int2[]) with ordinality as k(attnum, i)
      join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
     where i.indrelid = p.relation and i.indisprimary;
  end if;
  foreach column_name in array p.key || p.scope || p.soft_delete || coalesce(p.watch, '{}') loop
    continue when column_name is null;
    if not exists (select from pg_attribute a where a.attrelid = p.relation and a.attname = column_name
                   and a.attnum > 0 and not a.attisdropped) then
      raise exception 'rowbell.publish: column % of table % does not exist', quote_ident(column_name), p.relation
        using errcode = 'undefined_column';
    end if;
  end loop;
  -- PostgreSQL 18: such a column is computed by whoever reads the table. No trigger sees a value of it. (An expression has no side
  -- effect: where its value changes, a column that is stored has changed.)
  select a.attname into column_name from pg_attribute a
   where a.attrelid = p.relation and a.attname = any (p.key || p.scope || p.soft_delete || p.watch) and a.attgenerated not in ('', 's') limit 1;
  if found then
    raise exception 'rowbell.publish: column % of table % is a virtual generated column', quote_ident(column_name), p.relation
      using errcode = 'feature_not_supported', hint = 'Triggers do not see its value: make it STORED, or name the columns that it is made of.';
  end if;
  if exists (select from pg_attribute a where a.attrelid = p.relation and starts_with(a.attname, 'rowbell$')) then
    raise exception 'rowbell.publish: table % has a column whose name begins with rowbell$', p.relation
      using errcode = 'reserved_name';
  end if;
  if cardinality(p.key) > 0 and not exists (
      select from pg_index i
       where i.indrelid = p.relation and i.indisunique and i.indimmediate and i.indisvalid and i.indpred is null and i.indexprs is null
         and (select array_agg(a.attname order by a.attname)
                from unnest(i.indkey::int2[]) with ordinality as c(attnum, n)
                join pg_attribute a on a.attrelid = i.indrelid and a.attnum = c.attnum where c.n <= i.indnkeyatts)
           = (select array_agg(k order by k) from unnest(p.key) as k)) then
    raise exception 'rowbell.publish: (%) of table % is not unique', array_to_string(p.key, ', '), p.relation
      using errcode = 'invalid_column_reference', hint = 'A key needs a unique constraint on exactly these columns, not deferrable.';
  end if;
  if exists (select from pg_attribute a where a.attrelid = p.relation and a.attname = any (p.key) and not a.attnotnull) then
    raise exception 'rowbell.publish: a key column of table % may be NULL', p.relation
      using errcode = 'not_null_violation', hint = 'Set the key columns NOT NULL.';
  end if;
  p.attnums := coalesce((select jsonb_object_agg(a.attname, a.attnum) from pg_attribute a
                          where a.attrelid = p.relation and a.attname = any (p.key || p.scope || p.soft_delete || p.watch)), '{}');

  p.relation_schema := (select n.nspname from pg_namespace n where n.oid = class.relnamespace);
  p.relation_name := class.relname;
  p.relation_oid := class.oid;
  p.parts := rowbell.published_parts(class.oid);
  was := rowbell.published_of(class.oid);
  p.id := was.id;
  p.function_oid := to_regprocedure(format('rowbell.capture_%s_insert()', p.id));
  if was = p and rowbell.capture_is_current(p) then
    return jsonb_build_object('id', p.id, 'changed', false);
  elsif arguments ->> 'step' = 'look' then
    return jsonb_build_object('id', p.id, 'changed', true);
  end if;

  perform pg_advisory_xact_lock(x'726f7765'::int, 0);
  select o.relation into taken from rowbell.published_tables() o where o.name = p.name and o.id is distinct from p.id and o.relation is not null;
  if found then
    raise exception 'rowbell.publish: the name % is taken by table %', quote_literal(p.name), taken
      using errcode = 'duplicate_object', hint = 'Pass another name => ''...''.';
  end if;
  if exists (select from rowbell.event_types t
              where t.type = any (array[p.name || '.create', p.name || '.update', p.name || '.delete']) and t.published_id is null) then
    raise exception 'rowbell.publish: a domain event with the name %.create, .update or .delete is declared', p.name
      using errcode = 'duplicate_object', hint = 'Pass another name => ''...''.';
  end if;
  delete from rowbell.published o where o.name = p.name and o.id is distinct from p.id;
  if was.id is null then
    insert into rowbell.published (name, key, scope, soft_delete, watch, webhook, attnums, relation_schema, relation_name, relation_oid, parts, capture, lastval)
      values (p.name, p.key, p.scope, p.soft_delete, p.watch, p.webhook, p.attnums, p.relation_schema, p.relation_name, p.relation_oid, p.parts, p.capture, p.lastval)
      returning id into p.id;
  else
    update rowbell.published o
       set name = p.name, key = p.key, scope = p.scope, soft_delete = p.soft_delete, watch = p.watch, webhook = p.webhook, attnums = p.attnums,
           capture = p.capture, lastval = p.lastval
     where o.id = p.id;
  end if;
  insert into rowbell.event_types (type, published_id, description, webhook)
    select p.name || '.' || op, p.id, format('A row of %s: %s', p.relation, op), p.webhook
      from unnest(array['create', 'update', 'delete']) as op
    on conflict on constraint event_types_type_key do update set published_id = excluded.published_id, webhook = excluded.webhook
      where (event_types.published_id, event_types.webhook) is distinct from (excluded.published_id, excluded.webhook);
  perform rowbell.capture_create(p);
  if was.id is not null then
    was.name := p.name;
    was.scope := p.scope;
    perform rowbell.published_parts_tell(was);
  end if;
  perform rowbell.published_note(p);
  return jsonb_build_object('id', p.id, 'changed', true);
end $$;

-- Captures every change of `relation` from now on. Calling it again changes the options. Options:
--   scope        column whose value says who may see the row's address
--   soft_delete  column that turns non-null when the row is deleted
--   watch        only updates that change one of these columns count; NULL: every column
--   key          unique, NOT NULL columns that address a row; NULL: the primary key, or none
--   name         `table` on the wire; NULL: the table's name without its schema
--   webhook      may its events leave by webhook
--   capture      rows: an event for each row; collection: one for each statement, which costs the same whatever it changes
--   lastval      do statements on it keep lastval(); NULL: where a column takes numbers of a sequence
-- Readers never wait for it. Writers wait while it makes triggers; see rowbell.lock_gently. What is as it should be is not touched, and no
-- lock is taken then.
create or replace function rowbell.publish(relation regclass, scope name default null, soft_delete name default null,
  watch name[] default null, key name[] default null, name text default null, webhook boolean default true, capture text default 'rows',
  lastval boolean default null)
returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  arguments constant jsonb := jsonb_build_object('relation', relation::oid::bigint::text, 'scope', scope::text, 'soft_delete', soft_delete::text,
                                                 'watch', watch::text[], 'key', key::text[], 'name', name, 'webhook', webhook,
                                                 'capture', coalesce(capture, 'rows'), 'lastval', lastval);
  lock_timeout constant text := current_setting('lock_timeout');
  published jsonb;
  missing   text[];
  ddl       text;
begin
  if relation is null then
    raise exception 'rowbell.publish: relation is NULL' using errcode = 'null_value_not_allowed';
  end if;
  insert into rowbell.calls (name, arguments) values ('publish', arguments || '{"step": "look"}') returning result into published;
  missing := array(select t.ddl from rowbell.publish_triggers((published ->> 'id')::int, relation, arguments ->> 'capture', lastval) as t where not t.is_there);
  if not (published ->> 'changed')::boolean and missing = '{}' then
    return;
  end if;
  -- First and once, where triggers are made; what that needs, and no more. After it nothing is waited for, or hardly anything.
  perform rowbell.lock_gently(array(select distinct t.target::oid from rowbell.publish_triggers((published ->> 'id')::int, relation, arguments ->> 'capture', lastval) as t
                                     where not t.is_there), 'share row exclusive');
  perform set_config('lock_timeout', '1s', true);
  insert into rowbell.calls (name, arguments) values ('publish', arguments || '{"step": "make"}') returning result into published;
  missing := array(select t.ddl from rowbell.publish_triggers((published ->> 'id')::int, relation, arguments ->> 'capture', lastval) as t where not t.is_there);
  if missing <> '{}' then
    insert into rowbell.calls (name, arguments) values ('publish', published || '{"step": "lend"}');
    foreach ddl in array missing loop
      execute ddl;
    end loop;
    insert into rowbell.calls (name, arguments) values ('publish', published || '{"step": "return"}');
    select string_agg(t.name, ', ') into ddl from jsonb_each_text(rowbell.published_parts(relation)) as t(oid, name) join pg_class c on c.oid = t.oid::oid
     where c.relkind = 'f';
    if ddl is not null then
      raise warning 'rowbell.publish: below % are foreign tables (%): a statement on it is told as a change of the whole collection', relation, ddl
        using hint = 'Detach them, or publish the tables that hold rows here, to be told of rows.';
    end if;
  end if;
  perform set_config('lock_timeout', lock_timeout, true);   -- a setting of a function outlives it
end $$;

-- unpublish, as far as it needs the schema's owner, in steps (arguments.step). look: which publication it is. remove: do it; its
-- triggers are gone, or dropping their functions fails. Both return its id; NULL: it is not published.
create or replace function rowbell.unpublish_as(caller name, arguments jsonb) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  p rowbell.published;
begin
  if not rowbell.owns(caller, (arguments ->> 'relation')::oid) then
    raise exception 'rowbell.unpublish: must be owner of table %', (arguments ->> 'relation')::oid::regclass using errcode = 'insufficient_privilege';
  end if;
  p := rowbell.published_of((arguments ->> 'relation')::oid);
  if p.id is not null and arguments ->> 'step' = 'remove' then
    delete from rowbell.published o where o.id = p.id;
    execute format('drop function if exists %s', rowbell.capture_functions(p.id));
  end if;
  return to_jsonb(p.id);
end $$;

-- Stops capturing. Events captured so far are still delivered. False: it was not published. Readers and writers wait for 0.1 s at a time
-- (rowbell.lock_gently).
create or replace function rowbell.unpublish(relation regclass) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  lock_timeout constant text := current_setting('lock_timeout');
  call     jsonb := jsonb_build_object('relation', relation::oid::bigint::text, 'step', 'look');
  found_id jsonb;
  targets  oid[];
  drops    text[];
  ddl      text;
begin
  if relation is null then
    raise exception 'rowbell.unpublish: relation is NULL' using errcode = 'null_value_not_allowed';
  end if;
  insert into rowbell.calls (name, arguments) values ('unpublish', call) returning result into found_id;
  -- Those of this publication wherever they are, also on what was a partition or a child once; and on this table those of any, also of another
  -- installation, whose dump was restored here.
  select coalesce(array_agg(distinct g.tgrelid), '{}'),
         coalesce(array_agg(format('drop trigger if exists %I on %s', g.tgname, g.tgrelid::regclass)), '{}')
    into targets, drops
    from pg_trigger g join pg_proc f on f.oid = g.tgfoid
   where not g.tgisinternal and f.pronamespace = 'rowbell'::regnamespace
     and (f.proname ~ format('^capture_%s(_|$)', found_id)
          or f.proname ~ '^capture_[0-9]+(_|$)' and g.tgrelid in (select r from rowbell.publish_relations(relation) as r));
  -- Dropping a trigger stops readers, too.
  perform rowbell.lock_gently(targets, 'access exclusive');
  perform set_config('lock_timeout', '1s', true);
  foreach ddl in array drops loop
    execute ddl;
  end loop;
  if found_id is not null then
    insert into rowbell.calls (name, arguments) values ('unpublish', call || '{"step": "remove"}');
  end if;
  perform set_config('lock_timeout', lock_timeout, true);
  return found_id is not null;
end $$;

-- What is published of these relations (or of a table that they are partitions or children of), with the columns' present
-- names; a dropped column is left out, and named in `lost`; `gone`: tables that are no partitions or children any more. Only of the
-- caller's own tables. Tells, of everybody's, what came and went with partitions.
create or replace function rowbell.published_now_as(caller name, arguments jsonb) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  changed constant text[] := rowbell.call_texts(arguments, 'relations');
  answer  jsonb := '[]';
  gone    text[];
  p       rowbell.published;
begin
  for p in
      with recursive above as (
        select r::oid as relation from unnest(changed) as r
        union select i.inhparent from pg_inherits i join above a on i.inhrelid = a.relation)
      select t.* from rowbell.published_tables() t
       where t.relation in (select a.relation from above a) or t.relation is not null and (t.parts ?| changed or t.function_oid is null) loop
    gone := array(select d.part from rowbell.published_parts_changed(p) d join pg_class c on c.oid = d.part where d.op = 'delete' and p.function_oid is not null);
    perform rowbell.published_parts_tell(p);
    continue when not rowbell.owns(caller, p.relation);
    answer := answer || jsonb_build_array((
      select jsonb_build_object(
               'relation', p.relation::oid::bigint::text, 'name', p.name,
               'key', coalesce(case when bool_and(c.now is not null) filter (where c.was = any (p.key))
                                 then array_agg(c.now::text order by array_position(p.key, c.was)) filter (where c.was = any (p.key)) end, '{}'),
               'scope', min(c.now::text) filter (where c.was = p.scope),
               'soft_delete', min(c.now::text) filter (where c.was = p.soft_delete),
               'watch', case when p.watch is not null then coalesce(array_agg(c.now::text) filter (where c.was = any (p.watch) and c.now is not null), '{}') end,
               'webhook', p.webhook, 'capture', p.capture, 'lastval', p.lastval,
               'lost', array_agg(c.was::text) filter (where c.now is null), 'gone', gone)
        from rowbell.published_columns(p) c));
  end loop;
  return answer;
end $$;

drop function if exists rowbell.published_now(oid[]);   -- had fewer columns
create function rowbell.published_now(relations oid[])
returns table (relation oid, name text, key name[], scope name, soft_delete name, watch name[], webhook boolean, capture text, lastval boolean, lost name[], gone oid[])
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  found_now jsonb;
begin
  insert into rowbell.calls as c (name, arguments) values ('published_now', jsonb_build_object('relations', relations::bigint[]::text[]))
    returning c.result into found_now;
  return query select * from jsonb_to_recordset(found_now) as r(relation oid, name text, key name[], scope name, soft_delete name,
                                                                watch name[], webhook boolean, capture text, lastval boolean, lost name[], gone oid[]);
end $$;

-- The command that publishes a table again with its options, as its columns are named now. One that is gone is left out, except the scope:
-- without it addresses would go to others, so that is for people to say.
create or replace function rowbell.publish_command(p rowbell.published) returns text
language sql stable set search_path = pg_catalog, pg_temp
begin atomic
  select format('select rowbell.publish(%L', coalesce((p).relation::text, format('%I.%I', (p).relation_schema, (p).relation_name)))
         || coalesce(', scope => ' || quote_literal(coalesce(min(c.now::text) filter (where c.was = (p).scope), (p).scope::text)), '')
         || coalesce(', soft_delete => ' || quote_literal(min(c.now::text) filter (where c.was = (p).soft_delete)), '')
         || coalesce(', watch => ' || quote_literal((array_agg(c.now::text order by c.now) filter (where c.was = any ((p).watch) and c.now is not null))::text), '')
         || coalesce(', key => ' || quote_literal((case when bool_and(c.now is not null) filter (where c.was = any ((p).key))
              then array_agg(c.now::text order by array_position((p).key, c.was)) filter (where c.was = any ((p).key)) end)::text), '')
         || format(', name => %L', (p).name) || case when (p).webhook then '' else ', webhook => false' end
         || case when (p).capture = 'rows' then '' else format(', capture => %L', (p).capture) end || coalesce(', lastval => ' || (p).lastval, '') || ')'
    from rowbell.published_columns(p) c;
end;

-- Follows the application's migrations: columns and tables that are renamed, columns that are dropped, partitions that come and go. It
-- never fails the application's command: what it cannot follow is a warning.
create or replace function rowbell.follow_tables(relations oid[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  was    constant text := current_setting('lock_timeout');
  p      record;
  target record;
begin
  -- Others wait for what the command has locked.
  if (select s.setting::int not between 1 and 1000 from pg_settings s where s.name = 'lock_timeout') then
    perform set_config('lock_timeout', '1s', true);
  end if;
  for p in select n.* from rowbell.published_now(relations) n loop
    begin
      perform rowbell.publish(p.relation, p.scope, p.soft_delete, p.watch, p.key, p.name, p.webhook, p.capture, p.lastval);
      if p.lost is not null then
        raise warning 'rowbell: table % is now captured without its column %', p.relation::regclass, array_to_string(p.lost, ', ');
      end if;
    exception when others then
      raise warning 'rowbell: cannot follow the change of table %: %', p.relation::regclass, sqlerrm
        using hint = 'Run rowbell.publish for it again, else writes to it may fail.';
    end;
    -- What was detached is locked by the command.
    for target in
        select g.tgrelid::regclass as relation, g.tgname from pg_trigger g join pg_proc f on f.oid = g.tgfoid
         where g.tgrelid = any (p.gone) and f.pronamespace = 'rowbell'::regnamespace and f.proname ~ '^capture_[0-9]+_' loop
      begin
        execute format('drop trigger %I on %s', target.tgname, target.relation);
      exception when others then
        raise warning 'rowbell: trigger % on % is left: %', target.tgname, target.relation, sqlerrm;
      end;
    end loop;
  end loop;
  perform set_config('lock_timeout', was, true);
end $$;

create or replace function rowbell.on_ddl() returns event_trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  relations constant oid[] := array(select c.objid from pg_event_trigger_ddl_commands() c
                                     where c.classid = 'pg_class'::regclass and c.schema_name is distinct from 'pg_temp');
begin
  -- Of a role without a right to the schema (where roles are not wanted) nothing is published.
  if relations <> '{}' and has_schema_privilege('rowbell', 'usage') then
    perform rowbell.follow_tables(relations);
  end if;
exception when others then
  raise warning 'rowbell: cannot follow the change of a table: %', sqlerrm;
end $$;

create or replace function rowbell.on_drop() returns event_trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  relations constant oid[] := array(select d.objid from pg_event_trigger_dropped_objects() d
                                     where d.object_type in ('table', 'foreign table') and not d.is_temporary);
begin
  if relations <> '{}' and has_schema_privilege('rowbell', 'usage') then
    perform rowbell.follow_tables(relations);
  end if;
exception when others then
  raise warning 'rowbell: cannot follow the removal of a table: %', sqlerrm;
end $$;

-- Optional, for a superuser: from now on captured tables are published again by themselves when they are altered, and partitions that
-- come and go are told.
create or replace function rowbell.follow_ddl(follow boolean default true) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  drop event trigger if exists rowbell_follow_ddl;
  drop event trigger if exists rowbell_follow_drop;
  if follow then
    create event trigger rowbell_follow_ddl on ddl_command_end
      when tag in ('ALTER TABLE', 'CREATE TABLE', 'ALTER FOREIGN TABLE', 'CREATE FOREIGN TABLE') execute function rowbell.on_ddl();
    create event trigger rowbell_follow_drop on sql_drop execute function rowbell.on_drop();
  end if;
end $$;

-- The generated functions of this installation, made anew by the generator above, and what publish used before version 7.
do $$
begin
  perform rowbell.capture_create(p) from rowbell.published_tables() p where p.relation is not null;
  perform rowbell.published_follow();
end $$;
select rowbell.replace_function('rowbell.publish(regclass, name, name, name[], name[], text, boolean)',
                                'rowbell.publish(regclass, name, name, name[], name[], text, boolean, text, boolean)');
drop function if exists rowbell.publish_begin(oid, text, name[], name, name, name[], boolean, name);
drop function if exists rowbell.publish_end(oid, name, boolean);
drop function if exists rowbell.publish_proof();
drop function if exists rowbell.truncate_is_covered(oid, text, text);
drop function if exists rowbell.capture_functions(oid);
drop function if exists rowbell.capture_text_sql(oid, text);
drop function if exists rowbell.column_is(oid, name, oid);   -- until capture read the type from the statement itself
