-- Gives a subscription the events that it wants and never got. $1 subscription, $2 since, $3 until or NULL, $4 the last seq of
-- the step before (0: none), $5 events to look at, $6 dry run. One row: queued, last_seq (NULL: the end), looked_at. Locks: the
-- events that get a job. Index: events_pkey.
select r.queued, r.last_seq, r.looked_at
  from rowbell.replay($1, $2::timestamptz, $3::timestamptz, $4::bigint, $5::int, $6::boolean) as r;
