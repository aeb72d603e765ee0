-- A published table is kept by its name, which a dump keeps, and its numbers beside it, which are of this database alone.
-- compatible_from: 6
-- Runs once, as rowbell_owner (with --no-roles: as whoever migrates), in one transaction.

alter table rowbell.published
  add column relation_schema name,   -- NULL, like the next: no table is known to be this one
  add column relation_name   name,
  -- What follows, and attnums, is believed as long as capture_<id>_insert has the number function_oid (functions/published.sql).
  add column relation_oid    oid,
  add column function_oid    oid,
  add column parts           jsonb;  -- the tables below it that subscribers were told of: number and name; NULL: not noted yet
alter table rowbell.event_types add column published_id int;   -- of a row change: its table; NULL: a domain event
drop trigger if exists routes_of_type on rowbell.event_types;   -- made again by functions/routes.sql
update rowbell.event_types t
   set published_id = coalesce((select p.id from rowbell.published p where p.relation = t.relation), 0)
 where t.relation is not null;

-- Before version 7 a dump had the numbers of tables, and it still has that of a table that was dropped: after a restore they are
-- other tables'. The table that has the triggers is the one that was published.
do $$
declare
  p record;
  f record;
begin
  for p in select o.id, o.relation::oid as relation, format('^capture_(%s|%s)(_[a-z]+)?$', o.id, o.relation::oid) as functions
             from rowbell.published o loop
    update rowbell.published o set relation_schema = found.nspname, relation_name = found.relname
      from (with recursive carriers as (
              select distinct g.tgrelid from pg_trigger g join pg_proc c on c.oid = g.tgfoid
               where not g.tgisinternal and c.pronamespace = 'rowbell'::regnamespace and c.proname ~ p.functions),
            below as (
              select i.inhrelid from pg_inherits i join carriers h on i.inhparent = h.tgrelid
              union select i.inhrelid from pg_inherits i join below b on i.inhparent = b.inhrelid)
            select n.nspname, c.relname
              from carriers h join pg_class c on c.oid = h.tgrelid join pg_namespace n on n.oid = c.relnamespace
             where h.tgrelid not in (select b.inhrelid from below b)
             order by c.oid = p.relation desc, c.relkind = 'p' desc, c.oid limit 1) as found
     where o.id = p.id;
    -- Until version 6 the number was in the names of the functions.
    for f in select c.oid::regprocedure as old, replace(c.proname, p.relation::text, p.id::text) as name
               from pg_proc c where c.pronamespace = 'rowbell'::regnamespace and c.proname ~ format('^capture_%s(_[a-z]+)?$', p.relation) loop
      if exists (select from pg_trigger g where g.tgfoid = to_regprocedure(format('rowbell.%I()', f.name))) then
        continue;   -- both are in use: a partition that was detached calls the old one, which captures nothing there
      end if;
      execute format('drop function if exists rowbell.%I()', f.name);
      execute format('alter function %s rename to %I', f.old, f.name);
    end loop;
  end loop;
  -- An early publish took the right to them from their owner, who then cannot replace them.
  for f in select c.oid::regprocedure as name from pg_proc c
            where c.pronamespace = 'rowbell'::regnamespace and c.proname ~ '^capture_[0-9]+(_|$)' loop
    execute format('grant execute on function %s to %I', f.name, current_user);
  end loop;
end $$;

-- Functions of an earlier version that name what goes below do nothing until they are made again. They keep their grants.
do $$
declare
  f record;
begin
  for f in select distinct p.oid, p.proname, pg_get_function_arguments(p.oid) as arguments, pg_get_function_result(p.oid) as result
             from pg_depend d join pg_proc p on d.classid = 'pg_proc'::regclass and p.oid = d.objid
             left join pg_constraint c on d.refclassid = 'pg_constraint'::regclass and c.oid = d.refobjid
             left join pg_attribute a on d.refclassid = 'pg_class'::regclass and a.attrelid = d.refobjid and a.attnum = d.refobjsubid
            where c.conrelid = 'rowbell.published'::regclass or (a.attrelid = 'rowbell.search'::regclass and a.attname = 'language') loop
    execute format('create or replace function rowbell.%I(%s) returns %s language plpgsql as %L', f.proname, f.arguments, f.result,
                   'begin raise exception ''rowbell is being migrated''; end');
  end loop;
end $$;

-- What was keyed by a table's number. The columns go in a later version: relation is what rowbell.published_tables() fills in.
alter table rowbell.published
  drop constraint published_pkey,
  drop constraint published_id_key,
  add primary key (id),
  alter column relation drop not null;
update rowbell.published set relation = null;
update rowbell.event_types set relation = null where relation is not null;
alter table rowbell.published add constraint published_relation_is_found check (relation is null);
alter table rowbell.event_types add constraint event_types_relation_is_gone check (relation is null);
drop index rowbell.event_types_relation;
create index event_types_published on rowbell.event_types (published_id) where published_id is not null;
drop index rowbell.event_types_owner;
create index event_types_owner on rowbell.event_types (owner) where published_id is null;

-- regconfig is a number, too: pg_upgrade refuses a database with such a column. The subscription's settings have the language.
alter table rowbell.search drop column language;
