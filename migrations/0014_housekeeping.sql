-- What housekeeping cannot do now: a row for each chore that fails, until it succeeds. The housekeeper writes it, doctor shows it.
-- compatible_from: 6
-- Runs once, as rowbell_owner (with --no-roles: as whoever migrates), in one transaction.

create table rowbell.housekeeping (
  chore         text primary key,
  failing_since timestamptz not null,
  failed_at     timestamptz not null,   -- the last time
  failures      bigint not null,
  error         text not null
);
