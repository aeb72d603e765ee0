-- A step of pruning. $1 retention in milliseconds, $2 the seq to begin after. One row: how many went, how far it looked (NULL: to the
-- end). Locks: the rows it deletes. Indexes: events_pkey, jobs_waiting_event, jobs_pkey.
select p.pruned, p.last_seq from rowbell.prune_events($1::bigint, $2::bigint) as p;
