-- Who calls? A function that runs with our rights cannot tell: its current_user is its owner, and session_user stays a superuser's
-- while an autovacuum, or a function of somebody else, runs other people's code. So what depends on the caller is a call: a row
-- inserted into this view, by a function that runs with the caller's own rights. Two INSTEAD OF triggers handle it. The first runs
-- as the caller and notes current_user and lastval(), as PostgreSQL sees them. The second runs as the schema's owner and does the work for that
-- role. Nothing is stored, and a caller who inserts by hand gains nothing: the name is noted all the same.
--
-- A call of NAME is done by rowbell.NAME_as(caller name, arguments jsonb) returns jsonb. Who has EXECUTE on rowbell.NAME may make it.
create or replace view rowbell.calls as
  select null::text as name, null::jsonb as arguments, null::name as caller, null::jsonb as result, null::bigint as lastval where false;

create or replace function rowbell.calls_note_caller() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  new.caller := current_user;
  new.lastval := rowbell.lastval_kept();
  return new;
end $$;

create or replace function rowbell.calls_run() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  worker constant regprocedure := to_regprocedure(format('rowbell.%I(name, jsonb)', concat(new.name, '_as')));
begin
  if worker is null or not exists (select from pg_proc f where f.pronamespace = 'rowbell'::regnamespace and f.proname = new.name
                                                           and has_function_privilege(new.caller, f.oid, 'execute')) then
    raise exception 'permission denied for function rowbell.%', coalesce(quote_ident(new.name), 'NULL')
      using errcode = 'insufficient_privilege';
  end if;
  execute format('select rowbell.%I($1, $2)', new.name || '_as') into new.result using new.caller, new.arguments;
  new.lastval := rowbell.lastval_put(new.lastval);
  return new;
end $$;

-- Triggers of the same kind fire in the order of their names.
create or replace trigger calls_1_note_caller instead of insert on rowbell.calls
  for each row execute function rowbell.calls_note_caller();
create or replace trigger calls_2_run instead of insert on rowbell.calls
  for each row execute function rowbell.calls_run();
