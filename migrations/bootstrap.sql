-- The schema, and the record of what was applied. Runs at every `rowbell migrate`, before anything else; the owner is
-- rowbell_owner where that role exists and roles are wanted, else whoever migrates.
do $$
begin
  if to_regnamespace('rowbell') is null then
    if current_setting('rowbell.no_roles', true) is distinct from 'on' then
      create schema rowbell authorization rowbell_owner;
    else
      create schema rowbell;
    end if;
  end if;
end $$;
create table if not exists rowbell.migrations (
  name            text primary key,     -- 0001_outbox, functions/publish, grants
  version         int unique,           -- the number of a table migration; NULL for what is re-applied when it changes
  compatible_from int,                  -- the oldest program that may run on this version
  checksum        text not null,        -- SHA-256 of the file
  applied_at      timestamptz not null default now()
);
