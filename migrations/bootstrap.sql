-- The schema, and the record of what was applied. Runs at every `rowbell migrate`, before anything else. Where roles are wanted it
-- ends as rowbell_owner, so that all that follows is made by it; a login may be allowed to become that role without having its
-- rights before. Else the owner is whoever migrates. What is there already was judged by verify.sql.
do $$
declare
  f     record;
  roles constant boolean := current_setting('rowbell.no_roles', true) is distinct from 'on';
begin
  if to_regnamespace('rowbell') is null then
    create schema rowbell;   -- never IF NOT EXISTS: what somebody else makes meanwhile is not ours
    if roles then
      alter schema rowbell owner to rowbell_owner;
    end if;
  end if;
  if roles then
    set local role rowbell_owner;
  end if;
  if to_regclass('rowbell.migrations') is null then
    create table rowbell.migrations (
      name            text primary key,     -- 0001_outbox, functions/publish, grants
      version         int unique,           -- the number of a table migration; NULL for what is re-applied when it changes
      compatible_from int,                  -- the oldest program that may run on this version
      checksum        text not null,        -- SHA-256 of the file
      applied_at      timestamptz not null default now()
    );
  end if;
  -- A dump without data (structure.sql) was loaded: the tables are there, and the table's comment says which.
  insert into rowbell.migrations (name, version, compatible_from, checksum)
    select r.n[1], r.n[2]::int, r.n[3]::int, r.n[4]
      from regexp_matches(obj_description('rowbell.migrations'::regclass, 'pg_class'), '^([0-9]{4}_[a-z0-9_]+) ([0-9]+) ([0-9]+) ([0-9a-f]{64})$', 'gn') as r(n)
     where not exists (select from rowbell.migrations);
  -- 0007 drops what was made of two columns, in no order, and fails where one function needs another. These go first; all are made again.
  if exists (select from rowbell.migrations m having max(m.version) < 7) then
    for attempt in 1 .. 10 loop
      for f in select p.oid::regprocedure as name from pg_proc p
                where p.pronamespace = 'rowbell'::regnamespace and 'rowbell.published'::regtype = any (p.proargtypes) loop
        begin
          execute format('drop function %s', f.name);
        exception when dependent_objects_still_exist then
          null;
        end;
      end loop;
    end loop;
  end if;
end $$;
