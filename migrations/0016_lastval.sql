-- lastval() of an application stays its own, and a table may be captured as a collection.
-- compatible_from: 6
-- Runs once, as rowbell_owner (with --no-roles: as whoever migrates), in one transaction.

-- What lastval() means after Rowbell took a number (functions/lastval.sql). Any value may be put into it, so that nextval must not end at
-- the greatest one. Its numbers are each session's own; nothing is lost with it in a crash.
create unlogged sequence rowbell.lastval minvalue -9223372036854775808 cycle;

alter table rowbell.published
  add column capture text not null default 'rows' check (capture in ('rows', 'collection')),
  add column lastval boolean;   -- do statements on it keep lastval(); NULL: where a column takes numbers of a sequence
