-- What delivery remembers of jobs and endpoints: retries that do not count, order by subject, release after a pause, alerts.
-- compatible_from: 1
-- Runs once, as rowbell_owner (with --no-roles: as whoever migrates), in one transaction.

-- Three small numbers fill the row's padding: a job is as many bytes as before.
alter table rowbell.jobs
  add column uncounted  smallint not null default 0,   -- of the attempts, those that use up no retry: lost and manual ones
  add column lost       smallint not null default 0,   -- in a row, up to now: attempts whose process died
  add column lost_alone smallint not null default 0;   -- of these, while the process sent nothing else

alter table rowbell.jobs_waiting
  add column uncounted smallint not null default 0,
  add column subject   text,                           -- of ordered subscriptions only: the order is kept per subject
  add column blocked   boolean not null default false; -- held behind an earlier job of its subject
create index jobs_waiting_subject on rowbell.jobs_waiting (subscription_id, subject, event_seq) where subject is not null;

-- What comes back when its subscription is active again.
create index jobs_waiting_held on rowbell.jobs_waiting (subscription_id, event_seq) where state = 'held' and not blocked;

alter table rowbell.attempts add column alone boolean not null default false;  -- nothing else was in flight in its process

insert into rowbell.event_types (type, description, webhook) values
  ('rowbell.event.poisoned', 'An event was given up by the relay and waits for a person', true),
  ('rowbell.job.poisoned', 'Jobs were given up and wait for a person', true),
  ('rowbell.subscription.disabled', 'A subscription was disabled: by its receiver, or after days without a success', true),
  ('rowbell.backlog', 'Work waits for longer than it should', true);
