-- What a sealed secret is bound to: it opens for the subscription of this id and for one use (common/seal.h).
-- compatible_from: 1
-- Runs once, as rowbell_owner (with --no-roles: as whoever migrates), in one transaction.

-- Never from a caller, and never changed.
alter table rowbell.subscriptions
  add column seal_id uuid not null unique default gen_random_uuid();
