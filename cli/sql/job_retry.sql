-- Sends an event to a subscription now. $1 subscription, $2 the event's seq or UUID, as text. One row: what its job was, or
-- NULL. Locks: the job.
select rowbell.retry_job($1, case when $2 ~ '^[0-9]+$' then $2::bigint else rowbell.event_seq($2::uuid) end) as was;
