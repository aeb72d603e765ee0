-- Is there a schema, whose is it, is there a record of migrations, may who asks make a schema? missing_grant: what lets them become
-- rowbell_owner; NULL: they may. One row. Locks: none. The catalog
-- only: what is named here may be somebody else's.
select n.nspname is not null as schema_exists,
       coalesce(pg_get_userbyid(n.nspowner) = 'rowbell_owner', false) as owned_by_role,
       exists (select from pg_class c where c.relnamespace = n.oid and c.relname = 'migrations') as recorded,
       exists (select from pg_class c where c.relnamespace = n.oid and c.relname = 'installation') as has_tables,
       current_user as who,
       has_database_privilege(current_database(), 'create') as may_create,
       case when not coalesce(pg_has_role(to_regrole('rowbell_owner'), case when has_options then 'set' else 'member' end), false)
            then format('grant rowbell_owner to %I%s', current_user, case when has_options then ' with set true' else '' end) end as missing_grant
  from (values (current_setting('server_version_num')::int >= 160000)) as since_16 (has_options)
  left join pg_namespace n on n.nspname = 'rowbell';
