-- Indexes: which rows a walk gave up, and the key by which a caller is told apart.
-- compatible_from: 6
-- Runs once, as rowbell_owner (with --no-roles: as whoever migrates), in one transaction.

alter table rowbell.index_walks
  add column refused      bigint not null default 0,      -- rows that are in no document, so far
  add column refused_rows text[] not null default '{}';   -- the first 20 of them: key and reason

-- One row: what the tickets of rowbell.caller are signed with (functions/caller.sql). Nobody is granted it.
create table rowbell.caller_key (
  key       text not null default replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''),
  singleton boolean primary key default true check (singleton)
);
insert into rowbell.caller_key default values;
