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

-- The sequence that this session uses; names that a dump keeps.
create or replace function rowbell.lastval_sequence() returns regclass
language sql stable
return (array[
  'rowbell.lastval_0'::regclass, 'rowbell.lastval_1'::regclass, 'rowbell.lastval_2'::regclass, 'rowbell.lastval_3'::regclass,
  'rowbell.lastval_4'::regclass, 'rowbell.lastval_5'::regclass, 'rowbell.lastval_6'::regclass, 'rowbell.lastval_7'::regclass,
  'rowbell.lastval_8'::regclass, 'rowbell.lastval_9'::regclass, 'rowbell.lastval_10'::regclass, 'rowbell.lastval_11'::regclass,
  'rowbell.lastval_12'::regclass, 'rowbell.lastval_13'::regclass, 'rowbell.lastval_14'::regclass, 'rowbell.lastval_15'::regclass])[1 + pg_backend_pid() % 16];

-- Makes it what lastval() is; NULL: leaves that as it is. The session has the value for itself: other sessions can read from the sequence
-- that it is at 1. One expression, which PostgreSQL puts in the place of the call; each argument is made before its call.
create or replace function rowbell.lastval_put(kept bigint) returns bigint
language sql volatile
return case when kept is not null then
  setval(rowbell.lastval_sequence(), case when setval(rowbell.lastval_sequence(),
    case when nextval(rowbell.lastval_sequence()) is not null then kept end) is not null then 1 end, false) end;
