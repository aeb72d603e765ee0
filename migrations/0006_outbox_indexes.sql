-- The outbox's indexes: the events that failed in the relay are in a table instead of one; the primary key leaves room.
-- compatible_from: 6
-- Runs once, as rowbell_owner (with --no-roles: as whoever migrates), in one transaction.
-- Stop the relays of an earlier version first: compatible_from keeps them from connecting again, but one that is connected would
-- set events aside without listing them.

-- Each index of the outbox, partial or not, costs every captured statement 7 % of what capture costs; failures are few.
drop index rowbell.events_set_aside;

-- A row for each event whose retry_at is set and that is not fanned out. Kept by relay/sql/fail.sql, fan_out.sql,
-- rowbell.requeue_events and cancel_event; rowbell.events says what is true of an event.
create table rowbell.events_set_aside (
  event_seq bigint primary key,
  subject   text,
  retry_at  timestamptz   -- NULL: poisoned
);
create index events_set_aside_due on rowbell.events_set_aside (retry_at) where retry_at is not null;
create index events_set_aside_subject on rowbell.events_set_aside (subject, event_seq);

insert into rowbell.events_set_aside
select e.seq, e.subject, case when e.poisoned_at is null then e.retry_at end
  from rowbell.events e where e.retry_at is not null and e.fanned_out_at is null;

-- Fanning out marks a row once, which gives its key a second entry beside the first. With room for it no page is split then, and
-- the index is as large afterwards: 4 % of a pass of the relay.
alter index rowbell.events_pkey set (fillfactor = 50);
