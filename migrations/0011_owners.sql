-- Subscriptions and declared types have an owner.
-- compatible_from: 6
-- Runs once, as rowbell_owner (with --no-roles: as whoever migrates), in one transaction.

-- A role's name, not its number: a dump is restored where numbers differ. What is there already belongs to the schema's owner:
-- only operators may change it, until rowbell.set_subscription_owner gives it to the application's role.
alter table rowbell.subscriptions add column owner name not null default current_user;
alter table rowbell.event_types   add column owner name not null default current_user;
create index subscriptions_owner on rowbell.subscriptions (owner);
create index event_types_owner on rowbell.event_types (owner) where relation is null;

-- How many subscriptions, and how many declared types, one role may own. Operators have no limit.
alter table rowbell.installation add column most_per_owner int not null default 10000 check (most_per_owner >= 0);
