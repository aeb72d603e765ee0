-- lastval() is the value of the sequence that the session used last, and drivers ask for it (PDO's lastInsertId). Each event takes
-- a number of rowbell.events, so what the writer had is kept before and put back afterwards. PostgreSQL tells it only to those who may
-- read the sequence: it is read with the writer's rights, by a trigger before the one that captures (capture_body), by the default
-- of an argument (record), or by the trigger that notes the caller (calls).

-- The caller's lastval(). NULL: there is none, or it is not the caller's to read. Runs as the caller, so every name in it is qualified.
create or replace function rowbell.lastval_kept() returns bigint
language plpgsql as $$
begin
  if pg_catalog.current_setting('exit_on_error')::pg_catalog.bool then
    return null;   -- an error that is handled here would end the session
  end if;
  return pg_catalog.lastval();
exception when others then
  return null;
end $$;

-- Makes it what lastval() is; NULL: leaves that as it is. The session has the value for itself: other sessions can read from the sequence
-- that it is at 1. One expression, which PostgreSQL puts in the place of the call; each argument is made before its call.
create or replace function rowbell.lastval_put(kept bigint) returns bigint
language sql volatile
return case when kept is not null then
  setval('rowbell.lastval'::regclass, case when setval('rowbell.lastval'::regclass,
    case when nextval('rowbell.lastval'::regclass) is not null then kept end) is not null then 1 end, false) end;
