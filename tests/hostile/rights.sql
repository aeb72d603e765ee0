-- What each group of roles may do in the schema, one right a line; what everybody may is said of public only. Columns are listed one by
-- one, so that a new column under an old grant is seen.
with groups(role) as (
  select 'public' union all select rolname from pg_roles where rolname ~ '^rowbell_' and rolname <> 'rowbell_owner'),
things(role, line) as (
  select g.role, format('%s %s', p.privilege, c.oid::regclass)
    from groups g cross join pg_class c cross join (values ('DELETE'), ('TRUNCATE'), ('TRIGGER')) as p(privilege)
   where c.relnamespace = 'rowbell'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f')
     and has_table_privilege(g.role, c.oid, p.privilege)
  union all
  select g.role, format('%s %s: %s', p.privilege, c.oid::regclass, string_agg(a.attname, ' ' order by a.attnum))
    from groups g cross join pg_class c cross join (values ('SELECT'), ('INSERT'), ('UPDATE'), ('REFERENCES')) as p(privilege)
    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
   where c.relnamespace = 'rowbell'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f')
     and has_column_privilege(g.role, c.oid, a.attnum, p.privilege)
   group by g.role, p.privilege, c.oid
  union all
  select g.role, format('%s %s', p.privilege, c.oid::regclass)
    from groups g cross join pg_class c cross join (values ('SELECT'), ('UPDATE'), ('USAGE')) as p(privilege)
   where c.relnamespace = 'rowbell'::regnamespace and c.relkind = 'S' and has_sequence_privilege(g.role, c.oid, p.privilege)
  union all
  select g.role, format('EXECUTE %s', f.oid::regprocedure)
    from groups g cross join pg_proc f
   where f.pronamespace = 'rowbell'::regnamespace and has_function_privilege(g.role, f.oid, 'EXECUTE'))
select string_agg(t.role || ' ' || t.line || e'\n', '' order by t.role <> 'public', t.role collate "C", t.line collate "C")
  from things t
 where t.role = 'public' or not exists (select from things o where o.role = 'public' and o.line = t.line)
