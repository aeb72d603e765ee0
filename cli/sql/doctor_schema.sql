-- What somebody did to our own tables, from the catalog alone: rowbell.doctor() may be unable to read them. Programs refuse
-- the first three where they would be told less than there is (schema_owner_sql in common/schema_version.c).
-- Rows: one a problem, as of doctor.sql. Locks: none.
select 'row security' as problem, c.oid::regclass::text as subject, 'it hides rows from programs of ours' || case when c.relforcerowsecurity then ', and from the owner' else '' end as detail,
       format('alter table %s disable row level security', c.oid::regclass) as remedy
  from pg_class c where c.relnamespace = 'rowbell'::regnamespace and c.relrowsecurity
union all
select 'rule on a table of ours', c.oid::regclass::text, w.rulename::text, format('drop rule %I on %s', w.rulename, c.oid::regclass)
  from pg_class c join pg_rewrite w on w.ev_class = c.oid
 where c.relnamespace = 'rowbell'::regnamespace and c.relkind in ('r', 'p')
union all
select 'belongs to another role', c.oid::regclass::text, format('%I, and the schema to %I', pg_get_userbyid(c.relowner), pg_get_userbyid(n.nspowner)),
       format('alter table %s owner to %I', c.oid::regclass, pg_get_userbyid(n.nspowner))
  from pg_namespace n join pg_class c on c.relnamespace = n.oid
 where n.nspname = 'rowbell' and c.relkind in ('r', 'p', 'v') and c.relowner <> n.nspowner
union all
select 'owner has lost rights', c.oid::regclass::text, format('%I may not do all with it', pg_get_userbyid(c.relowner)),
       format('grant all on %s to %I', c.oid::regclass, pg_get_userbyid(c.relowner))
  from pg_class c
 where c.relnamespace = 'rowbell'::regnamespace and c.relkind in ('r', 'p')
   and not (has_table_privilege(c.relowner, c.oid, 'select') and has_table_privilege(c.relowner, c.oid, 'insert')
            and has_table_privilege(c.relowner, c.oid, 'update') and has_table_privilege(c.relowner, c.oid, 'delete'))
union all
select 'trigger is disabled', g.tgrelid::regclass::text, g.tgname::text, format('alter table %s enable trigger %I', g.tgrelid::regclass, g.tgname)
  from pg_trigger g join pg_class c on c.oid = g.tgrelid
 where c.relnamespace = 'rowbell'::regnamespace and g.tgenabled in ('D', 'R')
