-- Is there a schema, whose is it, and is there a record of migrations? One row. Locks: none.
select n.nspname is not null as schema_exists,
       coalesce(pg_get_userbyid(n.nspowner) = 'rowbell_owner', false) as owned_by_role,
       to_regclass('rowbell.migrations') is not null as recorded,
       current_user as who,
       has_database_privilege(current_database(), 'create') as may_create
  from (values (true)) as always
  left join pg_namespace n on n.nspname = 'rowbell';
