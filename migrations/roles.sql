-- Roles: an owner nobody logs in as, and one group for each kind of program. Skipped by `migrate --no-roles`.
-- Roles belong to the cluster and are shared by its databases. Grant the groups to the logins of your programs:
--   grant rowbell_relay to relay_login;
do $$
declare
  role_name text;
begin
  foreach role_name in array array['rowbell_owner', 'rowbell_app', 'rowbell_publish', 'rowbell_index', 'rowbell_trusted', 'rowbell_relay',
                                   'rowbell_dispatcher', 'rowbell_gateway', 'rowbell_operator'] loop
    begin
      if to_regrole(role_name) is null then
        execute format('create role %I nologin', role_name);
      end if;
    exception when duplicate_object or unique_violation then
      null;   -- another database of this cluster was migrated at the same moment
    end;
  end loop;
  if not pg_has_role(current_user, 'rowbell_owner', 'member') then
    execute format('grant rowbell_owner to %I', current_user);
  end if;
end $$;
