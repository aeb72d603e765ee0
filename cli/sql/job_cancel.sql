-- Gives a job up. $1 subscription, $2 the event's seq or UUID, as text. One row: was there one? Locks: the job.
select rowbell.cancel_job($1, case when $2 ~ '^[0-9]+$' then $2::bigint else rowbell.event_seq($2::uuid) end) as cancelled;
