-- Who may do what with which subscription. Callers are names that rowbell.calls noted.

-- Two rights that no single function stands for. The functions do nothing: who has EXECUTE on one has the right.
-- administer: every subscription, type, event and job of the installation.
create or replace function rowbell.administer() returns void
language sql immutable set search_path = pg_catalog, pg_temp return null;
-- all_scopes: subscriptions that get the events of every scope.
create or replace function rowbell.all_scopes() returns void
language sql immutable set search_path = pg_catalog, pg_temp return null;

create or replace function rowbell.is_operator(caller name) returns boolean
language sql stable set search_path = pg_catalog, pg_temp
return has_function_privilege(caller, 'rowbell.administer()', 'execute');

-- What a role owns may be changed by its members and by operators; what belongs to a role that is gone, by operators.
create or replace function rowbell.may_manage(caller name, owner name) returns boolean
language sql stable set search_path = pg_catalog, pg_temp
return rowbell.is_operator(caller) or exists (select from pg_roles r where r.rolname = owner and pg_has_role(caller, r.oid, 'usage'));

-- The subscription of this name, if the caller may manage it, else NULL: nobody is told of what is not theirs. change: its row is
-- locked; rows of others never are.
create or replace function rowbell.subscription_find(caller name, name text, change boolean default false) returns rowbell.subscriptions
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  found_row rowbell.subscriptions;
begin
  if change then
    select * into found_row from rowbell.subscriptions s
     where s.name = subscription_find.name and rowbell.may_manage(caller, s.owner) for no key update;
  else
    select * into found_row from rowbell.subscriptions s
     where s.name = subscription_find.name and rowbell.may_manage(caller, s.owner);
  end if;
  return found_row;
end $$;

-- The same, or an error, which is one for names that are not there and for those of others.
create or replace function rowbell.subscription_require(caller name, name text, change boolean default false) returns rowbell.subscriptions
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  found_row rowbell.subscriptions := rowbell.subscription_find(caller, name, change);
begin
  if found_row.id is null then
    raise exception 'rowbell: there is no subscription named %', coalesce(quote_literal(name), 'NULL') using errcode = 'undefined_object',
      hint = case when rowbell.is_operator(caller) then 'See rowbell subscription list.'
                  else format('If there is one, it belongs to another role than %I: see rowbell.set_subscription_owner.', caller) end;
  end if;
  return found_row;
end $$;

-- An array of texts among the arguments of a call; NULL: there is none.
create or replace function rowbell.call_texts(arguments jsonb, key text) returns text[]
language sql immutable set search_path = pg_catalog, pg_temp
return case when jsonb_typeof(arguments -> key) = 'array' then array(select jsonb_array_elements_text(arguments -> key)) end;

-- One more subscription for an owner: an error when it has as many as it may.
create or replace function rowbell.owner_limit_check(owner name) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  most constant int := (select i.most_per_owner from rowbell.installation i);
begin
  if not rowbell.is_operator(owner)
     and (select count(*) from (select from rowbell.subscriptions s where s.owner = owner_limit_check.owner limit most) as few) >= most then
    raise exception 'rowbell: role % has % subscriptions, as many as it may', quote_ident(owner), most
      using errcode = 'configuration_limit_exceeded', hint = 'The limit is rowbell.installation.most_per_owner.';
  end if;
end $$;

-- A scope where a caller names one, as it is stored. NULL: none was named.
create or replace function rowbell.scope_named(scope text) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  if scope in ('', '*') then
    raise exception 'rowbell: the scope may not be %', quote_literal(scope) using errcode = 'invalid_parameter_value',
      hint = 'Rowbell keeps * and the empty text for itself, so that no tenant''s name can mean every scope.';
  end if;
  return rowbell.scope_of(scope);
end $$;

-- The scope of a subscription, as it is stored; NULL: all scopes. Operators may leave the scope out. Everybody else names one, or
-- says all_scopes and has that right: an application that has lost its tenant's name must not be given every tenant's events.
create or replace function rowbell.subscription_scope(caller name, scope text, all_scopes boolean) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  if all_scopes and scope is not null then
    raise exception 'rowbell: give a scope, or all_scopes, not both' using errcode = 'invalid_parameter_value';
  end if;
  if scope is null and not coalesce(all_scopes, false) and not rowbell.is_operator(caller) then
    raise exception 'rowbell: the scope is missing' using errcode = 'invalid_parameter_value',
      hint = 'Give scope => ''...'', or all_scopes => true for the events of every scope.';
  end if;
  if scope is null and not has_function_privilege(caller, 'rowbell.all_scopes()', 'execute') then
    raise exception 'rowbell: role % may not subscribe to all scopes', quote_ident(caller) using errcode = 'insufficient_privilege',
      hint = format('Give a scope, or let an owner of the schema: grant execute on function rowbell.all_scopes() to %I.', caller);
  end if;
  return rowbell.scope_named(scope);
end $$;

-- Gives a subscription to another role. False: there is no subscription of this name. A caller who is no operator must be a
-- member of both roles.
create or replace function rowbell.set_subscription_owner(name text, owner name) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  answer jsonb;
begin
  insert into rowbell.calls (name, arguments)
    values ('set_subscription_owner', jsonb_build_object('name', name, 'owner', owner)) returning result into answer;
  return answer::boolean;
end $$;

create or replace function rowbell.set_subscription_owner_as(caller name, arguments jsonb) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  new_owner constant name := arguments ->> 'owner';
  found_row rowbell.subscriptions := rowbell.subscription_find(caller, arguments ->> 'name', true);
begin
  if not exists (select from pg_roles r where r.rolname = new_owner) then
    raise exception 'rowbell.set_subscription_owner: there is no role %', coalesce(quote_ident(new_owner), 'NULL') using errcode = 'undefined_object';
  end if;
  if not rowbell.may_manage(caller, new_owner) then
    raise exception 'rowbell.set_subscription_owner: must be a member of role %', quote_ident(new_owner) using errcode = 'insufficient_privilege';
  end if;
  if found_row.id is null then
    return to_jsonb(false);
  end if;
  -- An index reads what its owner may read, so its target gets what the new owner sees: operators are no exception.
  if found_row.kind = 'index' and not pg_has_role(caller, new_owner, 'usage') then
    raise exception 'rowbell.set_subscription_owner: must be a member of role %, with whose rights the index will read', quote_ident(new_owner)
      using errcode = 'insufficient_privilege';
  end if;
  if found_row.owner <> new_owner then
    perform rowbell.owner_limit_check(new_owner);
    update rowbell.subscriptions s set owner = new_owner where s.id = found_row.id;
  end if;
  return to_jsonb(true);
end $$;
