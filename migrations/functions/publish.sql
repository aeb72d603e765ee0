-- rowbell.publish and rowbell.unpublish. They run as their caller, who owns the table; what needs the schema's owner is in
-- the two publish_* functions. Who calls those cannot be told from a name: inside them current_user is their owner, and
-- session_user is a superuser while an autovacuum evaluates somebody's index. So the caller proves it: only a table's
-- owner can comment on its triggers, and publish_begin looks for the comment that publish makes, and takes away, around it.

-- The proof's trigger, which publish drops again.
create or replace function rowbell.publish_proof() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$ begin return null; end $$;

create or replace function rowbell.publish_begin(relation oid, name text, key name[], scope name, soft_delete name,
                                                watch name[], webhook boolean, caller name)
returns void language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  p rowbell.published;
begin
  if not exists (select from pg_trigger g join pg_description d on d.objoid = g.oid and d.classoid = 'pg_trigger'::regclass
                  where g.tgrelid = relation and g.tgname = '~rowbell_proof' and d.description = caller) then
    raise exception 'rowbell.publish: must be owner of table %', relation::regclass using errcode = 'insufficient_privilege';
  end if;
  perform pg_advisory_xact_lock(x'726f7765'::int, 0);
  if exists (select from rowbell.published o where o.name = publish_begin.name and o.relation <> publish_begin.relation
             and exists (select from pg_class c where c.oid = o.relation)) then
    raise exception 'rowbell.publish: the name % is taken by table %', quote_literal(name),
        (select o.relation::regclass from rowbell.published o where o.name = publish_begin.name)
      using errcode = 'duplicate_object', hint = 'Pass another name => ''...''.';
  end if;
  if exists (select from rowbell.event_types t where t.type = any (array[name || '.create', name || '.update', name || '.delete'])
             and t.relation is null) then
    raise exception 'rowbell.publish: a domain event with the name %.create, .update or .delete is declared', name
      using errcode = 'duplicate_object', hint = 'Pass another name => ''...''.';
  end if;
  delete from rowbell.published o where o.name = publish_begin.name and o.relation <> publish_begin.relation;
  insert into rowbell.published as o (relation, name, key, scope, soft_delete, watch, webhook, attnums)
    values (relation, name, key, scope, soft_delete, watch, webhook,
            coalesce((select jsonb_object_agg(a.attname, a.attnum) from pg_attribute a
                       where a.attrelid = relation and a.attname = any (key || scope || soft_delete || watch)), '{}'))
    on conflict on constraint published_pkey do update
      set name = excluded.name, key = excluded.key, scope = excluded.scope, soft_delete = excluded.soft_delete,
          watch = excluded.watch, webhook = excluded.webhook, attnums = excluded.attnums
    returning * into p;
  insert into rowbell.event_types (type, relation, description, webhook)
    select name || '.' || op, relation, format('A row of %s: %s', relation::regclass, op), webhook
      from unnest(array['create', 'update', 'delete']) as op
    on conflict on constraint event_types_type_key do update set relation = excluded.relation, webhook = excluded.webhook
      where (event_types.relation, event_types.webhook) is distinct from (excluded.relation, excluded.webhook);
  perform rowbell.capture_create(p);
  -- Creating the triggers needs EXECUTE; firing them does not. publish_end takes it back.
  execute format('grant execute on function %s to %I', rowbell.capture_functions(relation), caller);
end $$;

create or replace function rowbell.publish_end(relation oid, caller name, remove boolean)
returns boolean language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  was_published boolean;
begin
  if remove then
    -- Its triggers are gone, or dropping their functions fails; only the table's owner can take them away.
    delete from rowbell.published o where o.relation = publish_end.relation;
    was_published := found;
    -- One function did the work of the four until version 6; its triggers call it until the table is published again.
    execute format('drop function if exists rowbell.%I(), %s', 'capture_' || relation, rowbell.capture_functions(relation));
    return was_published;
  end if;
  execute format('revoke execute on function %s from %I', rowbell.capture_functions(relation), caller);
  return true;
end $$;

-- Every table whose statements must be captured: the published one, its partitions and its children.
create or replace function rowbell.publish_relations(root oid) returns setof oid
language sql stable
begin atomic
  with recursive tree as (
    select root as relation
    union select i.inhrelid from pg_inherits i join tree t on i.inhparent = t.relation)
  select t.relation from tree t join pg_class c on c.oid = t.relation where c.relkind in ('r', 'p');
end;

-- Captures every change of `relation` from now on. Calling it again changes the options. Options:
--   scope        column whose value says who may see the row's address
--   soft_delete  column that turns non-null when the row is deleted
--   watch        only updates that change one of these columns count; NULL: every column
--   key          unique, NOT NULL columns that address a row; NULL: the primary key, or none
--   name         `table` on the wire; NULL: the table's name without its schema
--   webhook      may its events leave by webhook
create or replace function rowbell.publish(relation regclass, scope name default null, soft_delete name default null,
  watch name[] default null, key name[] default null, name text default null, webhook boolean default true)
returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  class   pg_class;
  column_name name;
  wire    text;
  target  oid;
  op      text;
  rows    text;
begin
  if relation is null then
    raise exception 'rowbell.publish: relation is NULL' using errcode = 'null_value_not_allowed';
  end if;
  select c.* into strict class from pg_class c where c.oid = relation;
  if class.relkind not in ('r', 'p') then
    raise exception 'rowbell.publish: % is not a table', relation
      using errcode = 'wrong_object_type', hint = 'Publish the tables that it is made of.';
  end if;
  if class.relpersistence = 't' or class.relnamespace in ('pg_catalog'::regnamespace, 'rowbell'::regnamespace) then
    raise exception 'rowbell.publish: % is a temporary or a system table', relation using errcode = 'wrong_object_type';
  end if;
  if class.relispartition then
    raise exception 'rowbell.publish: % is a partition', relation
      using errcode = 'wrong_object_type', hint = 'Publish the partitioned table: its partitions are covered.';
  end if;
  wire := coalesce(name, class.relname);
  if wire = '' or wire ~ '[\s*]' or octet_length(wire) > 190 or wire = 'rowbell' or starts_with(wire, 'rowbell.') then
    raise exception 'rowbell.publish: % cannot be a name: 1 to 190 bytes, no white space, no *, not rowbell', quote_literal(wire)
      using errcode = 'invalid_parameter_value', hint = 'Pass name => ''...''.';
  end if;
  if key is null then
    select coalesce(array_agg(a.attname order by k.i), '{}') into key
      from pg_index i cross join unnest(i.indkey::int2[]) with ordinality as k(attnum, i)
      join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
     where i.indrelid = relation and i.indisprimary;
  end if;
  foreach column_name in array key || scope || soft_delete || coalesce(watch, '{}') loop
    continue when column_name is null;
    if not exists (select from pg_attribute a where a.attrelid = relation and a.attname = column_name
                   and a.attnum > 0 and not a.attisdropped) then
      raise exception 'rowbell.publish: column % of table % does not exist', quote_ident(column_name), relation
        using errcode = 'undefined_column';
    end if;
  end loop;
  if exists (select from pg_attribute a where a.attrelid = relation and starts_with(a.attname, 'rowbell$')) then
    raise exception 'rowbell.publish: table % has a column whose name begins with rowbell$', relation
      using errcode = 'reserved_name';
  end if;
  if cardinality(key) > 0 and not exists (
      select from pg_index i
       where i.indrelid = relation and i.indisunique and i.indimmediate and i.indisvalid and i.indpred is null and i.indexprs is null
         and (select array_agg(a.attname order by a.attname)
                from unnest(i.indkey::int2[]) with ordinality as c(attnum, n)
                join pg_attribute a on a.attrelid = i.indrelid and a.attnum = c.attnum where c.n <= i.indnkeyatts)
           = (select array_agg(k order by k) from unnest(key) as k)) then
    raise exception 'rowbell.publish: (%) of table % is not unique', array_to_string(key, ', '), relation
      using errcode = 'invalid_column_reference', hint = 'A key needs a unique constraint on exactly these columns, not deferrable.';
  end if;
  if exists (select from pg_attribute a where a.attrelid = relation and a.attname = any (key) and not a.attnotnull) then
    raise exception 'rowbell.publish: a key column of table % may be NULL', relation
      using errcode = 'not_null_violation', hint = 'Set the key columns NOT NULL.';
  end if;

  if not pg_has_role(current_user, class.relowner, 'usage') then
    raise exception 'rowbell.publish: must be owner of table %', relation using errcode = 'insufficient_privilege';
  end if;
  execute format('create or replace trigger "~rowbell_proof" before truncate on %s for each statement execute function rowbell.publish_proof()', relation);
  execute format('comment on trigger "~rowbell_proof" on %s is %L', relation, current_user);
  perform rowbell.publish_begin(relation, wire, key, scope, soft_delete, watch, coalesce(webhook, true), current_user);
  execute format('drop trigger "~rowbell_proof" on %s', relation);
  for target in select r from rowbell.publish_relations(relation) as r loop
    -- The names sort last, since an AFTER trigger of the application may change the row again.
    for op, rows in values ('insert', 'referencing new table as "rowbell$new"'), ('delete', 'referencing old table as "rowbell$old"'),
                           ('update', 'referencing old table as "rowbell$old" new table as "rowbell$new"'), ('truncate', '') loop
      execute format('create or replace trigger %I after %s on %s %s for each statement execute function rowbell.%I()',
                     '~rowbell_' || op, op, target::regclass, rows, 'capture_' || relation::oid || '_' || op);
    end loop;
    if exists (select from pg_inherits i where i.inhparent = target) then
      execute format('create or replace trigger "~rowbell_truncate_tree" before truncate on %s '
                     'for each statement execute function rowbell.%I()', target::regclass, 'capture_' || relation::oid || '_truncate');
    end if;
  end loop;
  perform rowbell.publish_end(relation, current_user, false);
end $$;

-- Stops capturing. Events captured so far are still delivered. False: it was not published.
create or replace function rowbell.unpublish(relation regclass) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  target record;
begin
  if relation is null then
    raise exception 'rowbell.unpublish: relation is NULL' using errcode = 'null_value_not_allowed';
  end if;
  if not pg_has_role(current_user, (select c.relowner from pg_class c where c.oid = relation), 'usage') then
    raise exception 'rowbell.unpublish: must be owner of table %', relation using errcode = 'insufficient_privilege';
  end if;
  for target in select g.tgrelid, g.tgname from pg_trigger g join pg_proc f on f.oid = g.tgfoid
                 where f.pronamespace = 'rowbell'::regnamespace and f.proname ~ ('^capture_' || relation::oid || '(_|$)')
                   and not g.tgisinternal loop
    execute format('drop trigger if exists %I on %s', target.tgname, target.tgrelid::regclass);
  end loop;
  return rowbell.publish_end(relation, current_user, true);
end $$;

-- What is published of these relations (or of a table that they are partitions or children of), with the columns' present
-- names; a dropped column is left out, and named in `lost`. Only of the caller's own tables.
create or replace function rowbell.published_now(relations oid[])
returns table (relation oid, name text, key name[], scope name, soft_delete name, watch name[], webhook boolean, lost name[])
language sql stable security definer set search_path = pg_catalog, pg_temp
begin atomic
  with recursive above as (
    select r as relation from unnest(relations) as r
    union select i.inhparent from pg_inherits i join above a on i.inhrelid = a.relation),
  present as (
    select p.relation, c.key as old_name, a.attname as new_name
      from rowbell.published p cross join jsonb_each_text(p.attnums) c
      left join pg_attribute a on a.attrelid = p.relation and a.attnum = c.value::int and not a.attisdropped)
  select p.relation, p.name,
         coalesce((select case when bool_and(n.new_name is not null) then array_agg(n.new_name order by k.i) end
                     from unnest(p.key) with ordinality k(col, i)
                     join present n on n.relation = p.relation and n.old_name = k.col), '{}'),
         (select n.new_name from present n where n.relation = p.relation and n.old_name = p.scope),
         (select n.new_name from present n where n.relation = p.relation and n.old_name = p.soft_delete),
         case when p.watch is not null then
           (select coalesce(array_agg(n.new_name) filter (where n.new_name is not null), '{}') from unnest(p.watch) w
              join present n on n.relation = p.relation and n.old_name = w) end,
         p.webhook,
         (select array_agg(n.old_name::name) from present n where n.relation = p.relation and n.new_name is null)
    from rowbell.published p join above a on a.relation = p.relation join pg_class c on c.oid = p.relation
   where pg_has_role(session_user, c.relowner, 'member');
end;

-- Follows the application's migrations: columns that are renamed or dropped, partitions that are attached. It never fails
-- the application's command: what it cannot follow is a warning.
create or replace function rowbell.on_ddl() returns event_trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  p record;
begin
  for p in select n.* from rowbell.published_now((select coalesce(array_agg(c.objid), '{}') from pg_event_trigger_ddl_commands() c
                                                   where c.classid = 'pg_class'::regclass)) n loop
    begin
      perform rowbell.publish(p.relation, p.scope, p.soft_delete, p.watch, p.key, p.name, p.webhook);
      if p.lost is not null then
        raise warning 'rowbell: table % is now captured without its column %', p.relation::regclass, array_to_string(p.lost, ', ');
      end if;
    exception when others then
      raise warning 'rowbell: cannot follow the change of table %: %', p.relation::regclass, sqlerrm
        using hint = 'Run rowbell.publish for it again, else writes to it may fail.';
    end;
  end loop;
end $$;

-- Optional, for a superuser: from now on captured tables are published again by themselves when they are altered.
create or replace function rowbell.follow_ddl(follow boolean default true) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  drop event trigger if exists rowbell_follow_ddl;
  if follow then
    create event trigger rowbell_follow_ddl on ddl_command_end when tag in ('ALTER TABLE', 'CREATE TABLE')
      execute function rowbell.on_ddl();
  end if;
end $$;

-- The generated functions of this installation, made anew by the generator above.
do $$
begin
  perform rowbell.capture_create(p) from rowbell.published p where exists (select from pg_class c where c.oid = p.relation);
end $$;
