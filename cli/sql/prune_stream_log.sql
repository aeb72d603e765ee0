-- A step of pruning; never the newest entry. $1 retention in milliseconds. One row: how many went. Locks: the rows it deletes.
-- Index: stream_log_pkey.
select rowbell.prune_stream_log($1::bigint);
