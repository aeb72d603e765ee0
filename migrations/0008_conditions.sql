-- A condition that was too slow, or is none that may be, is put aside: it is not evaluated any more.
-- compatible_from: 1
-- Runs once, as rowbell_owner (with --no-roles: as whoever migrates), in one transaction.

alter table rowbell.subscriptions add column condition_aside boolean not null default false;
