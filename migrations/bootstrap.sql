-- The schema, and the record of what was applied. Runs at every `rowbell migrate`, before anything else. Where roles are wanted it
-- ends as rowbell_owner, so that all that follows is made by it; a login may be allowed to become that role without having its
-- rights before. Else the owner is whoever migrates. What is there already was judged by verify.sql.
do $$
declare
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
end $$;
