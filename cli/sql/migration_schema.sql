-- Is there a schema, whose is it, is there a record of migrations, and may who asks make a schema? One row. Locks: none. The catalog
-- only: what is named here may be somebody else's.
select n.nspname is not null as schema_exists,
       coalesce(pg_get_userbyid(n.nspowner) = 'rowbell_owner', false) as owned_by_role,
       exists (select from pg_class c where c.relnamespace = n.oid and c.relname = 'migrations') as recorded,
       exists (select from pg_class c where c.relnamespace = n.oid and c.relname = 'installation') as has_tables,
       current_user as who,
       has_database_privilege(current_database(), 'create') as may_create
  from (values (true)) as always
  left join pg_namespace n on n.nspname = 'rowbell';
