-- What is published, and which table that is in this database.
--
-- A dump keeps names: of tables, columns and functions. It does not keep numbers: a restored table has another OID, and its columns
-- are numbered anew; the old numbers may be other tables' and other columns'. So rowbell.published is kept by names, and its
-- numbers (relation_oid, function_oid, attnums, those in parts) serve to follow what is renamed. They are believed as long as they name the
-- capture functions and the table together.
--
-- Neither is enough: a name or a number may by now be a table that was never published. The table of a publication is the one
-- that also has the trigger which calls its capture function. Only the owner of a published table, and who restores a dump,
-- can have made that.

-- The tables that may be a published one: at most one by its number, and one by its name. known: the numbers are this database's; proven: it has
-- the trigger.
create or replace function rowbell.published_candidates(p rowbell.published)
returns table (relation oid, known boolean, proven boolean)
language sql stable
begin atomic
  with found as (
    select c.oid, true as known
      from pg_proc f join pg_class c on c.oid = (p).relation_oid
     where f.oid = (p).function_oid and f.pronamespace = 'rowbell'::regnamespace and f.proname = 'capture_' || (p).id || '_insert'
    union all
    select c.oid, false
      from pg_namespace n join pg_class c on c.relnamespace = n.oid and c.relname = (p).relation_name where n.nspname = (p).relation_schema)
  select distinct on (v.oid) v.oid, v.known,
         exists (select from pg_trigger g join pg_proc f on f.oid = g.tgfoid
                  where g.tgrelid = v.oid and g.tgname = '~rowbell_truncate' and f.pronamespace = 'rowbell'::regnamespace
                    and f.proname = 'capture_' || (p).id || '_truncate')
    from found v join pg_class c on c.oid = v.oid
   where c.relkind in ('r', 'p') and c.relpersistence <> 't'
   order by v.oid, v.known desc;
end;

-- rowbell.published with the column relation: the table of each publication in this database, now; NULL: there is none. Numbers that are
-- not this database's are left out. All that acts on a published table reads this.
create or replace function rowbell.published_tables() returns setof rowbell.published
language sql stable
begin atomic
  select f.relation::regclass, t.name, t.key, t.scope, t.soft_delete, t.watch, case when f.known then t.attnums else '{}' end, t.webhook, t.id,
         t.relation_schema, t.relation_name, case when f.known then t.relation_oid end, case when f.known then t.function_oid end, t.parts
    from rowbell.published t
    left join lateral (select c.relation, c.known from rowbell.published_candidates(t) c where c.proven order by c.known desc limit 1) f on true;
end;

-- The tables that have the triggers of a publication, and are not below another one: the published one, what was detached from it, and what
-- a dump of another installation brought.
create or replace function rowbell.published_carriers(published_id int) returns table (relation oid)
language sql stable
begin atomic
  with carriers as (
    select g.tgrelid from pg_proc f join pg_trigger g on g.tgfoid = f.oid
     where f.pronamespace = 'rowbell'::regnamespace and f.proname = 'capture_' || published_id || '_truncate' and g.tgname = '~rowbell_truncate')
  select c.tgrelid from carriers c where not exists (select from pg_inherits i join carriers a on a.tgrelid = i.inhparent where i.inhrelid = c.tgrelid);
end;

-- The publication of a table, for who publishes or unpublishes it: also one that it is not proven to be, whose triggers are missing. No row's
-- id is NULL.
create or replace function rowbell.published_of(relation oid) returns rowbell.published
language plpgsql stable set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  p rowbell.published;
begin
  select t.* into p from rowbell.published_tables() t where t.relation = published_of.relation;
  if not found then
    select t.* into p from rowbell.published_tables() t cross join lateral rowbell.published_candidates(t) c
     where t.relation is null and c.relation = published_of.relation order by c.known desc, t.id limit 1;
    if found then
      p.relation := published_of.relation;
    end if;
  end if;
  return p;
end $$;

-- The captured columns as they are named now. One of the same name is the column, whatever its number (dropped and added again, it
-- is what the application means); else the one that was renamed; else NULL: it is gone.
create or replace function rowbell.published_columns(p rowbell.published) returns table (was name, now name)
language sql stable
begin atomic
  select w.name, coalesce(same.attname, moved.attname)
    from (select distinct c as name from unnest((p).key || (p).scope || (p).soft_delete || (p).watch) as c where c is not null) w
    left join pg_attribute same on same.attrelid = (p).relation and same.attname = w.name and same.attnum > 0 and not same.attisdropped
    left join pg_attribute moved on moved.attrelid = (p).relation and moved.attnum = ((p).attnums ->> w.name)::int and not moved.attisdropped;
end;

-- The tables below a published one, foreign ones included: number and name.
create or replace function rowbell.published_parts(root oid) returns jsonb
language sql stable
begin atomic
  with recursive below as (
    select i.inhrelid from pg_inherits i where i.inhparent = root and not i.inhdetachpending
    union select i.inhrelid from pg_inherits i join below b on i.inhparent = b.inhrelid where not i.inhdetachpending)
  select coalesce(jsonb_object_agg(c.oid::bigint, format('%I.%I', n.nspname, c.relname)), '{}')
    from below b join pg_class c on c.oid = b.inhrelid join pg_namespace n on n.oid = c.relnamespace
   where c.relkind in ('r', 'p', 'f') and c.relpersistence <> 't';
end;

-- Which of them came (create) or went (delete) since subscribers were told. Where numbers are not known, names tell.
create or replace function rowbell.published_parts_changed(p rowbell.published) returns table (part oid, name text, op text)
language sql stable
begin atomic
  with present as (select key, value from jsonb_each_text(rowbell.published_parts((p).relation))),
  told as (select key, value from jsonb_each_text((p).parts))
  select n.key::oid, n.value, 'create' from present n
   where (p).parts is not null
     and not exists (select from told t where case when (p).function_oid is null then t.value = n.value else t.key = n.key end)
  union all
  select t.key::oid, t.value, 'delete' from told t
   where (p).relation is not null
     and not exists (select from present n where case when (p).function_oid is null then t.value = n.value else t.key = n.key end);
end;

-- Rows that come or go with a partition are told as TRUNCATE is: an event of the whole collection, to every scope. Not of one that came
-- and is empty. (One that went may be empty by now.) Notes what is told. It goes by the catalog alone, so it does not matter who asks.
create or replace function rowbell.published_parts_tell(p rowbell.published) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  perform pg_current_xact_id();   -- before the numbers of the events are taken: the low-water mark rests on it
  insert into rowbell.events (type_id, scope, key, op, subject)
    select t.id, case when p.scope is not null then '*' end, null, c.op, p.name
      from (select distinct d.op from rowbell.published_parts_changed(p) d left join pg_class r on r.oid = d.part
             where d.op = 'delete' or r.relkind = 'f' or pg_relation_size(r.oid) > 0) c
      join rowbell.event_types t on t.type = p.name || '.' || c.op
     order by c.op desc;
  if found and rowbell.relays_sleep() then
    perform rowbell.wake_relay() from rowbell.installation i where i.wake = 'notify';
  end if;
  update rowbell.published o set parts = rowbell.published_parts(p.relation)
   where o.id = p.id and o.parts is distinct from rowbell.published_parts(p.relation);
end $$;

-- Notes names and numbers of this database, once the capture functions are there.
create or replace function rowbell.published_note(p rowbell.published) returns void
language sql
begin atomic
  update rowbell.published o
     set relation_schema = n.nspname, relation_name = c.relname, relation_oid = c.oid,
         function_oid = to_regprocedure(format('rowbell.capture_%s_insert()', (p).id)),
         attnums = coalesce((select jsonb_object_agg(w.was, a.attnum) from rowbell.published_columns(p) w
                               join pg_attribute a on a.attrelid = c.oid and a.attname = w.now), '{}')
    from pg_class c join pg_namespace n on n.oid = c.relnamespace where o.id = (p).id and c.oid = (p).relation;
end;

-- What was written for a table that a restored dump gave other numbers, or that has another name by now, is written for it as it is. Not
-- while somebody publishes.
create or replace function rowbell.published_follow() returns void
language plpgsql set search_path = pg_catalog, pg_temp set jit = off as $$
declare
  p rowbell.published;
begin
  for p in select t.* from rowbell.published_tables() t join pg_class c on c.oid = t.relation join pg_namespace n on n.oid = c.relnamespace
            where t.function_oid is null or (n.nspname, c.relname) is distinct from (t.relation_schema, t.relation_name) loop
    exit when not pg_try_advisory_xact_lock(x'726f7765'::int, 0);
    begin
      perform rowbell.published_parts_tell(p);
      perform rowbell.capture_create(p);
      perform rowbell.published_note(p);
    exception when others then
      raise warning 'rowbell: table % is not followed: %', p.relation, sqlerrm;   -- rowbell doctor names it
    end;
  end loop;
end $$;
