-- Roles: an owner nobody logs in as, one group for each kind of program, and one for each right of applications. Skipped by
-- `migrate --no-roles`. Roles belong to the cluster and are shared by its databases. Grant the groups to the logins of your programs:
--   grant rowbell_relay to relay_login;
do $$
declare
  role_name text;
  command text;
begin
  foreach role_name in array array['rowbell_owner', 'rowbell_app', 'rowbell_record', 'rowbell_publish', 'rowbell_subscribe', 'rowbell_index',
                                   'rowbell_trusted', 'rowbell_relay', 'rowbell_dispatcher', 'rowbell_gateway', 'rowbell_operator'] loop
    begin
      if to_regrole(role_name) is null then
        command := format('create role %I nologin', role_name);
        execute command;
      end if;
    exception when duplicate_object or unique_violation then
      null;   -- another database of this cluster was migrated at the same moment
    end;
  end loop;
  -- The usual rights of an application, in one group.
  foreach role_name in array array['rowbell_record', 'rowbell_subscribe'] loop
    if not pg_has_role('rowbell_app', role_name, 'member') then
      begin
        command := format('grant %I to rowbell_app', role_name);
        execute command;
      exception when unique_violation then
        null;
      end;
    end if;
  end loop;
  -- Since PostgreSQL 16 who makes a role is a member that may not use it, and each membership says whether SET ROLE is allowed.
  if not pg_has_role(current_user, 'rowbell_owner', case when current_setting('server_version_num')::int >= 160000 then 'set' else 'member' end) then
    command := format('grant rowbell_owner to %I%s', current_user,
                      case when current_setting('server_version_num')::int >= 160000 then ' with set true' else '' end);
    execute command;
  end if;
exception when insufficient_privilege then
  raise exception '%', sqlerrm using hint = format('run this once as who may (a superuser, or CREATEROLE), then migrate again: %s', command);
end $$;
