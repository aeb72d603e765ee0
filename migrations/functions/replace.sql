-- A function whose parameters change is another one for PostgreSQL. Who might call the old one may call the new one, and the old one goes.
-- An error where the application made something of its own that depends on the old one: it is to be made again.
create or replace function rowbell.replace_function(old text, new regprocedure) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  caller regrole;
begin
  if to_regprocedure(old) is null then
    return;
  end if;
  for caller in
      select a.grantee from pg_proc f cross join aclexplode(f.proacl) a
       where f.oid = to_regprocedure(old) and a.privilege_type = 'EXECUTE' and a.grantee not in (0, f.proowner) loop
    execute format('grant execute on function %s to %s', new, caller);
  end loop;
  execute format('drop function %s', old);
end $$;
