-- Gives a poisoned event up. $1 the event's seq or UUID, as text. One row: was there such a one? Locks: the event, blocked jobs
-- of its subject.
select rowbell.cancel_event(case when $1 ~ '^[0-9]+$' then $1::bigint else rowbell.event_seq($1::uuid) end) as cancelled;
