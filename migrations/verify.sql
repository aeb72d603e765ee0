-- What keeps a migration from being safe: one row for each problem; none: go on. It reads the catalog only, so nothing of the
-- schema rowbell is evaluated. It runs first in each transaction of `rowbell migrate`, with --status and --dry-run too.
-- Settings: rowbell.no_roles on, off; rowbell.trusted names of roles, with commas between. Rows: place, problem, remedy. Locks: none.
--
-- The owner of the schema may change whatever is in it, so it must be a role that may do already what this login may do.
-- All else must belong to the owner of the schema; what only an owner can do (rules, policies, columns, indexes) follows.
with
settings as (
  select coalesce(current_setting('rowbell.no_roles', true), '') <> 'on' as roles,
         string_to_array(nullif(current_setting('rowbell.trusted', true), ''), ',') as named),
me as (select r.oid, r.rolsuper from pg_roles r where r.rolname = current_user),
-- The owner of the database is trusted with what is in it, but not with the rights of a superuser.
trusted as (
  select r.oid
    from pg_roles r cross join me cross join settings s
   where r.oid = me.oid or r.rolsuper or pg_has_role(r.oid, me.oid, 'member') or r.rolname = any (s.named)
      or (not me.rolsuper and r.oid = (select d.datdba from pg_database d where d.datname = current_database()))),
home as (
  select n.oid, n.nspowner as owner, pg_get_userbyid(n.nspowner) as owner_name, n.nspacl
    from pg_namespace n where n.nspname = 'rowbell'),
ours as (
  select r.* from pg_roles r cross join settings s
   where s.roles and r.rolname in ('rowbell_owner', 'rowbell_app', 'rowbell_record', 'rowbell_publish', 'rowbell_subscribe', 'rowbell_index', 'rowbell_trusted',
                                   'rowbell_relay', 'rowbell_dispatcher', 'rowbell_gateway', 'rowbell_operator')),
-- Everything in the schema, with its owner. What belongs to a table (its row type, indexes, TOAST) has the table's owner.
objects as (
  select case c.relkind when 'v' then 'view' when 'm' then 'materialized view' when 'S' then 'sequence' when 'f' then 'foreign table'
                        when 'c' then 'type' else 'table' end as kind,
         format('rowbell.%I', c.relname) as name, c.relowner as owner
    from home h join pg_class c on c.relnamespace = h.oid where c.relkind not in ('i', 'I', 't')
  union all
  select case p.prokind when 'p' then 'procedure' when 'a' then 'aggregate' else 'function' end,
         format('rowbell.%I(%s)', p.proname, case when p.prokind = 'a' and p.pronargs = 0 then '*' else pg_get_function_identity_arguments(p.oid) end),
         p.proowner
    from home h join pg_proc p on p.pronamespace = h.oid
  union all
  select case t.typtype when 'd' then 'domain' else 'type' end, format('rowbell.%I', t.typname), t.typowner
    from home h join pg_type t on t.typnamespace = h.oid
   where t.typrelid = 0 and t.typelem = 0
  union all
  select 'operator', o.oid::regoperator::text, o.oprowner from home h join pg_operator o on o.oprnamespace = h.oid
  union all
  select 'operator class', format('rowbell.%I using %I', o.opcname, a.amname), o.opcowner
    from home h join pg_opclass o on o.opcnamespace = h.oid join pg_am a on a.oid = o.opcmethod
  union all
  select 'operator family', format('rowbell.%I using %I', o.opfname, a.amname), o.opfowner
    from home h join pg_opfamily o on o.opfnamespace = h.oid join pg_am a on a.oid = o.opfmethod
  union all
  select 'collation', format('rowbell.%I', c.collname), c.collowner from home h join pg_collation c on c.collnamespace = h.oid
  union all
  select 'conversion', format('rowbell.%I', c.conname), c.conowner from home h join pg_conversion c on c.connamespace = h.oid
  union all
  select 'text search configuration', format('rowbell.%I', c.cfgname), c.cfgowner from home h join pg_ts_config c on c.cfgnamespace = h.oid
  union all
  select 'text search dictionary', format('rowbell.%I', d.dictname), d.dictowner from home h join pg_ts_dict d on d.dictnamespace = h.oid
  union all
  select 'statistics', format('rowbell.%I', e.stxname), e.stxowner from home h join pg_statistic_ext e on e.stxnamespace = h.oid),
problems as (
  select 1 as rank, 'the server' as place, format('it is PostgreSQL %s, and Rowbell needs 14 or newer', current_setting('server_version')) as problem,
         'see docs/operating.md, "Versions of PostgreSQL"' as remedy
   where current_setting('server_version_num')::int < 140000
  union all
  select 1, format('database %I', current_database()),
         format('its encoding is %s, and Rowbell needs UTF8', getdatabaseencoding()),
         'make a database with encoding UTF8 and template template0, and move the data there'
   where getdatabaseencoding() <> 'UTF8'
  union all
  select 2, format('role %I', o.rolname),
         format('it is more than a group: %s', concat_ws(', ', case when o.rolcanlogin then 'login' end, case when o.rolsuper then 'superuser' end,
                case when o.rolcreaterole then 'createrole' end, case when o.rolcreatedb then 'createdb' end,
                case when o.rolreplication then 'replication' end, case when o.rolbypassrls then 'bypassrls' end)),
         format('alter role %I nologin nosuperuser nocreaterole nocreatedb noreplication nobypassrls', o.rolname)
    from ours o
   where o.rolcanlogin or o.rolsuper or o.rolcreaterole or o.rolcreatedb or o.rolreplication or o.rolbypassrls
  union all
  -- Who makes a role before we do keeps its administration. Later, members are what an administrator made them.
  select 3, format('role %I', o.rolname),
         format('%s %s', m.member::regrole, case when o.rolname = 'rowbell_owner' then 'is a member of it, and may change what others run'
                                                 else 'may make anybody a member of it' end),
         format('revoke %I from %s%s cascade, or, if that role administrates Rowbell here, say so: --trust %2$s', o.rolname, m.member::regrole,
                -- Since PostgreSQL 16 a membership is one for each who granted it.
                case when current_setting('server_version_num')::int >= 160000 then format(' granted by %s', m.grantor::regrole) else '' end)
    from ours o join pg_auth_members m on m.roleid = o.oid
   where not exists (select from home) and (m.admin_option or o.rolname = 'rowbell_owner') and m.member not in (select t.oid from trusted t)
  union all
  select 4, 'schema rowbell', format('it belongs to %I, and not to rowbell_owner', h.owner_name),
         'if this database was migrated with --no-roles, give --no-roles again; else look at what is in it, and drop schema rowbell cascade'
    from home h cross join settings s where s.roles and h.owner_name <> 'rowbell_owner'
  union all
  select 4, 'schema rowbell',
         case when h.owner_name = 'rowbell_owner' then 'it belongs to rowbell_owner: it was made with roles'
              else format('it belongs to %I, who could run code with the rights of %I here', h.owner_name, current_user) end,
         case when h.owner_name = 'rowbell_owner' then 'leave --no-roles out'
              else format('connect as %I, or, if you trust that role with your rights, say so: --trust %1$I; if it is not yours, drop schema '
                          'rowbell cascade', h.owner_name) end
    from home h cross join settings s where not s.roles and h.owner not in (select t.oid from trusted t)
  union all
  select 5, 'schema rowbell', format('%s may create objects in it', case a.grantee when 0 then 'everybody' else a.grantee::regrole::text end),
         format('revoke create on schema rowbell from %s cascade', case a.grantee when 0 then 'public' else a.grantee::regrole::text end)
    from home h cross join aclexplode(h.nspacl) a where a.privilege_type = 'CREATE' and a.grantee <> h.owner
  union all
  select 6, 'rowbell.migrations', 'it is not an ordinary table', 'look at what it is and who made it, and drop schema rowbell cascade'
    from home h join pg_class c on c.relnamespace = h.oid and c.relname = 'migrations' where c.relkind <> 'r'
  union all
  select 7, format('%s %s', o.kind, o.name), format('it belongs to %s, and not to %I', o.owner::regrole, h.owner_name),
         format('look at what it is; if it is not yours, drop %s %s', o.kind, o.name)
    from objects o cross join home h where o.owner <> h.owner
  union all
  select 7, format('rowbell.%I', c.relname), 'row security is on for it: programs of ours are told less than there is',
         format('alter table rowbell.%I disable row level security', c.relname)
    from home h join pg_class c on c.relnamespace = h.oid where c.relrowsecurity
  union all
  select 7, format('rule %I on rowbell.%I', w.rulename, c.relname), 'it changes what statements on that table do',
         format('drop rule %I on rowbell.%I', w.rulename, c.relname)
    from home h join pg_class c on c.relnamespace = h.oid join pg_rewrite w on w.ev_class = c.oid where c.relkind in ('r', 'p')
  union all
  select 8, format('trigger %I on %s', t.tgname, t.tgrelid::regclass), format('it runs a function of %s', p.proowner::regrole),
         format('drop trigger %I on %s', t.tgname, t.tgrelid::regclass)
    from home h join pg_class c on c.relnamespace = h.oid join pg_trigger t on t.tgrelid = c.oid join pg_proc p on p.oid = t.tgfoid
   where not t.tgisinternal and p.proowner <> h.owner and p.proowner not in (select r.oid from trusted r)
  union all
  select 8, format('constraint %I on %s', f.conname, f.conrelid::regclass),
         format('it keeps rows of %s, which are pruned', f.confrelid::regclass),
         format('alter table %s drop constraint %I', f.conrelid::regclass, f.conname)
    from home h join pg_class c on c.relnamespace = h.oid join pg_constraint f on f.confrelid = c.oid and f.contype = 'f'
    join pg_class r on r.oid = f.conrelid and r.relnamespace <> h.oid
  union all
  select 9, format('default privileges of %s%s', d.defaclrole::regrole, case when d.defaclnamespace <> 0 then ' in schema rowbell' else '' end),
         format('%s gets %s on each new %s', case a.grantee when 0 then 'everybody' else a.grantee::regrole::text end, a.privilege_type,
                case d.defaclobjtype when 'r' then 'table' when 'S' then 'sequence' when 'f' then 'function' when 'T' then 'type' when 'L' then 'large object' else 'schema' end),
         format('alter default privileges for role %s %srevoke all on %s from %s', d.defaclrole::regrole,
                case when d.defaclnamespace <> 0 then 'in schema rowbell ' else '' end,
                case d.defaclobjtype when 'r' then 'tables' when 'S' then 'sequences' when 'f' then 'functions' when 'T' then 'types' when 'L' then 'large objects' else 'schemas' end,
                case a.grantee when 0 then 'public' else a.grantee::regrole::text end)
    from pg_default_acl d cross join aclexplode(d.defaclacl) a
   where (d.defaclnamespace = (select h.oid from home h) or d.defaclrole = (select o.oid from ours o where o.rolname = 'rowbell_owner'))
     and a.grantee <> d.defaclrole and not (a.grantee = 0 and d.defaclnamespace = 0 and d.defaclobjtype in ('f', 'T'))
  union all
  select 9, format('extension %I', e.extname), 'it is in schema rowbell', format('alter extension %I set schema public', e.extname)
    from home h join pg_extension e on e.extnamespace = h.oid)
select p.place, p.problem, p.remedy from problems p order by p.rank, p.place;
